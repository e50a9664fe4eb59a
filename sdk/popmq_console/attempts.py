"""Attempts to log in: their number within FAILED_S by address, and by access key at each address.

    attempt ──▶ counted ──▶ the broker verifies the secret ──▶ wrong: it stays counted; else: it is taken back
       └── too many: refused, the broker is not asked

An attempt is counted before the broker is asked, so that attempts at the same time count too. No count is for a key
alone: a stranger could then lock out the key's owner.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address

import popmq

#: Failed attempts within FAILED_S with one key from one address, and with all keys from one address.
FAILED_MAX = 20
FAILED_ADDRESS_MAX = 100
FAILED_S = 60.0
#: Counts that are kept, some 3 MB; with more, the oldest are forgotten first. A full table refuses no attempt.
COUNTS_MAX = 10_000
#: The longest name of an access key.
NAME_LETTERS = 64
NETWORK_BITS = 64


class TooManyAttempts(popmq.errors.TryLater):
    """Too many attempts from this address have failed within FAILED_S."""


@dataclass(slots=True)
class Count:
    """The attempts since the first one, until `ends_s`."""

    ends_s: float
    attempts: int = 0


class Attempts:
    """Counts attempts. `clock`: seconds that only grow.

    Secrets are random and cannot be guessed. This bounds the cost of a flood of attempts: the broker verifies each.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: dict[tuple[str, ...], Count] = {}  # the first to end comes first

    def begin(self, address: str, name: str) -> Callable[[], None]:
        """Counts an attempt; returns the function that takes it back. Raises TooManyAttempts.

        A refused address adds no count of a further key, so that one address cannot fill the table.
        """
        self._forget()
        counts: list[Count] = []
        for key, most in (((address,), FAILED_ADDRESS_MAX), ((address, name), FAILED_MAX)):
            count = self._counts.get(key) or Count(self._clock() + FAILED_S)
            if count.attempts >= most:
                raise TooManyAttempts("Too many attempts have failed. Wait a minute, then try again.")
            self._counts[key] = count
            counts.append(count)
        for count in counts:
            count.attempts += 1

        def take_back() -> None:
            for count in counts:
                count.attempts -= 1

        return take_back

    def _forget(self) -> None:
        """Drops counts that have ended, and makes room for two."""
        now_s = self._clock()
        while self._counts:
            key = next(iter(self._counts))
            if self._counts[key].ends_s > now_s and len(self._counts) <= COUNTS_MAX - 2:
                return
            del self._counts[key]


def counted(host: str) -> str:
    """The address as it is counted: an IPv4 address, or the network of an IPv6 address, since a host has all of it.

    Raises ValueError.
    """
    address = ip_address(host.partition("%")[0])
    if not isinstance(address, IPv6Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(IPv6Address(int(address) >> (128 - NETWORK_BITS) << (128 - NETWORK_BITS)))
