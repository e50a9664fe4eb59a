"""The broker of a run: `Serving`, whole, on the loop of a process; its clients are in another one."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from popmq_server.clock import SystemClock
from popmq_server.embedded.store.store import Store
from popmq_server.options import Options
from popmq_server.process.serving import Serving
from tests.simulated.loop import Loop
from tests.simulated.network import Network
from tests.simulated.scheduler import Process, S, Scheduler
from tests.simulated.seams import WALL_NS, Ports


class Broker:
    """Starts, stops and kills brokers on one folder, one after the other. Its methods are for the story's strand."""

    def __init__(self, scheduler: Scheduler, network: Network, folder: Path, journal: str) -> None:
        self._scheduler, self._network = scheduler, network
        self._options = Options(folder, metrics_port=0, max_size=64 << 20, sync="none", journal=journal)
        self._clock = SystemClock(lambda: (scheduler.now_ns + WALL_NS) / S, lambda: scheduler.now_ns)
        #: What was wrong in the brokers that ended by themselves: tasks left, exceptions that nobody looked at.
        self.complaints: list[str] = []
        self.process: Process | None = None
        self._starts = 0
        self._serving: Serving | None = None
        self._ready = False
        self.error: BaseException | None = None

    def start(self) -> None:
        """Returns when it serves."""
        self._starts += 1
        self._ready, self.error, self._serving = False, None, None
        self.process = Process(self._scheduler, f"broker{self._starts}")
        self.loop = Loop(self.process, self._network)
        self._main = self.loop.create_task(self._serve(self.loop), name="main")
        self.process.start("loop", self.loop.run)
        self._scheduler.wait(lambda: self._ready or self.loop.over)
        if self.error is not None:
            raise self.error

    async def _serve(self, loop: Loop) -> None:
        self._stop = asyncio.Event()
        try:
            async with Serving(self._options, self._clock, listening=Ports()) as self._serving:
                self._ready = True
                stop = asyncio.ensure_future(self._stop.wait())
                await asyncio.wait((stop, self._serving.failed), return_when="FIRST_COMPLETED")
                stop.cancel()
        except Exception as error:
            self.error = error
        await asyncio.sleep(0)
        left = [task for task in asyncio.all_tasks(loop) if task is not asyncio.current_task()]
        self.complaints += [f"a task was left: {task}" for task in left]
        self.complaints += loop.complaints
        loop.over = True

    @property
    def ended(self) -> bool:
        """Whether it serves no more, because its disk failed."""
        return self.loop.over

    def stop(self) -> None:
        """As SIGTERM. Returns when it has ended. Raises what its end raised."""
        self._scheduler.note("stop")
        if not self.loop.over:
            self.loop.call_soon(self._stop.set)
            self._scheduler.wait(lambda: self.loop.over)
        if self.error is not None:
            raise self.error

    def kill(self) -> None:
        """As kill -9: the system closes what the process had open. All that was committed stays."""
        self._scheduler.note("kill")
        assert self.process is not None
        self.process.kill()
        self._network.killed(self.process)
        if self._serving is not None and (engine := getattr(self._serving.life, "engine", None)) is not None:
            _close_files(engine.store)

    def sleep(self, ns: int) -> None:
        """As SIGSTOP and SIGCONT."""
        assert self.process is not None
        self._scheduler.note(f"sleep {ns}")
        self.process.sleeps_until_ns = self._scheduler.now_ns + ns


def _close_files(store: Store) -> None:
    """Closes the files of a killed broker, without what a stop does before."""
    if not store._lock._handles:
        return  # it was closed already
    if store.folding is not None:
        with contextlib.suppress(OSError):
            store.folding.abandon()
    store._env.close()
    os.close(store._file)
    store._lock.close()
