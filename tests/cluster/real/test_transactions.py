"""Transactions, recalls and members of groups through gateways in front of a real RocketMQ."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting.requests import members
from popmq_server.cluster import names
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.cluster.refusals import Asked
from popmq_server.contract import commands as do
from popmq_server.contract.commands import Check, End, Ended, Place
from popmq_server.contract.commands.sessions import ClientAnswer, ShownMessage
from popmq_server.errors import Refused
from tests.cluster.real.calls import body, created, pop_all, send, until_met
from tests.cluster.real.conftest import Rig, wall_ms
from tests.remoting.jumping import until

pytestmark = pytest.mark.interop

#: Brokers of the rig ask each 3 s about half messages that are older than their immunity.
SOON_S = 60.0
#: A lease, and the time in which an end is taken, that no test outlasts, however slow its machine is.
LONG_MS = 600_000


def halves(count: int, check_after_ms: int = 0) -> list[pb.Message]:
    return [
        pb.Message(message_id=f"id-{n}", body=b"%d" % n, transaction=True, check_after_ms=check_after_ms)
        for n in range(count)
    ]


async def begun(engine: ClusterEngine, rig: Rig, *messages: pb.Message) -> list[str]:
    places = await send(engine, rig, *messages)
    return [place.transaction_id for place in places if isinstance(place, Place)]


async def ended(engine: ClusterEngine, *texts: str, commit: bool = True) -> list[str]:
    results = await engine.execute(do.EndTransaction(tuple(End(text, commit) for text in texts)))
    return [result.code if isinstance(result, Refused) else "OK" for result in results]


async def soon(look: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(SOON_S):
        while True:
            if await look():
                return
            await asyncio.sleep(0.2)


async def older(by_ms: int) -> None:
    """Brokers have no other clock than the real one."""
    until_ms = wall_ms() + by_ms
    await until(lambda: wall_ms() >= until_ms)


async def asked_by(engine: ClusterEngine, rig: Rig, gateways: int) -> bool:
    """Whether each broker asks so many gateways about the topic."""
    brokers = engine.shared.brokers
    request = members.producers(names.broker_topic(rig.topic))
    answers = await brokers.of_each(await brokers.masters(), lambda _: request, members.connections, Asked(""))
    return all(not isinstance(found, Refused) and len(found) == gateways for found in answers.values())


async def nothing_more(engine: ClusterEngine, rig: Rig) -> bool:
    return not (await engine.pop(do.Pop(rig.topic, rig.group), 3_000)).rows


async def test_two_hundred_transactions_that_are_ended_twice_at_two_gateways_are_delivered_once_or_never(
    rig: Rig,
) -> None:
    async with rig.gateway() as one, rig.gateway() as other:
        await created(one, rig, "TRANSACTION")
        texts = await begun(one, rig, *halves(200, check_after_ms=LONG_MS))
        commits, rollbacks = texts[:150], texts[150:]
        twice = await asyncio.gather(ended(one, *commits), ended(one, *commits), ended(one, *rollbacks, commit=False))
        assert {code for codes in twice for code in codes} == {"OK"}
        rows = await pop_all(one, rig, 150, max_messages=200, invisible_ms=LONG_MS)
        assert sorted(map(body, rows)) == sorted(b"%d" % n for n in range(150))
        assert set(await ended(other, *commits)) == {"OK"}
        assert set(await ended(other, *commits, commit=False)) == {"TRANSACTION_ENDED"}
        assert await nothing_more(one, rig)
        (again,) = await other.execute(do.EndTransaction((End(commits[0], True),)))
        assert isinstance(again, Ended)
        ((queue, offset),) = [(row[2], row[3]) for row in rows if body(row) == b"0"]
        assert (again.place.queue, again.place.offset) == (queue, offset)


async def test_a_half_message_that_nobody_ended_is_asked_about_at_a_gateway_with_a_producer(rig: Rig) -> None:
    async with rig.gateway() as one, rig.gateway() as other:
        await created(one, rig, "TRANSACTION")
        stream = await other.join("client", (rig.topic,))
        texts = await begun(one, rig, *halves(2, check_after_ms=1_000))
        async with asyncio.timeout(SOON_S):
            checks = dict[str, Check]()
            while len(checks) < 2:
                check = await anext(stream)
                assert (check.topic, check.number >= 1) == (rig.topic, True)
                checks[pb.Message.FromString(check.data).message_id] = check
        assert await ended(one, checks["id-0"].transaction) == ["OK"]
        assert await ended(one, checks["id-1"].transaction, commit=False) == ["OK"]
        assert [body(row) for row in await pop_all(one, rig, 1)] == [b"0"]
        await older(7_000)
        assert await ended(one, texts[0]) == ["OK"]  # found by its id
        assert await nothing_more(one, rig)


async def test_an_end_that_comes_late_waits_for_the_check(rig: Rig) -> None:
    async with rig.gateway() as engine:
        await created(engine, rig, "TRANSACTION")
        (text,) = await begun(engine, rig, *halves(1, check_after_ms=1_000))
        await older(7_000)
        assert await ended(engine, text) == ["TRANSACTION_NOT_FOUND"]


async def test_a_gateway_that_lost_its_last_producer_is_not_asked(rig: Rig) -> None:
    async with rig.gateway() as one, rig.gateway() as other:
        await created(one, rig, "TRANSACTION")
        gone, stays = await one.join("gone", (rig.topic,)), await other.join("stays", (rig.topic,))
        await soon(lambda: asked_by(one, rig, 2))
        gone.close()
        await soon(lambda: asked_by(one, rig, 1))
        await begun(one, rig, *halves(8, check_after_ms=1_000))
        found = set[str]()
        async with asyncio.timeout(SOON_S):
            while len(found) < 8:
                found.add(pb.Message.FromString((await anext(stays)).data).message_id)


async def test_a_recalled_message_is_not_delivered(rig: Rig) -> None:
    async with rig.gateway() as one, rig.gateway() as other:
        await created(one, rig, "DELAY")
        later = [pb.Message(message_id=f"id-{n}", body=b"%d" % n, deliver_at_ms=wall_ms() + 20_000) for n in range(2)]
        handles = [place.recall_handle for place in await send(one, rig, *later) if isinstance(place, Place)]
        assert await other.execute(do.Recall(rig.topic, handles[0])) == "id-0"
        assert [body(row) for row in await pop_all(one, rig, 1)] == [b"1"]
        assert await nothing_more(one, rig)
        with pytest.raises(Refused) as caught:
            await other.execute(do.Recall(rig.topic, handles[1]))
        assert caught.value.code == "MESSAGE_NOT_FOUND"


async def test_members_at_two_gateways_share_queues_and_locks_and_one_that_goes_gives_them_back(rig: Rig) -> None:
    async with rig.gateway() as one, rig.gateway() as other:
        await created(one, rig)
        await one.execute(do.SetConsumeMode(rig.topic, rig.group, "PULL"))

        async def beat(engine: ClusterEngine, client: str, goodbye: bool = False) -> int:
            return await engine.execute(do.Heartbeat(rig.group, client, frozenset((rig.topic,)), goodbye))

        async def assigned(engine: ClusterEngine, client: str) -> tuple[int, ...]:
            return (await engine.ask(do.AssignmentOf(rig.topic, rig.group, client))).queues

        async def lock(engine: ClusterEngine, client: str, *queues: int) -> list[int]:
            return await engine.execute(do.LockQueues(rig.topic, rig.group, client, queues))

        alone = await beat(one, "one")
        assert await assigned(one, "one") == (0, 1, 2, 3)
        assert await beat(other, "two") != alone
        for engine in (one, other):
            assert (await assigned(engine, "one"), await assigned(engine, "two")) == ((0, 1), (2, 3))
        rows = (await one.ask(do.Clients(rig.group))).consumers
        assert [(row.client, row.in_flight) for row in rows] == [("one", None), ("two", None)]
        assert await lock(one, "one", 0, 1, 2) == [0, 1, 2]
        assert await lock(other, "two", 2, 3) == [3]
        await beat(one, "one", goodbye=True)
        assert await lock(other, "two", 0, 1, 2) == [0, 1, 2, 3]

        async def has_all() -> bool:
            return await assigned(other, "two") == (0, 1, 2, 3)

        await soon(has_all)


async def test_what_a_client_held_that_says_goodbye_comes_to_others_soon(rig: Rig) -> None:
    async with rig.gateway() as engine:
        await created(engine, rig)
        await engine.execute(do.RenewSession("one"))
        await until_met(engine)
        await send(engine, rig, pb.Message(message_id="id-1", body=b"1"))
        first = await engine.pop(do.Pop(rig.topic, rig.group, client_id="one", session=True), 20_000)
        assert first.due_ms - wall_ms() > 14 * 60_000
        assert await engine.execute(do.ReleaseSession("one")) == 1
        assert [row[4] for row in await pop_all(engine, rig, 1)] == [2]


async def test_a_client_at_another_gateway_is_asked_for_its_stacks_and_shown_a_message(rig: Rig) -> None:
    shown = list[ShownMessage | None]()

    async def asks(message: ShownMessage | None) -> ClientAnswer:
        shown.append(message)
        return ClientAnswer("FAILED_TO_CONSUME_MESSAGE", "no") if message else ClientAnswer("OK", "main: waiting")

    async with rig.gateway() as one, rig.gateway() as other:
        await created(one, rig)
        await one.execute(do.SetConsumeMode(rig.topic, rig.group, "PULL"))
        (place,) = await send(one, rig, pb.Message(message_id="id-1", body=b"1"))
        assert isinstance(place, Place)
        await other.execute(do.Heartbeat(rig.group, rig.group, frozenset((rig.topic,)), asks=asks))
        assert await one.ask(do.AskClient(rig.group)) == ClientAnswer("OK", "main: waiting")
        asked = do.AskClient(rig.group, rig.topic, place.queue, place.offset)
        assert await one.ask(asked) == ClientAnswer("FAILED_TO_CONSUME_MESSAGE", "no")
        stacks, message = shown
        assert (stacks, message and (message.topic, message.queue, message.offset)) == (
            None,
            (rig.topic, place.queue, place.offset),
        )
        with pytest.raises(Refused) as caught:
            await one.ask(do.AskClient("nobody"))
        assert caught.value.code == "CLIENT_NOT_FOUND"
