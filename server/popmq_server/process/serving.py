"""One engine with its ports, inside an event loop: used by `popmq serve` and `popmq.testing`."""

import asyncio
import contextlib
import errno
import logging
import pathlib
from collections.abc import Coroutine
from concurrent import futures
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from popmq_server import logs, ports
from popmq_server.clock import Clock, pause
from popmq_server.contract.commands import queries
from popmq_server.contract.engine import BasicEngine
from popmq_server.contract.life import Life, Words
from popmq_server.errors import Refused, StartError
from popmq_server.monitoring.metrics import Metrics, Scrape
from popmq_server.monitoring.port import ANSWER_S, MonitoringPort, ProbeAnswer, monitoring_sockets
from popmq_server.monitoring.sampling import Sampler
from popmq_server.options import DRAIN_S, Options, Unnamed
from popmq_server.process.engines import FACTORIES
from popmq_server.protocols.access.known_keys import Keys
from popmq_server.protocols.answer_room import AnswerRoom
from popmq_server.protocols.server import Server

if TYPE_CHECKING:  # only a broker with TLS loads cryptography
    from popmq_server.protocols.access.certificate import Certificate

log = logging.getLogger("popmq")

#: Interval of the warnings about a certificate that ends soon.
DAY_S = 86_400.0
T = TypeVar("T")


async def _warn_daily(certificate: "Certificate") -> None:
    while True:
        await pause(DAY_S)
        certificate.warn()


