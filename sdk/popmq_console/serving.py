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

from popmq_console.app import Console
from popmq_console.listening import CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS, REQUEST_S, Connection, Port
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
        self._socket = _listening(options)
        self.port: int = self._socket.getsockname()[1]
        self._server = Server(_config(options, Console(options, clock), self._socket))

    @property
    def url(self) -> str:
        """Where a browser finds it."""
        host = f"[{self._options.host}]" if ":" in self._options.host else self._options.host
        return f"{'https' if self._options.tls_cert else 'http'}://{host}:{self.port}/"

    async def run(self, ready: Callable[[str], None] = lambda _: None) -> None:
        """Serves until `stop`, or a signal when this is the main thread; calls `ready` with the address."""
        self._server.ready = lambda: ready(self.url)
        await self._server.serve([self._socket])

    def stop(self) -> None:
        """From any thread."""
        self._server.should_exit = True


def _config(options: Options, console: Console, port: Port) -> uvicorn.Config:
    config = uvicorn.Config(
        console.app,
        http=functools.partial(Connection, port),  # type: ignore[arg-type]  # uvicorn only calls it
        log_config=None,
        log_level="warning",
        access_log=False,
        ws="none",
        lifespan="on",
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


def _listening(options: Options) -> Port:
    # A proxy has one address for all browsers.
    per_address = CONNECTIONS_MAX if options.public_url else CONNECTIONS_PER_ADDRESS
    try:
        family, both = _family(options.host), options.host == "::"
        return Port(socket.create_server((options.host, options.port), family=family, dualstack_ipv6=both), per_address)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror  # < 0: of a look-up
        raise OptionError(
            f"port {options.port} on {options.host} cannot be opened: {reason}; name another with --port or --host"
        ) from error


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


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
