"""A broker of the second engine (tests/engine/stub.py), as EmbeddedBroker is one of the first."""

from __future__ import annotations

import asyncio
import threading
import urllib.request
from collections.abc import Coroutine
from typing import Self, TypeVar
from unittest import mock

from popmq_server.clock import Clock
from popmq_server.contract.commands import queries
from popmq_server.contract.life import EngineNumbers, Words
from popmq_server.options import Options
from popmq_server.process.engines import FACTORIES
from popmq_server.process.serving import Serving
from tests.engine.stub import StubEngine
from tests.remoting.fake.cluster import FakeCluster
from tests.wire.stubs import CALL_S

T = TypeVar("T")


class StubLife:
    """An engine that keeps nothing: it has no store, no folder, and no place for a certificate or a history."""

    words = Words("the stub", "the stub failed", "nothing is left", "nothing is left")

    def __init__(self, clock: Clock) -> None:
        self.labels = {"kept": "nowhere"}
        self.engine = StubEngine(clock)
        self.ended: list[str] = []

    async def start(self) -> StubEngine:
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        return self.engine

    async def alive(self) -> None: ...

    async def ready(self) -> None: ...

    def reload(self) -> list[str]:
        return []

    def parked(self) -> int:
        return 0

    async def numbers(self) -> EngineNumbers:
        return EngineNumbers(
            await self.engine.ask(queries.Topics()), await self.engine.ask(queries.Groups()), producers=0
        )

    def certificate_folder(self) -> None: ...

    def history(self) -> None: ...

    def close_waits(self) -> None:
        self.ended.append("waits")

    async def close(self) -> None:
        self.ended.append("engine")


class Served:
    """`popmq serve` with the stub, in an event loop of its own."""

    def __init__(self, clock: Clock, *, metrics_port: int = 0, tls_port: int = 0) -> None:
        self.clock, self.life, self.metrics_port = clock, StubLife(clock), metrics_port
        self._options = Options(engine="stub", port=0, metrics_port=metrics_port, tls_port=tls_port)
        self._open, self.loop = threading.Event(), asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._failed: BaseException | None = None

    def _run(self) -> None:
        try:
            self.loop.run_until_complete(self._serve())
        except BaseException as error:
            self._failed = error
            self._open.set()
        finally:
            self.loop.run_until_complete(self._nothing_left())

    async def _nothing_left(self) -> None:
        """Ends what still runs, such as requests that a fake broker has not answered: Python would complain of it."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    async def _serve(self) -> None:
        with mock.patch.dict(FACTORIES, stub=lambda *_: self.life):
            await self._until_done()

    async def _until_done(self) -> None:
        self._done = asyncio.Event()
        async with Serving(self._options, self.clock) as self.serving:
            self.endpoint = f"127.0.0.1:{self.serving.port}"
            self._open.set()
            await self._done.wait()

    def scraped(self) -> str:
        """The text of its metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics") as answer:
            return str(answer.read().decode())

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._open.wait(CALL_S)
        if self._failed is not None:  # at once: a test that waits for a port would wait for each of its cases
            self._thread.join()
            self.loop.close()
            raise self._failed
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self._done.set)
        self._thread.join()
        self.loop.close()


class ServedCluster(Served):
    """`popmq serve --engine rocketmq` with two brokers of tests/remoting/fake, in an event loop of their own.

    Brokers have the time of `clock`. `fake`: to be changed by `within` only.
    """

    async def _serve(self) -> None:
        self.fake = FakeCluster(("a", "b"), now_ms=self.clock.wall_ms)
        async with self.fake:
            self.fake.register()
            addresses = tuple(server.address for server in self.fake.name_servers)
            self._options = Options(engine="rocketmq", namesrv=addresses, port=0, metrics_port=0, tls_port=0)
            await self._until_done()

    def within(self, doing: Coroutine[object, object, T]) -> T:
        """Runs it in the event loop of the brokers."""
        return asyncio.run_coroutine_threadsafe(doing, self.loop).result(CALL_S)
