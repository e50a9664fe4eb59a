"""A real broker inside the test's process, on a temporary folder, and a clock that tests move.

    import popmq.testing

    with popmq.testing.broker() as broker, broker.client() as client:
        ...                                                # a real port: any client, any language

    def test_an_unacked_message_comes_back(popmq_broker, popmq_clock):      # fixtures, once popmq is installed
        client = popmq_broker.client()
        ...
        popmq_clock.advance(3_600_000)                     # a lease of an hour ends in milliseconds

    def test_an_order_is_billed(popmq_broker):
        popmq_broker.declare(worker)                       # the topics and groups of a popmq.Worker
        popmq_broker.client().send("orders", "one")
        (handled,) = popmq_broker.work(worker)             # until nothing is left to handle
        assert handled.outcome == "acked"

It is the broker that runs in production, with the same store but without fsync, since a test needs no protection
against power cuts. It needs the extra `server`.
"""

import asyncio
import math
import socket
import sys
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from popmq._async.client import AsyncClient
from popmq._sync.client import Client
from popmq._worker.declaring import declare_missing
from popmq._worker.running import Run
from popmq.duration import seconds_of
from popmq.message import Delivery
from popmq.outcome import BadPayload, Reject
from popmq.worker import Middleware, Worker
from popmq_http2.elapsed import new_event_loop

if TYPE_CHECKING:
    import pytest

__all__ = ["Broker", "FakeClock", "Handled", "broker"]


T = TypeVar("T")

_NEEDS_SERVER = 'popmq.testing needs the broker: pip install "popmq[server]"'


Outcome = Literal["acked", "released", "rejected", "settled"]


@dataclass(frozen=True, slots=True)
class Handled:
    """One delivery that a worker handled. `result` is what the handler returned, `error` what it raised.

    `outcome` "settled": the handler did so itself, by `delivery.ack()`, `release()` or `reject()`.
    """

    delivery: Delivery
    outcome: Outcome
    result: Any = None
    error: Exception | None = None


class _Recorder(Middleware):
    """Outermost, so that it sees how each delivery ended."""

    def __init__(self, is_leased: Callable[[str], bool]) -> None:
        self.handled: list[Handled] = []
        self._is_leased = is_leased

    def after(self, delivery: Delivery, result: Any) -> None:
        outcome: Outcome = "acked" if self._is_leased(delivery.handle) else "settled"
        self.handled.append(Handled(delivery, outcome, result))

    def failed(self, delivery: Delivery, error: Exception) -> None:
        rejected = isinstance(error, Reject | BadPayload)
        self.handled.append(Handled(delivery, "rejected" if rejected else "released", error=error))


async def _work_until_idle(worker: Worker, client: AsyncClient) -> list[Handled]:
    """Passes over all handlers until one pass handles nothing: a handler may send what another one handles."""
    recorder = _Recorder(client._parts.leases.holds)
    async with client, worker.ready():
        seen = -1
        while seen < len(recorder.handled):
            seen = len(recorder.handled)
            await Run(client, worker.handlers, [recorder, *worker.middleware], until_idle=0.0).work()
    return recorder.handled


class FakeClock:
    """Time for a broker and for the lease keeping of its clients: it does not move until `advance`.

    `advance` stops at each moment at which a client would renew a lease or send a heartbeat, lets it do so, and
    continues: a handler that runs for an hour keeps its message, just as with the real clock, only faster.
    """

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        try:
            from popmq_server import clock
        except ImportError as error:
            raise RuntimeError(f"{_NEEDS_SERVER} ({error})") from error
        self.broker_clock = clock.FakeClock(start_ms)
        self._driven: list[tuple[Callable[[], float | None], Callable[[], None]]] = []

    def now_ms(self) -> int:
        """Milliseconds since 1970 UTC."""
        return int(self.broker_clock.now_ms())

    def now(self) -> float:
        """The same in seconds: what a client asks its clock."""
        return self.now_ms() / 1000

    def drive(self, due: Callable[[], float | None], run: Callable[[], None]) -> bool:
        """A client's lease scheduler: `advance` calls `run` whenever `due()` has come."""
        self._driven.append((due, run))
        return True

    def advance(self, by: int | timedelta | str) -> None:
        """Moves time by milliseconds, a timedelta or a text such as "1h"; whatever became due, in the broker and in its
        clients, is done when this returns.

        In a coroutine that uses an AsyncClient: `await asyncio.to_thread(clock.advance, by)`.
        """
        end_ms = self.now_ms() + (round(seconds_of(by) * 1000) if isinstance(by, timedelta | str) else by)
        self._run_due()
        while (next_ms := self._next_ms()) <= end_ms:
            self.broker_clock.advance(math.ceil(next_ms) - self.now_ms())
            self._run_due()
        self.broker_clock.advance(end_ms - self.now_ms())
        self._run_due()  # an answer of the broker may have made something due just now

    def _next_ms(self) -> float:
        """When the next waiter is due. A waiter that is still due was run without effect (its broker is stopped, for
        example): it is run again at the next stop, and does not block the others.
        """
        dues = (due() for due, _ in self._driven)
        return min((due * 1000 for due in dues if due is not None and due > self.now()), default=math.inf)

    def _run_due(self) -> None:
        for due, run in self._driven:
            moment = due()
            if moment is not None and moment <= self.now():
                run()


