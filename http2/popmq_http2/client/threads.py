"""The channel for threads. The calling thread writes to the socket; one thread for each connection reads from it.

    caller A ──┐ steps ──▶ under the lock: Calling, the frames, one send
    caller B ──┘             ▲
    reader: poll, recv ──────┘ and wakes the callers whose calls are over

A caller adds its step to a queue and takes the lock; its holder carries out all steps that are there. So a signal
handler that interrupts a caller in the middle of a step only adds its own: the interrupted one carries it out.
An exception in there, such as a KeyboardInterrupt, may leave half a frame on the connection: that connection ends.

After a fork the child has copies of the sockets and none of the threads: it has to make channels of its own.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from popmq_http2.client.call import CANCELLED, LATE, CallFailed, ClientCall, Status, Streaming
from popmq_http2.client.calling import Attempt, Calling
from popmq_http2.client.stream import READ, WRITE, Stream, opened, poller
from popmq_http2.client.target import Options, attempt_failed, target
from popmq_http2.elapsed import monotonic
from popmq_http2.status import Code, Metadata

if TYPE_CHECKING:
    import ssl

log = logging.getLogger("popmq_http2")

#: Seconds that closing waits for the threads that read.
_CLOSE_S = 1.0


class UnaryCall(ClientCall):
    """A call with one request and one answer. One thread waits for it; any may cancel it."""

    __slots__ = ("_channel", "_done", "_until_s")

    def __init__(self, channel: Channel, path: str, request: bytes, metadata: Metadata, timeout_s: float | None):
        super().__init__(path, metadata, timeout_s, request=request)
        self._channel = channel
        self._until_s = None if timeout_s is None else monotonic() + timeout_s
        self._done = threading.Lock()
        self._done.acquire()

    def over(self) -> None:
        """Wakes the thread. A raw lock: it is the cheapest thing to wait for."""
        self._done.release()

    def cancel(self) -> None:
        """Ends the call with CANCELLED, unless it is over."""
        self._channel.cancel(self, CANCELLED)

    def result(self) -> bytes:
        """Waits for the answer. Raises CallFailed."""
        try:
            left = -1.0 if self._until_s is None else max(self._until_s - monotonic(), 0.0)
            if not self._done.acquire(timeout=min(left, threading.TIMEOUT_MAX)):
                self._channel.cancel(self, LATE)
        finally:
            if self.status is None:
                self.cancel()  # this thread was interrupted
        if self.status is None:
            raise CallFailed(LATE)
        return self.answer()


class StreamCall(Streaming):
    """A stream of answers that one thread reads."""

    __slots__ = ("_bell", "_channel")

    def __init__(self, channel: Channel, path: str, metadata: Metadata, request: bytes | None) -> None:
        self._bell = threading.Event()
        super().__init__(path, metadata, request, self._bell)
        self._channel = channel

    def cancel(self) -> None:
        """Ends the call with CANCELLED, unless it is over."""
        self._channel.cancel(self, CANCELLED)

    def write(self, message: bytes) -> None:
        """Sends a message; has no effect once the call is over."""
        self._channel.do(self._write, message)

    def close(self) -> None:
        """Ends the call; drops what has not been read."""
        self.cancel()
        self._channel.do(lambda _: self.free(), None)

    def __iter__(self) -> Iterator[bytes]:
        """The messages, until the stream ends. Raises CallFailed."""
        while True:
            self._bell.clear()
            found: list[bytes] = []
            self._channel.do(self._read, found)
            if found:
                yield found[0]
            elif self.status is None:
                self._bell.wait()
            elif self.status.code is Code.OK:
                return
            else:
                raise CallFailed(self.status)

    def _write(self, message: bytes) -> None:
        """A step: while the call waits for its connection, its messages wait with it."""
        if self.status is None:
            self.say(message)
            if self.connection is not None:
                self.connection.send(self)

    def _read(self, found: list[bytes]) -> None:
        """A step: taking a message gives its window back, so a slow reader slows the server down."""
        message = self.take()
        if message is not None:
            found.append(message)
            if self.connection is not None:
                self.connection.taken(self)


class Channel:
    """Calls to one server, from any threads. Connects at the first call, and again when the connection was lost."""

    def __init__(self, where: str, tls: ssl.SSLContext | None = None, options: Options | None = None) -> None:
        """`where`: host:port, or as target.py says. Raises ValueError."""
        self.options = options or Options()
        self.where = target(where)
        self.tls = tls
        self._calling = Calling(self.where, "http" if tls is None else "https", self.options, self._connect)
        self._links: list[Link] = []
        self._steps: deque[tuple[Callable[[Any], object], Any]] = deque()
        self._lock = threading.RLock()
        self._holder = 0
        self._pid = os.getpid()

    def unary(self, path: str, request: bytes, metadata: Metadata = (), timeout_s: float | None = None) -> UnaryCall:
        """Begins a call: its `result` waits."""
        call = UnaryCall(self, path, request, metadata, timeout_s)
        self.do(self._calling.open, call)
        return call

    def stream(self, path: str, request: bytes | None, metadata: Metadata = ()) -> StreamCall:
        """Begins a call with a stream of answers. `request`: the only one; None: requests follow by `write`."""
        call = StreamCall(self, path, metadata, request)
        self.do(self._calling.open, call)
        return call

    def cancel(self, call: ClientCall, status: Status) -> None:
        """Ends a call that is not over."""
        self.do(lambda call: self._calling.cancel(call, status), call)

    def close(self) -> None:
        """Ends all calls with CANCELLED, and the connections; waits for their threads.

        No effect in a forked child: the sockets are its parent's too, and a thread that it has not may hold the lock.
        """
        if os.getpid() != self._pid:
            return
        self.do(self._close, None)
        for link in list(self._links):
            if link.thread.ident and link.thread is not threading.current_thread():  # without one it has not begun
                link.thread.join(_CLOSE_S)

    def do(self, step: Callable[[Any], object], argument: Any) -> None:
        """Carries out `step(argument)` under the lock, or leaves it to the thread that has the lock; then sends."""
        self._steps.append((step, argument))
        if self._holder != threading.get_ident():
            with self._lock:
                self._settle()

    def _settle(self) -> None:
        """Carries out all steps, then lets each connection send. The lock is held.

        `_holder` is cleared before the queue is looked at once more: a signal handler that comes between both takes the
        lock itself (it is an RLock), one that comes before has left its step in the queue.
        """
        steps = self._steps
        while steps:
            self._holder = threading.get_ident()
            try:
                while steps:
                    step, argument = steps.popleft()
                    step(argument)
                for link in self._links:
                    link.send()
            except BaseException as error:
                for link in self._links:
                    link.lost(f"{type(error).__name__} in the middle of a frame")
                raise
            finally:
                self._holder = 0

    def _connect(self) -> None:
        """Starts an attempt: `Calling` wants a connection."""
        link = Link(self, self._calling)
        self._links.append(link)
        try:
            link.thread.start()
        except Exception:
            self._links.remove(link)
            link.close_waker()
            raise

    def _close(self, _: None) -> None:
        """Ends the calls first, so that none of them is repeated on another connection."""
        self._calling.close()
        for link in self._links:
            link.connection.close(CANCELLED)

    def gone(self, link: Link) -> None:
        """The thread of a connection ends."""
        if link in self._links:
            self._links.remove(link)


class Link:
    """One connection: its thread connects, reads, and notices a server that no longer answers."""

    def __init__(self, channel: Channel, calling: Calling) -> None:
        self._channel = channel
        self._attempt = Attempt(calling)
        self._stream: Stream | None = None
        self._wake_out, self._wake_in = socket.socketpair()  # select of Windows takes only sockets
        self._wake_in.setblocking(False)
        self._until_s = 0.0  # when the server must have said something
        self.connection = self._attempt.connection
        self.thread = threading.Thread(target=self._run, name="popmq-http2", daemon=True)

    # ── Under the lock of the channel ────────────────────────────────────────────────────────────────────────────────

    def send(self) -> None:
        """Sends the connection's pending bytes."""
        if self._stream is None:
            return
        raw = self.connection.take()
        try:
            if raw:
                self._stream.send(raw)
        except OSError as error:
            self.lost(f"Socket closed: {error}")
            self._channel.do(_nothing, None)  # sends the calls that go to another connection
        if self._stream.stuck or self.connection.finished:
            with contextlib.suppress(BlockingIOError):
                self._wake_in.send(b"\0")

    def lost(self, why: str) -> None:
        """Ends the connection's calls."""
        self._attempt.lost(why)

    def _started(self, stream: Stream) -> None:
        """The socket is connected, and TLS agreed on; the end of this step sends the greeting."""
        self._stream = stream

    def _fed(self, raw: bytes) -> None:
        """Handles received bytes; b"" at the end of the connection."""
        assert self._stream is not None
        try:
            data = self._stream.unwrapped(raw) if raw else b""
        except OSError as error:
            self.lost(str(error))
            return
        if data:
            self.connection.feed(data)
        if not raw or self._stream.ended:
            self.lost("Socket closed")
        self._attempt.heard()

    def _late(self, why: str) -> None:
        """Handles silence: pings the server, or ends a connection whose PING was not answered."""
        options = self._channel.options
        if not self._attempt.known or self.connection.asked:
            self.lost(why)
        elif self.connection.busy:
            self.connection.ping()
        self._until_s = monotonic() + (options.keepalive_timeout_s if self.connection.asked else options.keepalive_s)

    # ── The thread ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self) -> None:
        """Serves the connection. A bug in here must not leave callers waiting: their calls end with its text."""
        try:
            self._serve()
        except Exception as error:
            log.exception("a connection ends: the client failed")
            self._channel.do(self.lost, str(error))
        finally:
            self._channel.do(self._end, None)

    def _serve(self) -> None:
        """Connects, then waits for the socket: for bytes, and for room when some of ours did not fit.

        The pair of sockets wakes it for what other threads have changed: bytes are stuck, the connection is finished.
        """
        channel, options = self._channel, self._channel.options
        try:
            stream = opened(channel.where, channel.tls, options.connect_s)
        except OSError as error:
            channel.do(self.lost, attempt_failed(error))
            return
        channel.do(self._started, stream)
        self._until_s = monotonic() + options.connect_s
        waiting, wanted = poller(), 0
        waiting.register(self._wake_out, READ)
        while not self.connection.finished or (stream.stuck and not self.connection.why):
            wants = READ | (WRITE if stream.stuck else 0)
            if wants != wanted:
                wanted = wants
                waiting.register(stream.socket, wanted)
            self._handle(stream, waiting.poll(max(self._until_s - monotonic(), 0.0) * 1000))

    def _handle(self, stream: Stream, ready: list[tuple[int, int]]) -> None:
        """Handles the events of one poll."""
        for descriptor, events in ready:
            if descriptor == self._wake_out.fileno():
                self._wake_out.recv(4096)
                continue
            if events & WRITE:
                self._channel.do(self._flush, stream)
            if events & ~WRITE:
                self._receive(stream)
        if monotonic() >= self._until_s:
            self._channel.do(self._late, "the server gave no sign of life")

    def _receive(self, stream: Stream) -> None:
        """Reads without the lock, so that callers may write meanwhile."""
        try:
            raw = stream.receive()
        except OSError as error:
            self._channel.do(self.lost, f"Socket closed: {error}")
            return
        if raw is not None:
            self._until_s = monotonic() + self._channel.options.keepalive_s
            self._channel.do(self._fed, raw)

    def _flush(self, stream: Stream) -> None:
        """Sends waiting bytes, as the socket has room again."""
        try:
            stream.flush()
        except OSError as error:
            self.lost(f"Socket closed: {error}")

    def _end(self, _: None) -> None:
        """Closes the socket and what wakes the thread at the end of the thread."""
        self.lost("Socket closed")
        self._channel.gone(self)
        if self._stream is not None:
            self._stream.close()
            self._stream = None
        self.close_waker()

    def close_waker(self) -> None:
        """Frees the descriptors of a thread that has ended, or did not start."""
        with contextlib.suppress(OSError):
            self._wake_in.close()
            self._wake_out.close()


def _nothing(_: None) -> None:
    pass
