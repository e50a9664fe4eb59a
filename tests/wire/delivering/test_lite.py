"""Lite topics on the wire: the native face, SyncLiteSubscription of apache.rocketmq.v2, and both at once."""

from collections.abc import Iterator
from typing import Any

import pytest

from popmq_proto.rocketmq import definition_pb2 as v2pb
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from tests.wire.parked import Parked
from tests.wire.rocketmq.v2 import V2, bodies, message, resource
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs

SECOND = 1000


@pytest.fixture
def chat(stubs: Stubs) -> Stubs:
    stubs.create_topic(type=pb.LITE)
    stubs.create_group()
    return stubs


@pytest.fixture
def other(v2: V2) -> Iterator[V2]:
    with V2(v2.endpoint, client_id="host@2@0@abc") as client:
        yield client


def send(chat: Stubs, *texts: str, topic: str = TOPIC) -> list[pb.SendResult]:
    """ "ann:1" goes to ann."""
    messages = [pb.Message(message_id=text, body=text.encode(), lite_topic=text.partition(":")[0]) for text in texts]
    answer: pb.SendResponse = chat.broker.Send(pb.SendRequest(topic=topic, messages=messages), timeout=CALL_S)
    return list(answer.results)


def note(text: str) -> v2pb.Message:
    return message(text.encode(), message_id=text, message_type=v2pb.LITE, lite_topic=text.partition(":")[0])


def sync(
    v2: V2, *names: str, action: Any = v2pb.PARTIAL_ADD, group: str = GROUP, topic: str = TOPIC, **how: Any
) -> str:
    asked = {"topic": resource(topic), "group": resource(group), "lite_topic_set": names, "action": action}
    return v2.code("SyncLiteSubscription", **asked, **how)


# ── The native face ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_lite_topic_has_settings_and_numbers(stubs: Stubs) -> None:
    made = stubs.create_topic(type=pb.LITE, lite=pb.LiteTopics(topics_max=2, ttl_ms=60_000))
    assert (made.type, made.queues, made.lite.topics_max, made.lite.ttl_ms) == (pb.LITE, 1, 2, 60_000)
    usual = stubs.create_topic("usual", type=pb.LITE)
    assert (usual.lite.topics_max, usual.lite.ttl_ms) == (100_000, 72 * 3_600_000)
    codes = [result.error.code for result in send(stubs, "a:1", "b:1", "c:1", "a:2")]
    assert codes == [0, 0, pb.LITE_TOPIC_QUOTA, 0]
    (stats,) = stubs.admin.GetStats(pb.GetStatsRequest(topic=TOPIC), timeout=CALL_S).topics
    assert (stats.lite_topics, stats.messages) == (2, 3)
    wider = pb.Topic(name=TOPIC, lite=pb.LiteTopics(topics_max=3, ttl_ms=60_000))
    changed = stubs.admin.UpdateTopic(pb.UpdateTopicRequest(topic=wider), timeout=CALL_S).topic
    assert changed.lite.topics_max == 3
    assert [result.error.code for result in send(stubs, "c:1")] == [0]
    listed = stubs.admin.ListTopics(pb.ListTopicsRequest(), timeout=CALL_S).topics
    assert [topic.name for topic in listed] == [TOPIC, "usual"]


@pytest.mark.parametrize("form", [pb.FORMAT_ROWS, pb.FORMAT_COLUMNS])
def test_a_pop_of_named_lite_topics_has_handles_of_each(chat: Stubs, form: Any) -> None:
    send(chat, "ann:1", "bob:1", "zoe:1")
    popped = chat.pop(lite_topics=["ann", "bob"], format=form)
    handles = [row.handle for row in popped.deliveries] or list(popped.columns.handle)
    assert len(set(handles)) == 2
    assert chat.ack(*handles) == [""] * 2
    assert chat.stats().acked == 2
    assert [row.message.lite_topic for row in chat.pop(lite_topics=["ann", "zoe"]).deliveries] == ["zoe"]


