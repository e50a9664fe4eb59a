"""The client beside a real RocketMQ: what the fake cluster claims, once more with the brokers' own answers.

`make test-cluster`; needs Java 17, and Maven for 5.3.3, or POPMQ_ROCKETMQ names a folder with the jars of another one.
The brokers are ended with the module.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from bench.peers import install
from harness.rocketmq_cluster import RocketMQCluster
from popmq_remoting import (
    WAITS,
    Cluster,
    ClusterSettings,
    ClusterTls,
    Credentials,
    RemotingError,
    Request,
    Response,
    Route,
    TlsMode,
)
from popmq_remoting.connection.link import OnRequest
from popmq_remoting.messages import recall
from popmq_remoting.messages.stored import StoredMessage
from popmq_remoting.pops.acks import PopAck
from popmq_remoting.pops.infos import PoppedMessage
from popmq_remoting.requests import bodies, groups, members, name_server, popping, pulling, sending, topics
from popmq_remoting.requests.popping import BrokerPop, PopOutcome
from popmq_remoting.requests.sending import SendTarget
from tests.remoting.real.recording import recorded_to

pytestmark = pytest.mark.interop

#: Until a broker of this machine answers, however loaded it is.
CALL_S = 10.0
#: A broker registers 10 s after it listens; a lease that is over comes back within 6 s.
SOON_S = 40.0
#: The operator of the secured cluster.
OPERATOR = Credentials("operator", "operator-secret")


@pytest.fixture(scope="module")
def jars() -> Path:
    if named := os.environ.get("POPMQ_ROCKETMQ"):
        return Path(named)
    try:
        return install.rocketmq()
    except install.Missing as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def rocketmq(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RocketMQCluster]:
    with RocketMQCluster(tmp_path_factory.mktemp("rocketmq"), jars) as cluster, recorded_to():
        yield cluster


class Broker:
    """Calls to the one broker, with a topic and a group of the test's own."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.topic, self.group = f"t-{uuid.uuid4().hex[:12]}", f"g-{uuid.uuid4().hex[:12]}"

    async def call(self, request: Request, purpose: str = "calls") -> Response:
        return await self.cluster.call("a", request, soon(), purpose)

    async def create(self, kind: str = "NORMAL", queues: int = 2, ordered: bool = False) -> None:
        config = topics.TopicConfig(self.topic, queues, queues, attributes={"message.type": kind})
        (await self.call(topics.create_topic(config))).expect()
        group = groups.GroupConfig(self.group, 16, ordered, retry_delays_ms=() if ordered else (1_000, 2_000))
        (await self.call(groups.create_group(group))).expect()

    async def send(self, body: bytes, own: dict[str, str] | None = None, queue_id: int = 0) -> sending.SendOutcome:
        target = SendTarget(self.topic, self.topic, queue_id, "a")
        return sending.sent(await self.call(sending.send(target, body, own or {}, now_ms())))

    async def pop(self, invisible_ms: int = 60_000, ordered: bool = False) -> PopOutcome:
        clock, asked_ms = self.cluster.clock("a"), now_ms()
        wanted = BrokerPop(self.topic, self.group, invisible_ms, clock.pop_born_ms(), ordered=ordered, broker="a")
        outcome = popping.popped(await self.call(popping.pop(wanted)), "a")
        if outcome.pop_ms:
            clock.learn(outcome.pop_ms, asked_ms)
        return outcome

    async def popped(self, count: int, ordered: bool = False, invisible_ms: int = 60_000) -> list[PoppedMessage]:
        """So many messages, by as many pops as it takes."""
        rows: list[PoppedMessage] = []
        until_s = soon(SOON_S)
        while len(rows) < count and asyncio.get_running_loop().time() < until_s:
            found = (await self.pop(invisible_ms, ordered)).rows
            rows += found
            if not found:
                await asyncio.sleep(0.1)
        assert len(rows) == count
        return rows


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def soon(seconds: float = CALL_S) -> float:
    return asyncio.get_running_loop().time() + seconds


