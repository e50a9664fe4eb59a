"""The target of a connection: the address in gRPC's notation, TLS, and the pauses between attempts.

    host:port    dns:host:port    dns:///host:port    [::1]:port    ipv4:1.2.3.4:port    ipv6:[::1]:port    unix:path

Without a port it is 443, as for gRPC. A name is resolved for each attempt, and its addresses are tried in order, each
for its share of the attempt's time.
Proxies of the environment are not used.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

from popmq_http2.limits import Limits

if TYPE_CHECKING:
    import ssl

_PORT = "443"


@dataclass(frozen=True)
class Target:
    """An address to connect to: the path of a unix socket, or host and port. `authority`: its name in requests."""

    host: str
    port: str
    path: str
    authority: str


def target(text: str) -> Target:
    """Reads an address. Raises ValueError."""
    scheme, found, rest = text.partition(":")
    if found and scheme == "unix":
        path = rest.removeprefix("//") if rest.startswith("///") else rest
        if not path:
            raise ValueError(f"{text!r} names no socket")
        return Target("", "", path, "localhost")
    if found and scheme in ("dns", "ipv4", "ipv6"):
        text = rest.rpartition("/")[2]  # dns://a-name-server/host: the system's resolver is used
    host, port = _split(text)
    if not host or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{text!r} is not host:port")
    return Target(host, port, "", text)


def _split(text: str) -> tuple[str, str]:
    """(host, port); the host without brackets."""
    if text.startswith("["):
        host, _, port = text[1:].partition("]")
        return host, port.removeprefix(":") or _PORT
    if text.count(":") > 1:
        with contextlib.suppress(OSError):
            socket.inet_pton(socket.AF_INET6, text.partition("%")[0])
            return text, _PORT
        return "", ""
    host, _, port = text.partition(":")
    return host, port or _PORT


#: (family, address): a result of socket.getaddrinfo, in the form that sockets take.
Address = tuple[int, "tuple[str, int] | str"]


def addresses(where: Target, flags: int = 0) -> list[Address]:
    """The addresses of a target. `flags`: of getaddrinfo. Raises OSError."""
    if where.path:
        if not hasattr(socket, "AF_UNIX"):
            raise OSError("unix sockets need another system than this one")
        return [(socket.AF_UNIX, where.path)]
    # As bytes, if it is ASCII: Python imports a database of names for text.
    host = where.host.encode() if where.host.isascii() else where.host
    try:
        found = socket.getaddrinfo(host, int(where.port), type=socket.SOCK_STREAM, flags=flags)
    except UnicodeError as error:
        raise OSError(f"{where.host} cannot be a name: {error}") from error
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))  # type: ignore[misc]  # each family has addresses of its own form


def attempt_failed(error: BaseException) -> str:
    """Why connecting failed, in the words of the operating system where it has some."""
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and type(error).__module__ != "ssl" and (error.errno or 0) > 0:
        text = os.strerror(error.errno or 0)
    return f"cannot connect: {text}"


def tls_context(ca: str | None = None) -> ssl.SSLContext:
    """TLS that offers HTTP/2 and checks the server's certificate: against `ca` (PEM), else as the system does."""
    import ssl

    # Python takes ASCII only, and many files of authorities have names in other letters beside the certificates.
    context = ssl.create_default_context(cadata=ca and ca.encode("ascii", "ignore").decode())
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Newer Pythons refuse certificates without fields that gRPC and browsers do not need.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    context.set_alpn_protocols(["h2"])
    return context


#: Limits of a client: an answer may have 32 MiB; a server may not flood it with frames that say nothing.
CLIENT_LIMITS = Limits(message_bytes=32 << 20, stream_window=4 << 20)


@dataclass(frozen=True)
class Options:
    """How a channel keeps its connection. Times in seconds.

    Backoff follows gRPC's document on it: `backoff_first_s`, each pause 1.6 times the last, at most `backoff_max_s`,
    with a jitter of a fifth. `keepalive_s`: silence after which a server that has calls to answer is asked for a sign,
    which it must give in `keepalive_timeout_s`.
    """

    limits: Limits = CLIENT_LIMITS
    agent: str = "grpc-python-popmq-http2"
    connect_s: float = 5.0
    backoff_first_s: float = 0.1
    backoff_max_s: float = 1.0
    keepalive_s: float = 30.0
    keepalive_timeout_s: float = 10.0


_FACTOR, _JITTER = 1.6, 0.2


class Backoff:
    """The pauses after attempts to connect that failed one after another.

    Without the jitter all clients of a server that restarts would come back at the same moments.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._next_s = options.backoff_first_s

    def succeeded(self) -> None:
        """The next pause is the first again."""
        self._next_s = self._options.backoff_first_s

    def failed(self) -> float:
        """The pause before the next attempt."""
        pause = min(self._next_s, self._options.backoff_max_s)
        self._next_s = pause * _FACTOR
        return pause * random.uniform(1 - _JITTER, 1 + _JITTER)
