"""apache.rocketmq.v2: where a topic is, what is polled, and how names and namespaces become the engine's."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.v1 import popmq_pb2 as native
from tests.wire.rocketmq.v2 import HERE, V2, resource, route
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs


def test_a_route_has_every_queue_in_order_at_the_endpoints_that_the_client_used(stubs: Stubs, v2: V2) -> None:
    stubs.create_topic(queues=3)
    answer = route(v2, TOPIC)
    assert answer.status.code == pb.OK
    assert [queue.id for queue in answer.message_queues] == [0, 1, 2]
    for queue in answer.message_queues:
        assert queue.topic == resource(TOPIC)
        assert queue.permission == pb.READ_WRITE
        assert (queue.broker.name, queue.broker.id, queue.broker.endpoints) == ("popmq", 0, HERE)
        assert list(queue.accept_message_types) == [pb.NORMAL]
    assert route(v2, TOPIC) == answer


@pytest.mark.embedded("PRIORITY topics, as brokers 5.4 have", only=("PRIORITY",))
@pytest.mark.parametrize(
    ("kind", "accepted"),
    [("FIFO", pb.FIFO), ("DELAY", pb.DELAY), ("TRANSACTION", pb.TRANSACTION), ("PRIORITY", pb.PRIORITY)],
)
def test_a_topic_accepts_messages_of_its_own_type_only(stubs: Stubs, v2: V2, kind: str, accepted: int) -> None:
    stubs.create_topic(type=kind)
    assert {tuple(queue.accept_message_types) for queue in route(v2, TOPIC).message_queues} == {(accepted,)}


def test_a_client_that_does_not_say_how_it_came_learns_where_the_broker_listens(shop: Stubs, v2: V2) -> None:
    (queue,) = route(v2, TOPIC, pb.Endpoints()).message_queues
    host, _, port = v2.endpoint.rpartition(":")
    assert queue.broker.endpoints.scheme == pb.IPv4
    assert [(address.host, address.port) for address in queue.broker.endpoints.addresses] == [(host, int(port))]


def test_dead_letters_can_be_read_and_not_written(shop: Stubs, v2: V2) -> None:
    (queue,) = route(v2, f"%DLQ%{GROUP}").message_queues
    assert queue.permission == pb.READ


@pytest.mark.parametrize(
    "addresses",
    [[("", 80)], [("a", 0)], [("a", 65536)], [("a", 1), ("b", 2)]],
    ids=["no host", "port 0", "port 65536", "two names"],
)
def test_impossible_endpoints_are_refused(shop: Stubs, v2: V2, addresses: list[tuple[str, int]]) -> None:
    endpoints = pb.Endpoints(
        scheme=pb.DOMAIN_NAME, addresses=[pb.Address(host=host, port=port) for host, port in addresses]
    )
    assert pb.Code.Name(route(v2, TOPIC, endpoints).status.code) == "ILLEGAL_ACCESS_POINT"


def test_a_route_repeats_few_of_many_endpoints(stubs: Stubs, v2: V2) -> None:
    """Each queue has them: 64 of 255 characters in 1,024 queues are 17 MB."""
    stubs.create_topic(queues=1024)

    def answered(*hosts: str) -> list[str]:
        endpoints = pb.Endpoints(scheme=pb.IPv4, addresses=[pb.Address(host=host, port=8081) for host in hosts])
        answer = route(v2, TOPIC, endpoints)
        assert len(answer.message_queues) == 1024
        assert answer.ByteSize() < 500_000
        return [address.host for address in answer.message_queues[-1].broker.endpoints.addresses]

    proxies = [f"192.168.100.{number}" for number in range(100, 164)]
    assert answered(*proxies) == proxies[: 255 // len(proxies[0])]
    assert answered("1" * 255, *proxies[1:]) == ["1" * 255]
    assert answered(*["192.0.2.1"] * 3, "192.0.2.2") == ["192.0.2.1", "192.0.2.2"]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("", "ILLEGAL_TOPIC"),
        (" ", "ILLEGAL_TOPIC"),
        ("a b", "ILLEGAL_TOPIC"),
        ("a.b", "ILLEGAL_TOPIC"),
        ("t" * 128, "ILLEGAL_TOPIC"),
        ("%DLQ%", "ILLEGAL_TOPIC"),
        ("TBW102", "ILLEGAL_TOPIC"),
        ("rmq_sys_anything", "ILLEGAL_TOPIC"),
        ("unknown", "TOPIC_NOT_FOUND"),
        ("%DLQ%unknown", "TOPIC_NOT_FOUND"),
    ],
)
def test_a_topic_of_a_bad_name_or_that_does_not_exist_has_no_route(stubs: Stubs, v2: V2, name: str, code: str) -> None:
    assert pb.Code.Name(route(v2, name).status.code) == code


def test_a_push_consumer_polls_the_whole_topic_once_and_a_fifo_topic_by_queue_0(stubs: Stubs, v2: V2) -> None:
    stubs.create_group()
    for topic, kind, number in [("many", "NORMAL", -1), ("ordered", "FIFO", 0)]:
        stubs.create_topic(topic, type=kind, queues=4)
        answer = v2.call("QueryAssignment", topic=resource(topic), group=resource(GROUP), endpoints=HERE)
        (assignment,) = answer.assignments
        assert assignment.message_queue.id == number
        assert assignment.message_queue.broker == route(v2, topic).message_queues[0].broker


def assigned(v2: V2) -> list[int]:
    answer = v2.call("QueryAssignment", topic=resource(TOPIC), group=resource(GROUP), endpoints=HERE)
    return [assignment.message_queue.id for assignment in answer.assignments]


@contextlib.contextmanager
def consuming(v2: V2, count: int, kind: int = pb.PUSH_CONSUMER) -> Iterator[list[V2]]:
    """Consumers c0, c1 … of TOPIC in GROUP that have told their settings and sent a heartbeat."""
    entry = pb.SubscriptionEntry(topic=resource(TOPIC))
    subscription = pb.Subscription(group=resource(GROUP), subscriptions=[entry])
    with contextlib.ExitStack() as stack:
        consumers = [stack.enter_context(V2(v2.endpoint, client_id=f"c{number}")) for number in range(count)]
        for consumer in consumers:
            telemetry = stack.enter_context(consumer.telemetry())
            telemetry.agree(client_type=kind, subscription=subscription)
            consumer.call("Heartbeat", client_type=kind, group=resource(GROUP))
        yield consumers


def switch(stubs: Stubs, mode: Any, share_number: int = 0) -> None:
    request = native.SetConsumeModeRequest(topic=TOPIC, group=GROUP, mode=mode, share_number=share_number)
    stubs.admin.SetConsumeMode(request, timeout=CALL_S)


@pytest.mark.mechanism("S1.03")
@pytest.mark.slow
@pytest.mark.parametrize("of_the_topic", [False, True], ids=["by the group", "by SetConsumeMode"])
def test_consumers_with_heartbeats_have_some_queues_each_where_queues_are_shared(
    stubs: Stubs, v2: V2, of_the_topic: bool
) -> None:
    stubs.create_topic(queues=4)
    stubs.create_group(share_number=0 if of_the_topic else 1)
    if of_the_topic:
        switch(stubs, native.POP, share_number=1)
    assert assigned(v2) == [-1]
    with consuming(v2, 4) as consumers:
        found = [assigned(consumer) for consumer in consumers]
        assert [len(queues) for queues in found] == [2] * 4
        assert {queue for queues in found for queue in queues} == {0, 1, 2, 3}
        with V2(v2.endpoint, client_id="c0", language="HTTP") as node:
            assert assigned(node) == [-1]


def test_consumers_that_wait_for_the_other_mode_have_no_queues(stubs: Stubs, v2: V2) -> None:
    stubs.create_topic(queues=8)
    stubs.create_group()
    switch(stubs, native.PULL)
    with consuming(v2, 3, pb.PULL_CONSUMER) as pull:
        before = [assigned(consumer) for consumer in pull]
        entry = pb.SubscriptionEntry(topic=resource(TOPIC))
        subscription = pb.Subscription(group=resource(GROUP), subscriptions=[entry])
        with V2(v2.endpoint, client_id="pushed") as pushed, pushed.telemetry() as telemetry:
            telemetry.agree(client_type=pb.PUSH_CONSUMER, subscription=subscription)
            pushed.call("Heartbeat", client_type=pb.PUSH_CONSUMER, group=resource(GROUP))
            assert assigned(pushed) == []
            assert [assigned(consumer) for consumer in pull] == before
            switch(stubs, native.POP, share_number=1)
            assert assigned(pushed) == [-1], "it is the only one that can receive"


@pytest.mark.mechanism("S0.02")
@pytest.mark.parametrize("kind", ["NORMAL", "FIFO"])
def test_each_queue_of_a_group_that_pulls_is_assigned_to_one_consumer(stubs: Stubs, v2: V2, kind: str) -> None:
    stubs.create_topic(queues=5, type=kind)
    stubs.create_group(share_number=1)
    switch(stubs, native.PULL)
    assert assigned(v2) == []  # it has sent no heartbeat: every queue may be somebody else's
    with consuming(v2, 3, pb.PULL_CONSUMER) as consumers:
        assert sorted(queue for consumer in consumers for queue in assigned(consumer)) == [0, 1, 2, 3, 4]
        assert [len(assigned(consumer)) for consumer in consumers] == [2, 2, 1]
        consumers[0].call("NotifyClientTermination", group=resource(GROUP))
        assert [assigned(consumer) for consumer in consumers] == [[], [0, 1, 2], [3, 4]]
        switch(stubs, native.POP)
        assert [assigned(consumer) for consumer in consumers[1:]] == [[-1 if kind == "NORMAL" else 0]] * 2


@pytest.mark.parametrize(
    ("topic", "group", "code"),
    [
        ("unknown", GROUP, "TOPIC_NOT_FOUND"),
        (TOPIC, "unknown", "CONSUMER_GROUP_NOT_FOUND"),
        ("a b", GROUP, "ILLEGAL_TOPIC"),
        (TOPIC, "a b", "ILLEGAL_CONSUMER_GROUP"),
        (TOPIC, "", "ILLEGAL_CONSUMER_GROUP"),
        (TOPIC, "g" * 121, "ILLEGAL_CONSUMER_GROUP"),
        (TOPIC, "CID_RMQ_SYS_x", "ILLEGAL_CONSUMER_GROUP"),
    ],
)
def test_an_assignment_needs_names_that_exist(shop: Stubs, v2: V2, topic: str, group: str, code: str) -> None:
    assert v2.code("QueryAssignment", topic=resource(topic), group=resource(group), endpoints=HERE) == code


def test_a_namespace_stands_before_the_name_whether_the_resource_or_the_header_has_it(stubs: Stubs, v2: V2) -> None:
    stubs.create_topic("shop.orders", queues=1)
    by_resource = v2.call("QueryRoute", topic=resource("orders", "shop"), endpoints=HERE)
    with V2(v2.endpoint, x_mq_namespace="shop") as other:
        by_header = other.call("QueryRoute", topic=resource("orders"), endpoints=HERE)
    assert (by_resource.status.code, by_header.status.code) == (pb.OK, pb.OK)
    assert by_resource.message_queues[0].topic == resource("orders", "shop")
    assert v2.code("QueryRoute", topic=resource("orders"), endpoints=HERE) == "TOPIC_NOT_FOUND"
    with V2(v2.endpoint, x_mq_namespace="other") as other:  # a resource's own wins
        assert other.code("QueryRoute", topic=resource("orders", "shop"), endpoints=HERE) == "OK"


@pytest.mark.parametrize("method", ["QueryRoute", "SendMessage", "Heartbeat", "AckMessage"])
def test_a_call_without_a_client_id_is_answered_so(shop: Stubs, v2: V2, method: str) -> None:
    with V2(v2.endpoint, client_id="") as nobody:
        assert nobody.code(method) == "CLIENT_ID_REQUIRED"


def test_bytes_that_are_no_request_are_answered_not_aborted(v2: V2) -> None:
    from popmq_proto.rocketmq import service_pb2 as rpc

    answer = rpc.QueryRouteResponse.FromString(v2.raw("QueryRoute", b"\xff\xff"))
    assert pb.Code.Name(answer.status.code) == "BAD_REQUEST"


def test_a_topic_of_popmq_v1_is_the_same_topic(stubs: Stubs, v2: V2) -> None:
    stubs.create_topic("both", type=native.DELAY, queues=2)
    assert len(route(v2, "both").message_queues) == 2
