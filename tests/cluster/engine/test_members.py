"""Members of groups through gateways: heartbeats, assignments, locks of queues, and lists of clients."""

import asyncio
import functools
from collections.abc import Iterable

import pytest

from popmq_remoting import Cluster
from popmq_remoting.codes import RequestCode
from popmq_remoting.requests import members as members_of
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.cluster.signed.secrets import Secrets
from popmq_server.contract import commands as do
from popmq_server.contract.commands.numbers import Consumer
from popmq_server.contract.commands.sessions import Assignment
from popmq_server.errors import Refused
from tests.cluster.gateway import GROUP, SECRET, TOPIC, created, gateway
from tests.cluster.pulling import code, pulling
from tests.remoting.fake.broker import loop_ms
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.fake.faults import Fault, Kind
from tests.remoting.jumping import jumping, passed, until


async def beat(engine: ClusterEngine, client: str, goodbye: bool = False, **only: str) -> int:
    """`only`: the mode in which it reads the topic alone."""
    modes = {TOPIC: only["mode"]} if only else {}
    return await engine.execute(do.Heartbeat(GROUP, client, frozenset((TOPIC,)), goodbye, only=modes))


async def assigned(engine: ClusterEngine, client: str, strategy: str = "", broadcast: bool = False) -> Assignment:
    return await engine.ask(do.AssignmentOf(TOPIC, GROUP, client, strategy, broadcast))


def members(fake: FakeCluster, broker: str = "a", group: str = "shop%bill") -> list[str]:
    """The members that a broker knows."""
    known = fake.brokers[broker]
    return sorted(
        said["clientID"]
        for connection, said in known.members.items()
        if connection in known.clients
        for each in said["consumerDataSet"]
        if each["groupName"] == group
    )


async def lock(engine: ClusterEngine, client: str, *queues: int) -> list[int]:
    return await engine.execute(do.LockQueues(TOPIC, GROUP, client, queues))


# ── Heartbeats and assignments ───────────────────────────────────────────────────────────────────────────────────────


@jumping
async def test_a_group_that_pops_without_a_share_number_has_no_member_connections() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        version = await beat(engine, "one")
        assert (await beat(engine, "two"), members(fake), len(engine.members.connections)) == (version, [], 0)
        assert await assigned(engine, "one") == Assignment(True, True, ())


@jumping
async def test_members_of_all_gateways_share_the_queues_of_a_group_that_pulls() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as one, gateway(fake) as other:
        created(fake)
        await pulling(one)
        await beat(one, "one")
        await beat(other, "two")
        assert members(fake, "a") == members(fake, "b") == ["one", "two"]
        for engine in (one, other):
            assert await assigned(engine, "one") == Assignment(True, False, (0, 1), "PULL")
            assert await assigned(engine, "two", "CIRCLE") == Assignment(True, False, (1, 3), "PULL")
            assert not (await assigned(engine, "stranger")).known


@jumping
async def test_clients_of_a_group_with_a_share_number_get_queues_to_pop() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        await engine.execute(do.SetConsumeMode(TOPIC, GROUP, "POP", 1))
        for client in ("one", "two", "three", "four"):
            await beat(engine, client)
        found = [(await assigned(engine, client)).queues for client in ("four", "one", "three", "two")]
        assert found == [(0, 1), (1, 2), (2, 3), (0, 3)]


@jumping
async def test_the_version_changes_when_a_member_at_any_gateway_comes_or_goes_and_when_the_mode_does() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as one, gateway(fake) as other:
        created(fake)
        versions = [await beat(one, "one")]
        await pulling(one)
        versions.append(await beat(one, "one"))
        assert await beat(one, "one") == versions[-1]
        await beat(other, "two")
        versions.append(await beat(one, "one"))
        assert await beat(other, "two") == versions[-1]
        assert len(set(versions)) == 3
        await beat(other, "two", goodbye=True)
        assert await beat(one, "one") == versions[1]