class Serving:
    """`async with`: opens everything on entry, the port last; closes everything on exit, the port first.

    A failure on entry closes what was open, and raises; StartError names the cure.
    """

    def __init__(
        self, options: Options, clock: Clock, *, note_faults: bool = False, listening: ports.Ports | None = None
    ) -> None:
        """`note_faults`: the process is only this broker, and a signal that ends it may be noted.

        `listening`: where its sockets come from; by default it opens them.
        """
        self._options = options
        self._listening = listening or ports.Ports()
        self._note_faults = note_faults
        self._clock = clock
        self.port = options.tls_port  # the TLS port, when it is the only one
        self.certificate: pathlib.Path | None = None
        self._keys: Keys | None = None
        self._served: Certificate | None = None
        self._phase = "starting"
        self._closing = contextlib.AsyncExitStack()
        #: Default ports that are not served, because they are taken: (purpose, flag, port).
        self.left_out: list[tuple[str, str, int]] = []

    async def __aenter__(self) -> "Serving":
        """Opens keys, HTTP port, engine, and the port last, so that clients meet a ready broker."""
        options = self._options
        metrics = self._metrics = Metrics()
        factory = FACTORIES[options.engine]
        life = self.life = factory(options, self._clock, metrics, AnswerRoom(), self._note_faults)
        metrics.describe(**life.labels)
        keys = self._keys = Keys(options.access_keys, self._clock) if options.access_keys else None
        metrics.watch_keys(keys.numbers if keys is not None else list)
        metrics.watch_certificate(lambda: self._served.left_s() if self._served is not None else None)
        metrics.watch_log(logs.dropped)
        try:
            if options.metrics_port:
                self._open_monitoring()
            engine = await life.start()
            self._closing.push_async_callback(life.close)
            self._sample(engine)
            connections = options.connections_per_address
            self._server = Server(
                *(engine, self._clock, metrics, keys, options.transport, connections, self._listening),
                options.http_origins,
            )
            self._closing.push_async_callback(self._server.stop, DRAIN_S)
            self._closing.callback(life.close_waits)
            self._watch(life)
            if options.tls_port:
                self._serve_tls()
            if not options.tls_only:
                self.port = self._server.open(options.host, options.port)
            if options.http_port:
                self._serve_http()
            await self._server.start()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        self._phase = "serving"
        return self

    def _serve_tls(self) -> None:
        """Opens the TLS port. A port in use, or no certificate, is an error only if a flag asked for TLS."""
        options = self._options
        named = options.tls_cert is not None or options.tls_client_ca is not None
        asked = options.tls_only or named or not isinstance(options.tls_port, Unnamed)
        made = self._certificate()
        if made is None and not asked:
            return
        if made is None:
            raise StartError(f"--engine {options.engine} makes no certificate: name one by --tls-cert and --tls-key")
        try:
            self._server.open_tls(options.host, options.tls_port, made, options.tls_client_required)
        except StartError as error:
            cause = error.__cause__
            if asked or (isinstance(cause, OSError) and cause.errno != errno.EADDRINUSE):
                raise
            self.left_out.append(("TLS", "--tls-port", options.tls_port))
        else:
            self.certificate, self._served = made.cert, made
            self._closing.callback(asyncio.ensure_future(_warn_daily(made)).cancel)

    def _serve_http(self) -> None:
        """Opens the HTTP port. A port in use is an error only if a flag named it."""
        options = self._options
        try:
            certificate = self._served if options.tls_only else None
            self._server.open_http(options.host, options.http_port, certificate, options.tls_client_required)
        except StartError as error:
            if not ports.is_left_out(options.http_port, error):
                raise
            self.left_out.append(("HTTP", "--http-port", options.http_port))

    def _certificate(self) -> "Certificate | None":
        """The configured certificate, or the development certificate, if the engine has a place for it."""
        from popmq_server.protocols.access.certificate import Certificate, development

        options = self._options
        if options.tls_cert and options.tls_key:
            return Certificate(options.tls_cert, options.tls_key, self._clock, options.tls_client_ca)
        if (folder := self.life.certificate_folder()) is None:
            return None
        return development(folder, options.host, self._clock, options.tls_client_ca)

    @property
    def failed(self) -> "asyncio.Future[BaseException]":
        """Done when the engine is lost."""
        return self.life.failed

    @property
    def words(self) -> Words:
        """How sentences for operators name its parts."""
        return self.life.words

    def reload(self) -> list[str]:
        """Reads the access keys, the certificate and files of the engine again, if they changed; returns what changed.

        Files that cannot be used change nothing, and are reported in the log.
        """
        keys = self._keys.reload() if self._keys else ""
        certificate = self._served.reload() if self._served else ""
        engine = self.life.reload() if self._phase == "serving" else []  # a start reads its files anyway
        return [change for change in (keys, certificate, *engine) if change]

    def _open_monitoring(self) -> None:
        """Opens the HTTP port before the engine, whose start may take long: probes are answered meanwhile."""
        self._loop = asyncio.get_running_loop()
        probes = {"/healthz": self._healthy, "/readyz": self._ready}
        opened = monitoring_sockets(self._options, self._listening)
        if not opened:
            self.left_out.append(("metrics", "--metrics-port", self._options.metrics_port))
        for one in opened:
            self._closing.callback(MonitoringPort(one, self._metrics.app(), probes).close)

    def _watch(self, life: Life) -> None:
        """Adds the engine's numbers to the scrapes."""
        began_ms = self._clock.now_ms()

        async def look() -> Scrape:
            numbers = await life.numbers()
            return Scrape(self._clock.now_ms(), self._clock.wall_ms(), began_ms, numbers)

        self._metrics.watch(lambda: self._seen(look()), life.parked)

    def _sample(self, engine: BasicEngine) -> None:
        """Begins to record the history of the numbers."""

        async def used_bytes() -> int:
            return (await engine.ask(queries.StoreSize())).used_bytes

        sampler = Sampler(self._clock, self._metrics, engine, used_bytes, self.life.history())
        sampler.start()
        self._closing.push_async_callback(sampler.stop)

    def _seen(self, question: Coroutine[object, object, Scrape]) -> Scrape | None:
        """Returns the engine's numbers; None while it does not answer in time, and while the broker stops."""
        try:
            return self._run(question)
        except (TimeoutError, futures.CancelledError, Refused):
            return None
        except RuntimeError:  # the event loop has ended
            question.close()
            return None

    def _run(self, question: Coroutine[object, object, T]) -> T:
        """Runs a coroutine in the event loop, for a thread of the HTTP port. Raises TimeoutError after ANSWER_S."""
        asked = asyncio.run_coroutine_threadsafe(question, self._loop)
        try:
            return asked.result(ANSWER_S)
        except TimeoutError:
            asked.cancel()
            raise

    async def alive(self) -> bool:
        """Whether the engine answers; waits while it does not. Too many waiting requests are a sign of life."""
        try:
            await self.life.alive()
        except Refused as refused:
            return refused.code == "BUSY"
        return True

    async def waits_for(self) -> str:
        """What clients cannot be served without; "" once they can be."""
        try:
            await self.life.ready()
        except Refused as refused:
            return refused.message
        return ""

    def _healthy(self) -> ProbeAnswer:
        """Whether a restart would not help. A start is healthy: it may take minutes."""
        if self._phase == "starting":
            return ProbeAnswer(True, "starting")
        if self.life.failed.done():
            return ProbeAnswer(False, f"{self.life.words.failure}; the process ends")
        return self._answers(pause(0), "the event loop")

    def _ready(self) -> ProbeAnswer:
        """Whether clients are served. A full one is ready too: the acks that make room have to reach it."""
        if self._phase != "serving":
            return ProbeAnswer(False, self._phase)
        return self._answers(self.life.ready(), self.life.words.worker)

    def _answers(self, question: Coroutine[object, object, object], what: str) -> ProbeAnswer:
        try:
            self._run(question)
        except TimeoutError:
            return ProbeAnswer(False, f"{what} has not answered for {ANSWER_S:g} s")
        except Refused as refused:
            return ProbeAnswer(refused.code == "BUSY", refused.message)
        except RuntimeError as error:
            question.close()
            return ProbeAnswer(False, f"{what} has ended: {error}")
        return ProbeAnswer(True, "ok")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes in reverse: parked Pops, the ports, the engine, the HTTP port."""
        self._phase = "stopping"
        await self._closing.aclose()
