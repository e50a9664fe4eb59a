"""One server by its address: connects when a call needs it, again when the connection was lost, and keeps it alive.

    call ─▶ breaker ─▶ PeerLink (a new one if there is none) ─▶ answer
              │ open: Unreachable at once                    ├ BUSY (2): again after a pause, until the deadline
              ▼                                              └ GO_AWAY: once more, on a new connection

A call whose connection is lost is not repeated here: only its caller knows whether it may be.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from popmq_remoting.codes import ResponseCode
from popmq_remoting.connection.breaker import Breaker
from popmq_remoting.connection.limits import PeerLimits
from popmq_remoting.connection.link import OnRequest, PeerLink
from popmq_remoting.errors import BadFormat, ConnectionLost, DeadlineOver, RemotingError, TooBusy, Unreachable
from popmq_remoting.wire.command import Request, Response
from popmq_remoting.wire.signature import Credentials, signed

_log = logging.getLogger("popmq_remoting")

#: Bytes of a read.
READ_BYTES = 256 << 10


@dataclass
class Access:
    """How all servers of a cluster are reached. `memory`: shared by the connections of an event loop.

    `credentials` may be replaced: each request is signed when it is sent.
    """

    limits: PeerLimits = field(default_factory=PeerLimits)
    tls: ssl.SSLContext | None = None
    server_name: str = ""
    credentials: Credentials | None = None
    memory: memoryview = field(default_factory=lambda: memoryview(bytearray(READ_BYTES)), repr=False)


@dataclass(frozen=True)
class PeerNumbers:
    """What an operator asks of one server."""

    address: str
    connected: bool
    breaker_open: bool
    in_flight: int
    connects: int
    failures: int
    unmatched_answers: int


class Peer:
    """One server. Make it in the event loop that uses it.

    `heartbeat`: what is sent when a connection is new and every 30 s from then on. `probe`: what a server has to answer
    after a failure, before other calls are sent to it, if there is no heartbeat. `parks`: its calls wait for long, so
    that silence means nothing.
    """

    def __init__(
        self,
        address: str,
        access: Access,
        heartbeat: Callable[[], Request] | None = None,
        on_request: OnRequest | None = None,
        probe: Request | None = None,
        parks: bool = False,
    ) -> None:
        self.address = address
        self._host, self._port = host_and_port(address)
        self._access = access
        self._limits = access.limits
        self._heartbeat = heartbeat
        self._probe = probe
        self._on_request = on_request
        self._parks = parks
        self._loop = asyncio.get_running_loop()
        self._breaker = Breaker(self._limits)
        self._link: PeerLink | None = None
        #: Also those that retire.
        self._open_links: set[PeerLink] = set()
        self._used_s = 0.0
        self._attempt: asyncio.Task[PeerLink] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._looking = False
        self._kept = False
        self._closed = False
        self._connects = self._failures = self._unmatched = 0
        #: Why the last attempt failed.
        self._why = ""

    async def call(self, request: Request, until_s: float) -> Response:
        """The answer, whatever its code, but for BUSY and GO_AWAY. `until_s`: by the event loop's clock.

        Raises Unreachable, TooBusy, ConnectionLost, DeadlineOver, BadFormat.
        """
        pause_s, went_away = self._limits.busy_first_s, False
        while True:
            link = self._usable() or await self._connected(until_s)
            try:
                answer = await link.call(self._signed(request), until_s)
            except DeadlineOver:
                self._look(link)
                raise
            if answer.code == ResponseCode.SYSTEM_BUSY:
                if self._loop.time() + pause_s >= until_s:
                    raise TooBusy(f"{self.address} is busy: {answer.remark}", max(1, int(pause_s * 1000)))
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, self._limits.busy_most_s)
            elif answer.code == ResponseCode.GO_AWAY:
                link.retire()
                if went_away:
                    raise Unreachable(f"{self.address} stops: {answer.remark}")
                went_away = True
            else:
                return answer

    async def send_oneway(self, request: Request, until_s: float) -> None:
        """Sends what is not answered. Raises Unreachable, DeadlineOver, BadFormat."""
        link = await self._connected(until_s)
        link.send_oneway(self._signed(request))

    async def beat(self) -> None:
        """Sends a heartbeat now: what it says has changed. Raises as `call`."""
        if self._heartbeat is not None:
            until_s = self._loop.time() + self._limits.connect_s + self._limits.heartbeat_answer_s
            await self.call(self._heartbeat(), until_s)

    def keep(self) -> None:
        """Stays connected from now on, also without calls, so that the server can send requests."""
        if not self._kept:
            self._kept = True
            self._start(self._stay_connected())

    @property
    def is_silent(self) -> bool:
        """Whether nothing has come for `silent_s` although calls wait: the server may stand still."""
        return self._link is not None and self._link.silent_s() >= self._limits.silent_s

    def numbers(self) -> PeerNumbers:
        """Counts since the start, and the state now."""
        link = self._link
        return PeerNumbers(
            self.address,
            link is not None and link.is_usable,
            not self._breaker.is_closed,
            link.in_flight if link else 0,
            self._connects,
            self._failures,
            self._unmatched + (link.unmatched if link else 0),
        )

    async def close(self) -> None:
        """Ends the connection, and the calls that are under way."""
        self._closed = True
        tasks = [*self._tasks, *([self._attempt] if self._attempt else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        links = list(self._open_links)
        for link in links:
            link.abort("closed here")
        for link in links:
            await link.gone

    # ── Calls ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _signed(self, request: Request) -> Request:
        credentials = self._access.credentials
        return signed(request, credentials) if credentials else request

    # ── Connecting ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _usable(self) -> PeerLink | None:
        """The link, unless it is lost, or was unused for so long that its server may just close it."""
        link, now_s = self._link, self._loop.time()
        if link is None or not link.is_usable or self._closed:
            return None
        if not link.in_flight and now_s - max(self._used_s, link.heard_s) >= self._limits.idle_s:
            link.retire()
            return None
        self._used_s = now_s
        return link

    async def _connected(self, until_s: float) -> PeerLink:
        """The link for a call. Raises Unreachable, or DeadlineOver if the deadline comes first."""
        if self._closed:
            raise Unreachable(f"the client of {self.address} is closed")
        if (link := self._usable()) is not None:
            return link
        now_s = self._loop.time()
        probing = not self._breaker.is_closed
        if (self._attempt is None or probing) and not self._breaker.admits(now_s):
            wait_s = self._breaker.left_s(now_s)
            why = f" ({self._why})" if self._why else ""
            raise Unreachable(f"{self.address} could not be reached{why}; it is tried again in {wait_s:.1f} s")
        if self._attempt is None:
            self._attempt = self._loop.create_task(self._open())
            self._attempt.add_done_callback(self._attempted)
        return await self._awaited(self._attempt, until_s)

    async def _awaited(self, attempt: asyncio.Task[PeerLink], until_s: float) -> PeerLink:
        """The link of an attempt that several calls wait for."""
        await asyncio.wait([attempt], timeout=max(0.0, until_s - self._loop.time()))
        if not attempt.done():
            raise DeadlineOver(f"{self.address} was not connected before the deadline", maybe_done=False)
        if attempt.cancelled():
            raise Unreachable(f"the client of {self.address} is closed")
        return attempt.result()

    def _attempted(self, attempt: asyncio.Task[PeerLink]) -> None:
        self._attempt = None
        if not attempt.cancelled():
            attempt.exception()  # looked at: its callers may all have gone

    async def _open(self) -> PeerLink:
        """A new link. Raises Unreachable. After a failure it has to answer, too: a stopped process still accepts."""
        proving = not self._breaker.is_closed
        link: PeerLink | None = None
        try:
            async with asyncio.timeout(self._limits.connect_s):
                link = await self._connect()
            if proving:
                await self._prove(link)
        except asyncio.CancelledError:
            if link is not None:
                link.abort("closed here")
            raise
        except (OSError, ValueError, TimeoutError, RemotingError) as error:  # ValueError: no name of a host
            self._failures += 1
            self._breaker.failed(self._loop.time(), refused=isinstance(error, ConnectionRefusedError))
            if link is not None:
                link.abort("it did not answer")
            self._why = _reason(error)
            raise Unreachable(f"cannot connect to {self.address}: {self._why}") from None
        self._adopt(link)
        return link

    async def _connect(self) -> PeerLink:
        access = self._access
        name = (access.server_name or self._host) if access.tls else None
        _, link = await self._loop.create_connection(
            lambda: PeerLink(self.address, self._limits, access.memory, self._on_request),
            self._host,
            self._port,
            ssl=access.tls,
            server_hostname=name,
        )
        return link

    async def _prove(self, link: PeerLink) -> None:
        request = self._heartbeat() if self._heartbeat else self._probe
        if request is None:
            return
        answer = await link.call(self._signed(request), self._loop.time() + self._limits.heartbeat_answer_s)
        if self._heartbeat and answer.code:
            _log.warning("%s answered a heartbeat with code %d: %s", self.address, answer.code, answer.remark)

    def _adopt(self, link: PeerLink) -> None:
        if self._link is not None:
            self._unmatched += self._link.unmatched
        self._link = link
        self._open_links.add(link)
        self._connects += 1
        self._used_s = self._loop.time()
        self._breaker.succeeded()
        link.gone.add_done_callback(lambda gone: self._lost(link))
        if not self._parks:
            link.on_silence = lambda: self._look(link)
        if self._heartbeat is not None:
            self._start(self._beats(link))

    def _lost(self, link: PeerLink) -> None:
        """A server that accepts and says nothing, or speaks something else, is one that cannot be reached."""
        self._open_links.discard(link)
        if not link.was_heard and not self._closed:
            self._failures += 1
            self._breaker.failed(self._loop.time())

    # ── Staying connected ────────────────────────────────────────────────────────────────────────────────────────────

    async def _beats(self, link: PeerLink) -> None:
        """Heartbeats until the link is gone."""
        while link.is_usable:
            await self._beat(link)
            await asyncio.wait([link.gone], timeout=self._limits.heartbeat_s)

    async def _beat(self, link: PeerLink) -> None:
        """One heartbeat, or probe. A server that does not answer it is given up."""
        try:
            await self._prove(link)
        except DeadlineOver:
            self._failures += 1
            self._breaker.failed(self._loop.time())
            link.abort(f"no answer to a heartbeat within {self._limits.heartbeat_answer_s} s")
        except (TooBusy, ConnectionLost, BadFormat, Unreachable):
            pass  # noticed by calls

    def _look(self, link: PeerLink) -> None:
        """Calls wait, or one ended late: asks whether the server is there, unless it was heard, or is being asked."""
        silent = self._loop.time() - link.heard_s >= self._limits.silent_s
        if silent and link.is_usable and not self._looking:
            self._looking = True
            task = self._start(self._beat(link))
            task.add_done_callback(self._looked)

    def _looked(self, task: asyncio.Task[None]) -> None:
        self._looking = False

    async def _stay_connected(self) -> None:
        while True:
            with contextlib.suppress(RemotingError):
                link = await self._connected(self._loop.time() + self._limits.connect_s)
                await asyncio.wait([link.gone])
            pause_s = self._breaker.left_s(self._loop.time())
            await asyncio.sleep(pause_s or self._limits.again_s)

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task that is kept, or the event loop might forget it."""
        task = self._loop.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def host_and_port(address: str) -> tuple[str, int]:
    """`host:port` in its two parts; an IPv6 address stands in brackets. Raises BadFormat."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 65536:
        raise BadFormat(f"{address!r} is no address: write host:port")
    return host, int(port)


def _reason(error: Exception) -> str:
    return str(error) or ("no answer in time" if isinstance(error, TimeoutError) else type(error).__name__)