@asynccontextmanager
async def broker_of(
    rocketmq: RocketMQCluster,
    on_request: OnRequest | None = None,
    heartbeat: Callable[[], Request] | None = None,
    tls: ClusterTls | None = None,
    credentials: Credentials | None = None,
) -> AsyncIterator[Broker]:
    """A client that knows the broker."""
    settings = ClusterSettings([rocketmq.name_server], "client-1", credentials, tls or ClusterTls())
    cluster = Cluster(settings, on_request, heartbeat)
    try:
        until_s = soon(SOON_S)
        while "a" not in await brokers_of(cluster):
            assert asyncio.get_running_loop().time() < until_s
            await asyncio.sleep(0.2)
        yield Broker(cluster)
    finally:
        await cluster.close()


async def brokers_of(cluster: Cluster) -> list[str]:
    cluster.doubt("")
    try:
        return list((await cluster.brokers(soon())).brokers)
    except RemotingError:
        return []


async def test_a_topic_has_a_route_after_it_was_created(rocketmq: RocketMQCluster) -> None:
    async with broker_of(rocketmq) as broker:
        assert await broker.cluster.route(broker.topic, soon()) is None
        await broker.create("NORMAL", queues=3)
        route = await route_of(broker)
        assert {name: (queues.read, queues.is_writable) for name, queues in route.queues.items()} == {"a": (3, True)}
        assert route.brokers["a"].cluster == "c"
        config = topics.topic_config(await broker.call(topics.get_topic(broker.topic)))
        assert (config.read_queues, dict(config.attributes)) == (3, {"message.type": "NORMAL"})
        names = name_server.topics(await broker.cluster.name_servers.ask(name_server.topics_of_cluster("c"), soon()))
        assert broker.topic in names


async def route_of(broker: Broker) -> Route:
    """The route to its topic, which brokers register soon."""
    until_s = soon(SOON_S)
    while (route := await broker.cluster.route(broker.topic, soon())) is None:
        assert asyncio.get_running_loop().time() < until_s
        await asyncio.sleep(0.2)
    return route


async def test_messages_are_sent_popped_and_acked_once(rocketmq: RocketMQCluster) -> None:
    async with broker_of(rocketmq) as broker:
        await broker.create(queues=1)
        first = await broker.send(b"one", {"UNIQ_KEY": f"{broker.topic}-1", "TAGS": "red", "colour": "grün"})
        assert (first.code, first.queue_id, first.queue_offset) == (0, 0, 0)
        entries = [(b"%d" % number, f"UNIQ_KEY\x01{broker.topic}-{number}\x02".encode()) for number in range(2, 6)]
        batch = sending.send_batch(SendTarget(broker.topic, "p", 0, "a"), entries, now_ms())
        sent = sending.sent(await broker.call(batch))
        assert (sent.queue_offset, len(sent.offset_ids)) == (1, 4)
        rows = await broker.popped(5)
        assert [row.message.body for row in rows] == [b"one", b"2", b"3", b"4", b"5"]
        assert [row.handle.queue_offset for row in rows] == [0, 1, 2, 3, 4]
        assert all(row.message.is_sound and row.attempt == 1 for row in rows)
        assert rows[0].properties["colour"] == "grün"
        assert rows[0].message.offset_id == first.offset_ids[0]
        (await broker.call(popping.ack(broker.topic, broker.group, rows[0].handle))).expect()
        acks = [PopAck(broker.topic, broker.group, row.handle) for row in rows[1:4]]
        (await broker.call(popping.batch_ack("a", acks))).expect()
        last = rows[4].handle
        changed = popping.changed(await broker.call(popping.change(broker.topic, broker.group, last, 1_000)), last)
        assert changed is not None
        assert changed != last
        (back,) = await broker.popped(1)
        assert (back.message.body, back.message.topic, back.attempt) == (b"5", broker.topic, 2)
        assert back.handle.kind == "2"
        (await broker.call(popping.ack(broker.topic, broker.group, back.handle))).expect()
        assert (await broker.pop()).rows == []


