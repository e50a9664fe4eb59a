"""What tests of gateways in front of a real RocketMQ do again and again."""

import asyncio

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting.requests import groups, topics
from popmq_server.cluster import layout, names
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.cluster.refusals import Asked
from popmq_server.contract import commands as do
from popmq_server.contract.commands import Place
from popmq_server.errors import Refused
from tests.cluster.gateway import new
from tests.cluster.real.conftest import Rig

#: A lease that is over, or a release, comes back within 6 s; a broker registers 10 s after it listens.
SOON_MS = 40_000


async def created(engine: ClusterEngine, rig: Rig, kind: str = "NORMAL", retries_max: int = 16) -> None:
    """The topic with two queues a broker, and the group, everywhere."""
    known = names.broker_topic(rig.topic)
    config = topics.TopicConfig(known, 2, 2, attributes={"message.type": kind})
    group = groups.GroupConfig(names.broker_group(rig.group), retries_max, kind == "FIFO", retry_delays_ms=(1_000,))
    brokers = engine.shared.brokers
    await _registered(engine)
    await brokers.everywhere(lambda _: topics.create_topic(config), Asked(""))
    await brokers.everywhere(lambda _: groups.create_group(group), Asked(""))
    if kind == "FIFO":
        topic = await engine.shared.topics.get(rig.topic)
        await engine.shared.layouts.write(topic, layout.of_route({"a": 2, "b": 2}))


async def until_met(*gateways: ClusterEngine) -> None:
    """Waits until each of them, to which a client has made a call, can ask the others."""
    async with asyncio.timeout(SOON_MS / 1000):
        while any([await each.neighbours.heard_s("nobody") is None for each in gateways]):
            pass


async def _registered(engine: ClusterEngine) -> None:
    """Waits until the name server knows both brokers."""
    async with asyncio.timeout(SOON_MS / 1000):
        while True:
            try:
                if len(await engine.shared.brokers.masters(anew=True)) > 1:
                    return
            except Refused:
                pass  # none yet
            await asyncio.sleep(0.2)


async def send(engine: ClusterEngine, rig: Rig, *messages: pb.Message) -> list[Place | Refused]:
    answer = await engine.execute(do.Send(rig.topic, tuple(map(new, messages))))
    if answer.places is not None:
        return list(answer.places)
    return [Place(answer.queue, answer.first + step) for step in range(len(messages))]


async def pop_all(engine: ClusterEngine, rig: Rig, count: int, **more: int) -> list[do.PoppedRow]:
    """So many messages, by as many pops as it takes."""
    rows: list[do.PoppedRow] = []
    while len(rows) < count:
        found = (await engine.pop(do.Pop(rig.topic, rig.group, **more), SOON_MS)).rows  # type: ignore[arg-type]
        assert found, f"{len(rows)} of {count} came"
        rows += found
    return rows


def body(row: do.PoppedRow) -> bytes:
    return pb.Message.FromString(row[0]).body
