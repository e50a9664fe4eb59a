"""Topics and groups that an operator has closed, as clients of both protocols meet them."""

import grpc
import pytest

from popmq_proto.rocketmq import definition_pb2 as v2pb
from popmq_proto.v1 import popmq_pb2 as pb
from tests.wire.parked import Parked
from tests.wire.rocketmq.v2 import HERE, V2, code, message, resource, route
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Refusal, Stubs, handles, read_refusal, refusal


def permit(shop: Stubs, permission: pb.Permission) -> None:
    shop.admin.UpdateTopic(pb.UpdateTopicRequest(topic=pb.Topic(name=TOPIC, permission=permission)), timeout=CALL_S)


def consume(shop: Stubs, enable: bool) -> None:
    request = pb.UpdateGroupRequest(group=pb.Group(name=GROUP, consume_enable=enable))
    shop.admin.UpdateGroup(request, timeout=CALL_S)


def pop_refusal(shop: Stubs) -> Refusal:
    return refusal(shop.broker.Pop, pb.PopRequest(topic=TOPIC, group=GROUP))


@pytest.mark.mechanism("S2.24")
def test_a_topic_closed_for_reading_is_refused_in_both_protocols(shop: Stubs, v2: V2) -> None:
    shop.send(b"a")
    permit(shop, pb.WRITE_ONLY)
    refused = pop_refusal(shop)
    assert (refused.code, refused.status, refused.info.field) == (
        "FORBIDDEN",
        grpc.StatusCode.FAILED_PRECONDITION,
        "topic",
    )
    assert code(v2) == "FORBIDDEN"
    queue = v2pb.MessageQueue(topic=resource(TOPIC), id=0)
    assert v2.code("QueryAssignment", topic=resource(TOPIC), group=resource(GROUP), endpoints=HERE) == "FORBIDDEN"
    assert v2.code("QueryOffset", message_queue=queue, query_offset_policy=v2pb.END) == "OK"
    assert v2.send(message()).status.code == v2pb.OK
    permit(shop, pb.READ_WRITE)
    assert len(shop.pop().deliveries) == 2


@pytest.mark.slow
def test_a_topic_closed_for_sending_is_refused_in_both_protocols(shop: Stubs, v2: V2) -> None:
    permit(shop, pb.READ_ONLY)
    request = pb.SendRequest(topic=TOPIC, messages=[pb.Message(body=b"x")])
    assert refusal(shop.broker.Send, request).info.field == "topic"
    assert v2.send(message()).status.code == v2pb.FORBIDDEN
    assert code(v2) == "MESSAGE_NOT_FOUND"


def test_a_group_that_may_not_consume_is_refused_in_both_protocols_and_can_settle(shop: Stubs, v2: V2) -> None:
    shop.send(b"a", b"b")
    (handle,) = handles(shop.pop(max_messages=1))
    (received,) = v2.receive(batch_size=1).messages
    consume(shop, False)
    assert pop_refusal(shop).info.field == "group"
    assert code(v2) == "FORBIDDEN"
    assert shop.ack(handle) == [""]
    assert v2.ack(received).status.code == v2pb.OK


@pytest.mark.parametrize(
    ("permission", "told"),
    [("READ_WRITE", "READ_WRITE"), ("READ_ONLY", "READ"), ("WRITE_ONLY", "WRITE"), ("NO_ACCESS", "NONE")],
)
def test_a_route_tells_what_may_be_done_with_each_queue(stubs: Stubs, v2: V2, permission: str, told: str) -> None:
    stubs.create_topic(queues=3, permission=permission)
    queues = route(v2, TOPIC).message_queues
    assert [v2pb.Permission.Name(queue.permission) for queue in queues] == [told] * 3


@pytest.mark.slow
def test_an_update_that_says_nothing_of_it_leaves_the_permission(shop: Stubs) -> None:
    permit(shop, pb.READ_ONLY)
    changed = shop.admin.UpdateTopic(pb.UpdateTopicRequest(topic=pb.Topic(name=TOPIC, queues=2)), timeout=CALL_S)
    assert changed.topic.permission == pb.READ_ONLY


def test_an_update_that_says_nothing_of_it_lets_a_group_consume_as_all_unset_settings_become_defaults(
    shop: Stubs,
) -> None:
    consume(shop, False)
    changed = shop.admin.UpdateGroup(pb.UpdateGroupRequest(group=pb.Group(name=GROUP)), timeout=CALL_S)
    assert changed.group.consume_enable


def test_settings_are_shown_and_compared_by_a_second_create(stubs: Stubs) -> None:
    assert stubs.create_topic(permission=pb.WRITE_ONLY).permission == pb.WRITE_ONLY
    assert stubs.create_topic("plain").permission == pb.READ_WRITE
    again = pb.CreateTopicRequest(topic=pb.Topic(name=TOPIC))
    assert refusal(stubs.admin.CreateTopic, again).code == "ALREADY_EXISTS"
    assert not stubs.create_group(consume_enable=False).consume_enable
    assert stubs.create_group("plain").consume_enable
    again_group = pb.CreateGroupRequest(group=pb.Group(name=GROUP))
    assert refusal(stubs.admin.CreateGroup, again_group).code == "ALREADY_EXISTS"


def test_an_unknown_permission_is_refused(shop: Stubs) -> None:
    request = pb.UpdateTopicRequest(topic=pb.Topic(name=TOPIC, permission=77))  # type: ignore[arg-type]
    assert refusal(shop.admin.UpdateTopic, request).info.field == "topic.permission"


@pytest.mark.slow
@pytest.mark.parametrize("close", ["topic", "group"])
def test_parked_calls_are_refused_at_once_when_the_topic_or_the_group_is_closed(
    shop: Stubs, parked: Parked, close: str
) -> None:
    """Ordinary pops, which are woken one after another, a pop of a named queue, and a wait for messages."""
    calls = [shop.pop_later(), shop.pop_later(), shop.pop_later(queues=[0])]
    available = pb.WaitAvailableRequest(topic=TOPIC, group=GROUP, min_ready=1, wait_ms=60_000)
    calls.append(shop.broker.WaitAvailable.future(available, timeout=CALL_S))
    parked.wait_for(4)
    permit(shop, pb.NO_ACCESS) if close == "topic" else consume(shop, False)
    assert [read_refusal(call).info.field for call in calls if call.exception(CALL_S)] == [close] * 4


@pytest.mark.slow
@pytest.mark.parametrize("close", ["topic", "group"])
def test_parked_pulls_are_answered_at_once(shop: Stubs, parked: Parked, close: str) -> None:
    mode = pb.SetConsumeModeRequest(topic=TOPIC, group=GROUP, mode=pb.PULL)
    shop.admin.SetConsumeMode(mode, timeout=CALL_S)
    asked = [pb.PullRequest(topic=name, group=GROUP, wait_ms=60_000) for name in (TOPIC, f"%RETRY%{GROUP}+{TOPIC}")]
    asked[1].offset = shop.broker.Pull(asked[1].__class__(topic=asked[1].topic, group=GROUP), timeout=CALL_S).max_offset
    calls = [shop.broker.Pull.future(one, timeout=CALL_S) for one in asked]
    parked.wait_for(2)
    permit(shop, pb.NO_ACCESS) if close == "topic" else consume(shop, False)
    assert [read_refusal(call).info.field for call in calls if call.exception(CALL_S)] == [close] * 2
