"""Counts a call against the limits of its access key: its connection, and its bytes until it is over.

Handlers call `admit` once they have the request, streams at their start (open_streams.py). A transport that tells when
a connection ends counts it until then; with grpcio a connection is counted while calls of the key run on it.
"""

import contextvars
from collections.abc import Callable

from popmq_server.protocols.access.access_keys import CALLER, Key
from popmq_server.protocols.access.call_context import CallContext
from popmq_server.protocols.access.key_limits import KeyUse

#: Adds the bytes of an answer to what a call has in flight.
Answered = Callable[[int], None]
#: The bytes that the running call has in flight; None without access keys.
IN_FLIGHT: contextvars.ContextVar["_Bytes | None"] = contextvars.ContextVar("popmq_in_flight", default=None)


def admit(context: CallContext, size: int) -> Answered | None:
    """Counts a call with a request of `size` bytes; None without access keys. Raises Refused RATE_LIMITED."""
    key = CALLER.get()
    if not isinstance(key, Key):
        return None
    connect(context, key)
    in_flight = _Bytes(context, key, size)
    IN_FLIGHT.set(in_flight)
    return in_flight.answered


def connect(context: CallContext, key: Key) -> None:
    """Counts the connection of a call. Raises Refused RATE_LIMITED."""
    peer, use = context.peer(), key.use
    until = getattr(context, "add_disconnect_callback", None) or context.add_done_callback
    if until == context.add_done_callback or not use.knows(peer):
        use.joins(key.limits, peer)
        until(lambda _: use.leaves(peer))


class _Bytes:
    """The bytes that one call has in flight: its request, then what was read for its answer, then the answer."""

    __slots__ = ("_key", "_read", "_reads", "_size", "_use")

    def __init__(self, context: CallContext, key: Key, size: int) -> None:
        self._key = key
        self._use: KeyUse = key.use
        self._use.begins(key.limits, size)
        self._size = size
        #: Bytes that were read; and the part of them for which no answer has been written yet.
        self._reads = self._read = 0
        context.add_done_callback(self._over)

    def reads(self, size: int) -> None:
        """Counts messages that were read for the answer. Raises Refused RATE_LIMITED."""
        self._use.reads(self._key.limits, size)
        self._reads += size
        self._read += size
        self._size += size

    def answered(self, size: int) -> None:
        """Counts an answer, or a part of one, in place of what was read for it."""
        more = size - min(size, self._read)
        self._read -= size - more
        self._size += more
        self._use.bytes_in_flight += more

    def _over(self, _: object) -> None:
        self._use.bytes_in_flight -= self._size
        self._use.answers -= self._reads
        self._size = self._reads = self._read = 0
