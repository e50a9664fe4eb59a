"""An event loop of asyncio in virtual time, as a strand of a process: with asyncio's turns, and the network's sockets.

asyncio promises the order of what was called soon, and this loop keeps it. Which arrives first, bytes or another
thread's answer, is for the scheduler: between two turns, and between two callbacks of a turn, other strands may run.
"""

from __future__ import annotations

import asyncio
import heapq
from typing import TYPE_CHECKING, Any

from tests.simulated.scheduler import MS, US, Killed, Process, S

if TYPE_CHECKING:
    from tests.simulated.network import Network

#: For how long other threads run between two callbacks of one turn.
INTERRUPTED_NS = 1 * US, 3 * MS


class Loop(asyncio.BaseEventLoop):
    """The loop of one process. `complaints`: what asyncio reports to the handler of exceptions."""

    _ready: Any  # of BaseEventLoop: the handles of the next turn, and those of timers
    _scheduled: list[asyncio.TimerHandle]
    over = True  # until it is made

    def __init__(self, process: Process, network: Network) -> None:
        super().__init__()
        self.process, self.network = process, network
        self.complaints: list[str] = []
        self.over = False
        self.set_exception_handler(self._complain)

    def _complain(self, _: Any, context: dict[str, Any]) -> None:
        if not self.process.killed:
            self.complaints.append(f"{context['message']}: {context.get('exception')!r}")

    # ── The strand ───────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        """Turns until `over`, or until the process is killed."""
        asyncio._set_running_loop(self)
        scheduler = self.process.scheduler
        try:
            while not self.over:
                if not self._ready:
                    scheduler.wait(self._is_called, self._next_ns())
                self._turn()
        finally:
            asyncio._set_running_loop(None)
            self.over = True
            self.close()

    def _is_called(self) -> bool:
        return bool(self._ready) or self.over

    def _next_ns(self) -> int | None:
        while self._scheduled and self._scheduled[0]._cancelled:
            heapq.heappop(self._scheduled)
        return int(self._scheduled[0].when() * S) + 1 if self._scheduled else None

    def _turn(self) -> None:
        """One turn: the timers that are due, then all that was ready when it began."""
        while self._scheduled and self._scheduled[0].when() <= self.time():
            self._ready.append(heapq.heappop(self._scheduled))
        scheduler = self.process.scheduler
        for _ in range(len(self._ready)):
            handle = self._ready.popleft()
            if not handle._cancelled:
                handle._run()
                if self.process.killed:
                    raise Killed
                if scheduler.chance(scheduler.interrupted):
                    scheduler.pause(scheduler.between(*INTERRUPTED_NS))
        scheduler.pause(0)

    # ── What asyncio and the broker call ─────────────────────────────────────────────────────────────────────────────

    def time(self) -> float:
        return self.process.scheduler.now_ns / S

    def is_running(self) -> bool:
        return not self.over

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """`_next_ns` and `_turn` drop cancelled timers when they come to them."""

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        """From another thread, which the scheduler may then let wait."""
        if self.process.killed:
            raise Killed
        handle = self.call_soon(callback, *args, context=context)
        scheduler = self.process.scheduler
        if scheduler.current is not None:
            scheduler.pause(scheduler.between(0, 20 * US))
        return handle

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """Another strand of the process."""
        future = self.create_future()

        def settle(result: Any, error: BaseException | None) -> None:
            if not future.done():
                future.set_result(result) if error is None else future.set_exception(error)

        def run() -> None:
            try:
                result, error = func(*args), None
            except Exception as failed:
                result, error = None, failed
            self.call_soon_threadsafe(settle, result, error)

        self.process.start("executor", run)
        return future

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        return await self.network.connect(self, protocol_factory)

    async def create_server(self, protocol_factory: Any, *_: Any, **__: Any) -> Any:
        return self.network.listen(self, protocol_factory)
