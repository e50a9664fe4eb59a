"""Runs each test with both clients: it awaits the calls of `client`, an AsyncClient or a Client in threads."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Protocol

import pytest

import popmq
from popmq.testing import Broker, FakeClock
from tests.sdk import programs
from tests.sdk.calling.lossy import LossyWire
from tests.sdk.threads import InThreads

TOPIC, GROUP = "orders", "billing"
QUICK = popmq.Retry(first=0.001, longest=0.01)


class Connect(Protocol):
    """Makes a client of the kind under test, closed after the test."""

    def __call__(self, endpoint: str = "", **options: Any) -> Any: ...


@pytest.fixture(autouse=True)
def no_program_is_left() -> Iterator[None]:
    """Ends programs that a failed test has left running."""
    yield
    programs.end_all()


@pytest.fixture(params=[pytest.param("sync", marks=pytest.mark.twin), "async"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
async def connect(kind: str, popmq_broker: Broker) -> AsyncIterator[Connect]:
    clients: list[Any] = []
    pool = ThreadPoolExecutor(128)

    def make(endpoint: str = "", **options: Any) -> Any:
        options = {"clock": popmq_broker.clock, **options}
        endpoint = endpoint or popmq_broker.endpoint
        made = (
            popmq.AsyncClient(endpoint, **options)
            if kind == "async"
            else InThreads(popmq.Client(endpoint, **options), pool)
        )
        clients.append(made)
        return made

    yield make
    for client in clients:
        await client.close()
    pool.shutdown()


@pytest.fixture
async def client(connect: Connect) -> Any:
    """A client, with a topic and a group of its own broker."""
    client = connect()
    await client.topics.create(TOPIC)
    await client.groups.create(GROUP, backoff=[10.0])
    return client


@pytest.fixture
def advance(popmq_clock: FakeClock) -> Callable[[float], Awaitable[None]]:
    """Moves the fake clock by seconds, beside the event loop, which must run for clients to renew."""
    return lambda seconds: asyncio.to_thread(popmq_clock.advance, round(seconds * 1000))


@asynccontextmanager
async def guarding(delivery: popmq.Delivery, kind: str) -> AsyncIterator[popmq.Delivery]:
    """The guard in the form that the client's kind wants."""
    if kind == "async":
        async with delivery:
            yield delivery
    else:
        with delivery:
            yield delivery


@pytest.fixture
def guard(kind: str) -> Callable[[popmq.Delivery], Any]:
    return lambda delivery: guarding(delivery, kind)


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Evaluates the condition until it holds, or the test's time limit ends the test."""
    while not await condition():
        pass


@pytest.fixture
def numbers(client: Any) -> Callable[[], Awaitable[popmq.GroupStats]]:
    """The broker's numbers of the group."""

    async def ask() -> popmq.GroupStats:
        stats: popmq.Stats = await client.broker.stats(TOPIC, GROUP)
        return stats.groups[0] if stats.groups else popmq.GroupStats(GROUP, TOPIC)

    return ask


@pytest.fixture
def sync_client(popmq_broker: Broker) -> popmq.Client:
    """For what is the same in both: a Client with a topic and a group."""
    client = popmq_broker.client()
    client.topics.create(TOPIC)
    client.groups.create(GROUP)
    return client


async def has_retried(client: Any) -> bool:
    """For `eventually`, as the next one."""
    await asyncio.sleep(0)
    return bool(client.client_stats().retries)


async def holds(found: Callable[[], object]) -> bool:
    await asyncio.sleep(0)
    return bool(found())


async def told(caplog: pytest.LogCaptureFixture, text: str) -> bool:
    await asyncio.sleep(0)
    return text in caplog.text


@pytest.fixture
def wire(popmq_broker: Broker) -> Iterator[LossyWire]:
    with LossyWire(popmq_broker.endpoint) as wire:
        yield wire


@pytest.fixture
def late(wire: LossyWire) -> Iterator[threading.Event]:
    """Set: calls that `holding` has held go on to the broker."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
async def lossy(wire: LossyWire, connect: Connect) -> Any:
    """A client behind the lossy wire, with a topic and a group."""
    client = connect(wire.endpoint, retry=QUICK)
    await client.topics.create(TOPIC)
    await client.groups.create(GROUP)
    return client
