"""A whole broker in this process, on threads of its own: for tests, notebooks, programs that bring their queue."""

import asyncio
import pathlib
import threading
from types import TracebackType

from popmq_server.clock import Clock, SystemClock
from popmq_server.options import HOST, Options, address
from popmq_server.serving import Serving


class EmbeddedBroker:
    """`with EmbeddedBroker(folder) as broker: Client(broker.endpoint)`.

    `data`: the data folder. `sync`: as `--sync`. `clock`: a FakeClock for tests. Raises StartError from `start`.
    """

    def __init__(
        self,
        data: pathlib.Path,
        *,
        host: str = HOST,
        port: int = 0,
        clock: Clock | None = None,
        sync: str = "full",
        metrics_port: int = 0,
        max_size: int = 1 << 30,
    ) -> None:
        self._options = Options(pathlib.Path(data), host, port, metrics_port, max_size, sync)
        self.clock = clock or SystemClock()
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self.port = 0

    @property
    def endpoint(self) -> str:
        """host:port, once started."""
        return address(self._options.host, self.port)

    def start(self) -> "EmbeddedBroker":
        """Returns when the port is open."""
        self._ready.clear()
        self._error = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), name="popmq-broker", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    async def _serve(self) -> None:
        """The broker's own event loop, on its own thread."""
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            async with Serving(self._options, self.clock) as serving:
                self.port = serving.port
                self._ready.set()
                await self._stop.wait()
        except BaseException as error:
            self._error = error
            self._ready.set()

    def stop(self) -> None:
        """Drains and gives the folder free; a second call does nothing.

        Parked Pops are answered empty, running calls get a few seconds.
        """
        if self._thread is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join()
        self._thread = None

    def __enter__(self) -> "EmbeddedBroker":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