async def test_an_ordered_queue_is_given_out_again_when_its_batch_is_acked(rocketmq: RocketMQCluster) -> None:
    async with broker_of(rocketmq) as broker:
        await broker.create("FIFO", queues=1, ordered=True)
        await broker.send(b"one", {"__SHARDINGKEY": "k"})
        (row,) = await broker.popped(1, ordered=True)
        assert row.handle.is_ordered
        await broker.send(b"two", {"__SHARDINGKEY": "k"})
        assert (await broker.pop(ordered=True)).rows == []
        renewed = popping.changed(
            await broker.call(popping.change(broker.topic, broker.group, row.handle, 60_000)), row.handle
        )
        assert renewed == row.handle
        (await broker.call(popping.ack(broker.topic, broker.group, row.handle))).expect()
        assert [each.message.body for each in await broker.popped(1, ordered=True)] == [b"two"]


async def test_a_notification_is_answered_when_a_message_comes(rocketmq: RocketMQCluster) -> None:
    async with broker_of(rocketmq) as broker:
        await broker.create()
        parked = popping.notification(broker.topic, broker.group, 8_000, broker.cluster.clock("a").now_ms())
        answer = asyncio.create_task(broker.call(parked, WAITS))
        done, _ = await asyncio.wait([answer], timeout=0.5)
        assert not done
        await broker.send(b"x")
        assert popping.has_messages(await answer)


async def test_messages_are_read_by_offset_key_and_peek(rocketmq: RocketMQCluster) -> None:
    async with broker_of(rocketmq) as broker:
        await broker.create(queues=1)
        for number in range(3):
            await broker.send(b"%d" % number, {"UNIQ_KEY": f"{broker.topic}-{number}", "KEYS": f"k{number}"})
        await readable(broker, 0, 3)
        pull = pulling.BrokerPull(broker.topic, broker.group, 0, 1, wait_ms=5_000)
        found = pulling.pulled(await broker.call(pulling.pull(pull), WAITS))
        assert [message.body for message in found.messages] == [b"1", b"2"]
        assert (found.next_offset, found.min_offset, found.max_offset) == (3, 0, 3)
        end = pulling.pulled(await broker.call(pulling.pull(pulling.BrokerPull(broker.topic, broker.group, 0, 3))))
        assert (end.code, end.next_offset) == (19, 3)
        peeked = popping.messages(await broker.call(popping.peek(broker.topic, broker.group, 2)))
        assert [message.body for message in peeked] == [b"0", b"1"]
        until_s = soon(SOON_S)
        while not (by_id := await by_key(broker, f"{broker.topic}-2", True)):
            assert asyncio.get_running_loop().time() < until_s
        assert [message.body for message in by_id] == [b"2"]
        assert [message.body for message in await by_key(broker, "k1", False)] == [b"1"]
        place = by_id[0].commit_log_offset
        assert popping.messages(await broker.call(pulling.view_message(broker.topic, place))) == by_id
        assert await by_key(broker, "nobody", False) == []


async def readable(broker: Broker, queue_id: int, count: int) -> None:
    """Until a queue has so many messages: a broker dispatches them milliseconds after it answered OK."""
    until_s = soon(SOON_S)
    while (await broker.call(groups.max_offset(broker.topic, queue_id))).number("offset") < count:
        assert asyncio.get_running_loop().time() < until_s


async def by_key(broker: Broker, key: str, unique: bool) -> list[StoredMessage]:
    query = pulling.query_message(broker.topic, key, 32, 0, now_ms() + 60_000, unique)
    return popping.messages(await broker.call(query))


