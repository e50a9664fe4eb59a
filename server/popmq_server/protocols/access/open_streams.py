"""Open streams of access keys: each ends with its key, and its messages count among the calls of the key.

    a stream opens ──▶ OpenStream ──▶ each message: a call of the key, and its bytes in flight
                           ▲               too many? the next one is read later, so its client has to wait
    every LOOK_S ── Keys.look ── a key was removed, replaced, or is past `expires` ──▶ UNAUTHENTICATED

Streams that end by themselves after their wait (ReceiveMessage, PullMessage) are not here: like a parked Pop they end
with one more answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias, TypeVar

from popmq_server.clock import pause
from popmq_server.errors import Refused
from popmq_server.protocols.access.access_keys import CALLER, Key, unauthenticated
from popmq_server.protocols.access.admission import admit
from popmq_server.protocols.access.call_context import CallContext
from popmq_server.protocols.access.key_limits import KeyLimited
from popmq_server.protocols.access.known_keys import Keys

#: How often the keys of open streams are looked at, in seconds. Without calls nothing else looks at their file.
LOOK_S = 1.0


M = TypeVar("M")
#: The bytes of a message; the stock services send theirs parsed.
Sent: TypeAlias = Any


class OpenStreams:
    """All open streams of one server. `keys` None: there are no keys, and it keeps none."""

    def __init__(self, keys: Keys | None) -> None:
        self._keys = keys
        self._open: dict[OpenStream, Key] = {}
        self._looking: asyncio.Task[None] | None = None

    def admitted(self, context: CallContext, size: int = 0) -> OpenStream:
        """The stream of a call, with a request of `size` bytes. Raises Refused RATE_LIMITED."""
        admit(context, size)
        key = CALLER.get()
        return OpenStream(self, context, key if isinstance(key, Key) else None)

    def count(self, key: Key) -> None:
        """Counts a message as a call that ends work, as answers to the broker do. Raises KeyLimited."""
        if self._keys is not None:
            self._keys.admit(key, settles=True)

    def joined(self, stream: OpenStream, key: Key) -> None:
        """Keeps a stream until it ends; the first one starts the looks."""
        self._open[stream] = key
        if self._looking is None and self._keys is not None:
            self._looking = asyncio.ensure_future(self._look(self._keys))

    def left(self, stream: OpenStream) -> None:
        """Forgets an ended stream; the last one ends the looks."""
        del self._open[stream]
        if not self._open and self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def _look(self, keys: Keys) -> None:
        """Ends the streams of keys that the file does not have any more, or whose time is over."""
        while True:
            await pause(LOOK_S)
            keys.look()
            gone = {key for key in set(self._open.values()) if not keys.holds(key)}
            for stream, key in self._open.items():
                if key in gone:
                    stream.withdraw()


class OpenStream:
    """One stream, while its handler runs in `async with`. Raises Refused UNAUTHENTICATED there when its key ends.

    Without a key nothing is counted.
    """

    __slots__ = ("_cancelled", "_context", "_key", "_streams", "_taken", "_task", "_withdrawn", "_writing")

    def __init__(self, streams: OpenStreams, context: CallContext, key: Key | None) -> None:
        self._streams = streams
        self._context = context
        self._key = key
        self._task: asyncio.Task[object] | None = None
        self._withdrawn = self._cancelled = self._writing = False
        #: Bytes of the message that the handler has.
        self._taken = 0

    async def __aenter__(self) -> OpenStream:
        if self._key is not None:
            self._task = asyncio.current_task()
            self._streams.joined(self, self._key)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._task is None or self._key is None:
            return
        self._streams.left(self)
        self._key.use.bytes_in_flight -= self._taken
        self._taken = 0
        if self._cancelled and kind is asyncio.CancelledError:
            self._task.uncancel()
            raise _ended()

    def withdraw(self) -> None:
        """Ends the stream, whatever its handler waits for; a message on its way out has until the next look.

        grpcio does not send the end of a call before the message that it is sending: the client would wait for it.
        """
        if self._task is None or self._cancelled:
            return
        self._cancelled = self._withdrawn or not self._writing
        self._withdrawn = True
        if self._cancelled:
            self._task.cancel()

    def messages(self, received: AsyncIterator[M]) -> AsyncIterator[M]:
        """The messages of the client, each counted until the next one is asked for."""
        return received if self._key is None else self._counted(received, self._key)

    async def _counted(self, received: AsyncIterator[M], key: Key) -> AsyncIterator[M]:
        async for message in received:
            size = _size(message)
            await self._admit(key, size)
            self._taken += size
            yield message
            self._taken -= size
            key.use.bytes_in_flight -= size

    async def _admit(self, key: Key, size: int) -> None:
        await _in_turn(lambda: self._streams.count(key))
        await _in_turn(lambda: key.use.begins(key.limits, size))

    async def write(self, message: Sent) -> None:
        """Sends one message; it is in flight until the client takes the earlier ones."""
        if self._key is None:
            await self._context.write(message)
            return
        use, size = self._key.use, _size(message)
        use.bytes_in_flight += size
        self._writing = True
        try:
            await self._context.write(message)
        finally:
            use.bytes_in_flight -= size
            self._writing = False
        if self._withdrawn and not self._cancelled:
            raise _ended()


def _ended() -> Refused:
    return unauthenticated("the access key of this stream was removed or replaced, or is past its `expires` time")


async def _in_turn(counted: Callable[[], None]) -> None:
    """Waits until the key may: a message that was received is not refused."""
    while True:
        try:
            counted()
        except KeyLimited as refused:
            await pause(refused.retry_after_ms / 1000)
        else:
            return


def _size(message: Sent) -> int:
    """The bytes of a message, which the stock services get parsed."""
    size: int = len(message) if isinstance(message, bytes) else message.ByteSize()
    return size
