"""A client of a whole cluster: routes that survive name servers, and brokers that move."""

import asyncio

import pytest

from popmq_remoting import WAITS, Response
from popmq_remoting.errors import Unreachable
from popmq_remoting.requests import members, name_server, popping, topics
from popmq_remoting.routing.route_memory import LIST_S
from tests.remoting.connection.peers import now_s
from tests.remoting.fake.broker import loop_ms
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.fake.faults import Fault, Kind, answering
from tests.remoting.jumping import jumping, passed, until
from tests.remoting.routing.fake_client import brokers_of, client, error_of, send, soon

ROUTE = 105


# ── Routes ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@jumping
async def test_a_route_is_asked_for_once_by_all_and_again_after_25_s_without_waiting() -> None:
    async with FakeCluster(("a", "b")) as fake, client(fake) as cluster:
        fake.create("t")
        counts = fake.name_servers[0].counts
        assert await asyncio.gather(*(brokers_of(cluster, "t") for _ in range(9))) == [["a", "b"]] * 9
        await passed(24.0)
        await brokers_of(cluster, "t")
        assert counts[ROUTE] == 1
        await passed(2.0)
        fake.forget()
        assert await brokers_of(cluster, "t") == ["a", "b"]
        await until(lambda: counts[ROUTE] == 2)


@jumping
async def test_a_topic_that_does_not_exist_has_no_route_until_it_is_made() -> None:
    async with FakeCluster() as fake, client(fake) as cluster:
        assert await cluster.route("t", soon()) is None
        fake.create("t")
        await passed(1.1)
        assert await brokers_of(cluster, "t") == ["a"]


@jumping
async def test_a_name_server_that_was_restarted_harms_no_known_topic() -> None:
    """It knows nothing for 23 s, then one broker of two for 2 s: as measured."""
    async with FakeCluster(("a", "b")) as fake, client(fake) as cluster:
        fake.create("t")
        assert await brokers_of(cluster, "t") == ["a", "b"]
        await passed(20.0)
        restarted_s = now_s()
        await fake.name_servers[0].stop()
        fake.forget()
        await fake.name_servers[0].start()
        while now_s() < restarted_s + 60.0:
            if now_s() >= restarted_s + 23.0:
                fake.register("b")
            if now_s() >= restarted_s + 25.0:
                fake.register("a")
            cluster.doubt("t")
            assert await brokers_of(cluster, "t") == ["a", "b"]
            await passed(0.5)


@jumping
async def test_a_topic_that_was_deleted_is_gone_after_two_answers_30_s_apart() -> None:
    async with FakeCluster() as fake, client(fake) as cluster:
        fake.create("t")
        await brokers_of(cluster, "t")
        fake.forget()
        began_s = now_s()
        while await brokers_of(cluster, "t"):
            await passed(1.0)
            assert now_s() < began_s + 120.0
        assert now_s() >= began_s + 30.0


@jumping
async def test_a_broker_that_was_away_for_minutes_is_found_some_seconds_after_it_registered_again() -> None:
    async with FakeCluster(("a", "b")) as fake, client(fake) as cluster:
        fake.create("t")
        assert await brokers_of(cluster, "t") == ["a", "b"]
        del fake.name_servers[0].brokers["b"]
        for _ in range(120):
            await cluster.address("a", soon())  # as each call looks it up
            await brokers_of(cluster, "t")
            await passed(1.0)
        assert await brokers_of(cluster, "t") == ["a"]
        fake.register("b")
        registered_s = now_s()
        while await brokers_of(cluster, "t") == ["a"]:
            await cluster.address("a", soon())
            await passed(0.25)
        assert now_s() - registered_s < LIST_S + 2.0


@jumping
async def test_a_brokers_own_word_that_it_lacks_a_topic_is_believed_at_once() -> None:
    async with FakeCluster(("a", "b")) as fake, client(fake) as cluster:
        fake.create("t")
        await brokers_of(cluster, "t")
        fake.forget()
        cluster.broker_lacks("t", "a")
        assert await brokers_of(cluster, "t") == ["b"]