async def test_positions_and_statistics_are_read_in_the_brokers_own_json(rocketmq: RocketMQCluster) -> None:
    async with broker_of(rocketmq) as broker:
        await broker.create(queues=2)
        await broker.send(b"x", queue_id=1)
        await readable(broker, 1, 1)
        topic, group = broker.topic, broker.group
        assert (await broker.call(groups.query_offset(group, topic, 1))).code == 22
        (await broker.call(groups.update_offset(group, topic, 1, 1))).expect()
        assert (await broker.call(groups.query_offset(group, topic, 1))).expect().number("offset") == 1
        assert (await broker.call(groups.max_offset(topic, 1))).expect().number("offset") == 1
        assert (await broker.call(groups.min_offset(topic, 1))).expect().number("offset") == 0
        assert (await broker.call(groups.offset_at(topic, 1, 0))).expect().number("offset") == 0
        stats = topics.queue_table(await broker.call(topics.topic_stats(topic)))
        assert {key: row["maxOffset"] for key, row in stats.items()} == {(topic, "a", 0): 0, (topic, "a", 1): 1}
        positions = topics.queue_table(await broker.call(groups.group_stats(group, topic)))
        assert positions[topic, "a", 1]["consumerOffset"] == 1
        known = groups.group_table(await broker.call(groups.all_groups()))
        assert known[group] == groups.GroupConfig(group, 16, retry_delays_ms=(1_000, 2_000))
        (await broker.call(groups.set_request_mode(group, topic, "POP", 2))).expect()
        modes = groups.request_modes(await broker.call(groups.all_request_modes()))
        assert modes[topic, group] == ("POP", 2)
        settings = topics.properties_of(await broker.call(topics.broker_config()))
        assert settings["autoCreateTopicEnable"] == "false"
        runtime = bodies.table(await broker.call(topics.runtime_info()), "table")
        assert runtime["brokerVersionDesc"].startswith("V5_")


async def test_a_half_message_is_asked_about_and_delivered_when_it_is_committed(rocketmq: RocketMQCluster) -> None:
    checks: asyncio.Queue[sending.CheckBack] = asyncio.Queue()
    producers: list[str] = []

    async def serve(request: Request) -> Response | None:
        if request.code == 39:
            checks.put_nowait(sending.check(request))
        return None

    def beat() -> Request:
        return members.heartbeat("client-1", producers)

    async with broker_of(rocketmq, serve, beat) as broker:
        await broker.create("TRANSACTION", queues=1)
        producers.append(broker.topic)
        address = await broker.cluster.address("a", soon())
        await broker.cluster.peer(address).beat()
        half = {"TRAN_MSG": "true", "PGROUP": broker.topic, "UNIQ_KEY": f"{broker.topic}-half"}
        await broker.send(b"half", half)
        async with asyncio.timeout(SOON_S):
            check = await checks.get()
        assert (check.half.group, check.half.transaction_id) == (broker.topic, f"{broker.topic}-half")
        assert (check.half.topic, check.message.body) == (broker.topic, b"half")
        end = sending.end_transaction(check.half, commit=True, from_check=True)
        (await broker.call(end)).expect()
        assert [row.message.body for row in await broker.popped(1)] == [b"half"]


async def test_a_delayed_message_can_be_recalled_by_its_handle(rocketmq: RocketMQCluster) -> None:
    async with broker_of(rocketmq) as broker:
        await broker.create("DELAY")
        at_ms = now_ms() + 60_000
        sent = await broker.send(b"later", {"TIMER_DELIVER_MS": str(at_ms), "UNIQ_KEY": f"{broker.topic}-1"})
        handle = recall.read(sent.recall_handle)
        assert (handle.topic, handle.broker, handle.message_id) == (broker.topic, "a", f"{broker.topic}-1")
        assert abs(handle.deliver_at_ms - at_ms) <= 1_000
        (await broker.call(sending.recall(broker.topic, sent.recall_handle, "p"))).expect()


async def test_members_of_a_group_are_connections_and_queues_can_be_locked(rocketmq: RocketMQCluster) -> None:
    async with broker_of(rocketmq) as broker:
        await broker.create()
        address = await broker.cluster.address("a", soon())
        said = members.Membership(broker.group, (members.MemberSubscription(broker.topic),))
        for name in ("c1", "c2"):
            beat = members.heartbeat(name, memberships=[said])
            peer = broker.cluster.peer(address, f"member {name}", lambda beat=beat: beat)  # type: ignore[misc]
            await peer.beat()
        assert members.ids(await broker.call(members.member_ids(broker.group))) == ["c1", "c2"]
        shown = members.connections(await broker.call(members.consumers(broker.group)))
        assert {(each.client_id, each.language) for each in shown} == {("c1", "PYTHON"), ("c2", "PYTHON")}
        queues = {members.BrokerQueue(broker.topic, "a", 0)}
        locks = f"popmq_lock_{broker.group}"
        assert members.locked(await broker.call(members.lock_queues(locks, "c1", queues))) == queues
        assert members.locked(await broker.call(members.lock_queues(locks, "c2", queues))) == set()
        (await broker.call(members.unlock_queues(locks, "c1", queues))).expect()
        assert members.ids(await broker.call(members.member_ids("nobody"))) == []


