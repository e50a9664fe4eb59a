"""One broker with its ports, inside an event loop: used by `popmq serve` and `popmq.testing`."""

import asyncio
import errno
import logging
import pathlib
from types import TracebackType

from popmq_server.access.access_keys import Keys
from popmq_server.access.certificate import Certificate, development
from popmq_server.api.server import Server
from popmq_server.clock import Clock
from popmq_server.commands import queries
from popmq_server.engine.broker import Broker
from popmq_server.engine.metrics import Metrics, Seen
from popmq_server.errors import StartError
from popmq_server.options import DRAIN_S, Options, Unnamed

log = logging.getLogger("popmq")

#: A scrape fails if the engine does not answer within this many seconds.
SCRAPE_S = 5.0


class Serving:
    """`async with`: opens everything on entry, the port last; closes everything on exit, the port first.

    A failure on entry closes what was open, and raises; StartError names the cure.
    """

    def __init__(self, options: Options, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self.port = options.tls_port  # the TLS port, when it is the only one
        self.certificate: pathlib.Path | None = None
        self._keys: Keys | None = None
        self._served: Certificate | None = None
        #: Default ports that are not served, because they are taken: (purpose, flag, port).
        self.left_out: list[tuple[str, str, int]] = []

    async def __aenter__(self) -> "Serving":
        """Opens keys, store, scan, writer, scrape port, and the port last, so that clients meet a ready broker."""
        options = self._options
        metrics = Metrics(synced=options.sync != "none")
        keys = self._keys = Keys(options.access_keys) if options.access_keys else None
        self.broker = Broker(options, self._clock, metrics)
        self._metrics = metrics
        connections = options.connections_per_address
        self._server = Server(self.broker, self._clock, metrics, keys, options.transport, connections)
        try:
            if options.metrics_port:
                self._serve_metrics(options.metrics_port)
            if options.tls_port:
                self._serve_tls()
            if not options.tls_only:
                self.port = self._server.open(options.host, options.port)
            await self._server.start()
        except BaseException:
            await self.__aexit__(None, None, None)
            raise
        return self

    def _serve_tls(self) -> None:
        """Opens the TLS port. A port in use is an error only if a flag asked for TLS."""
        options, made = self._options, self._certificate()
        asked = options.tls_only or options.tls_cert is not None or not isinstance(options.tls_port, Unnamed)
        try:
            self._server.open_tls(options.host, options.tls_port, made)
        except StartError:
            if asked:
                raise
            self.left_out.append(("TLS", "--tls-port", options.tls_port))
        else:
            self.certificate, self._served = made.cert, made

    def _certificate(self) -> Certificate:
        """The configured certificate, or the development certificate in the data folder."""
        options = self._options
        if options.tls_cert and options.tls_key:
            return Certificate(options.tls_cert, options.tls_key, self._clock)
        return development(options.data, options.host, self._clock)

    def reload(self) -> list[str]:
        """Reads the access keys and the certificate again, if their files changed; returns what changed.

        Files that cannot be used change nothing, and are reported in the log.
        """
        keys = self._keys.reload() if self._keys else ""
        certificate = self._served.reload() if self._served else ""
        return [change for change in (keys, certificate) if change]

    def _serve_metrics(self, port: int) -> None:
        """Opens the scrape port. A scrape gets the engine's numbers by Look commands."""
        loop, broker = asyncio.get_running_loop(), self.broker

        async def look() -> Seen:
            topics = await broker.ask(queries.Topics())
            groups = await broker.ask(queries.Groups())
            producers = len(broker.producers.streams())
            return Seen(self._clock.now_ms(), topics, groups, producers, await broker.store_numbers())

        self._metrics.watch(
            lambda: asyncio.run_coroutine_threadsafe(look(), loop).result(SCRAPE_S),
            lambda: broker.waiters.count + broker.watchers.count + broker.limited.count + broker.pulls.waiters.count,
        )
        try:
            self._metrics.serve(int(port))
        except OSError as error:
            if isinstance(port, Unnamed) and error.errno == errno.EADDRINUSE:
                self.left_out.append(("metrics", "--metrics-port", port))
                return
            raise StartError(
                f"metrics port {port} cannot be opened: {error.strerror}; "
                "name another with --metrics-port, or 0 for none"
            ) from error

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes in reverse: parked Pops, the port, the scrape port, the writer, the store."""
        self.broker.close_waits()
        await self._server.stop(DRAIN_S)
        self._metrics.close()
        await self.broker.close()