@jumping
async def test_known_routes_serve_while_no_name_server_answers_and_unknown_ones_end_typed() -> None:
    async with FakeCluster(name_servers=2) as fake, client(fake) as cluster:
        fake.create("t")
        await brokers_of(cluster, "t")
        for server in fake.name_servers:
            await server.stop()
        for _ in range(600):  # ten minutes
            began_s = now_s()
            assert await brokers_of(cluster, "t") == ["a"]
            assert now_s() - began_s < 0.1
            await passed(1.0)
        assert isinstance(await error_of(cluster.route("other", soon())), Unreachable)


@pytest.mark.parametrize("trouble", ["stopped", "frozen", "empty", "starting"])
@jumping
async def test_another_name_server_is_asked_when_the_first_cannot_tell(trouble: str) -> None:
    async with FakeCluster(name_servers=2) as fake, client(fake) as cluster:
        fake.create("t")
        fake.create("u")
        first = fake.name_servers[0]
        if trouble == "stopped":
            await first.stop()
        elif trouble == "frozen":
            first.running.clear()
        elif trouble == "empty":
            first.brokers.clear()
        else:
            first.faults.add(answering(1, "name server not ready"), ROUTE, times=None)
        began_s = now_s()
        assert await brokers_of(cluster, "t") == ["a"]
        assert now_s() - began_s < 2.0
        before = first.counts[ROUTE]
        assert await brokers_of(cluster, "u") == ["a"]  # the one that answered is asked first
        assert first.counts[ROUTE] == before
        first.running.set()


@pytest.mark.parametrize("order", [(1, 17), (17, 1)])
@jumping
async def test_a_name_server_that_knows_of_no_topic_counts_more_than_one_that_cannot_tell(
    order: tuple[int, int],
) -> None:
    async with FakeCluster(name_servers=2) as fake, client(fake) as cluster:
        for server, code in zip(fake.name_servers, order, strict=True):
            server.faults.add(answering(code), ROUTE, times=None)
        assert await cluster.route("t", soon()) is None


@jumping
async def test_a_question_whose_answer_a_name_server_lost_is_asked_again() -> None:
    async with FakeCluster() as fake, client(fake) as cluster:
        fake.create("t")
        await cluster.brokers(soon())
        fake.name_servers[0].faults.add(Fault(Kind.DROPPED), ROUTE)
        assert await brokers_of(cluster, "t") == ["a"]


@jumping
async def test_a_name_server_that_cannot_tell_is_asked_once_a_second_at_most() -> None:
    async with FakeCluster() as fake, client(fake) as cluster:
        fake.create("t")
        await brokers_of(cluster, "t")
        server = fake.name_servers[0]
        server.faults.add(answering(1, "not ready"), times=None)
        before, began_s = server.counts[ROUTE], now_s()
        for _ in range(600):
            cluster.doubt("t")
            assert await brokers_of(cluster, "t") == ["a"]
            await passed(0.1)
        assert server.counts[ROUTE] - before <= now_s() - began_s + 1


@jumping
async def test_a_route_in_doubt_is_used_after_a_second_when_no_name_server_answers() -> None:
    async with FakeCluster() as fake, client(fake) as cluster:
        fake.create("t")
        await brokers_of(cluster, "t")
        await passed(2.0)
        fake.name_servers[0].running.clear()
        cluster.doubt("t")
        began_s = now_s()
        assert await brokers_of(cluster, "t") == ["a"]
        assert now_s() - began_s < 1.2
        fake.name_servers[0].running.set()


@jumping
async def test_what_is_written_goes_to_every_name_server_and_who_failed_is_named() -> None:
    async with FakeCluster(name_servers=3) as fake, client(fake) as cluster:
        await fake.name_servers[1].stop()
        told = await cluster.name_servers.tell_all(name_server.put_kv("POPMQ", "t", "a:4"), soon())
        kinds = [type(told[server.address]) for server in fake.name_servers]
        assert kinds == [Response, Unreachable, Response]
        assert [server.kv for server in fake.name_servers] == [{("POPMQ", "t"): "a:4"}, {}, {("POPMQ", "t"): "a:4"}]
        answer = await cluster.name_servers.ask(name_server.get_kv("POPMQ", "t"), soon())
        assert answer.expect().text("value") == "a:4"


