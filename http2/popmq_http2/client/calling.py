"""Which connection takes a call: the part of a channel that threads and asyncio have in common.

    idle ── a call ──▶ connecting ── SETTINGS ──▶ ready ── GOAWAY, lost ──▶ idle
                        │  ▲ calls wait                     (calls that were not begun move to the next connection)
                        └──┼─ failed: the waiting calls end with UNAVAILABLE
                           └─ the next call, once the pause is over; until then calls end with the same error at once

A connection that was lost is made again by the next call, without a pause: only attempts that fail are paused.
"""

from __future__ import annotations

from collections.abc import Callable

from popmq_http2.client.blocks import RequestBlocks
from popmq_http2.client.call import ClientCall, Status
from popmq_http2.client.connection import ClientConnection
from popmq_http2.client.target import Backoff, Options, Target, attempt_failed
from popmq_http2.elapsed import monotonic
from popmq_http2.inbox import Buffered
from popmq_http2.status import Code


class Calling:
    """The calls of a channel. `connect`: starts an attempt, which ends with `ready` or `failed`.

    Not safe for threads: its channel calls it under a lock, or in one event loop.
    """

    def __init__(self, where: Target, scheme: str, options: Options, connect: Callable[[], object]) -> None:
        self._where, self._scheme, self._options = where, scheme, options
        self._connect = connect
        self._backoff = Backoff(options)
        self._buffered = Buffered()
        self._waiting: dict[ClientCall, None] = {}
        self._connecting = self.closed = False
        self._not_before_s = 0.0
        self._why = ""
        #: The connection that takes new calls; an older one may still have calls to finish.
        self.current: ClientConnection | None = None

    def connection(self) -> ClientConnection:
        """The state of a new connection."""
        blocks = RequestBlocks(self._scheme, self._where.authority, self._options.agent)
        return ClientConnection(self._options.limits, blocks, self._buffered, self.open)

    def open(self, call: ClientCall) -> None:
        """Begins a call, or lets it wait for a connection, or ends it: UNAVAILABLE."""
        if call.status is not None:
            return
        if self.closed:
            call.finish(Status(Code.CANCELLED, "the channel is closed"))
        elif self.current is not None and not self.current.leaving:
            call.connection = self.current
            self.current.open(call)
        elif self._connecting:
            self._waiting[call] = None
        elif monotonic() < self._not_before_s:
            call.finish(Status(Code.UNAVAILABLE, self._why, sent=False))
        else:
            self._waiting[call] = None
            self._connecting = True
            self._begin()

    def cancel(self, call: ClientCall, status: Status) -> None:
        """Ends a call that is not over, wherever it is: waiting for a connection, or on one."""
        if call.status is not None:
            return
        if call in self._waiting:
            del self._waiting[call]
            call.finish(status)
        elif call.connection is not None:
            call.connection.cancel(call, status)

    def ready(self, connection: ClientConnection) -> None:
        """The server's SETTINGS have come."""
        self._backoff.succeeded()
        self._connecting, self._not_before_s = False, 0.0
        self.current = connection
        self._open_waiting()

    def failed(self, why: str) -> None:
        """Ends the waiting calls after a failed attempt. They were not sent, so their callers may retry them."""
        self._connecting = False
        self._not_before_s = monotonic() + self._backoff.failed()
        self._why = why
        waiting, self._waiting = self._waiting, {}
        for call in waiting:
            call.finish(Status(Code.UNAVAILABLE, why, sent=False))

    def close(self) -> None:
        """Ends all waiting calls, and takes no new ones."""
        self.closed = True
        waiting, self._waiting = self._waiting, {}
        for call in waiting:
            call.finish(Status(Code.CANCELLED, "the channel is closed"))

    def _begin(self) -> None:
        """Starts an attempt. One that cannot start has failed: there is no thread or file descriptor left for it, or a
        KeyboardInterrupt came. Else calls would wait for it forever.
        """
        try:
            self._connect()
        except BaseException as error:
            self.failed(attempt_failed(error))
            if not isinstance(error, Exception):
                raise

    def _open_waiting(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for call in waiting:
            self.open(call)


class Attempt:
    """A connection from its socket on: tells `calling` once how the attempt to connect ended."""

    __slots__ = ("_calling", "connection", "known")

    def __init__(self, calling: Calling) -> None:
        self._calling = calling
        self.connection = calling.connection()
        #: Whether `calling` knows how the attempt ended.
        self.known = False

    def heard(self) -> None:
        """Frames have come: the first ones show whether the server takes calls at all."""
        if self.known or not (self.connection.ready or self.connection.leaving):
            return
        self.known = True
        if self.connection.leaving:
            self._calling.failed(self.connection.why or self.connection.said or "the server takes no calls")
        else:
            self._calling.ready(self.connection)

    def lost(self, why: str) -> None:
        """Ends the connection's calls."""
        self.connection.lost(why)
        if not self.known:
            self.known = True
            self._calling.failed(self.connection.why)
