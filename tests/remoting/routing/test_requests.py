"""The requests of each kind, by a client of a whole cluster."""

import asyncio

import pytest

from popmq_remoting import BadFormat, Cluster, ClusterSettings, Credentials, Request, Response
from popmq_remoting.errors import BrokerRefused
from popmq_remoting.pops.acks import PopAck
from popmq_remoting.requests import groups, members, popping, pulling, sending, topics
from popmq_remoting.requests.popping import BrokerPop, PopOutcome
from popmq_remoting.requests.sending import SendTarget
from tests.remoting.fake.broker import loop_ms
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.fake.faults import Fault, Kind, answering
from tests.remoting.jumping import jumping, passed, until
from tests.remoting.routing.fake_client import client, send, soon


async def pop(cluster: Cluster, invisible_ms: int = 30_000, ordered: bool = False) -> PopOutcome:
    clock = cluster.clock("a")
    asked_ms = loop_ms()
    wanted = BrokerPop("t", "g", invisible_ms, clock.pop_born_ms(), ordered=ordered)
    outcome = popping.popped(await cluster.call("a", popping.pop(wanted), soon()), "a")
    if outcome.pop_ms:
        clock.learn(outcome.pop_ms, asked_ms)
    return outcome


@jumping
async def test_what_was_sent_is_popped_and_once_acked_never_comes_again() -> None:
    async with FakeCluster() as fake, client(fake) as cluster:
        fake.create("t")
        first = await send(cluster, b"one", {"TAGS": "red", "UNIQ_KEY": "id-1"})
        assert (first.code, first.queue_offset, first.transaction_id) == (0, 0, "id-1")
        entries = [(b"two", b"UNIQ_KEY\x01id-2\x02"), (b"three", b"")]
        batch = sending.send_batch(SendTarget("t", "producers", 1), entries, loop_ms())
        sent = sending.sent(await cluster.call("a", batch, soon()))
        assert (sent.queue_id, sent.queue_offset, len(sent.offset_ids)) == (1, 0, 2)
        rows = (await pop(cluster)).rows
        assert [(row.message.body, row.attempt) for row in rows] == [(b"one", 1), (b"two", 1), (b"three", 1)]
        assert rows[0].properties["TAGS"] == "red"
        (await cluster.call("a", popping.ack("t", "g", rows[0].handle), soon())).expect()
        others = [PopAck("t", "g", row.handle) for row in rows[1:]]
        (await cluster.call("a", popping.batch_ack("a", others), soon())).expect()
        await passed(31.0)
        assert (await pop(cluster)).rows == []
        assert fake.brokers["a"].pops.leases == {}


@jumping
async def test_a_lease_that_is_over_brings_the_message_back_with_the_next_attempt() -> None:
    async with FakeCluster() as fake, client(fake) as cluster:
        fake.create("t")
        await send(cluster, b"x")
        old = (await pop(cluster, invisible_ms=5_000)).rows[0].handle
        changed = await cluster.call("a", popping.change("t", "g", old, 20_000), soon())
        new = popping.changed(changed, old)
        assert new is not None
        assert new != old
        await passed(10.0)
        assert (await pop(cluster)).rows == []
        await passed(11.0)
        (row,) = (await pop(cluster)).rows
        assert (row.message.topic, row.attempt, row.handle.kind) == ("t", 2, "2")
        (await cluster.call("a", popping.ack("t", "g", row.handle), soon())).expect()
        await passed(31.0)
        assert (await pop(cluster)).rows == []


@jumping
async def test_an_ordered_queue_gives_nothing_more_while_it_holds_a_batch() -> None:
    async with FakeCluster() as fake, client(fake) as cluster:
        fake.create("t", queues=1)
        await send(cluster, b"one")
        (row,) = (await pop(cluster, ordered=True)).rows
        await send(cluster, b"two")
        assert (await pop(cluster, ordered=True)).rows == []
        assert row.handle.is_ordered
        (await cluster.call("a", popping.ack("t", "g", row.handle), soon())).expect()
        assert [each.message.body for each in (await pop(cluster, ordered=True)).rows] == [b"two"]