async def test_a_broker_relays_questions_to_the_member_that_they_name(rocketmq: RocketMQCluster) -> None:
    async def serve(request: Request) -> Response | None:
        if request.code in (307, 309):
            return Response(0, body=f"answer of {request.fields['clientId']} to {request.code}".encode())
        return None

    async with broker_of(rocketmq, serve) as broker:
        await broker.create(queues=1)
        await broker.send(b"x")
        (row,) = await broker.popped(1)
        said = members.Membership(broker.group, (members.MemberSubscription(broker.topic),))
        beat = members.heartbeat("c1", [broker.topic], [said])
        peer = broker.cluster.peer(await broker.cluster.address("a", soon()), "member c1", lambda: beat)
        await peer.beat()
        told = await broker.call(members.running_info(broker.group, "c1", with_stack=True))
        assert told.expect().body == b"answer of c1 to 307"
        directly = members.consume_directly(broker.group, "c1", broker.topic, row.message.offset_id, "a")
        assert (await broker.call(directly)).expect().body == b"answer of c1 to 309"
        (producer,) = members.connections(await broker.call(members.producers(broker.topic)))
        assert producer.client_id == "c1"
        (await peer.call(members.unregister("c1", consumer=broker.group), soon())).expect()
        assert members.ids(await broker.call(members.member_ids(broker.group))) == []


async def test_a_broker_tells_its_topics_settings_replicas_and_producers(rocketmq: RocketMQCluster) -> None:
    producers: list[str] = []
    async with broker_of(rocketmq, heartbeat=lambda: members.heartbeat("client-1", producers)) as broker:
        await broker.create("FIFO", queues=3)
        producers.append(broker.topic)
        await broker.cluster.peer(await broker.cluster.address("a", soon())).beat()
        pieces = topics.topic_pieces(await broker.call(topics.all_topics()))
        (config,) = (some[broker.topic] for some in pieces if broker.topic in some)
        assert (config.read_queues, config.write_queues, config.attributes["message.type"]) == (3, 3, "FIFO")
        settings = topics.properties_of(await broker.call(topics.broker_config()))
        assert (settings["flushDiskType"], settings["brokerName"]) == ("SYNC_FLUSH", "a")
        assert bodies.members(await broker.call(topics.replication()))["inSyncSlaveNums"] == 0
        found = members.producers_by_group(await broker.call(members.all_producers()))
        assert [each.client_id for each in found[broker.topic]] == ["client-1"]


async def test_groups_are_moved_copied_and_deleted(rocketmq: RocketMQCluster) -> None:
    async with broker_of(rocketmq) as broker:
        await broker.create(queues=1)
        topic, group, other = broker.topic, broker.group, f"{broker.group}-copy"
        for number in range(3):
            await broker.send(b"%d" % number)
        await readable(broker, 0, 3)
        (await broker.call(groups.create_group(groups.GroupConfig(other)))).expect()
        (await broker.call(groups.update_offset(group, topic, 0, 1))).expect()
        assert bodies.names((await broker.call(groups.groups_of_topic(topic))).expect(), "groupList") == [group]
        assert bodies.names((await broker.call(groups.topics_of_group(group))).expect(), "topicList") == [topic]
        (await broker.call(groups.clone_offsets(group, other, topic))).expect()
        assert (await broker.call(groups.query_offset(other, topic, 0))).expect().number("offset") == 1
        (await broker.call(groups.reset_offset(group, topic, 0, 2))).expect()
        assert [row.message.body for row in await broker.popped(1)] == [b"2"]
        earliest = (await broker.call(groups.earliest_time(topic, 0))).expect().number("timestamp")
        assert abs(earliest - now_ms()) < 600_000
        message = (await by_offset(broker, 0))[0]
        (await broker.call(pulling.send_back(group, topic, message, pulling.DEAD_LETTER, 16))).expect()
        (await broker.call(groups.delete_group(other))).expect()
        assert other not in groups.group_table(await broker.call(groups.all_groups()))
        (await broker.call(topics.delete_topic(topic))).expect()
        told = await broker.cluster.name_servers.tell_all(name_server.delete_topic(topic, "c"), soon())
        assert [answer.code for answer in told.values() if isinstance(answer, Response)] == [0]
        assert (await broker.call(topics.get_topic(topic))).code == 17


