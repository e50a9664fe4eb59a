"""A broker in this process, on a real port and a fake clock; after each test its store is checked."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.broker_process import own_port
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded.loop.long_poll import Waiters
from popmq_server.embedded.loop.producers import CheckStream
from popmq_server.embedded_broker import EmbeddedBroker
from tests.on_cluster.engine import ON_CLUSTER
from tests.on_cluster.engine import gateway as gateway_to_cluster
from tests.wire.gate import Gate
from tests.wire.parked import Parked
from tests.wire.producer import DEALS
from tests.wire.rocketmq.v2 import V2
from tests.wire.served import Served, ServedCluster
from tests.wire.stubs import Stubs

#: Whether the unary calls of the stubs go over HTTP with JSON.
OVER_HTTP = os.environ.get("POPMQ_FACE") == "http"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def broker(folder: Path, clock: FakeClock) -> Iterator[EmbeddedBroker]:
    if ON_CLUSTER:
        with gateway_to_cluster() as served:
            yield served
        return
    with EmbeddedBroker(folder, clock=clock, sync="none", http_port=own_port() if OVER_HTTP else 0) as broker:
        yield broker
    assert check_folder(folder) == []


@pytest.fixture
def stubs(broker: EmbeddedBroker) -> Iterator[Stubs]:
    with Stubs(broker.endpoint, broker.http_url if OVER_HTTP else "") as stubs:
        yield stubs


@pytest.fixture
def v2(broker: EmbeddedBroker) -> Iterator[V2]:
    with V2(broker.endpoint) as client:
        yield client


@pytest.fixture
def shop(stubs: Stubs) -> Stubs:
    """The stubs of a broker that has one topic of one queue, and one group."""
    stubs.create_topic(queues=1)
    stubs.create_group()
    return stubs


@pytest.fixture
def second(clock: FakeClock) -> Iterator[Served]:
    with Served(clock) as served:
        yield served


@pytest.fixture
def gateway(clock: FakeClock) -> Iterator[ServedCluster]:
    with ServedCluster(clock) as served:
        yield served


@pytest.fixture(params=["cluster"] if ON_CLUSTER else ["embedded", "stub"])
def engine(request: pytest.FixtureRequest) -> EmbeddedBroker | Served:
    """A broker in front of one of the engines."""
    served: EmbeddedBroker | Served = request.getfixturevalue("second" if request.param == "stub" else "broker")
    return served


@pytest.fixture
def either_shop(engine: EmbeddedBroker | Served) -> Iterator[Stubs]:
    """The shop over each engine: for what the contract says of all of them."""
    with Stubs(engine.endpoint, engine.http_url if OVER_HTTP and isinstance(engine, EmbeddedBroker) else "") as stubs:
        stubs.create_topic(queues=1)
        stubs.create_group()
        yield stubs


@pytest.fixture
def parked(monkeypatch: pytest.MonkeyPatch) -> Parked:
    counter, park = Parked(), Waiters.park

    async def counted(self: Waiters, key: tuple[str, str], seen: tuple[int, int], deadline_ms: int) -> bool:
        counter.add()
        return await park(self, key, seen, deadline_ms)

    monkeypatch.setattr(Waiters, "park", counted)
    return counter


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


@pytest.fixture
def deals(shop: Stubs) -> Stubs:
    """The shop, with a topic of half messages."""
    shop.create_topic(DEALS, type=pb.TRANSACTION, queues=1)
    return shop


@pytest.fixture
def left(monkeypatch: pytest.MonkeyPatch) -> Parked:
    """Counts the streams that the broker has forgotten."""
    counter, close = Parked(), CheckStream.close

    def counted(self: CheckStream) -> None:
        close(self)
        counter.add()

    monkeypatch.setattr(CheckStream, "close", counted)
    return counter