@pytest.mark.parametrize("skew_ms", [-60_000, 0, 60_000])
@pytest.mark.parametrize("acl", [False, True])
@jumping
async def test_pops_work_whatever_the_brokers_clock_says(skew_ms: int, acl: bool) -> None:
    """With access control a bornTime of 0 is refused, and one that is too early always."""
    credentials = Credentials("user", "secret") if acl else None
    secrets = {"user": "secret"} if acl else None
    async with FakeCluster(secrets=secrets, skew_ms=skew_ms) as fake, client(fake, credentials=credentials) as cluster:
        fake.create("t")
        for body in (b"one", b"two"):
            await send(cluster, body)
            assert [row.message.body for row in (await pop(cluster)).rows] == [body]
        assert abs(cluster.clock("a").ahead_ms - skew_ms) < 100
        assert all(
            request.fields["bornTime"] != "0" for request in fake.brokers["a"].requests if request.code == 200050
        )


@jumping
async def test_messages_are_read_by_offset_key_and_place() -> None:
    async with FakeCluster() as fake, client(fake) as cluster:
        fake.create("t")
        sent = [
            await send(cluster, b"%d" % number, {"KEYS": key, "UNIQ_KEY": f"id-{key}"})
            for number, key in enumerate(("k", "key"))  # the fake's index knows only the length of a key
        ]
        answer = await cluster.call("a", pulling.pull(pulling.BrokerPull("t", "g", 0, 1)), soon())
        found = pulling.pulled(answer)
        assert [message.body for message in found.messages] == [b"1"]
        assert (found.next_offset, found.min_offset, found.max_offset) == (2, 0, 2)
        for key, unique in (("key", False), ("id-key", True)):
            by_key = pulling.query_message("t", key, 32, 0, loop_ms(), unique)
            messages = popping.messages(await cluster.call("a", by_key, soon()))
            assert [message.body for message in messages] == [b"1"]
        place = messages[0].commit_log_offset
        assert messages[0].offset_id == sent[1].offset_ids[0]
        assert popping.messages(await cluster.call("a", pulling.view_message("t", place), soon())) == messages
        end = pulling.pulled(await cluster.call("a", pulling.pull(pulling.BrokerPull("t", "g", 0, 2)), soon()))
        assert (end.code, end.messages, end.max_offset) == (19, [], 2)


@jumping
async def test_topics_groups_and_positions_are_kept_by_their_broker() -> None:
    async with FakeCluster() as fake, client(fake) as cluster:
        fake.create("t")

        async def call(request: Request) -> Response:
            return await cluster.call("a", request, soon())

        config = topics.TopicConfig("fifo", 3, 3, attributes={"message.type": "FIFO"})
        (await call(topics.create_topic(config))).expect()
        assert topics.topic_config(await call(topics.get_topic("fifo"))) == config
        group = groups.GroupConfig("g2", 3, ordered=True, retry_delays_ms=(1_000, 5_000))
        (await call(groups.create_group(group))).expect()
        assert groups.group_table(await call(groups.all_groups()))["g2"] == group
        assert (await call(groups.query_offset("g2", "t", 0))).code == 22
        (await call(groups.update_offset("g2", "t", 0, 7))).expect()
        assert (await call(groups.query_offset("g2", "t", 0))).number("offset") == 7
        await send(cluster, b"x")
        assert topics.queue_table(await call(topics.topic_stats("t")))["t", "a", 0]["maxOffset"] == 1
        assert topics.queue_table(await call(groups.group_stats("g2", "t")))["t", "a", 0]["consumerOffset"] == 7
        (await call(groups.set_request_mode("g2", "t", "POP", 2))).expect()
        assert groups.request_modes(await call(groups.all_request_modes())) == {("t", "g2"): ("POP", 2)}
        assert topics.properties_of(await call(topics.broker_config()))["autoCreateTopicEnable"] == "false"
        queues = {members.BrokerQueue("t", "a", 0), members.BrokerQueue("t", "a", 1)}
        assert members.locked(await call(members.lock_queues("g2", "c1", queues))) == queues
        assert members.locked(await call(members.lock_queues("g2", "c2", queues))) == set()
        (await call(groups.delete_group("g2"))).expect()
        (await call(topics.delete_topic("fifo"))).expect()
        with pytest.raises(BrokerRefused):
            topics.topic_config(await call(topics.get_topic("fifo")))


