"""The life of the embedded engine: its store is opened, served, and closed in order (contract/life.py)."""

import asyncio
import pathlib

from popmq_server.clock import Clock
from popmq_server.contract.commands import queries
from popmq_server.contract.engine import RoomForAnswers
from popmq_server.contract.life import EngineNumbers, Words
from popmq_server.embedded.loop.broker import EmbeddedEngine
from popmq_server.embedded.operations import StoreState
from popmq_server.embedded.store.datafile.history_file import HistoryFile
from popmq_server.embedded.store.formats import FORMAT
from popmq_server.errors import CommitFailed
from popmq_server.monitoring.history_format import is_history
from popmq_server.monitoring.metrics import Metrics
from popmq_server.options import Options


class EmbeddedLife:
    """`note_faults`: the process is only this broker, and a signal that ends it is noted in the data folder."""

    words = Words("the writer", "a commit failed", CommitFailed.recovery, "the folder is free")

    def __init__(
        self, options: Options, clock: Clock, metrics: Metrics, room: RoomForAnswers, *, note_faults: bool
    ) -> None:
        self._options, self._clock, self._metrics, self._room = options, clock, metrics, room
        self._note_faults = note_faults
        self.labels = {"store_format": str(FORMAT)}
        metrics.watch_store(synced=options.sync != "none")

    async def start(self) -> EmbeddedEngine:
        """Locks the folder, opens the store and reads it, which may take long and blocks the event loop."""
        self.engine = EmbeddedEngine(
            self._options, self._clock, self._metrics, note_faults=self._note_faults, room=self._room
        )
        return self.engine

    @property
    def failed(self) -> "asyncio.Future[BaseException]":
        """Done when a commit has failed for good."""
        return self.engine.failed

    async def alive(self) -> None:
        """Waits for the next commit batch."""
        await self.engine.run(StoreState())

    async def ready(self) -> None:
        """As `alive`: the engine has started before the ports open."""
        await self.alive()

    def reload(self) -> list[str]:
        """It has no files of its own."""
        return []

    def parked(self) -> int:
        """Long polls, calls of WaitAvailable, Pulls at the end of a queue, and waits for results."""
        engine = self.engine
        lots = (engine.waiters, engine.watchers, engine.quota_waiters, engine.pulls.waiters, engine.results.waiters)
        return sum(lot.count for lot in lots)

    async def numbers(self) -> EngineNumbers:
        """Asks the writer, one list after the other."""
        engine = self.engine
        topics = await engine.ask(queries.Topics())
        groups = await engine.ask(queries.Groups())
        producers = len(engine.producers.streams())
        schedules = (await engine.run(StoreState())).schedules
        return EngineNumbers(topics, groups, producers, await engine.ask(queries.StoreSize()), schedules)

    def certificate_folder(self) -> pathlib.Path:
        """The data folder."""
        return self._options.data

    def history(self) -> HistoryFile:
        """A file in the data folder."""
        return HistoryFile(self._options.data, is_history)

    def close_waits(self) -> None:
        """Answers the parked calls and ends the producer streams."""
        self.engine.close_waits()

    async def close(self) -> None:
        """Lets the writer drain, then closes the store and unlocks the folder. Raises CommitFailed."""
        await self.engine.close()
