"""A gateway's engine over the fake cluster of tests/remoting/fake, in the event loop whose clock jumps."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting import Cluster
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.cluster.signed.secrets import Secrets
from popmq_server.contract import commands as do
from popmq_server.contract.commands import NewMessage, Place
from popmq_server.errors import Refused
from popmq_server.protocols import entries
from tests.remoting.fake.broker import loop_ms
from tests.remoting.fake.cluster import FakeCluster

TOPIC, GROUP = "shop.orders", "shop.bill"
SECRET = b"the secret that all gateways share"


@asynccontextmanager
async def gateway(fake: FakeCluster, secret: bytes = SECRET, name: str = "") -> AsyncIterator[ClusterEngine]:
    """One gateway, closed at the end."""
    cluster = Cluster(fake.settings(), now_ms=loop_ms, draw=lambda: 0.5)
    engine = ClusterEngine(cluster, Secrets([secret]), loop_ms, name)
    try:
        yield engine
    finally:
        engine.close_waits()
        await engine.close()
        await cluster.close()


def new(message: pb.Message) -> NewMessage:
    return entries.new_message(message.SerializeToString(), message, ("", 0, 0))


async def send(engine: ClusterEngine, *messages: pb.Message, topic: str = TOPIC) -> list[Place | Refused]:
    """The place of each."""
    answer = await engine.execute(do.Send(topic, tuple(map(new, messages))))
    if answer.places is not None:
        return list(answer.places)
    return [Place(answer.queue, answer.first + step) for step in range(len(messages))]


async def pop(engine: ClusterEngine, wait_ms: int = 0, **more: object) -> do.Popped:
    return await engine.pop(do.Pop(TOPIC, GROUP, **more), wait_ms)  # type: ignore[arg-type]


def bodies(popped: do.Popped) -> list[bytes]:
    return [pb.Message.FromString(row[0]).body for row in popped.rows]


def handles(popped: do.Popped) -> tuple[str, ...]:
    return tuple(handle.decode() for handle in popped.handles)


def created(fake: FakeCluster, **attributes: str) -> None:
    """The topic and the group, at every broker."""
    fake.create("shop%orders", group="shop%bill")
    for broker in fake.brokers.values():
        broker.log.topics["shop%orders"].attributes.update(attributes)
