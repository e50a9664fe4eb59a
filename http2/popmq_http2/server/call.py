"""One call: its interface for the handler, and the connection's state of its stream.

client half open ── DATA … END_STREAM ──▶ half closed ── our trailers ──▶ closed
     │                                                                      ▲
     └── RST_STREAM, end of the connection: the handler is cancelled ───────┘
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

from popmq_http2.deadlines import Moment
from popmq_http2.elapsed import monotonic
from popmq_http2.hpack import encode
from popmq_http2.inbox import Inbox
from popmq_http2.request import Head
from popmq_http2.server.arrivals import Arrival, Tell
from popmq_http2.status import Aborted, Code, Metadata, trailers, written

log = logging.getLogger("popmq_http2")

#: The rest of a call whose bytes have all left. It is shared, and never changed.
_NOTHING: deque[memoryview] = deque()


@dataclass(frozen=True)
class Method:
    """How a method is called. `streams_in`: its handler gets only the Call, and reads messages from it.

    `streams_out`: its handler is an async generator of messages, or a coroutine that writes to the call.
    """

    handler: Callable[..., Any]
    streams_in: bool = False
    streams_out: bool = False


class Running:
    """The number of handlers of one connection that run: each until it ends, even if its stream is reset before."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def cancelled(self, task: asyncio.Task[None]) -> None:
        """The task of a handler was cancelled before the handler began."""
        self.count -= 1


class OutletOfCall(Protocol):
    """The part of Outlet, the writing half of a connection, that a call uses."""

    peer: str
    write_ahead_bytes: int

    @property
    def auth_context(self) -> dict[str, list[bytes]]:
        """What TLS tells of the client."""

    def when_lost(self, callback: Callable[[], Any]) -> None:
        """Calls `callback` when the connection ends."""

    def begin(self, call: Call) -> None:
        """Writes the head of the response."""

    def write(self, call: Call, message: bytes) -> None:
        """Queues a message."""

    def answer(self, call: Call, message: bytes) -> None:
        """Queues the only message, and OK."""

    def end(self, call: Call, code: Code, message: str = "", metadata: Metadata = ()) -> None:
        """Queues the status."""

    def return_window(self, call: Call) -> None:
        """A message was taken: widens the window of the client."""


