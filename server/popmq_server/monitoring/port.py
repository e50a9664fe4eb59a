"""The HTTP port for operators: /metrics, /healthz and /readyz, on threads of its own.

    /healthz   200: do not restart me    the event loop answers, or the start still reads the store
    /readyz    200: send me clients      the ports are open, and the writer answers a query

The threads answer while the event loop is blocked; that is when an orchestrator has to hear of it.
"""

import contextlib
import socket
import socketserver
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from popmq_http2.server.listening import Listening
from popmq_server import ports
from popmq_server.errors import StartError
from popmq_server.options import Options, Unnamed

#: A scrape or a probe fails if the broker does not answer within this many seconds.
ANSWER_S = 5.0
#: A client that sends no request, or takes no answer, is dropped after this many seconds.
CLIENT_S = 10.0
#: Connections at a time; a further one ends the oldest that has sent no request. A scrape and two probes need three.
CONNECTIONS_MAX = 64
#: Seconds that a new connection waits at most for the place of the silent connection that it ends.
PLACE_S = 1.0

#: A connection; the stubs of socketserver also know datagrams.
Request: TypeAlias = Any
#: The three types of a WSGI application: its environment, `start_response`, and the application.
Environ = dict[str, str]
Start = Callable[..., object]
App = Callable[[Environ, Start], Iterable[bytes]]


class ProbeAnswer(NamedTuple):
    """An answer to a probe. `said`: one line for the people who read it."""

    good: bool
    said: str


Probe = Callable[[], ProbeAnswer]


def monitoring_sockets(options: Options, listening: ports.Ports) -> list[socket.socket]:
    """The sockets of the metrics port; none if it is the default one, and taken. Raises StartError."""
    hosts, port = options.metrics_host, options.metrics_port
    try:
        return listening.opened(hosts, port)
    except ports.NotOpened as error:
        if isinstance(port, Unnamed) and error.is_taken:
            return []
        raise StartError(
            f"metrics port {port} on {error.host} cannot be opened: {error}; "
            "name another with --metrics-port or --metrics-host, or --metrics-port 0 for none"
        ) from error.why


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_S  # type: ignore[assignment, unused-ignore]  # its base class has None

    def parse_request(self) -> bool:
        """Parses the request, and notes that the connection is not silent any more."""
        if good := super().parse_request():
            self.server.asked(self.request)  # type: ignore[attr-defined]  # always a MonitoringPort
        return good

    def log_message(self, *_: object) -> None:
        """Logs nothing: a probe every few seconds would hide the other lines."""


class MonitoringPort(socketserver.ThreadingMixIn, WSGIServer):
    """Serves on a listening socket from the constructor on until `close`."""

    daemon_threads = True

    def __init__(self, opened: socket.socket, metrics: App, probes: dict[str, Probe]) -> None:
        self._free = threading.BoundedSemaphore(CONNECTIONS_MAX)
        #: Connections without a request, the oldest first.
        self._silent: dict[socket.socket, None] = {}
        self._metrics, self._probes = metrics, probes
        name = opened.getsockname()
        super().__init__(name[:2], _Handler, bind_and_activate=False)
        self.socket.close()  # its own, which is not bound
        # Without a file in reserve, a connection at the limit of open files would keep a thread busy.
        self.socket = Listening(opened)
        self.server_name, self.server_port = str(name[0]), int(name[1])
        self.setup_environ()
        self.set_app(self._answer)
        threading.Thread(target=self.serve_forever, name="popmq-monitoring", daemon=True).start()

    def process_request(self, request: Request, client_address: object) -> None:
        if not self._free.acquire(blocking=False):
            self._end_oldest()
            if not self._free.acquire(timeout=PLACE_S):
                self.shutdown_request(request)
                return
        self._silent[request] = None
        super().process_request(request, client_address)

    def _end_oldest(self) -> None:
        """Ends the connection that has been silent for the longest time: probes are answered beside many of them."""
        for silent in list(self._silent):
            self.asked(silent)
            with contextlib.suppress(OSError):
                silent.shutdown(socket.SHUT_RDWR)
            return

    def asked(self, request: socket.socket) -> None:
        """Forgets a silent connection: its request has come, or it ends."""
        self._silent.pop(request, None)

    def process_request_thread(self, request: Request, client_address: object) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.asked(request)
            self._free.release()

    def handle_error(self, request: Request, client_address: object) -> None:
        """Says nothing: the client has gone."""

    def _answer(self, environ: Environ, start: Start) -> Iterable[bytes]:
        """The answer to GET, for HEAD without its body."""
        if environ["REQUEST_METHOD"] != "HEAD":
            return self._answer_get(environ, start)

        def begin(status: str, headers: list[tuple[str, str]], *_: object) -> None:
            begun.append((status, headers))

        begun: list[tuple[str, list[tuple[str, str]]]] = []
        body = self._answer_get({**environ, "REQUEST_METHOD": "GET"}, begin)
        status, headers = begun[0]
        start(status, [*headers, ("Content-Length", str(sum(map(len, body))))])
        return []

    def _answer_get(self, environ: Environ, start: Start) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            return self._metrics(environ, start)
        probe = self._probes.get(path)
        health = probe() if probe else ProbeAnswer(False, f"there are /metrics, {', '.join(self._probes)}")
        status = "404 Not Found" if probe is None else "200 OK" if health.good else "503 Service Unavailable"
        start(status, [("Content-Type", "text/plain; charset=utf-8"), ("Cache-Control", "no-store")])
        return [f"{health.said}\n".encode()]

    def close(self) -> None:
        """Closes the port; returns before running answers have ended."""
        threading.Thread(target=self.shutdown, daemon=True).start()
        with contextlib.suppress(OSError):  # the thread that waits for connections would keep the port for a moment
            self.socket.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self.server_close()
