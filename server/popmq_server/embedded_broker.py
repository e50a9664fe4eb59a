"""A whole broker in this process, on its own threads: for tests, notebooks, programs with a broker of their own."""

import asyncio
import pathlib
import threading
from collections.abc import Iterable
from types import TracebackType

from popmq_http2.elapsed import new_event_loop
from popmq_server.clock import Clock, SystemClock
from popmq_server.options import (
    HOST,
    TRANSPORT,
    Options,
    Unnamed,
    address,
    hosts,
    overlap,
)
from popmq_server.process.serving import Serving

#: Bytes of the data file, for tests and small programs.
MAX_SIZE = Unnamed(1 << 30)


class EmbeddedBroker:
    """`with EmbeddedBroker(folder) as broker: Client(broker.endpoint)`.

    `data`: the data folder. `clock`: a FakeClock for tests. The others are the flags of `popmq serve`, with defaults of
    their own: any free port, no TLS, no metrics. `host`, `metrics_host`: one, or several; ValueError if two overlap.
    Raises StartError from `start`.
    """

    def __init__(
        self,
        data: pathlib.Path,
        *,
        host: str | Iterable[str] = HOST,
        port: int = 0,
        clock: Clock | None = None,
        sync: str = "full",
        metrics_port: int = 0,
        max_size: int = MAX_SIZE,
        tls_port: int = 0,
        http_port: int = 0,
        http_origins: Iterable[str] = (),
        tls_only: bool = False,
        tls_cert: pathlib.Path | None = None,
        tls_key: pathlib.Path | None = None,
        tls_client_ca: pathlib.Path | None = None,
        tls_client_required: bool = False,
        access_keys: pathlib.Path | None = None,
        metrics_host: str | Iterable[str] = HOST,
        transport: str = TRANSPORT,
    ) -> None:
        self._options = Options(
            data=pathlib.Path(data),
            host=_hosts(host),
            port=port,
            metrics_port=metrics_port,
            max_size=max_size,
            sync=sync,
            tls_port=tls_port,
            http_port=http_port,
            http_origins=tuple(http_origins),
            tls_only=tls_only,
            tls_cert=tls_cert,
            tls_key=tls_key,
            tls_client_ca=tls_client_ca,
            tls_client_required=tls_client_required,
            access_keys=access_keys,
            metrics_host=_hosts(metrics_host),
            transport=transport,
        )
        self.clock = clock or SystemClock()
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None
        self.port = 0
        self.certificate: pathlib.Path | None = None  # of the TLS port

    @property
    def endpoint(self) -> str:
        """host:port, once started, of the first host; the TLS port's when it is the only one."""
        return address(self._options.host[0], self.port)

    @property
    def tls_endpoint(self) -> str:
        """host:port of the TLS port, of the first host."""
        return address(self._options.host[0], self._options.tls_port)

    @property
    def http_url(self) -> str:
        """The address of the HTTP port, of the first host."""
        scheme = "https" if self._options.tls_only else "http"
        return f"{scheme}://{address(self._options.host[0], self._options.http_port)}"

    def start(self) -> "EmbeddedBroker":
        """Returns when the port is open."""
        self._ready.clear()
        self._error = None
        self._thread = threading.Thread(target=self._run, name="popmq-broker", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._error is not None:
            self._thread.join()
            raise self._error
        return self

    def _run(self) -> None:
        """Timers of the broker go on while a test has stopped the clocks of this process."""
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        """Runs the broker's own event loop, on its own thread."""
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        try:
            async with Serving(self._options, self.clock) as serving:
                self.serving = serving
                self.port, self.certificate = serving.port, serving.certificate
                self._ready.set()
                await self._stop.wait()
        except BaseException as error:
            self._error = error
            self._ready.set()

    def stop(self) -> None:
        """Drains, closes the store and unlocks the folder. Idempotent.

        Parked Pops are answered empty; running calls get a few seconds.
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


def _hosts(given: str | Iterable[str]) -> tuple[str, ...]:
    found = hosts(given)
    if why := overlap(found):
        raise ValueError(why)
    return found