def _kept_port() -> socket.socket:
    """A bound socket that does not listen: while it is open, its port goes only to a program that names it.

    So a broker finds its port free after a restart. This needs a system where both may be bound: Linux.
    """
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    return kept


def _in_thread(work: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine in an event loop of its own, also beside one that runs in this thread."""
    with ThreadPoolExecutor(1, thread_name_prefix="popmq-work") as thread:
        return thread.submit(_run, work).result()


def _run(work: Coroutine[Any, Any, T]) -> T:
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(work)


class Broker:
    """A broker for one test; made by `broker()`. `endpoint` is "127.0.0.1:PORT", `clock` the fake one or None."""

    def __init__(self, data: Path, clock: FakeClock | None) -> None:
        self.clock = clock
        self._data = data
        self._port = 0
        self._clients = ExitStack()
        self._embedded: Any = None  # an EmbeddedBroker, while it runs
        self.start()

    @property
    def endpoint(self) -> str:
        """Where it listens, also while it is stopped."""
        return f"127.0.0.1:{self._port}"

    def client(self, **options: Any) -> Client:
        """A Client of this broker, closed with it. `options` as of Client."""
        return self._clients.enter_context(Client(self.endpoint, **self._with_clock(options)))

    def async_client(self, **options: Any) -> AsyncClient:
        """An AsyncClient of this broker: close it in the event loop that uses it, with `async with`."""
        return AsyncClient(self.endpoint, **self._with_clock(options))

    def declare(self, worker: Worker) -> None:
        """Creates the topics and groups of a worker's handlers that are not there, with default settings."""

        async def declare() -> None:
            async with self.async_client() as client:
                await declare_missing(client, worker.handlers)

        _in_thread(declare())

    def work(self, worker: Worker) -> list[Handled]:
        """Runs a worker until it finds no message that is due, also of those that its handlers send.

        Returns the deliveries that it handled, in the order in which they ended. Failed messages are due again after
        their backoff: `clock.advance`, and call this again. The worker's handlers and middleware run as in production,
        on a client of this broker. May be called beside a running event loop, which it blocks.
        """
        return _in_thread(_work_until_idle(worker, self.async_client()))

    def start(self) -> None:
        """Starts it on its folder and on the port that it had before."""
        try:
            from popmq._transport import fork  # noqa: F401 - the broker brings gRPC, and tests fork beside it
            from popmq_server import embedded_broker as embedded
        except ImportError as error:
            raise RuntimeError(f"{_NEEDS_SERVER} ({error})") from error
        if not self._port and sys.platform == "linux":
            self._port = self._clients.enter_context(_kept_port()).getsockname()[1]
        clock = self.clock.broker_clock if self.clock else None
        self._embedded = embedded.EmbeddedBroker(self._data, port=self._port, clock=clock, sync="none")
        self._embedded.start()
        self._port = self._embedded.port

    def stop(self) -> None:
        """Stops it; its folder stays, and `start` goes on with it."""
        if self._embedded is not None:
            self._embedded.stop()
            self._embedded = None

    def restart(self) -> None:
        """Stops and starts it, as a deployment does."""
        self.stop()
        self.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Clients first: they still tell the broker how their deliveries ended.
        try:
            self._clients.close()
        finally:
            self.stop()

    def _with_clock(self, options: dict[str, Any]) -> dict[str, Any]:
        return {"clock": self.clock, **options}


class _TemporaryBroker:
    """`broker()`: a folder that lives as long as the broker on it."""

    def __init__(self, clock: FakeClock | None) -> None:
        self._clock = clock
        self._stack = ExitStack()

    def __enter__(self) -> Broker:
        folder = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="popmq-"))
        return self._stack.enter_context(Broker(Path(folder), self._clock))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()


def broker(clock: FakeClock | None = None) -> _TemporaryBroker:
    """A broker on a temporary folder: `with popmq.testing.broker() as broker: broker.client()`.

    Raises RuntimeError without the extra `server`.
    """
    return _TemporaryBroker(clock)


try:
    import pytest
except ImportError:  # the broker above is as good without pytest
    pass
else:

    @pytest.fixture
    def popmq_clock() -> FakeClock:
        """A fake clock; a test that asks for it has a `popmq_broker` that runs by it."""
        return FakeClock()

    @pytest.fixture
    def popmq_broker(request: "pytest.FixtureRequest") -> Iterator[Broker]:
        """A fresh broker for this test."""
        clock = request.getfixturevalue("popmq_clock") if "popmq_clock" in request.fixturenames else None
        with broker(clock) as running:
            yield running