def test_a_star_stands_for_all_lite_topics(chat: Stubs) -> None:
    send(chat, "ann:1", "bob:1")
    rows = chat.pop(lite_topics=["*", "ann"]).deliveries
    assert sorted(row.message.lite_topic for row in rows) == ["ann", "bob"]


@pytest.mark.slow
def test_a_pop_of_named_lite_topics_waits_for_theirs_only(chat: Stubs, parked: Parked) -> None:
    waiting = chat.pop_later(lite_topics=["ann", "bob"])
    parked.wait_for(1)
    assert chat.stats().waiters == 1
    send(chat, "zoe:1")
    send(chat, "bob:1")
    assert [row.message.message_id for row in waiting.result().deliveries] == ["bob:1"]


# ── SyncLiteSubscription ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_client_receives_messages_of_its_lite_subscriptions(chat: Stubs, v2: V2) -> None:
    v2.send(note("ann:1"))
    assert v2.receive(auto_renew=True).code == v2pb.MESSAGE_NOT_FOUND
    assert sync(v2, "ann", "later") == "OK"
    v2.send(note("later:1"))
    v2.send(note("zoe:1"))
    tag = v2pb.FilterExpression(type=v2pb.TAG, expression="*")
    received = v2.receive(auto_renew=True, filter_expression=tag)
    assert sorted(bodies(received)) == [b"ann:1", b"later:1"]
    system = received.messages[0].system_properties
    assert (system.message_type, system.lite_topic) == (v2pb.LITE, "ann")
    assert v2.ack(*received.messages).status.code == v2pb.OK
    assert sync(v2, "zoe", action=v2pb.COMPLETE_ADD) == "OK"
    v2.send(note("ann:2"))
    assert bodies(v2.receive(auto_renew=True)) == [b"zoe:1"]
    assert sync(v2, "zoe", action=v2pb.PARTIAL_REMOVE) == "OK"
    assert sync(v2, action=v2pb.COMPLETE_REMOVE) == "OK"
    assert v2.receive(auto_renew=True).messages == []


def test_a_lite_topic_sent_by_one_protocol_is_delivered_by_the_other(chat: Stubs, v2: V2) -> None:
    send(chat, "ann:1")
    v2.send(note("bob:1"))
    sync(v2, "ann")
    assert v2.receive().messages[0].system_properties.lite_topic == "ann"
    assert chat.pop(lite_topics=["bob"]).deliveries[0].message.lite_topic == "bob"


@pytest.mark.slow
def test_suspend_holds_a_whole_lite_topic_back(chat: Stubs, v2: V2, clock: FakeClock) -> None:
    sync(v2, "ann", "bob")
    send(chat, "ann:1", "ann:2")
    first, second = v2.receive().messages
    change = {"topic": resource(TOPIC), "group": resource(GROUP), "suspend": True, "lite_topic": "ann"}
    handle = first.system_properties.receipt_handle
    answer = v2.call("ChangeInvisibleDuration", **change, receipt_handle=handle, invisible_duration={"seconds": 5})
    assert (answer.status.code, answer.receipt_handle) == (v2pb.OK, handle)
    send(chat, "bob:1", "ann:3")
    assert bodies(v2.receive()) == [b"bob:1"]
    clock.advance(5 * SECOND)
    assert bodies(v2.receive()) == [b"ann:1", b"ann:2", b"ann:3"]
    assert second.system_properties.lite_topic == "ann"


def test_a_suspend_counts_no_attempt(chat: Stubs, v2: V2) -> None:
    sync(v2, "ann")
    send(chat, "ann:1")
    (got,) = v2.receive().messages
    change = {"topic": resource(TOPIC), "group": resource(GROUP), "suspend": True, "lite_topic": "ann"}
    handle = got.system_properties.receipt_handle
    assert v2.code("ChangeInvisibleDuration", **change, receipt_handle=handle, invisible_duration={}) == "OK"
    (again,) = v2.receive().messages
    assert again.system_properties.delivery_attempt == 1