@jumping
async def test_a_broker_asks_a_producer_about_its_transaction_and_the_end_is_committed() -> None:
    checks: asyncio.Queue[sending.CheckBack] = asyncio.Queue()

    async def serve(request: Request) -> Response | None:
        checks.put_nowait(sending.check(request))
        return None

    beat = members.heartbeat("client-1", ["t"])
    async with FakeCluster() as fake, client(fake, serve, lambda: beat) as cluster:
        fake.create("t")
        await send(cluster, b"half", {"TRAN_MSG": "true", "PGROUP": "t", "UNIQ_KEY": "id-1"})
        assert (await pop(cluster)).rows == []
        await until(lambda: bool(fake.brokers["a"].members))
        fake.brokers["a"].check(fake.brokers["a"].halves[0])
        check = await checks.get()
        assert (check.half.topic, check.half.group, check.half.transaction_id) == ("t", "t", "id-1")
        end = sending.end_transaction(check.half, commit=True, from_check=True)
        (await cluster.call("a", end, soon())).expect()
        assert [row.message.body for row in (await pop(cluster)).rows] == [b"half"]


@jumping
async def test_a_pop_that_is_answered_at_once_without_reason_has_no_messages() -> None:
    async with FakeCluster() as fake, client(fake) as cluster:
        fake.create("t")
        await send(cluster, b"x")
        fake.brokers["a"].faults.add(answering(210, "the broker has waited for too long"), 200050, times=3)
        assert [(await pop(cluster)).rows for _ in range(3)] == [[], [], []]
        assert len((await pop(cluster)).rows) == 1


@jumping
async def test_a_change_that_is_answered_without_numbers_came_too_late() -> None:
    async with FakeCluster() as fake, client(fake) as cluster:
        fake.create("t", queues=1)
        await send(cluster, b"x")
        (row,) = (await pop(cluster, ordered=True)).rows
        fake.brokers["a"].faults.add(Fault(Kind.EMPTY_HEADER), 200053)
        answer = await cluster.call("a", popping.change("t", "g", row.handle, 1_000), soon())
        assert popping.changed(answer, row.handle) is None


@jumping
async def test_one_code_answers_for_a_whole_batch() -> None:
    async with FakeCluster() as fake, client(fake) as cluster:
        fake.create("t")
        fake.brokers["a"].faults.add(answering(13, "message is illegal"), 320)
        batch = sending.send_batch(SendTarget("t", "p", 0), [(b"one", b""), (b"two", b"")], loop_ms())
        with pytest.raises(BrokerRefused, match="13: message is illegal"):
            sending.sent(await cluster.call("a", batch, soon()))


@jumping
async def test_an_address_that_is_no_address_is_refused_at_the_start() -> None:
    with pytest.raises(BadFormat):
        Cluster(ClusterSettings(["localhost"], "c"))


@jumping
async def test_a_cluster_that_is_only_starting_is_asked_again_after_a_second() -> None:
    async with FakeCluster() as fake, client(fake) as cluster:
        fake.forget()
        assert (await cluster.brokers(soon())).brokers == {}
        fake.create("t")
        await passed(1.1)
        assert list((await cluster.brokers(soon())).brokers) == ["a"]


@jumping
async def test_servers_that_write_binary_headers_are_understood() -> None:
    async with FakeCluster() as fake, client(fake) as cluster:
        fake.create("t")
        for server in (*fake.name_servers, *fake.brokers.values()):
            server.binary = True
        await send(cluster, b"x")
        assert [row.message.body for row in (await pop(cluster)).rows] == [b"x"]