async def by_offset(broker: Broker, offset: int) -> list[StoredMessage]:
    asked = pulling.BrokerPull(broker.topic, broker.group, 0, offset)
    return pulling.pulled(await broker.call(pulling.pull(asked))).messages


async def test_name_servers_keep_keys_and_values(rocketmq: RocketMQCluster) -> None:
    async with broker_of(rocketmq) as broker:
        servers = broker.cluster.name_servers
        assert (await servers.ask(name_server.get_kv("POPMQ", broker.topic), soon())).code == 22
        await servers.tell_all(name_server.put_kv("POPMQ", broker.topic, "a:4;b:4"), soon())
        answer = await servers.ask(name_server.get_kv("POPMQ", broker.topic), soon())
        assert answer.expect().text("value") == "a:4;b:4"
        listed = bodies.table(await servers.ask(name_server.list_kv("POPMQ"), soon()), "table")
        assert listed[broker.topic] == "a:4;b:4"
        await servers.tell_all(name_server.delete_kv("POPMQ", broker.topic), soon())
        assert (await servers.ask(name_server.get_kv("POPMQ", broker.topic), soon())).code == 22
        assert "BenchmarkTest" in name_server.topics(await servers.ask(name_server.all_topics(), soon()))


async def test_brokers_and_name_servers_speak_tls_on_the_same_ports(rocketmq: RocketMQCluster) -> None:
    async with broker_of(rocketmq, tls=ClusterTls(TlsMode.ON)) as broker:
        await broker.create()
        await broker.send(b"x" * 100_000)
        (row,) = await broker.popped(1)
        assert row.message.body == b"x" * 100_000


@pytest.fixture(scope="module")
def secured(
    rocketmq: RocketMQCluster, jars: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RocketMQCluster]:
    """With access control, and servers that write binary headers. After the first one, whose recording it is in."""
    provider = "org.apache.rocketmq.auth.{0}.provider.{1}"
    settings = {
        "authenticationEnabled": "true",
        "authenticationProvider": provider.format("authentication", "DefaultAuthenticationProvider"),
        "authenticationMetadataProvider": provider.format("authentication", "LocalAuthenticationMetadataProvider"),
        "initAuthenticationUser": json.dumps({"username": OPERATOR.access_key, "password": OPERATOR.secret}),
        "authorizationEnabled": "true",
        "authorizationProvider": provider.format("authorization", "DefaultAuthorizationProvider"),
        "authorizationMetadataProvider": provider.format("authorization", "LocalAuthorizationMetadataProvider"),
    }
    java = ("-Drocketmq.serialize.type=ROCKETMQ",)
    with RocketMQCluster(tmp_path_factory.mktemp("secured"), jars, settings=settings, java=java) as cluster:
        yield cluster


async def test_signed_requests_are_taken_by_acl_2_and_answers_with_binary_headers_are_read(
    secured: RocketMQCluster,
) -> None:
    async with broker_of(secured, credentials=OPERATOR) as broker:
        await broker.create(queues=1)
        assert await route_of(broker)
        await broker.send(b"x", {"colour": "grün"})
        (row,) = await broker.popped(1)
        assert row.properties["colour"] == "grün"
        (await broker.call(popping.batch_ack("a", [PopAck(broker.topic, broker.group, row.handle)]))).expect()


async def test_a_wrong_signature_is_refused_by_acl_2(secured: RocketMQCluster) -> None:
    async with broker_of(secured, credentials=Credentials(OPERATOR.access_key, "wrong")) as broker:
        answer = await broker.call(topics.get_topic("t"))
        assert answer.code in (1, 16)
        assert "signature" in answer.remark
