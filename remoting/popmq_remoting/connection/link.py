"""One connection on asyncio: all requests of an event loop's turn leave with one write.

call ─▶ Multiplexer ─▶ at the end of the turn: one write        buffer_updated ─▶ calls end, requests of the broker run

A link is used until it is lost, or retires: the broker says that it stops. Then its open calls end as they come.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import socket
from collections.abc import Awaitable, Callable
from typing import cast

from popmq_remoting.codes import ResponseCode
from popmq_remoting.connection.deadlines import Deadlines
from popmq_remoting.connection.limits import PeerLimits
from popmq_remoting.connection.multiplexer import Multiplexer
from popmq_remoting.errors import BadFormat, DeadlineOver, RemotingError, Unreachable
from popmq_remoting.wire.command import Command, Request, Response

_log = logging.getLogger("popmq_remoting")

#: What a client answers to a request of a broker; None: the code is not known. Nothing is sent for a oneway request.
OnRequest = Callable[[Request], Awaitable[Response | None]]

_UNKNOWN = Response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "this client does not serve the request")
_BUSY = Response(ResponseCode.SYSTEM_BUSY, "this client serves too many requests")
_FAILED = Response(ResponseCode.SYSTEM_ERROR, "this client failed to serve the request")


class PeerLink(asyncio.BufferedProtocol):
    """One connection to `address`. `memory`: where reads go; connections of an event loop may share it."""

    def __init__(
        self, address: str, limits: PeerLimits, memory: memoryview, on_request: OnRequest | None = None
    ) -> None:
        self._address = address
        self._limits = limits
        self._memory = memory
        self._on_request = on_request
        self._loop = asyncio.get_running_loop()
        self._calls = Multiplexer(limits)
        self._deadlines = Deadlines(self._loop, self._late)
        self._waiting: dict[int, asyncio.Future[Response]] = {}
        self._transport: asyncio.Transport | None = None
        self._scheduled = False
        self._retiring = False
        self._answering: set[asyncio.Task[None]] = set()
        self._cause = ""
        #: When bytes came last, in seconds of the event loop's clock; and whether any came.
        self.heard_s = self._loop.time()
        self.was_heard = False
        #: Called while calls wait and nothing comes, each `silent_s`.
        self.on_silence: Callable[[], None] | None = None
        #: Since when a call waits and nothing has come; None: no call waits.
        self._owed_s: float | None = None
        self._watch: asyncio.TimerHandle | None = None
        #: Done when the connection is closed.
        self.gone: asyncio.Future[None] = self._loop.create_future()

    @property
    def is_usable(self) -> bool:
        """Whether new calls may begin."""
        return not (self._retiring or self._transport is None or self._transport.is_closing())

    @property
    def in_flight(self) -> int:
        """Calls that wait for their answers."""
        return self._calls.in_flight

    def silent_s(self) -> float:
        """Seconds in which nothing has come although calls wait; 0: none wait."""
        return 0.0 if self._owed_s is None else self._loop.time() - self._owed_s

    @property
    def unmatched(self) -> int:
        """Answers that nobody waited for."""
        return self._calls.unmatched

    async def call(self, request: Request, until_s: float) -> Response:
        """The answer. Raises DeadlineOver, ConnectionLost, TooBusy, BadFormat; Unreachable if it is closed already."""
        if self._transport is None or self._transport.is_closing():
            raise self._closed()
        now_s = self._loop.time()
        if now_s >= until_s:
            raise DeadlineOver(f"the deadline was over before {self._address} was asked", maybe_done=False)
        future: asyncio.Future[Response] = self._loop.create_future()
        opaque = self._calls.send(request, functools.partial(_end, future), self._transport.get_write_buffer_size())
        self._waiting[opaque] = future
        moment_s = self._deadlines.add(opaque, now_s, until_s)
        self._flush_soon()
        if self._owed_s is None:
            self._owe(now_s)
        try:
            return await future
        finally:
            del self._waiting[opaque]
            self._deadlines.remove(opaque, moment_s)
            self._calls.forget(opaque)
            if not self._calls.in_flight:
                self._owed_s = None
            if self._retiring:
                self._close_if_retired()

    def _owe(self, now_s: float) -> None:
        self._owed_s = now_s
        if self._watch is None and self.on_silence is not None:
            self._watch = self._loop.call_later(self._limits.silent_s, self._watched)

    def _watched(self) -> None:
        """Looks whether something came. One timer, however many calls there are; none while no call waits."""
        self._watch = None
        if self._owed_s is None or self.on_silence is None:
            return
        left_s = self._limits.silent_s - self.silent_s()
        if left_s <= 0:
            self.on_silence()
        self._watch = self._loop.call_later(left_s if left_s > 0 else self._limits.silent_s, self._watched)

    def _closed(self) -> Unreachable:
        why = f": {self._cause}" if self._cause else ""
        return Unreachable(f"the connection to {self._address} is closed{why}")

    def _late(self, opaque: int) -> None:
        error = DeadlineOver(f"{self._address} did not answer before the deadline", maybe_done=True)
        _end(self._waiting[opaque], error)

    def send_oneway(self, request: Request) -> None:
        """Sends a request that is not answered. Raises BadFormat, Unreachable."""
        if self._transport is None or self._transport.is_closing():
            raise self._closed()
        self._calls.send_oneway(request)
        self._flush_soon()

    def retire(self) -> None:
        """Takes no new calls; closes when the open ones are over."""
        self._retiring = True
        self._close_if_retired()

    def abort(self, cause: str) -> None:
        """Ends the connection, and its calls with this cause."""
        self._cause = self._cause or cause
        if self._transport is not None:
            self._transport.abort()

    # ── Callbacks of asyncio ─────────────────────────────────────────────────────────────────────────────────────────

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The socket is connected, and TLS agreed on."""
        used = transport.get_extra_info("socket")
        if used is not None:
            used.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The memory for the next read."""
        return self._memory

    def buffer_updated(self, nbytes: int) -> None:
        """Handles the frames of a read. One that cannot be read ends the connection: the next cannot be found."""
        self.heard_s = self._loop.time()
        self.was_heard = True
        try:
            for command in self._calls.feed(bytes(self._memory[:nbytes])):
                self._serve(command)
        except BadFormat as error:
            _log.warning("%s sent what is no frame: %s", self._address, error)
            self.abort(f"it sent what is no frame: {error}")
        self._owed_s = self.heard_s if self._calls.in_flight else None

    def connection_lost(self, error: Exception | None) -> None:
        """Ends the calls. The broker may have carried them out, so none is repeated here."""
        cause = self._cause or (str(error) if error else "closed by the other side")
        if self._watch is not None:
            self._watch.cancel()
        self._calls.fail(f"the connection to {self._address} was lost before the answer: {cause}")
        for task in list(self._answering):
            task.cancel()
        if not self.gone.done():
            self.gone.set_result(None)

    # ── Requests of the broker ───────────────────────────────────────────────────────────────────────────────────────

    def _serve(self, command: Command) -> None:
        if len(self._answering) >= self._limits.broker_requests:
            self._respond(command, _BUSY)
            return
        task = self._loop.create_task(self._answered(command))
        self._answering.add(task)
        task.add_done_callback(self._served)

    def _served(self, task: asyncio.Task[None]) -> None:
        self._answering.discard(task)
        self._close_if_retired()

    async def _answered(self, command: Command) -> None:
        answer: Response | None = None
        try:
            if self._on_request is not None:
                answer = await self._on_request(command.request())
        except Exception:
            _log.exception("request %d of %s failed", command.code, self._address)
            answer = _FAILED
        self._respond(command, answer or _UNKNOWN)

    def _respond(self, command: Command, answer: Response) -> None:
        if not command.is_oneway:
            self._calls.answer(command, answer)
            self._flush_soon()

    # ── Writing ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _flush_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._scheduled = False
        raw = self._calls.take()
        if raw and self._transport is not None and not self._transport.is_closing():
            self._transport.write(raw)

    def _close_if_retired(self) -> None:
        if self._retiring and not self._calls.in_flight and not self._answering and self._transport is not None:
            self._flush()
            self._transport.close()


def _end(future: asyncio.Future[Response], outcome: Response | RemotingError) -> None:
    """Ends a call, unless it is over."""
    if future.done():
        return
    if isinstance(outcome, RemotingError):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
