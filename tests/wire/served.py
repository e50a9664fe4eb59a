"""A server in front of the second engine (tests/engine/stub.py), as EmbeddedBroker is one in front of the first."""

from __future__ import annotations

import asyncio
import threading

from popmq_server.clock import FakeClock
from popmq_server.monitoring.metrics import Metrics
from popmq_server.protocols.server import Server
from tests.engine.stub import StubEngine
from tests.wire.stubs import CALL_S


class Served:
    """A server in front of the stub, in an event loop of its own."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self._open, self._loop = threading.Event(), asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._failed: BaseException | None = None

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        except BaseException as error:
            self._failed = error
            self._open.set()

    async def _serve(self) -> None:
        self._done = asyncio.Event()
        server = Server(StubEngine(self.clock), self.clock, Metrics())
        self.endpoint = f"127.0.0.1:{server.open(('127.0.0.1',), 0)}"
        await server.start()
        self._open.set()
        await self._done.wait()
        await server.stop(0)

    def __enter__(self) -> Served:
        self._thread.start()
        assert self._open.wait(CALL_S)
        if self._failed is not None:  # at once: a test that waits for a port would wait for each of its cases
            raise self._failed
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._done.set)
        self._thread.join()
        self._loop.close()