@pytest.mark.slow
def test_a_lite_subscription_may_name_its_start(chat: Stubs, v2: V2) -> None:
    send(chat, "ann:1", "ann:2", "ann:3")
    assert sync(v2, "ann", offset_option=v2pb.OffsetOption(tail_n=1)) == "OK"
    assert bodies(v2.receive()) == [b"ann:3"]
    assert sync(v2, "ann", offset_option=v2pb.OffsetOption(policy=v2pb.OffsetOption.MIN)) == "OK"
    assert bodies(v2.receive()) == [b"ann:1", b"ann:2", b"ann:3"]
    assert sync(v2, "ann", offset_option=v2pb.OffsetOption(offset=-1)) == "ILLEGAL_OFFSET"


def test_a_client_that_loses_an_exclusive_lite_topic_is_notified(stubs: Stubs, v2: V2, other: V2) -> None:
    stubs.create_topic(type=pb.LITE)
    stubs.create_group(lite_exclusive=True)
    with v2.telemetry() as stream:
        entry = v2pb.SubscriptionEntry(topic=resource(TOPIC))
        subscription = v2pb.Subscription(group=resource(GROUP), subscriptions=[entry])
        stream.agree(client_type=v2pb.LITE_PUSH_CONSUMER, subscription=subscription)
        sync(v2, "ann")
        sync(other, "ann")
        assert stream.hear().notify_unsubscribe_lite_command.lite_topic == "ann"
    assert sync(v2, "ann", action=v2pb.COMPLETE_ADD) == "OK"
    send(stubs, "ann:1")
    assert v2.receive().messages == []
    assert bodies(other.receive()) == [b"ann:1"]


def test_a_client_may_subscribe_to_all_lite_topics(chat: Stubs, v2: V2) -> None:
    assert sync(v2, "*") == "OK"
    v2.send(note("ann:1"))
    assert bodies(v2.receive(auto_renew=True)) == [b"ann:1"]
    assert sync(v2, "*", offset_option=v2pb.OffsetOption(tail_n=1)) == "ILLEGAL_OFFSET"


def test_invalid_lite_subscriptions_are_refused(chat: Stubs, v2: V2) -> None:
    chat.create_topic("plain")
    assert sync(v2, "a.b") == "ILLEGAL_LITE_TOPIC"
    assert sync(v2, "ann", topic="plain") == "ILLEGAL_TOPIC"
    assert sync(v2, "ann", topic="nowhere") == "TOPIC_NOT_FOUND"
    assert sync(v2, "ann", group="nobody") == "CONSUMER_GROUP_NOT_FOUND"
    names = [f"n{number}" for number in range(2301)]
    assert sync(v2, *names) == "LITE_SUBSCRIPTION_QUOTA_EXCEEDED"
    with V2(v2.endpoint, language="RUST") as rust:
        assert sync(rust, *names) == "TOO_MANY_REQUESTS"


def test_a_topic_with_too_many_lite_topics_says_so(stubs: Stubs, v2: V2) -> None:
    stubs.create_topic(type=pb.LITE, lite=pb.LiteTopics(topics_max=1))
    assert v2.send(note("ann:1")).status.code == v2pb.OK
    assert v2.send(note("bob:1")).status.code == v2pb.LITE_TOPIC_QUOTA_EXCEEDED


@pytest.mark.slow
def test_a_topic_created_again_with_another_type_is_received_by_its_new_type(chat: Stubs, v2: V2) -> None:
    sync(v2, "ann")
    chat.admin.DeleteTopic(pb.DeleteTopicRequest(name=TOPIC), timeout=CALL_S)
    chat.create_topic()
    chat.send(b"plain")
    assert bodies(v2.receive()) == [b"plain"]
