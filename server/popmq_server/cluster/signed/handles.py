"""Handles of deliveries: the broker's own handle of a pop, its topic, and a signature over both and the group.

    content   version [1] · kind of topic [1] · broker's length [1] · queue [2] · revive queue [2] · offset [8] ·
              distance of the CheckPoint's start from it [4] · popped ms [8] · lease ms [4] · attempt [1] · broker ·
              topic

Any gateway with the secret acks a delivery of another one: nothing has to be remembered. Brokers let anybody ack
anything, so the signature is the only guard of acks. The last handles that this gateway made are not read again, which
costs seven times as much as finding them. A broker also answers OK to an ack that is late; so a gateway says that a
delivery is over, by the broker's clock. A handle has at most 150 characters while the names of broker and topic have
70 together, and 334 with the longest names.
"""

import functools
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from popmq_remoting.errors import BadFormat
from popmq_remoting.pops.handles import PopHandle
from popmq_server.cluster.signed.secrets import BadText, Secrets
from popmq_server.errors import Refused, bad_handle, lapsed

_VERSION = 1
_KIND = b"popmq handle"
_FIELDS = struct.Struct(">BBBHHqIQIB")
#: The highest attempt that a handle names.
_ATTEMPT_MAX = 255
#: Handles that are remembered at least, if so many were made; twice as many at most: some 5 MB.
MADE_MIN = 4_096


class SignedDelivery(NamedTuple):
    """What a handle names: the topic as brokers call it, never a retry topic, and the broker's own handle.

    `attempt`: which one this delivery is, from 1; read from a text, 255 stands for all from there on.
    """

    topic: str
    handle: PopHandle
    attempt: int = 1


class Handles:
    """Makes and reads handles with the secrets of the gateways."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets
        #: What was signed with these secrets, with its group: the newest, and those before.
        self._made: dict[str, tuple[SignedDelivery, str]] = {}
        self._made_before: dict[str, tuple[SignedDelivery, str]] = {}
        self._version = secrets.version

    def write(self, delivery: SignedDelivery, group: str) -> bytes:
        """The handle's text, as ASCII bytes. Raises BadFormat for a handle that no broker gives."""
        text = self._secrets.sign(_KIND, _content(delivery), group.encode())
        if len(self._made) >= MADE_MIN:
            self._made, self._made_before = {}, self._made
        if delivery.attempt <= _ATTEMPT_MAX:
            self._made[text.decode()] = delivery, group
        return text

    def read(self, text: str, group: str, field: str = "handle") -> SignedDelivery:
        """What a text names. Raises Refused INVALID_HANDLE: damaged, of another group, or of another secret."""
        if self._version != self._secrets.version:
            self._made, self._made_before, self._version = {}, {}, self._secrets.version
        made = self._made.get(text) or self._made_before.get(text)
        if made is not None and made[1] == group:
            return made[0]
        try:
            return _delivery(self._secrets.open(_KIND, text, group.encode()))
        except BadText as bad:
            raise bad_handle(field, f"this handle {bad}") from None

    def each(self, texts: Sequence[str], group: str, now_ms: Callable[[str], int]) -> list[SignedDelivery | Refused]:
        """Reads the handles of a request one by one; one that is bad, or whose lease is over, becomes its Refused.

        `now_ms`: the clock of a broker, by its name.
        """
        found: list[SignedDelivery | Refused] = []
        times: dict[str, int] = {}
        for index, text in enumerate(texts):
            try:
                delivery = self.read(text, group)
            except Refused as refused:
                refused.field = f"handles[{index}]"
                found.append(refused)
                continue
            broker = delivery.handle.broker
            time_ms = times.get(broker)
            if time_ms is None:
                time_ms = times[broker] = now_ms(broker)
            found.append(lapsed(f"handles[{index}]") if is_over(delivery.handle, time_ms) else delivery)
        return found


def is_over(handle: PopHandle, now_ms: int) -> bool:
    """Whether its lease has ended, at a time of its broker's clock.

    An ordered delivery keeps its handle when it is renewed, so only its broker knows.
    """
    return not handle.is_ordered and now_ms >= handle.lapses_ms


def _content(delivery: SignedDelivery) -> bytes:
    topic, handle, attempt = delivery
    start, pop_ms, invisible_ms, revive, kind, broker, queue, offset = handle
    length, named = _names(broker, topic)
    try:
        return (
            _FIELDS.pack(
                *(_VERSION, int(kind), length, queue, revive, offset, offset - start, pop_ms, invisible_ms),
                min(attempt, _ATTEMPT_MAX),
            )
            + named
        )
    except struct.error:
        raise BadFormat(f"the handle {handle.text()!r} has numbers that no broker gives") from None


@functools.lru_cache(maxsize=4096)
def _names(broker: str, topic: str) -> tuple[int, bytes]:
    """The bytes of the broker's name, and both names."""
    first = broker.encode()
    return len(first), first + topic.encode()


@functools.lru_cache(maxsize=4096)
def _texts(length: int, named: bytes) -> tuple[str, str]:
    """What `_names` was made of."""
    return named[:length].decode(), named[length:].decode()


def _delivery(content: bytes) -> SignedDelivery:
    """Raises BadText for the content of another version; all else is as this gateway or another one has signed it."""
    if content[0] != _VERSION or len(content) < _FIELDS.size:
        raise BadText("is of another version of PopMQ")
    _, kind, length, queue, revive, offset, distance, pop_ms, invisible_ms, attempt = _FIELDS.unpack_from(content)
    broker, topic = _texts(length, content[_FIELDS.size :])
    handle = PopHandle(offset - distance, pop_ms, invisible_ms, revive, str(kind), broker, queue, offset)
    return SignedDelivery(topic, handle, attempt)
