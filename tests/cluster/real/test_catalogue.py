"""Topics and groups through gateways in front of a real RocketMQ: made, changed, counted, deleted."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting.codes import Permission
from popmq_remoting.requests import topics
from popmq_server.cluster import names
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.cluster.numbers.counts import NAMED_S
from popmq_server.contract import commands as do
from popmq_server.contract.commands import queries
from popmq_server.errors import Refused
from tests.cluster.gateway import new
from tests.cluster.real.conftest import Rig, wall_ms

pytestmark = pytest.mark.interop

#: A message can be read some milliseconds after its OK, and a position some more after its ack.
SOON_S = 10.0


def topic(rig: Rig, kind: str = "NORMAL", queues: int = 4) -> do.CreateTopic:
    return do.CreateTopic(rig.topic, queues, False, None, kind)


def group(rig: Rig, start: str = "EARLIEST", start_ms: int = 0) -> do.CreateGroup:
    return do.CreateGroup(rig.group, 3, (1_000, 60_000), 30_000, 0, start, start_ms, False)


async def sent(engine: ClusterEngine, rig: Rig, *texts: str) -> None:
    for text in texts:
        answer = await engine.execute(do.Send(rig.topic, (new(pb.Message(message_id=text, body=text.encode())),)))
        assert not any(isinstance(place, Refused) for place in answer.places or ()), answer


async def popped(engine: ClusterEngine, rig: Rig, count: int) -> list[str]:
    rows: list[do.PoppedRow] = []
    while len(rows) < count:
        found = (await engine.pop(do.Pop(rig.topic, rig.group, max_messages=100), 10_000)).rows
        assert found, f"{len(rows)} of {count} came"
        rows += found
    return sorted(pb.Message.FromString(row[0]).body.decode() for row in rows)


async def passed(seconds: float) -> None:
    """Time of the brokers, which are other processes."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.Event().wait(), seconds)


async def code_of(engine: ClusterEngine, query: queries.Topics | queries.GroupSettings) -> str:
    with pytest.raises(Refused) as refused:
        await engine.ask(query)
    return refused.value.code


@pytest.mark.parametrize("kind", ["NORMAL", "FIFO", "DELAY", "TRANSACTION"])
async def test_a_topic_is_made_once_found_by_others_and_gone_when_it_is_deleted(rig: Rig, kind: str) -> None:
    async with rig.gateway() as one, rig.gateway() as other:
        made = await one.execute(topic(rig, kind))
        assert (made.existed, made.topic.type, made.topic.queues) == (False, kind, 4)
        assert await other.execute(topic(rig, kind)) == do.CreatedTopic(made.topic, True)
        with pytest.raises(Refused, match="queues is 4, not 6"):
            await other.execute(topic(rig, kind, queues=6))
        (row,) = await other.ask(queries.Topics(rig.topic))
        assert (row.topic.type, row.queues) == (kind, [(queue, 0, 0) for queue in range(4)])
        assert rig.topic in [row.topic.name for row in await one.ask(queries.Topics())]
        await one.execute(do.DeleteTopic(rig.topic))
        assert await code_of(one, queries.Topics(rig.topic)) == "TOPIC_NOT_FOUND"
        await passed(NAMED_S)  # another gateway remembers it for so long
        assert await code_of(other, queries.Topics(rig.topic)) == "TOPIC_NOT_FOUND"
        with pytest.raises(Refused, match="there is no topic"):
            await one.execute(do.DeleteTopic(rig.topic))
        assert not (await one.execute(topic(rig, "DELAY", queues=2))).existed


