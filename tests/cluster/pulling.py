"""What tests of reads by offset have in common."""

from collections.abc import Awaitable

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.contract import commands as do
from popmq_server.errors import Refused
from tests.cluster.gateway import GROUP, TOPIC
from tests.remoting.fake.cluster import FakeCluster


def filled(fake: FakeCluster, broker: str, queue_id: int, *bodies: bytes, tags: str = "") -> None:
    """Messages in a queue, as a native producer stores them."""
    for number, body in enumerate(bodies):
        text = f"UNIQ_KEY\x01{broker}-{queue_id}-{number}\x02" + (f"TAGS\x01{tags}\x02" if tags else "")
        fake.brokers[broker].log.append("shop%orders", queue_id, body, text)


async def pull(engine: ClusterEngine, queue: int = 0, offset: int = 0, wait_ms: int = 0, **more: object) -> do.Pulled:
    return await engine.pull(do.Pull(TOPIC, more.pop("group", ""), queue, offset, **more), wait_ms)  # type: ignore[arg-type]


def read(pulled: do.Pulled) -> list[tuple[bytes, int, int]]:
    """(body, queue, offset) of each row."""
    return [(pb.Message.FromString(row[0]).body, row[2], row[3]) for row in pulled.rows]


async def code(awaited: Awaitable[object]) -> tuple[str, str]:
    """(code, field) of its refusal."""
    try:
        await awaited
    except Refused as refused:
        return refused.code, refused.field
    return "OK", ""


async def pulling(engine: ClusterEngine, group: str = GROUP) -> None:
    await engine.execute(do.SetConsumeMode(TOPIC, group, "PULL"))
