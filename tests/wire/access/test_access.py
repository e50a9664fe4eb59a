"""Every method of every service needs an access key, and one that allows it: all of them are called, with all keys."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from popmq_proto.rocketmq import definition_pb2 as v2pb
from popmq_proto.rocketmq import service_pb2 as v2rpc
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.protocols.access import known_keys
from popmq_server.protocols.probes import REFLECTION_V1, reflection_v1
from tests.wire.access.signing import DATE_TIME, KEYS, SignedStubs, signed, write_keys
from tests.wire.producer import Producer
from tests.wire.rocketmq.v2 import V2, message, resource
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, bodies, read_refusal, refusal
from tests.wire.world import METHODS, OTHER_GROUP, World, build, good_requests, method

V2_SERVICE = v2rpc.DESCRIPTOR.services_by_name["MessagingService"]
_V1 = DescriptorPool()
_V1.AddSerializedFile(reflection_v1())
SERVICES: tuple[Any, ...] = (
    *pb.DESCRIPTOR.services_by_name.values(),
    V2_SERVICE,
    health_pb2.DESCRIPTOR.services_by_name["Health"],
    reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"],
    _V1.FindServiceByName(REFLECTION_V1),
)
PATHS = [f"/{service.full_name}/{each.name}" for service in SERVICES for each in service.methods]
#: What is not the signature of a key that this broker knows.
STRANGERS: dict[str, list[tuple[str, str]]] = {
    "no key": [],
    "another secret": signed("root", "the secret of somebody"),
    "an unknown name": signed("nobody"),
    "another time": [("x-mq-date-time", "20260101T120001Z"), *signed("root")[1:]],
    "no time": signed("root")[1:],
    "another scheme": [("authorization", "Bearer abc"), ("x-mq-date-time", DATE_TIME)],
    "an empty signature": [("authorization", "MQv2-HMAC-SHA1 Credential=root, Signature="), ("x-mq-date-time", "")],
}
READS, SENDS, RUNS = "reader", "sender", "operator"
LISTS = "Admin/ListTopics Admin/ListGroups Admin/GetInfo Admin/ListAccessKeys "
#: What each of KEYS allows of the good requests of tests/wire/world.py; root allows all.
ALLOWED = {
    "nothing": LISTS,
    "other": LISTS + "Admin/GetTopic Admin/LookUp Admin/Browse",
    SENDS: LISTS + "Broker/Send Broker/Stage Broker/CommitBatch Broker/DropStages Broker/Recall Broker/EndTransaction "
    "Broker/Reschedule "
    "Admin/GetTopic Admin/ListDelayed Admin/ListTransactions Broker/GetResults Broker/StoreResults "
    "Broker/ForgetResults",
    READS: LISTS
    + "Broker/Pop Broker/Ack Broker/ChangeInvisibleTime Broker/QueryAssignment Broker/Heartbeat Broker/AttachOwner "
    "Broker/RenewOwner Broker/AckUpTo Broker/ReleaseOwner Broker/WaitAvailable Broker/Peek Broker/Pull "
    "Broker/UpdateOffsets Broker/QueryOffsets Broker/SendBack Broker/LockQueues Broker/UnlockQueues Admin/GetTopic "
    "Admin/GetGroup Admin/GetStats Admin/SetFilter Admin/SetConsumeMode Admin/LookUp Admin/Browse Admin/ListLeases "
    "Admin/ListOwners Admin/ListSessions Admin/EndLease Admin/GetHistory Broker/Settle",
    RUNS: " ".join(name for name in METHODS if name.startswith("Admin/"))
    + " Broker/Peek Broker/QueryOffsets Broker/ReleaseOwner Broker/Recall Broker/Reschedule Broker/EndTransaction "
    "Broker/GetResults",
}


class Guarded:
    """A broker that asks for keys, the world in it, and a client for each key."""

    def __init__(self, stack: contextlib.ExitStack, folder: Path) -> None:
        self.keys = folder / "keys.toml"
        write_keys(self.keys, KEYS)
        clock = FakeClock()
        data = folder / "data"
        self.broker = stack.enter_context(EmbeddedBroker(data, clock=clock, sync="none", access_keys=self.keys))
        self.clients = {name: stack.enter_context(SignedStubs(self.broker.endpoint, name)) for name in KEYS}
        self.plain = stack.enter_context(Stubs(self.broker.endpoint))
        self.world: World = build(self.clients["root"], data, clock, self.clients[SENDS])

    def v2(self, name: str) -> V2:
        """An official client of this key."""
        date_time, authorization = (value for _, value in signed(name))
        return V2(self.broker.endpoint, x_mq_date_time=date_time, authorization=authorization)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """For tests that change nothing that another one asks for."""
    with contextlib.ExitStack() as stack:
        yield Guarded(stack, tmp_path_factory.mktemp("access"))


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Guarded]:
    """One of its own; its file of keys is looked at before each call."""
    monkeypatch.setattr(known_keys, "LOOK_EVERY_S", 0.0)
    with contextlib.ExitStack() as stack:
        yield Guarded(stack, tmp_path)


def health(guarded: Guarded) -> Any:
    return health_pb2_grpc.HealthStub(guarded.clients["nothing"].channel)


def raw(channel: Any, path: str, metadata: list[tuple[str, str]]) -> list[bytes]:
    """The answers to an empty request, whether the method streams or not."""
    return list(channel.stream_stream(path)(iter([b""]), metadata=metadata, timeout=CALL_S))


# ── Who calls ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_every_service_that_is_served_is_called_here(guarded: Guarded) -> None:
    served = ProtoReflectionDescriptorDatabase(guarded.clients["nothing"].channel).get_services()
    assert set(served) == {service.full_name for service in SERVICES}


@pytest.mark.parametrize("stranger", STRANGERS)
@pytest.mark.parametrize("path", PATHS)
def test_a_stranger_is_refused_whatever_he_calls(guarded: Guarded, path: str, stranger: str) -> None:
    headers = STRANGERS[stranger]
    if path.startswith(f"/{V2_SERVICE.full_name}/"):
        (answer,) = raw(guarded.plain.channel, path, headers)
        kind = getattr(v2rpc, V2_SERVICE.methods_by_name[path.rpartition("/")[2]].output_type.name)
        assert kind.FromString(answer).status.code == v2pb.UNAUTHORIZED
        assert len(kind.FromString(answer).ListFields()) == 1, "nothing but the status"
        return
    with pytest.raises(grpc.RpcError) as error:
        raw(guarded.plain.channel, path, headers)
    refused = read_refusal(error.value)
    assert (refused.code, refused.status) == ("UNAUTHENTICATED", grpc.StatusCode.UNAUTHENTICATED)


def test_a_stranger_does_not_learn_which_methods_or_names_there_are(guarded: Guarded) -> None:
    said = set()
    for path, headers in (
        ("/popmq.v1.Broker/Nothing", STRANGERS["an unknown name"]),
        ("/popmq.v9.Broker/Send", STRANGERS["an unknown name"]),
        (PATHS[0], STRANGERS["an unknown name"]),
        (PATHS[0], STRANGERS["another secret"]),
    ):
        with pytest.raises(grpc.RpcError) as error:
            raw(guarded.plain.channel, path, headers)
        said.add((error.value.code(), error.value.details()))
    assert len(said) == 1


@pytest.mark.parametrize("path", PATHS)
def test_the_right_key_passes_whatever_is_called(guarded: Guarded, path: str) -> None:
    if path == "/grpc.health.v1.Health/Watch":
        watch = health(guarded).Watch(health_pb2.HealthCheckRequest())
        assert next(watch).status == health_pb2.HealthCheckResponse.SERVING
        watch.cancel()
        return
    call: Any = guarded.plain.channel.stream_stream(path)
    running = call(iter([b""]), metadata=[*signed("root"), ("x-mq-client-id", "c")], timeout=CALL_S)
    answers: list[bytes] = []
    with contextlib.suppress(grpc.RpcError):
        answers.extend(running)
    assert running.code() not in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
    if path.startswith(f"/{V2_SERVICE.full_name}/"):
        kind = getattr(v2rpc, V2_SERVICE.methods_by_name[path.rpartition("/")[2]].output_type.name)
        assert v2pb.UNAUTHORIZED not in {kind.FromString(answer).status.code for answer in answers}


def test_health_and_reflection_want_any_key(guarded: Guarded) -> None:
    answer = health(guarded).Check(health_pb2.HealthCheckRequest(), timeout=CALL_S)
    assert answer.status == health_pb2.HealthCheckResponse.SERVING
    assert ProtoReflectionDescriptorDatabase(guarded.clients["nothing"].channel).get_services()


# ── What a key allows ────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_method_of_the_contract_is_allowed_by_a_key_and_not_by_all() -> None:
    allowed = {name: [key for key, names in ALLOWED.items() if name in names.split()] for name in METHODS}
    assert [name for name, keys in allowed.items() if not keys] == []
    assert sorted(name for name, keys in allowed.items() if "nothing" in keys) == sorted(LISTS.split())
    assert {name for names in ALLOWED.values() for name in names.split()} == set(METHODS)


@pytest.mark.parametrize("key", [name for name in KEYS if name != "root"])
@pytest.mark.parametrize("name", METHODS)
def test_a_key_is_refused_exactly_the_calls_that_it_does_not_allow(guarded: Guarded, name: str, key: str) -> None:
    request: Message = good_requests(guarded.world)[name]
    call = method(guarded.clients[key], name)
    if name not in ALLOWED[key].split():
        assert refusal(call, request).code == "PERMISSION_DENIED"
        return
    with contextlib.suppress(grpc.RpcError):  # others of these tests may have done it already
        call(request, timeout=CALL_S)
        return
    refused = refusal(call, request)
    assert refused.code not in ("PERMISSION_DENIED", "UNAUTHENTICATED")


def test_a_refusal_names_the_missing_right(guarded: Guarded) -> None:
    pop = pb.PopRequest(topic=TOPIC, group=GROUP)
    info = refusal(guarded.clients[SENDS].broker.Pop, pop).info
    assert "'sender'" in info.message
    assert '"receive:orders/billing"' in info.action
    assert not info.retryable


def test_a_refused_call_changes_nothing(fresh: Guarded) -> None:
    send = pb.SendRequest(topic=TOPIC, messages=[pb.Message(body=b"x")])
    before = fresh.clients["root"].stats()
    assert refusal(fresh.clients[READS].broker.Send, send).code == "PERMISSION_DENIED"
    ack = pb.AckRequest(group=GROUP, handles=[fresh.world.live])
    assert refusal(fresh.clients["other"].broker.Ack, ack).code == "PERMISSION_DENIED"
    assert refusal(fresh.plain.broker.Ack, ack).code == "UNAUTHENTICATED"
    assert fresh.clients["root"].stats() == before
    assert fresh.clients[READS].ack(fresh.world.live) == [""]


@pytest.mark.slow
def test_lists_show_only_rows_that_a_key_may_see(fresh: Guarded) -> None:
    def listed(name: str) -> tuple[set[str], set[str], set[tuple[str, str]]]:
        admin = fresh.clients[name].admin
        topics = admin.ListTopics(pb.ListTopicsRequest(dead_letter_topics=True), timeout=CALL_S).topics
        groups = admin.ListGroups(pb.ListGroupsRequest(), timeout=CALL_S).groups
        stats = admin.GetStats(pb.GetStatsRequest(), timeout=CALL_S)
        assert {row.topic for row in stats.topics} == {topic.name for topic in topics}
        return (
            {row.name for row in topics},
            {row.name for row in groups},
            {(row.topic, row.group) for row in stats.groups},
        )

    assert listed("nothing") == (set(), set(), set())
    assert listed(SENDS) == ({"orders", "later", "%RESULT%billing"}, set(), set())
    assert listed(READS) == (
        {"orders", "feed"},
        {"billing", "readers"},
        {("orders", "billing"), ("feed", "readers")},
    )
    assert listed(RUNS) == listed("root")


def test_a_list_of_all_that_cannot_be_cut_wants_admin(guarded: Guarded) -> None:
    for call, request in (
        ("ListLeases", pb.ListLeasesRequest()),
        ("ListOwners", pb.ListOwnersRequest()),
        ("ListSessions", pb.ListSessionsRequest()),
        ("ListDelayed", pb.ListDelayedRequest()),
        ("ListTransactions", pb.ListTransactionsRequest()),
    ):
        for name in (SENDS, READS):
            assert refusal(getattr(guarded.clients[name].admin, call), request).code == "PERMISSION_DENIED"
        getattr(guarded.clients[RUNS].admin, call)(request, timeout=CALL_S)


def test_a_list_shows_contents_only_to_keys_that_may_read_them(guarded: Guarded) -> None:
    message = pb.Message(message_id="a", body=b"secret", delay_ms=60_000)
    guarded.clients[SENDS].broker.Send(pb.SendRequest(topic="later", messages=[message]), timeout=CALL_S)
    request = pb.ListDelayedRequest(topic="later", whole=True)
    unread = guarded.clients[SENDS].admin.ListDelayed(request, timeout=CALL_S).messages
    assert "a" in [each.message_id for each in unread]
    assert not any(each.HasField("preview") or each.HasField("message") for each in unread)
    read = guarded.clients["root"].admin.ListDelayed(request, timeout=CALL_S).messages
    assert b"secret" in [each.preview.body for each in read]
    assert b"secret" in [each.message.body for each in read]


def test_a_retry_topic_belongs_to_its_group_and_topic(guarded: Guarded) -> None:
    def browse(key: str) -> Any:
        request = pb.BrowseRequest(topic="%RETRY%billing+orders")
        return guarded.clients[key].admin.Browse(request, timeout=CALL_S)

    browse(READS)
    with pytest.raises(grpc.RpcError) as error:
        browse("other")  # it reads orders, but not as billing
    assert error.value.code() is grpc.StatusCode.PERMISSION_DENIED
    pull = pb.PullRequest(topic="%RETRY%billing+orders", group=OTHER_GROUP)
    assert refusal(guarded.clients[READS].broker.Pull, pull).code == "PERMISSION_DENIED"


@pytest.mark.slow
def test_ending_a_transaction_needs_the_right_to_send_to_its_topic(fresh: Guarded) -> None:
    keys = {**KEYS, "seller": ["send:orders"]}
    write_keys(fresh.keys, keys)
    end = pb.TransactionEnd(transaction_id=fresh.world.transaction_id, resolution=pb.ROLLBACK)
    with SignedStubs(fresh.broker.endpoint, "seller") as seller:
        refused = refusal(seller.broker.EndTransaction, pb.EndTransactionRequest(ends=[end]))
    assert (refused.code, '"send:later"' in refused.info.action) == ("PERMISSION_DENIED", True)
    answer = fresh.clients[SENDS].broker.EndTransaction(pb.EndTransactionRequest(ends=[end]), timeout=CALL_S)
    assert not answer.results[0].HasField("error")


@pytest.mark.slow
def test_checks_go_to_keys_that_may_send_to_the_topic(fresh: Guarded) -> None:
    with Producer(fresh.clients[SENDS], "later") as producer:
        fresh.world.clock.advance(10_000)
        assert producer.asked().topic == "later"
    hello = pb.SessionRequest(hello=pb.SessionHello(client_id="c", transaction_topics=["later"]))
    with pytest.raises(grpc.RpcError) as error:
        list(fresh.clients[READS].broker.Session(iter([hello]), timeout=CALL_S))
    assert read_refusal(error.value).code == "PERMISSION_DENIED"


# ── Keys that change ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_replaced_file_counts_at_once(fresh: Guarded) -> None:
    old = fresh.clients[READS]
    assert old.pop().invisible_until_ms
    write_keys(fresh.keys, KEYS, {READS: "a new secret"})
    assert refusal(old.broker.Pop, pb.PopRequest(topic=TOPIC, group=GROUP)).code == "UNAUTHENTICATED"
    with SignedStubs(fresh.broker.endpoint, READS, "a new secret") as new:
        assert bodies(new.pop(max_messages=1)) is not None
        write_keys(fresh.keys, {**KEYS, READS: ["send:orders"]}, {READS: "a new secret"})
        assert refusal(new.broker.Pop, pb.PopRequest(topic=TOPIC, group=GROUP)).code == "PERMISSION_DENIED"


@pytest.mark.slow
def test_a_stream_gets_no_message_after_its_key_was_withdrawn(fresh: Guarded) -> None:
    with Producer(fresh.clients[SENDS], "later") as producer:
        write_keys(fresh.keys, {"root": ["*"]})
        fresh.clients["root"].stats()  # a call, by which the file is looked at
        fresh.world.clock.advance(10_000)
        assert producer.refused().code == "UNAUTHENTICATED"


@pytest.mark.slow
def test_a_broken_file_keeps_the_old_keys(fresh: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    fresh.keys.write_text("secret of everybody")
    for _ in range(3):
        fresh.clients[READS].pop(max_messages=1)
    assert [record.levelname for record in caplog.records if record.name == "popmq.access"] == ["ERROR"]
    assert "the old ones stay" in caplog.text
    assert "everybody" not in caplog.text
    fresh.keys.unlink()
    fresh.clients[READS].pop(max_messages=1)
    write_keys(fresh.keys, {"root": ["*"]})
    assert refusal(fresh.clients[READS].broker.Pop, pb.PopRequest(topic=TOPIC, group=GROUP)).code == "UNAUTHENTICATED"


# ── apache.rocketmq.v2 ───────────────────────────────────────────────────────────────────────────────────────────────


def test_official_clients_get_40100_for_what_their_key_does_not_allow(guarded: Guarded) -> None:
    sender, reader, nothing = guarded.v2(SENDS), guarded.v2(READS), guarded.v2("nothing")
    group = {"group": resource(GROUP)}
    with contextlib.ExitStack() as stack:
        for client in (sender, reader, nothing):
            stack.enter_context(contextlib.closing(client.channel))
        assert sender.code("SendMessage", messages=[message()]) == "OK"
        assert reader.code("SendMessage", messages=[message()]) == "UNAUTHORIZED"
        assert nothing.code("QueryRoute", topic=resource(TOPIC)) == "UNAUTHORIZED"
        for client in (sender, reader):
            assert client.code("QueryRoute", topic=resource(TOPIC)) == "OK"
        assert reader.code("Heartbeat", client_type=v2pb.PUSH_CONSUMER, **group) == "OK"
        for client in (sender, nothing):
            assert client.code("Heartbeat", client_type=v2pb.PUSH_CONSUMER, **group) == "UNAUTHORIZED"


def test_settings_are_refused_for_topics_that_the_key_does_not_allow(guarded: Guarded) -> None:
    def told(name: str, settings: v2pb.Settings) -> str:
        with contextlib.closing(guarded.v2(name).channel) as channel:
            call: Any = channel.stream_stream("/apache.rocketmq.v2.MessagingService/Telemetry")
            command = v2rpc.TelemetryCommand(settings=settings).SerializeToString()
            headers = [*signed(name), ("x-mq-client-id", "c")]
            (answer,) = call(iter([command]), metadata=headers, timeout=CALL_S)
            return v2pb.Code.Name(v2rpc.TelemetryCommand.FromString(answer).status.code)

    publishing = v2pb.Settings(publishing=v2pb.Publishing(topics=[resource("orders")]))
    entry = v2pb.SubscriptionEntry(topic=resource("orders"))
    subscribing = v2pb.Settings(subscription=v2pb.Subscription(group=resource(GROUP), subscriptions=[entry]))
    assert (told(SENDS, publishing), told(READS, publishing)) == ("OK", "UNAUTHORIZED")
    assert (told(SENDS, subscribing), told(READS, subscribing)) == ("UNAUTHORIZED", "OK")


@pytest.mark.slow
def test_authorization_headers_are_ignored_by_a_broker_without_access_keys(stubs: Stubs) -> None:
    for headers in STRANGERS.values():
        call: Any = stubs.channel.unary_unary("/popmq.v1.Admin/ListTopics")
        assert call(b"", metadata=headers, timeout=CALL_S) == b""