@jumping
async def test_a_goodbye_and_silence_end_a_membership_and_its_connections() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        await pulling(engine)
        await beat(engine, "one")
        await beat(engine, "two")
        opened = len(fake.brokers["a"].clients)
        await beat(engine, "one", goodbye=True)
        await until(lambda: len(fake.brokers["a"].clients) == opened - 1)
        assert members(fake, "a") == members(fake, "b") == ["two"]
        await passed(130.0)
        await beat(engine, "three")
        await until(lambda: members(fake, "a") == members(fake, "b") == ["three"])
        assert len(engine.members.connections) == 1


@jumping
async def test_a_client_whose_goodbye_passed_its_heartbeat_leaves_no_connection_and_may_come_again() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        await pulling(engine)
        await beat(engine, "two")
        await passed(4.0)  # the list of masters is asked for again, and comes late
        cluster = engine.shared.brokers.cluster
        fake.name_servers[0].faults.add(Fault(Kind.SLOW, seconds=0.5), RequestCode.GET_BROKER_CLUSTER_INFO)
        cluster.doubt("")
        late = asyncio.ensure_future(beat(engine, "one"))
        await passed(0.1)
        await beat(engine, "one", goodbye=True)
        await late
        await passed(1.0)
        assert not any("one" in purpose for _, purpose in cluster.numbers())
        await asyncio.gather(*(beat(engine, "one") for _ in range(2)))
        await asyncio.gather(beat(engine, "one", goodbye=True), beat(engine, "one"))
        await beat(engine, "one")
        assert members(fake, "a") == members(fake, "b") == ["one", "two"]


@jumping
async def test_a_client_that_comes_back_after_a_long_silence_is_still_a_member() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        await pulling(engine)
        await beat(engine, "one")
        await passed(125.0)
        await beat(engine, "one")
        await passed(1.0)
        assert members(fake, "a") == ["one"]


@jumping
async def test_a_client_that_reads_in_the_other_mode_alone_gets_no_queues_and_takes_none_from_others() -> None:
    async with FakeCluster() as fake, gateway(fake) as engine:
        created(fake)
        await pulling(engine)
        await beat(engine, "popping", mode="POP")
        await beat(engine, "pulling", mode="PULL")
        assert members(fake) == ["pulling"]
        assert await assigned(engine, "popping") == Assignment(True, False, (), "PULL")
        assert (await assigned(engine, "pulling")).queues == (0, 1)
        await engine.execute(do.SetConsumeMode(TOPIC, GROUP, "POP"))
        await beat(engine, "pulling", mode="PULL")
        assert (members(fake), await assigned(engine, "pulling")) == ([], Assignment(True, False, (), "POP"))


@jumping
async def test_a_client_has_queues_as_soon_as_its_group_is_switched_to_the_mode_in_which_it_reads() -> None:
    async with FakeCluster() as fake, gateway(fake) as engine:
        created(fake)
        await beat(engine, "one", mode="PULL")
        assert await assigned(engine, "one") == Assignment(True, False, (), "POP")
        await pulling(engine)
        assert await assigned(engine, "one") == Assignment(True, False, (0, 1), "PULL")


@jumping
async def test_clients_that_read_in_the_mode_before_take_no_queues_from_those_that_read_now() -> None:
    async with FakeCluster() as fake, gateway(fake) as engine:
        created(fake)
        await pulling(engine)
        for client in ("one", "two"):
            await beat(engine, client, mode="PULL")
        await beat(engine, "pushed", mode="POP")
        await engine.execute(do.SetConsumeMode(TOPIC, GROUP, "POP", 1))
        assert await assigned(engine, "pushed") == Assignment(True, True, ())
        assert members(fake) == ["pushed"]


@jumping
async def test_a_broadcast_reader_reads_all_queues_without_a_session() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        await pulling(engine)
        assert await assigned(engine, "one", broadcast=True) == Assignment(True, True, (0, 1, 2, 3), "PULL")


