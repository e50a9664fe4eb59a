"""Sends what waits to the broker in the background, many in one request; closing waits until the broker has it."""

from popmq._async.concurrency import BackgroundLoop, Event, Lock
from popmq._async.transport.wire import Wire
from popmq._consuming.clock import Clock
from popmq_http2.elapsed import monotonic


class BackgroundSender:
    """A worker for what any thread adds. Subclasses keep what waits, and send it in `_step`.

    Who adds holds `_lock` and calls `_begun`, then wakes the worker; `_step` calls `_emptied` when nothing is left.
    """

    def __init__(self, name: str, wire: Wire, clock: Clock) -> None:
        self._wire = wire
        self._clock = clock
        self._lock = Lock()
        self._idle = Event()
        self._idle.set()
        self._gave_up = False
        self._worker = BackgroundLoop(name, self._step)
        # A fake clock moves on only after the broker has everything of the time before.
        clock.drive(self.due, lambda: self._worker.wait_for(self.flush))

    async def _step(self) -> float | None:
        """Sends what waits. Returns in how many seconds it is to be called again; None: when it is woken."""
        raise NotImplementedError

    def _begun(self) -> None:
        """Something waits now. The caller holds the lock."""
        if self._idle.is_set():
            self._idle.clear()

    def _emptied(self) -> None:
        """The broker has everything. The caller holds the lock."""
        self._gave_up = False
        self._idle.set()

    def bind(self) -> None:
        """To be called in the event loop before anything is added."""
        self._worker.bind()

    def due(self) -> float | None:
        """Now, if something waits."""
        return None if self._idle.is_set() else self._clock.now()

    async def flush(self, closing: bool = False) -> None:
        """Waits until the broker has everything, at most one call's timeout. After a timeout it does not wait again.

        `closing`: only as long as the broker answers, see `Wire.closing_left`.
        """
        if self._idle.is_set() or self._gave_up:
            return
        self._worker.wake(awaited=True)
        left = end = self._wire.timeouts.settle
        until = monotonic() + end
        while not self._idle.is_set() and left > 0:
            end = until - monotonic()
            left = min(end, self._wire.closing_left()) if closing else end
            await self._idle.wait(max(left, 0.0))
        self._gave_up = not self._idle.is_set()

    async def stop(self) -> None:
        """Ends the worker after its running step."""
        await self._worker.stop()
