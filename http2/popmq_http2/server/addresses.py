"""The state of each client address: its open connections, and whether one of them was a flood.

The budget of a connection (budget.py) ends a flood, but a new connection would start with a full one. An address that
has flooded starts its next connections with few points, until the time in which a budget fills up has passed.

IPv6 clients are counted by their network of 64 bits: one host can use any address in it.
"""

from __future__ import annotations

import asyncio
from ipaddress import IPv6Address, ip_address
from typing import Any

from popmq_http2.elapsed import monotonic
from popmq_http2.limits import Limits

#: Points of a connection from an address that has flooded: enough for the SETTINGS, window updates and pings of an
#: honest client behind the same address; with its answered calls it earns more.
CAUTIOUS_POINTS = 100
#: Floods that are remembered; with more, the oldest are forgotten first.
FLOODS_MAX = 10_000
_NETWORK_BITS = 64


class Addresses:
    """Counts connections by address. An address of "" is not known (a unix socket), and not limited."""

    __slots__ = ("_floods", "_limits", "_open")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._open: dict[str, int] = {}
        self._floods: dict[str, float] = {}

    def join(self, address: str) -> bool:
        """Counts a new connection; whether the address may have it."""
        if not address:
            return True
        count = self._open[address] = self._open.get(address, 0) + 1
        return count <= self._limits.connections_per_address

    def leave(self, address: str) -> None:
        """Removes a connection that has joined, whether or not it was allowed."""
        if address:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]

    def flooded(self, address: str) -> None:
        """Notes that a connection has used up its budget."""
        if address:
            self._floods.pop(address, None)
            if len(self._floods) >= FLOODS_MAX:
                del self._floods[next(iter(self._floods))]
            self._floods[address] = monotonic()

    def points(self, address: str) -> int:
        """The budget with which a new connection starts."""
        limits = self._limits
        at_s = self._floods.get(address)
        if at_s is None:
            return limits.budget
        if monotonic() - at_s < limits.budget / max(limits.budget_per_s, 1):
            return min(CAUTIOUS_POINTS, limits.budget)
        del self._floods[address]
        return limits.budget


def counted(host: str) -> str:
    """The address as it is counted: an IPv4 address, or the network of an IPv6 address."""
    address = ip_address(host.partition("%")[0])
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(IPv6Address(int(address) >> (128 - _NETWORK_BITS) << (128 - _NETWORK_BITS)))
    return str(address)


def shown(name: Any) -> str:
    """A socket's address in grpcio's format."""
    if not isinstance(name, tuple):
        return "unix:"
    host, port = name[:2]
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"


def auth_context(transport: asyncio.Transport | None) -> dict[str, list[bytes]]:
    """What TLS tells of a client, as grpcio shows it: `transport_security_type`, and the names in its verified
    certificate, if it has one. Empty without TLS.
    """
    secured: Any = transport.get_extra_info("ssl_object") if transport is not None else None
    found: Any = (secured.getpeercert() if secured is not None else None) or {}
    common = [value for part in found.get("subject", ()) for name, value in part if name == "commonName"]
    others = [(kind, value) for kind, value in found.get("subjectAltName", ()) if isinstance(value, str)]
    names = {"x509_common_name": common, "x509_subject_alternative_name": [value for _, value in others]}
    names |= {f"peer_{kind.lower()}": [value for of, value in others if of == kind] for kind in ("DNS", "URI")}
    names["transport_security_type"] = ["ssl"] if secured is not None else []
    return {kind: [value.encode() for value in values] for kind, values in names.items() if values}


def address_of(transport: asyncio.Transport) -> str:
    """The client's address as its connections are counted; "" for a unix socket."""
    name: Any = transport.get_extra_info("peername")
    return counted(name[0]) if isinstance(name, tuple) else ""
