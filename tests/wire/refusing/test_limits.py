"""Limits of topics, and unique ids, as a client in any language sees them."""

from typing import Any

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from tests.wire.stubs import CALL_S, TOPIC, Stubs, bodies, refusal


def send(stubs: Stubs, *messages: pb.Message, topic: str = TOPIC) -> list[pb.SendResult]:
    answer: pb.SendResponse = stubs.broker.Send(pb.SendRequest(topic=topic, messages=messages), timeout=CALL_S)
    return list(answer.results)


def update(stubs: Stubs, **changes: Any) -> pb.Topic:
    answer = stubs.admin.UpdateTopic(pb.UpdateTopicRequest(topic=pb.Topic(name=TOPIC, **changes)), timeout=CALL_S)
    assert isinstance(answer, pb.UpdateTopicResponse)
    return answer.topic


def test_the_limits_of_a_topic_are_shown_as_they_were_set(stubs: Stubs) -> None:
    quota = pb.Quota(send_messages_per_s=2**64 - 1, send_bytes_per_s=2, message_bytes=3, pop_messages_per_s=4)
    retention = pb.Retention(by_age=True, keep_ms=60_000, max_bytes=1 << 20)
    made = stubs.create_topic(type=pb.PRIORITY, retention=retention, quota=quota, unique_ids_ms=86_400_000)
    assert (made.quota, made.retention, made.unique_ids_ms, made.queues) == (quota, retention, 86_400_000, 10)
    shown = stubs.admin.GetTopic(pb.GetTopicRequest(name=TOPIC), timeout=CALL_S).topic
    assert shown == made
    changed = update(stubs, quota=pb.Quota(message_bytes=5))
    assert changed.quota == pb.Quota(message_bytes=5), "a quota is replaced whole"
    assert (changed.retention, changed.unique_ids_ms) == (retention, 86_400_000)
    assert update(stubs, unique_ids_ms=0).unique_ids_ms == 0


def test_a_refused_time_or_size_is_told_in_the_units_that_people_write(stubs: Stubs) -> None:
    for retention, told in (
        (
            pb.Retention(keep_ms=3000),
            "topic.retention.keep_ms is 3000 (3s), it must be 60000 (1m)–315360000000 (3650d)",
        ),
        (
            pb.Retention(max_bytes=1023),
            f"topic.retention.max_bytes is 1023, it must be 1048576 (1MiB)–{2**63 - 1}",
        ),
    ):
        request = pb.CreateTopicRequest(topic=pb.Topic(name=TOPIC, retention=retention))
        assert refusal(stubs.admin.CreateTopic, request).info.message == told


def test_a_message_id_is_stored_once(stubs: Stubs, clock: FakeClock) -> None:
    stubs.create_topic(queues=1, unique_ids_ms=10_000)
    stubs.create_group()
    one, two = pb.Message(message_id="1", body=b"a"), pb.Message(message_id="2", body=b"b")
    assert [(row.offset, row.duplicate) for row in send(stubs, one, two)] == [(0, False), (1, False)]
    again = send(stubs, two, one, two)
    assert [(row.message_id, row.offset, row.duplicate) for row in again] == [
        ("2", 1, True),
        ("1", 0, True),
        ("2", 1, True),
    ]
    assert bodies(stubs.pop()) == [b"a", b"b"]
    clock.advance(10_000)
    assert [(row.offset, row.duplicate) for row in send(stubs, one)] == [(2, False)]
