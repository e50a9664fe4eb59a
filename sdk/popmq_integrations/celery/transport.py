"""The transport of kombu: a connection to a broker."""

import sys
import threading
from functools import cached_property
from typing import Any

from kombu.transport import virtual

import popmq
from popmq.errors import ClientClosed, GroupNotFound, TopicNotFound, TryLater
from popmq_integrations.celery import options
from popmq_integrations.celery.channel import Channel
from popmq_integrations.celery.reader import Reader


class Transport(virtual.Transport):  # type: ignore[misc]  # kombu has no types
    """`popmq://KEY:SECRET@HOST:PORT`."""

    Channel = Channel
    driver_type = driver_name = "popmq"
    default_port = 8081
    tls = False
    # A lost connection is none for the reader, which goes on when the broker is back. A queue that somebody has
    # deleted is declared again by a worker that connects again.
    connection_errors = (
        *virtual.Transport.connection_errors,
        OSError,
        TryLater,
        ClientClosed,
        TopicNotFound,
        GroupNotFound,
    )
    implements = virtual.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(["direct", "topic", "fanout"])
    )

    def __init__(self, client: Any, **given: Any) -> None:
        super().__init__(client, **given)
        self.options = options.Options.of(client.transport_options)
        self.declared: dict[str, dict[str, Any]] = {}  # queues, with how they were declared here
        self._hub: Any = None

    def driver_version(self) -> str:
        """That of the SDK."""
        return popmq.__version__

    @cached_property
    def reached(self) -> dict[str, Any]:
        """Where the broker is."""
        return options.reached(self.client, self.tls, self.default_port)

    @cached_property
    def popmq_client(self) -> popmq.Client:
        """What sends, declares and looks, in the calling thread."""
        return popmq.Client(**self.reached)

    @cached_property
    def reader(self) -> Reader:
        """What consumers and `basic_get` read with. A connection that only sends has none."""
        reader = Reader(lambda: popmq.AsyncClient(**self.reached), self.options.invisible_time)
        if self._hub is not None:
            self._hub.add_reader(reader.socket, reader.readable)
        return reader

    def establish_connection(self) -> Any:
        """Raises Unavailable if no broker answers in `broker_connection_timeout`; Denied, InvalidField."""
        try:
            self.popmq_client.info(timeout=self.client.connect_timeout or None)
        except TryLater:
            _end_with_its_worker()
            raise
        return super().establish_connection()

    def close_connection(self, connection: Any) -> None:
        """Closes the channels, then sends what is outstanding."""
        super().close_connection(connection)
        if "reader" in self.__dict__:
            if self._hub is not None:
                self._hub.remove_reader(self.reader.socket)
            self.__dict__.pop("reader").close()
        if "popmq_client" in self.__dict__:
            self.__dict__.pop("popmq_client").close()

    def register_with_event_loop(self, connection: Any, loop: Any) -> None:
        """The worker's event loop calls consumers when something has arrived."""
        self._hub = loop
        if "reader" in self.__dict__:
            loop.add_reader(self.reader.socket, self.reader.readable)

    def unregister_from_event_loop(self, connection: Any, loop: Any) -> None:
        """The reverse."""
        if "reader" in self.__dict__:
            loop.remove_reader(self.reader.socket)
        self._hub = None

    def drain_events(self, connection: Any, timeout: float | None = None, **_: Any) -> None:
        """Calls consumers with what has arrived. Raises socket.timeout."""
        self.reader.drain(timeout)


def _end_with_its_worker() -> None:
    """Raises WorkerShutdown if the worker was told to stop: an event that it sends tries to connect again for ever."""
    state = sys.modules.get("celery.worker.state")
    if state is not None and threading.current_thread() is threading.main_thread():
        state.maybe_shutdown()


class TLSTransport(Transport):
    """`popmqs://…`: with TLS."""

    default_port = 8082
    tls = True
