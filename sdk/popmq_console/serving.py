"""Runs a console: the port, TLS, and the end by a signal.

uvicorn serves, on a port with limits (listening.py). Its access log is off, because the broker's audit log has each
change with the key that made it. It does not read the headers of proxies: guards.py reads the only one that is used.
"""

import asyncio
import functools
import os
import socket
import ssl
import sys
import time
from collections.abc import Callable

import uvicorn
from starlette.types import ASGIApp

from popmq_console.app import Console
from popmq_console.brokers import Brokers
from popmq_console.listening import CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS, REQUEST_S, Connection, Places, Port
from popmq_console.options import OptionError, Options

#: Seconds that a stopping console lets running requests end; pages that follow the numbers never end by themselves.
DRAIN_S = 1


class Server(uvicorn.Server):
    """Says when it takes requests, and so knows signals."""

    ready: Callable[[], None] = staticmethod(lambda: None)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.ready()


class Serving:
    """One console in the running event loop. `port` is known once it is made. Raises OptionError."""

    def __init__(self, options: Options, clock: Callable[[], float] = time.monotonic) -> None:
        options.verify()
        self._options = options
        # A proxy has one address for all browsers.
        places = Places(CONNECTIONS_MAX if options.public_url else CONNECTIONS_PER_ADDRESS)
        self._sockets: list[socket.socket] = [Port(opened, places) for opened in _opened(options)]
        self.port: int = self._sockets[0].getsockname()[1]
        console = Brokers(options, clock) if options.brokers else Console(options, clock)
        self._server = Server(_config(options, console.app, places))

    @property
    def urls(self) -> list[str]:
        """Where a browser finds it, on each host."""
        scheme = "https" if self._options.tls_cert else "http"
        hosts = (f"[{host}]" if ":" in host else host for host in self._options.hosts)
        return [f"{scheme}://{host}:{self.port}/" for host in hosts]

    async def run(self, ready: Callable[[str], None] = lambda _: None) -> None:
        """Serves until `stop`, or a signal when this is the main thread; calls `ready` with the addresses."""
        self._server.ready = lambda: ready(", ".join(self.urls))
        await self._server.serve(self._sockets)

    def stop(self) -> None:
        """Stops the server; may be called in any thread."""
        self._server.should_exit = True


def _config(options: Options, app: ASGIApp, places: Places) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        http=functools.partial(Connection, places),  # type: ignore[arg-type]  # uvicorn only calls it
        log_config=None,
        log_level="warning",
        access_log=False,
        ws="none",
        lifespan="on",
        interface="asgi3",
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(REQUEST_S),
        timeout_graceful_shutdown=DRAIN_S,
        h11_max_incomplete_event_size=32 << 10,
        ssl_certfile=options.tls_cert,
        ssl_keyfile=options.tls_key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise OptionError(f"{options.tls_cert} and {options.tls_key} cannot be used for TLS: {error}") from error
    return config


def _opened(options: Options) -> list[socket.socket]:
    """The port on all hosts; port 0 is any free one of the first. Raises OptionError, and then none stays open."""
    opened: list[socket.socket] = []
    for host in options.hosts:
        port = opened[0].getsockname()[1] if opened else options.port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            opened.append(socket.create_server((host, port), family=family, dualstack_ipv6=host == "::"))
        except OSError as error:
            for one in opened:
                one.close()
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror  # < 0: of a look-up
            raise OptionError(
                f"port {port} on {host} cannot be opened: {why}; name another with --port or --host"
            ) from error
    return opened


def run(options: Options, ready: Callable[[str], None], until_stdin_ends: bool = False) -> None:
    """Serves until SIGTERM or Ctrl-C; calls `ready` with the address. Raises OptionError.

    `until_stdin_ends`: also until the process that started this one has ended, which closes the pipe to it.
    """

    async def serve() -> None:
        serving = Serving(options)
        if until_stdin_ends:
            asyncio.get_running_loop().add_reader(sys.stdin.fileno(), _end_with, sys.stdin.fileno(), serving)
        await serving.run(ready)

    asyncio.run(serve())


def _end_with(stdin: int, serving: Serving) -> None:
    if not os.read(stdin, 4096):
        asyncio.get_running_loop().remove_reader(stdin)
        serving.stop()