class Call:
    """A call in progress. Handlers use the first half; the second belongs to the connection.

    One object serves the call and its stream: calls are short, and each object is created and freed thousands of times
    a second. Its methods are those of grpcio's context that apply here.
    """

    __slots__ = (
        "_callbacks",
        "_deadline_s",
        "_outlet",
        "_waiters",
        "arrival",
        "begun",
        "body_left",
        "deadline",
        "ending",
        "entered",
        "fresh",
        "head",
        "in_line",
        "inbox",
        "initial",
        "is_over",
        "method",
        "pending",
        "plain",
        "proved",
        "queued",
        "running",
        "stream_id",
        "task",
        "trailing",
        "window_in",
        "window_out",
    )

    def __init__(
        self,
        outlet: OutletOfCall,
        running: Running,
        stream_id: int,
        head: Head,
        inbox: Inbox,
        window_in: int,
        window_out: int,
    ) -> None:
        self._outlet = outlet
        self.running = running
        self.stream_id = stream_id
        self.head = head
        self.inbox = inbox
        self._callbacks: tuple[Callable[[Call], Any], ...] = ()
        self._deadline_s = None if head.timeout_s is None else monotonic() + head.timeout_s
        #: Metadata that goes before the first message.
        self.initial: Metadata = ()
        #: Metadata that goes with the status.
        self.trailing: Metadata = ()
        self._waiters: tuple[asyncio.Future[None], ...] = ()
        #: Bytes that the client and we may still send; the rest of the content-length, or below 0 without one.
        self.window_in, self.window_out, self.body_left = window_in, window_out, head.length
        #: The response: whether its head has left; what was written since the last flush, and what a flush left over;
        #: the trailers' block once the call has ended.
        self.begun = False
        self.fresh: list[bytes] = []
        self.pending = _NOTHING
        self.queued = 0
        self.ending: bytes | None = None
        #: Whether it waits for the next flush; whether its stream is closed.
        self.in_line = self.is_over = False
        #: Whether the caller was asked for its proof before the handler began (Server.check).
        self.proved = False
        #: Whether the answer is plain HTTP, which has no trailers.
        self.plain = False
        #: Whether the handler has begun; it then leaves `running` at its end.
        self.entered = False
        self.method: Method | None = None
        self.task: asyncio.Task[None] | None = None
        self.deadline: Moment[Call] | None = None
        #: Is told whether the answer arrived.
        self.arrival: Tell | None = None

    # ── For handlers ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def path(self) -> str:
        """The full name of the method: /package.Service/Method."""
        return self.head.path

    def invocation_metadata(self) -> Metadata:
        """The client's metadata: (name, value) pairs, names that end with "-bin" have bytes."""
        return self.head.metadata

    def time_remaining(self) -> float | None:
        """Seconds until the deadline; None without one."""
        return None if self._deadline_s is None else max(0.0, self._deadline_s - monotonic())

    def peer(self) -> str:
        """The client's address."""
        return self._outlet.peer

    def auth_context(self) -> dict[str, list[bytes]]:
        """The names in the client's verified certificate: `x509_common_name`, `x509_subject_alternative_name`, and of
        the latter those of one kind, `peer_dns` and `peer_uri`; with TLS also `transport_security_type`. Empty without.
        """
        return self._outlet.auth_context

    def add_done_callback(self, callback: Callable[[Call], Any]) -> None:
        """Calls `callback(call)` once the call is over, however it ends; immediately if it is already."""
        if self.is_over:
            callback(self)
        else:
            self._callbacks += (callback,)

    def add_disconnect_callback(self, callback: Callable[[Call], Any]) -> None:
        """Calls `callback(call)` when the connection ends; immediately if it has. Not in grpcio's context."""
        self._outlet.when_lost(lambda: callback(self))

    def add_arrival_callback(self, callback: Tell) -> None:
        """Calls `callback(arrival)` once it is known whether the client got the whole answer: see arrivals.py.

        For one handler that has written all its messages. Not in grpcio's context.
        """
        if self.is_over:
            callback(Arrival.LOST)
        else:
            self.arrival = callback

    async def abort(self, code: Any, message: str = "", metadata: Metadata = ()) -> NoReturn:
        """Ends the call with a status: raises Aborted. `code`: a Code, or an object whose `value` starts with one."""
        raise Aborted(_code(code), message, metadata)

    async def send_initial_metadata(self, metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """Sends the head of the response now, before the first message. Raises ValueError if it cannot be sent.

        It tells the client of a stream without messages yet that its call has arrived.
        """
        self.initial = tuple(metadata)
        written(self.initial)  # raises here, in the handler
        self._outlet.begin(self)

    def set_trailing_metadata(self, metadata: Metadata) -> None:
        """Sets metadata that is sent with the status."""
        self.trailing = tuple(metadata)

    async def write(self, message: bytes) -> None:
        """Sends one message; waits while the client does not take the earlier ones."""
        self._outlet.write(self, message)
        while self.queued > self._outlet.write_ahead_bytes and not self.is_over:
            await self._woken()

    def __aiter__(self) -> Call:
        """Iterates over the messages of a client stream."""
        return self

    async def __anext__(self) -> bytes:
        """Waits for the next message. Returns its window to the client: a slow handler slows its client down."""
        while not self.inbox.messages:
            if self.inbox.ended:
                raise StopAsyncIteration
            await self._woken()
        message = self.inbox.take()
        self._outlet.return_window(self)
        return message

    async def _woken(self) -> None:
        """Waits for the next `wake`. One task of a handler may read while another writes: each waits by itself."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiters += (waiter,)
        try:
            await waiter
        except BaseException:  # a handler may give up waiting again and again on a quiet stream
            self._waiters = tuple(each for each in self._waiters if each is not waiter)
            raise

    # ── For the connection ───────────────────────────────────────────────────────────────────────────────────────────

    def answer(self, message: bytes) -> None:
        """Sends the only message of a call, and OK, without waiting."""
        self._outlet.answer(self, message)

    def end(self, code: Code, message: str, metadata: Metadata = ()) -> None:
        """Ends the call after all messages; has no effect on an ended call."""
        self._outlet.end(self, code, message, metadata)

    def initial_block(self) -> bytes:
        """The header block of the initial metadata."""
        return encode(written(self.initial)) if self.initial else b""

    def trailers_block(self, code: Code, message: str, metadata: Metadata) -> bytes:
        """The block that ends the response: INTERNAL if the handler set metadata that HTTP/2 cannot carry."""
        try:
            return encode(trailers(code, message, (*self.trailing, *metadata)))
        except ValueError:
            log.exception("the handler of %s set metadata that cannot be sent", self.path)
            return encode(trailers(Code.INTERNAL, "the handler set metadata that cannot be sent"))

    @property
    def is_unfinished(self) -> bool:
        """Whether it waits for bytes of its client: the rest of its request, or of a message of its stream; or for the
        first message of a stream.

        A stream whose handler has not taken the messages before gets no window for the rest: that is not its client's
        fault.
        """
        inbox = self.inbox
        if inbox.ended or self.ending is not None:
            return False
        streams_in = self.method is not None and self.method.streams_in
        return not streams_in or not inbox.received or (inbox.is_partial and not inbox.waiting)

    def wake(self) -> None:
        """Wakes the tasks of the handler: a message came, or the client took what they wrote."""
        waiters, self._waiters = self._waiters, ()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def tell(self, arrival: Arrival) -> None:
        """Tells the handler that asked, if any, what became of its answer."""
        callback, self.arrival = self.arrival, None
        if callback is not None:
            callback(arrival)

    def over(self) -> None:
        """Frees the state of a closed stream and runs the done callbacks.

        The task's context may have this call: without the task there is no cycle for the garbage collector.
        """
        self.is_over, self.task = True, None
        if self._waiters:
            self.wake()
        if self.deadline is not None:
            self.deadline.leave(self)
        self.inbox.clear()
        self.fresh.clear()
        self.pending, self.queued = _NOTHING, 0
        callbacks, self._callbacks = self._callbacks, ()
        for callback in callbacks:
            callback(self)


def _code(code: Any) -> Code:
    """Converts grpcio's codes, whose value is (number, name): handlers written for grpcio continue to work."""
    value = getattr(code, "value", code)
    return Code(value[0] if isinstance(value, tuple) else value)