@jumping
async def test_the_one_queue_of_a_retry_topic_belongs_to_one_member() -> None:
    async with FakeCluster() as fake, gateway(fake) as engine:
        created(fake)
        await pulling(engine)
        await beat(engine, "one")
        await beat(engine, "two")
        retry = f"%RETRY%{GROUP}+{TOPIC}"
        found = [(await engine.ask(do.AssignmentOf(retry, GROUP, client))).queues for client in ("one", "two")]
        assert found == [(0,), ()]
        wrong = do.AssignmentOf(f"%RETRY%other+{TOPIC}", GROUP, "one")
        assert await code(engine.ask(wrong)) == ("INVALID_FIELD", "topic")


@jumping
async def test_a_master_that_is_away_leaves_members_to_the_others_and_knows_them_when_it_is_back() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        await pulling(engine)
        await beat(engine, "one")
        await fake.brokers["a"].stop()
        await beat(engine, "two")
        assert members(fake, "b") == ["one", "two"]
        assert (await assigned(engine, "one")).queues == (0, 1)
        await fake.brokers["a"].start()
        await until(lambda: members(fake, "a") == ["one", "two"], 1.0)


@jumping
async def test_clients_beyond_the_limit_are_told_what_to_do_and_others_stay() -> None:
    async with FakeCluster() as fake:
        created(fake)
        cluster = Cluster(fake.settings(), now_ms=loop_ms, draw=lambda: 0.5)
        engine = ClusterEngine(cluster, Secrets([SECRET]), loop_ms, members_max=1)
        await pulling(engine)
        await beat(engine, "one")
        with pytest.raises(Refused) as caught:
            await beat(engine, "two")
        assert caught.value.code == "RATE_LIMITED"
        assert "--member-connections" in caught.value.action
        assert clients((await engine.ask(do.Clients(GROUP))).consumers) == [(GROUP, "one")]
        await beat(engine, "one")
        await beat(engine, "one", goodbye=True)
        await beat(engine, "two")
        assert members(fake) == ["two"]
        await engine.close()
        await cluster.close()


@jumping
async def test_a_heartbeat_of_a_group_that_does_not_exist_is_refused() -> None:
    async with FakeCluster() as fake, gateway(fake) as engine:
        created(fake)
        wrong = do.Heartbeat("nothing", "one", frozenset((TOPIC,)))
        assert await code(engine.execute(wrong)) == ("GROUP_NOT_FOUND", "group")


# ── Locks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@jumping
async def test_a_queue_is_locked_for_one_client_of_all_gateways_until_it_is_unlocked_or_a_minute_later() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as one, gateway(fake) as other:
        created(fake)
        assert await lock(one, "one", 0, 3) == [0, 3]
        assert await lock(other, "two", 0, 1) == [1]
        assert await lock(one, "one", 2) == [0, 2, 3]
        await one.execute(do.UnlockQueues(TOPIC, GROUP, "one", (0,)))
        await other.execute(do.UnlockQueues(TOPIC, GROUP, "two", (2,)))
        assert await lock(other, "two", 0, 2) == [0, 1]
        await passed(61.0)
        assert await lock(other, "two", 2) == [2]
        await other.execute(do.UnlockQueues(TOPIC, GROUP, "two", ()))
        assert await lock(one, "one", 0, 1, 2, 3) == [0, 1, 2, 3]


@jumping
async def test_locks_are_not_those_of_the_group_itself() -> None:
    async with FakeCluster() as fake, gateway(fake) as engine:
        created(fake)
        await lock(engine, "one", 0)
        assert {group for group, _, _ in fake.brokers["a"].locks} == {"popmq_lock_shop%bill"}


@jumping
async def test_a_client_that_says_goodbye_gives_its_locks_back() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as one, gateway(fake) as other:
        created(fake)
        await beat(one, "one")
        await lock(one, "one", 0, 3)
        await beat(one, "one", goodbye=True)
        assert await lock(other, "two", 0, 3) == [0, 3]


@jumping
async def test_a_queue_that_the_topic_lacks_is_refused_and_one_whose_broker_is_away_is_not_locked() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake)
        assert await code(lock(engine, "one", 0, 4)) == ("INVALID_FIELD", "queues[1]")
        assert await code(engine.execute(do.UnlockQueues(TOPIC, GROUP, "one", (4,)))) == ("INVALID_FIELD", "queues[0]")
        await fake.brokers["b"].stop()
        assert await lock(engine, "one", 1, 2) == [1]
        assert (await code(lock(engine, "one", 2)))[0] == "UNAVAILABLE"


