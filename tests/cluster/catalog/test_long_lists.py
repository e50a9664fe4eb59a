"""Lists of thousands of topics, while others call: made in pieces, and made anew only where something has changed."""

import asyncio
import functools
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting.codes import RequestCode
from popmq_remoting.requests import topics as remoting_topics
from popmq_remoting.wire.command import Response
from popmq_server.clock import SystemClock
from popmq_server.cluster.brokers import ITEMS_A_TURN
from popmq_server.cluster.catalog.topics import known_topic
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.cluster.numbers import topic_rows
from popmq_server.contract.commands import queries
from popmq_server.contract.commands.numbers import Rows, TopicNumbers
from popmq_server.contract.limited import limited
from popmq_server.errors import Refused
from popmq_server.monitoring.metrics import Metrics
from popmq_server.monitoring.rates import Rates
from popmq_server.protocols.native import pages, responses
from popmq_server.protocols.native.admin import AdminService
from popmq_server.protocols.native.native import NativeService
from popmq_server.protocols.traffic import Traffic
from tests.cluster.gateway import gateway, send
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.fake.faults import Fault, Kind
from tests.remoting.jumping import jumping, passed

TOPICS = 1_000
T = TypeVar("T")


def create(fake: FakeCluster, count: int) -> None:
    for broker in fake.brokers.values():
        for number in range(count):
            broker.log.create(f"t{number:04}", 1)
    fake.register()


def service(engine: ClusterEngine) -> AdminService:
    clock, metrics = SystemClock(), Metrics()
    whole, rates = limited(engine), Rates(clock)
    return AdminService(
        whole, NativeService(whole, clock, metrics, rates, Traffic(clock, metrics, rates)), metrics, rates
    )


async def most_in_a_turn(counts: Counter[str], call: Any) -> dict[str, int]:
    """Runs a call; of each count, by how much it grew at most between two turns of the event loop."""
    most, running = Counter[str](), asyncio.ensure_future(call)
    while not running.done():
        before = counts.copy()
        await asyncio.sleep(0)
        most |= counts - before
    await running
    return most


async def listed(engine: ClusterEngine) -> Rows[TopicNumbers]:
    return await engine.ask(queries.Topics())


@jumping
async def test_a_list_of_a_thousand_topics_makes_few_of_them_in_a_turn_of_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = Counter[str]()

    def counted(name: str, function: Callable[..., T]) -> Callable[..., T]:
        @functools.wraps(function)
        def counting(*given: Any) -> T:
            counts[name] += 1
            return function(*given)

        return counting

    monkeypatch.setattr(remoting_topics, "_config", counted("read", remoting_topics._config))
    monkeypatch.setattr(topic_rows, "known_topic", counted("rows", known_topic))
    monkeypatch.setattr(responses, "topic", counted("settings", responses.topic))
    monkeypatch.setattr(responses, "queues", counted("numbers", responses.queues))
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        create(fake, TOPICS)
        admin = service(engine)
        most = await most_in_a_turn(counts, admin.ListTopics(b""))
        most |= await most_in_a_turn(counts, admin.GetStats(b""))
    assert counts == dict.fromkeys(("read", "rows", "settings", "numbers"), TOPICS)
    assert most["rows"] <= ITEMS_A_TURN
    assert max(most["settings"], most["numbers"]) <= pages.ROWS_A_TURN == 100
    assert most["read"] <= remoting_topics.TOPICS_A_PIECE == 100


@jumping
async def test_a_row_is_made_anew_only_when_its_topic_has_changed() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        create(fake, 3)
        first = await listed(engine)
        await passed(16.0)
        await send(engine, pb.Message(message_id="1", body=b"x"), topic="t0001")
        again = await listed(engine)
        assert [row.messages for row in again] == [0, 1, 0]
        assert [new is old for new, old in zip(again, first, strict=True)] == [True, False, True]
        fake.brokers["a"].log.create("t0002", 5)
        del fake.brokers["a"].log.topics["t0000"]
        fake.brokers["a"].log.topics["t0001"].attributes["message.type"] = "FIFO"
        await passed(16.0)
        changed = [(row.topic.name, row.topic.type, row.topic.queues) for row in await listed(engine)]
        assert changed == [("t0001", "FIFO", 1), ("t0002", "NORMAL", 5)]
        fake.brokers["a"].log.create("t0000", 2)
        await passed(16.0)
        assert [(row.topic.queues, row.messages) for row in await listed(engine)] == [(2, 0), (1, 1), (5, 0)]


@jumping
async def test_a_broker_whose_list_is_damaged_is_left_out_and_refused_if_it_is_the_only_one() -> None:
    damaged = Fault(Kind.ANSWER, answer=Response(0, body=b'{"topicConfigTable":{"x":{"topicName":1}}}'))
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        create(fake, 2)
        fake.brokers["a"].faults.add(damaged, RequestCode.GET_ALL_TOPIC_CONFIG)
        assert [row.topic.queues for row in await listed(engine)] == [1, 1]
        await passed(16.0)
        for broker in fake.brokers.values():
            broker.faults.add(damaged, RequestCode.GET_ALL_TOPIC_CONFIG)
        assert len(await listed(engine)) == 2  # what was read before is served on
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        fake.brokers["a"].faults.add(damaged, RequestCode.GET_ALL_TOPIC_CONFIG)
        with pytest.raises(Refused, match="settings have no name"):
            await listed(engine)
