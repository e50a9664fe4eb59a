"""One call: what its handler sees of it, and what the connection keeps of its stream.

client half open ── DATA … END_STREAM ──▶ half closed ── trailers of ours ──▶ closed
     │                                                                          ▲
     └── RST_STREAM, the connection's end: the handler is cancelled ────────────┘
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from time import monotonic
from typing import TYPE_CHECKING, Any, NoReturn

from popmq_http2.hpack import encode
from popmq_http2.inbox import Inbox
from popmq_http2.request import Head
from popmq_http2.status import Aborted, Code, Metadata, trailers, written

if TYPE_CHECKING:
    from popmq_http2.outlet import Outlet
    from popmq_http2.server import Method
    from popmq_http2.streams import Streams


log = logging.getLogger("popmq_http2")


class Call:
    """A call under way. Handlers use the first half; the second belongs to the connection.

    One object for the call and its stream: a call is short, and each object of it is made and freed thousands of times
    a second. What may be asked of it is what grpcio's context has, as far as it makes sense here.
    """

    __slots__ = (
        "_callbacks",
        "_deadline_s",
        "_initial",
        "_outlet",
        "_trailing",
        "_waiter",
        "begun",
        "body_left",
        "ending",
        "fresh",
        "head",
        "in_line",
        "inbox",
        "is_over",
        "method",
        "pending",
        "plain",
        "queued",
        "stream_id",
        "streams",
        "task",
        "timer",
        "window_in",
        "window_out",
    )

    def __init__(
        self, outlet: Outlet, stream_id: int, head: Head, inbox: Inbox, window_in: int, window_out: int
    ) -> None:
        self._outlet = outlet
        self.stream_id = stream_id
        self.head = head
        self.inbox = inbox
        self._callbacks: list[Callable[[Call], Any]] = []
        self._deadline_s = None if head.timeout_s is None else monotonic() + head.timeout_s
        self._initial: Metadata = ()
        self._trailing: Metadata = ()
        self._waiter: asyncio.Future[None] | None = None
        #: Bytes that the client and we may send still; what content-length says is left, or below 0.
        self.window_in, self.window_out, self.body_left = window_in, window_out, head.length
        #: The response: whether its head has left; what was written since the last flush, and what a flush left over;
        #: the trailers' block, once the call has ended.
        self.begun = False
        self.fresh: list[bytes] = []
        self.pending = memoryview(b"")
        self.queued = 0
        self.ending: bytes | None = None
        #: Whether it waits for the next flush; whether its stream is closed.
        self.in_line = self.is_over = False
        #: Whether the answer is HTTP without gRPC, which has no trailers.
        self.plain = False
        self.method: Method | None = None
        self.streams: Streams | None = None
        self.task: asyncio.Task[None] | None = None
        self.timer: asyncio.TimerHandle | None = None

    # ── For handlers ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def path(self) -> str:
        """The full name of the method: /package.Service/Method."""
        return self.head.path

    def invocation_metadata(self) -> Metadata:
        """What the client sent along: (name, value) pairs, names that end with "-bin" have bytes."""
        return self.head.metadata

    def time_remaining(self) -> float | None:
        """Seconds to the deadline; None without one."""
        return None if self._deadline_s is None else max(0.0, self._deadline_s - monotonic())

    def peer(self) -> str:
        """The client's address."""
        return self._outlet.peer

    def add_done_callback(self, callback: Callable[[Call], Any]) -> None:
        """Calls `callback(call)` once the call is over, however it ends; at once when it is."""
        if self.is_over:
            callback(self)
        else:
            self._callbacks.append(callback)

    async def abort(self, code: Any, message: str = "", metadata: Metadata = ()) -> NoReturn:
        """Ends the call with a status: raises Aborted. `code`: a Code, or whatever has its number first in `value`."""
        raise Aborted(_code(code), message, metadata)

    async def send_initial_metadata(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """Sends the head of the response now, not with the first message. Raises ValueError for what cannot be sent.

        A client of a stream that is silent at first learns by it that it has been heard.
        """
        self._initial = tuple(metadata)
        written(self._initial)  # raises here, in the handler, what cannot be sent
        self._outlet.begin(self)

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        """What the client gets with the status."""
        self._trailing = tuple(metadata)

    async def write(self, message: bytes) -> None:
        """Sends one message; waits while the client takes none of those before."""
        self._outlet.write(self, message)
        if self.queued > self._outlet.write_ahead_bytes:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def __aiter__(self) -> Call:
        """The messages of a client that streams them."""
        return self

    async def __anext__(self) -> bytes:
        """Waits for the next message. What is taken here the client may send anew: a slow handler slows its client."""
        while not self.inbox.messages:
            if self.inbox.ended:
                raise StopAsyncIteration
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        message = self.inbox.take()
        self._outlet.give_back(self)
        return message

    # ── For the connection ───────────────────────────────────────────────────────────────────────────────────────────

    def put(self, message: bytes) -> None:
        """Sends a message without waiting: the only one of its call."""
        self._outlet.write(self, message)

    def end(self, code: Code, message: str, metadata: Metadata = ()) -> None:
        """Ends the call, behind all messages; nothing happens when it has ended before."""
        self._outlet.end(self, code, message, metadata)

    def initial_block(self) -> bytes:
        """Metadata at the head of the response."""
        return encode(written(self._initial)) if self._initial else b""

    def trailers_block(self, code: Code, message: str, metadata: Metadata) -> bytes:
        """The end of the response: INTERNAL when the handler set metadata that HTTP/2 cannot carry."""
        try:
            return encode(trailers(code, message, (*self._trailing, *metadata)))
        except ValueError:
            log.exception("the handler of %s set metadata that cannot be sent", self.path)
            return encode(trailers(Code.INTERNAL, "the handler set metadata that cannot be sent"))

    @property
    def has_trailing(self) -> bool:
        return bool(self._trailing)

    def wake(self) -> None:
        """The handler goes on: a message came, or what it wrote was taken."""
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def over(self) -> None:
        """The stream is closed: nothing of it is kept, and whoever wanted to know is told."""
        self.is_over = True
        self.wake()
        if self.timer is not None:
            self.timer.cancel()
        self.inbox.clear()
        self.fresh.clear()
        self.pending, self.queued = memoryview(b""), 0
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)


def _code(code: Any) -> Code:
    """grpcio's codes have (number, name) as their value; handlers that were written for it go on to work."""
    value = getattr(code, "value", code)
    return Code(value[0] if isinstance(value, tuple) else value)