# ── Lists ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def clients(rows: Iterable[Consumer]) -> list[tuple[str, str]]:
    return [(row.group, row.client) for row in rows]


@jumping
async def test_clients_are_listed_with_those_of_other_gateways_and_what_is_unknown_of_them_is_none() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as one, gateway(fake) as other:
        created(fake)
        await pulling(one)
        await asyncio.gather(beat(one, "one"), beat(other, "two"))
        found = (await one.ask(do.Clients(GROUP))).consumers
        here, there = found
        assert here == Consumer("one", GROUP, (TOPIC,), here.last_ms, None)
        assert there == Consumer("two", GROUP, (), None, None)
        assert abs((here.last_ms or 0) - loop_ms()) < 5_000


@jumping
async def test_all_clients_are_listed_page_by_page_and_producers_at_the_end() -> None:
    async with FakeCluster() as fake, gateway(fake) as engine:
        created(fake, **{"message.type": "TRANSACTION"})
        for group in ("a", "b", "c"):
            fake.create("shop%orders", group=group)
        for group in ("a", "b", "c"):
            for client in ("one", "two"):
                await engine.execute(do.Heartbeat(group, client, frozenset((TOPIC,))))
        await engine.join("producer", (TOPIC,))
        pages, behind = [], ("", "")
        while rows := (page := await engine.ask(do.Clients("", behind, 2))).consumers:
            pages.append(clients(rows))
            behind = rows[-1].group, rows[-1].client
            if page.streams:
                break
        assert pages == [[(group, client) for client in ("one", "two")] for group in ("a", "b", "c")]
        assert [stream.client_id for stream in page.streams] == ["producer"]
        assert await code(engine.ask(do.Clients("nothing"))) == ("GROUP_NOT_FOUND", "group")


@jumping
async def test_producers_of_other_gateways_and_native_ones_are_listed_too() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as engine:
        created(fake, **{"message.type": "TRANSACTION"})
        others = Cluster(fake.settings())
        address = await others.address("a", asyncio.get_running_loop().time() + 5.0)
        for client, groups in (("gateway-2", ["shop%orders"]), ("native", ["orders-producers"])):
            said = functools.partial(members_of.heartbeat, client, groups)
            await others.peer(address, client, said).beat()
        await engine.join("here", (TOPIC,))
        found = (await engine.ask(do.Clients(""))).streams
        assert [(each.client_id, each.topics) for each in found] == [
            ("here", (TOPIC,)),
            ("gateway-2", (TOPIC,)),
            ("native", ()),
        ]
        assert (await engine.ask(do.Clients(GROUP))).streams == []
        await others.close()


# ── Session leases ───────────────────────────────────────────────────────────────────────────────────────────────────


@jumping
async def test_what_a_client_that_has_ended_held_comes_to_others_a_second_later() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        created(fake)
        fake.brokers["a"].log.append("shop%orders", 0, b"1", "UNIQ_KEY\x01id-1\x02")
        fake.brokers["a"].log.groups["shop%bill"]["consumeTimeoutMinute"] = 40
        popped = await engine.pop(do.Pop(TOPIC, GROUP, client_id="one", session=True), 0)
        (handle,) = [each.decode() for each in popped.handles]
        assert 39 * 60_000 < popped.due_ms - loop_ms() <= 40 * 60_000
        assert await engine.execute(do.RenewSession("one")) == 0
        assert fake.brokers["a"].counts[RequestCode.CHANGE_MESSAGE_INVISIBLETIME] == 0
        named = do.queries.SessionHandle("one", GROUP, "id-1")
        assert await engine.ask(named) == handle
        await passed(1)  # until its brokers know this gateway
        assert [await engine.execute(do.ReleaseSession("one")) for _ in range(2)] == [1, 0]
        assert await engine.ask(named) == ""
        await passed(1.1)
        again = await engine.pop(do.Pop(TOPIC, GROUP, client_id="two"), 0)
        assert [row[4] for row in again.rows] == [2]