@jumping
async def test_the_last_address_of_a_missing_broker_is_tried() -> None:
    """5.3.3 registers 10 s after it listens."""
    async with FakeCluster(("a", "b")) as fake, client(fake) as cluster:
        fake.create("t")
        await brokers_of(cluster, "t")
        await fake.brokers["a"].stop()
        del fake.name_servers[0].brokers["a"]
        assert isinstance(await error_of(cluster.call("a", topics.get_topic("t"), soon())), Unreachable)
        await fake.brokers["a"].start()
        await passed(1.1)
        assert (await cluster.call("a", topics.get_topic("t"), soon())).code == 0


@jumping
async def test_a_broker_that_moved_is_called_at_its_new_address() -> None:
    async with FakeCluster(("a", "b")) as fake, client(fake) as cluster:
        fake.create("t")
        await brokers_of(cluster, "t")
        await fake.brokers["a"].stop()
        cluster.clock("a").learn(loop_ms(), loop_ms())
        fake.brokers["b"].log.create("only here", 1)
        for broker in fake.name_servers[0].brokers.values():
            broker.addresses[0] = fake.brokers["b"].address  # the replica is the master now
        for _ in range(3):
            try:
                answer = await cluster.call("a", topics.get_topic("only here"), soon())
                break
            except Unreachable:
                await passed(1.0)
        assert answer.code == 0
        assert not cluster.clock("a").is_learnt  # another machine has another clock


@jumping
async def test_a_route_that_remembers_a_broker_without_the_topic_does_not_bring_its_old_address_back() -> None:
    """Replicas of 5.3.3 do not have the topics of their masters that have a type."""
    async with FakeCluster(("a", "b")) as fake, client(fake) as cluster:
        fake.create("t")
        await brokers_of(cluster, "t")
        moved = fake.name_servers[0].brokers["b"]
        moved.addresses[0], moved.topics = "127.0.0.1:1", {}
        await cluster.brokers_anew(soon())
        assert await brokers_of(cluster, "t") == ["a", "b"]
        await cluster.route_anew("t", soon())
        assert await cluster.address("b", soon()) == "127.0.0.1:1"


@jumping
async def test_a_broker_that_no_name_server_knows_is_unreachable() -> None:
    async with FakeCluster() as fake, client(fake) as cluster:
        fake.create("t")
        error = await error_of(cluster.call("elsewhere", topics.get_topic("t"), soon()))
        assert "no name server knows an address of broker elsewhere" in str(error)


@jumping
async def test_long_polls_have_a_connection_of_their_own() -> None:
    async with FakeCluster() as fake, client(fake) as cluster:
        fake.create("t")
        wait = popping.notification("t", "g", 10_000, loop_ms())
        parked = asyncio.create_task(cluster.call("a", wait, now_s() + 20.0, WAITS))
        await until(lambda: fake.brokers["a"].counts[200054] == 1)
        await send(cluster, b"x")
        assert popping.has_messages(await parked)
        purposes = sorted(purpose for _, purpose in cluster.numbers())
        assert purposes == ["calls", "waits"]


@jumping
async def test_a_member_has_a_connection_and_a_name_of_its_own() -> None:
    async with FakeCluster() as fake, client(fake) as cluster:
        fake.create("t")
        address = await cluster.address("a", soon())
        for name in ("c1", "c2"):
            said = members.Membership("g", (members.MemberSubscription("t"),))
            beat = members.heartbeat(name, memberships=[said])
            cluster.peer(address, f"member {name}", lambda beat=beat: beat).keep()  # type: ignore[misc]
        await until(lambda: len(fake.brokers["a"].members) >= 2)
        assert members.ids(await cluster.call("a", members.member_ids("g"), soon())) == ["c1", "c2"]
        await cluster.close_peer(address, "member c1")
        await until(lambda: len(fake.brokers["a"].clients) == 2)
        assert members.ids(await cluster.call("a", members.member_ids("g"), soon())) == ["c2"]