async def test_queues_and_permission_change_and_the_type_stays(rig: Rig) -> None:
    async with rig.gateway() as engine:
        await engine.execute(topic(rig, "DELAY", queues=2))
        change = do.UpdateTopic(rig.topic, 5, None, (("permission", "READ_ONLY"),))
        changed = await engine.execute(change)
        assert (changed.queues, changed.permission, changed.type) == (5, "READ_ONLY", "DELAY")
        known = names.broker_topic(rig.topic)
        configs = await engine.shared.topics.at(rig.topic, ["a", "b"])
        assert configs == {
            "a": topics.TopicConfig(known, 3, 3, Permission.READ, {"message.type": "DELAY"}),
            "b": topics.TopicConfig(known, 2, 2, Permission.READ, {"message.type": "DELAY"}),
        }
        with pytest.raises(Refused, match="permission of topic"):
            await sent(engine, rig, "1")


async def test_a_group_is_made_once_changed_found_by_others_and_gone_when_it_is_deleted(rig: Rig) -> None:
    async with rig.gateway() as one, rig.gateway() as other:
        made = await one.execute(group(rig, "LATEST"))
        assert await other.execute(group(rig, "LATEST")) == do.CreatedGroup(made.group, True)
        with pytest.raises(Refused, match="max_attempts is 3, not 4"):
            await other.execute(replace(group(rig, "LATEST"), max_attempts=4))
        changed = await other.execute(do.UpdateGroup(rig.group, vars(replace(group(rig), max_attempts=9))))
        assert await other.ask(queries.GroupSettings(rig.group)) == [changed]
        (row,) = await one.ask(queries.Topics(f"%DLQ%{rig.group}"))
        assert row.messages == 0
        await one.execute(do.DeleteGroup(rig.group))
        assert await code_of(one, queries.GroupSettings(rig.group)) == "GROUP_NOT_FOUND"
        assert await code_of(one, queries.Topics(f"%DLQ%{rig.group}")) == "TOPIC_NOT_FOUND"
        assert not (await one.execute(group(rig))).existed


@pytest.mark.parametrize(("start", "expected"), [("EARLIEST", "123456"), ("LATEST", "56"), ("TIMESTAMP", "3456")])
async def test_a_group_begins_exactly_where_it_should(rig: Rig, start: str, expected: str) -> None:
    async with rig.gateway() as one, rig.gateway() as other:
        await one.execute(topic(rig, queues=2))
        await sent(one, rig, "1", "2")
        await passed(0.3)  # so that the time of the start is between two messages
        await one.execute(group(rig, start, wall_ms() if start == "TIMESTAMP" else 0))
        await sent(one, rig, "3", "4")
        await passed(0.3)
        before = len(expected) - 2
        first = await popped(one, rig, before) if before else (await one.pop(do.Pop(rig.topic, rig.group), 0)).rows
        await sent(one, rig, "5", "6")
        assert [*first, *await popped(other, rig, 2)] == [*expected]


async def test_what_is_unread_retried_and_dead_is_counted(rig: Rig) -> None:
    async with rig.gateway() as engine:
        await engine.execute(topic(rig, queues=2))
        await engine.execute(group(rig))
        await sent(engine, rig, *"12345678")
        answer = await engine.pop(do.Pop(rig.topic, rig.group, max_messages=1, invisible_ms=60_000), 10_000)
        handle = answer.handles[0].decode()
        await engine.execute(do.ChangeInvisibleTime(rig.group, (do.Change(handle, "reject"),)))
        loop = asyncio.get_running_loop()
        until_s = loop.time() + SOON_S
        while True:
            (row,) = await engine.ask(queries.Groups(rig.topic, rig.group))
            if (row.ready, row.dead) == (7, 1) or loop.time() > until_s:
                break
            await asyncio.sleep(0.2)
        assert (row.ready, row.retry, row.dead, row.in_flight, row.mode) == (7, 0, 1, None, "POP")
        assert await engine.ask(queries.Groups(rig.topic)) == [row]
        assert [name for name, _ in await engine.ask(queries.Subscriptions(rig.group))] == [rig.topic]
        store = await engine.ask(queries.StoreSize())
        assert store.used_bytes > 0
        assert store.disk_free_bytes > 0
