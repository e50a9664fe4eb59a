"""One call of a client: its requests, its answers, and its status.

    new ── open ──▶ HEADERS, DATA … END_STREAM ──▶ answer: head, messages, trailers ──▶ over, with a status
     │                                                                                   ▲
     └── waits for a connection, or for the server's limit of calls ─── a deadline, cancel ─┘

It is made for one thread at a time: the channel that opened it calls its methods under its lock, or in its loop.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol

from popmq_http2.frames import U32
from popmq_http2.inbox import Inbox
from popmq_http2.status import Code, Metadata


class Status(NamedTuple):
    """How a call ended. `sent` false: there was no connection, so the server has no part of the request."""

    code: Code
    message: str = ""
    metadata: Metadata = ()
    sent: bool = True


#: The status of most calls.
DONE = Status(Code.OK)
LATE = Status(Code.DEADLINE_EXCEEDED, "the deadline has passed")
CANCELLED = Status(Code.CANCELLED, "cancelled by the caller")


class CallFailed(Exception):
    """A call that ended with another status than OK. `trailers`: the metadata that came with it; `sent`: see Status."""

    def __init__(self, status: Status) -> None:
        super().__init__(f"{status.code.name}: {status.message}")
        self.code = status.code
        self.message = status.message
        self.trailers = status.metadata
        self.sent = status.sent


class ConnectionOfCall(Protocol):
    """The part of ClientConnection that a call uses, and the thread or task that waits for the call."""

    def send(self, call: ClientCall) -> None:
        """Sends what the call has to say."""

    def taken(self, call: ClientCall) -> None:
        """A message of the call was taken."""

    def cancel(self, call: ClientCall, status: Status) -> None:
        """Ends the call before its answer has come."""


class ClientCall:
    """A call in progress. Channels have subclasses whose `heard` and `over` wake the caller.

    Its messages wait in `inbox` until they are taken; what it sends waits in `out` for the windows of the server.
    """

    __slots__ = (
        "_one",
        "_reply",
        "connection",
        "ended",
        "in_line",
        "inbox",
        "metadata",
        "out",
        "path",
        "repeated",
        "repeats",
        "replied",
        "sent",
        "status",
        "stream_id",
        "timeout_s",
        "window_in",
        "window_out",
    )

    def __init__(
        self, path: str, metadata: Metadata, timeout_s: float | None, one: bool = True, request: bytes | None = None
    ) -> None:
        """`one`: exactly one message has to come. `request`: the only one that is sent; None: `say` adds them."""
        self.path = path
        self.metadata = metadata
        self.timeout_s = timeout_s
        self._one = one
        #: Whether a call that the server has not begun may be opened again: what it sends is still there.
        self.repeats = request
        self.repeated = False
        self._reply = b""
        self.status: Status | None = None
        #: The connection that sends the call; None before there is one.
        self.connection: ConnectionOfCall | None = None
        self.reset()
        if request is not None:
            self.say(request)
            self.ended = True

    def reset(self) -> None:
        """Back to the start, for another connection."""
        self.stream_id = self.window_in = self.window_out = 0
        self.inbox: Inbox | None = None
        #: Bytes that have not left, with the prefixes of their messages; whether no more will be added.
        self.out: deque[bytes | memoryview] = deque()
        self.ended = self.in_line = False
        #: Whether END_STREAM has left, or the rest is not wanted.
        self.sent = False
        #: Whether the head of the answer has come.
        self.replied = False

    def again(self) -> bool:
        """Prepares the call for another connection, once. False: the caller has to do that."""
        if self.repeats is None or self.repeated:
            return False
        self.repeated = True
        self.free()  # a server may have answered a call of which it says later that it did not begin
        self.reset()
        self.say(self.repeats)
        self.ended = True
        return True

    def say(self, message: bytes) -> None:
        """Adds a message to be sent."""
        self.out.append(b"\0" + U32.pack(len(message)) + message)

    def take(self) -> bytes | None:
        """The next message that has come; None if there is none. Its window is returned by the connection's `taken`."""
        return self.inbox.take() if self.inbox is not None and self.inbox.messages else None

    def finish(self, status: Status) -> None:
        """Ends the call, once. OK without the one message that it must have becomes INTERNAL."""
        if self.status is not None:
            return
        if self._one and self.inbox is not None:
            count = len(self.inbox.messages)
            if status.code is Code.OK and count == 1:
                self._reply = self.inbox.take()
            elif status.code is Code.OK:
                status = Status(Code.INTERNAL, f"{self.path} answers with one message, {count} came", status.metadata)
            self.inbox.clear()
        self.status = status
        self.out.clear()
        self.over()

    def free(self) -> None:
        """Drops the messages of a stream that is not read any more."""
        if self.inbox is not None:
            self.inbox.clear()

    def answer(self) -> bytes:
        """The one message of a call that is over. Raises CallFailed."""
        assert self.status is not None
        if self.status.code is not Code.OK:
            raise CallFailed(self.status)
        return self._reply

    def heard(self) -> None:
        """Called when a message has arrived."""

    def over(self) -> None:
        """Called when the status is set."""


class Bell(Protocol):
    """An event of threads, or of asyncio."""

    def set(self) -> None:
        """Wakes the waiting reader."""


class Streaming(ClientCall):
    """A call whose answer is a stream of messages for one reader, whom `bell` wakes; without a deadline."""

    __slots__ = ("_wakes",)

    def __init__(self, path: str, metadata: Metadata, request: bytes | None, bell: Bell) -> None:
        super().__init__(path, metadata, None, one=False, request=request)
        self._wakes = bell

    def heard(self) -> None:
        """Wakes the reader, also at the end."""
        self._wakes.set()

    over = heard
