"""What topics and groups bound, as a client in any language sees it: ids, priorities, quotas, sizes, purges."""

from __future__ import annotations

from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from tests.wire.parked import Parked
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, bodies, handles, read_refusal, refusal


def send(stubs: Stubs, *messages: pb.Message, topic: str = TOPIC) -> list[pb.SendResult]:
    answer: pb.SendResponse = stubs.broker.Send(pb.SendRequest(topic=topic, messages=messages), timeout=CALL_S)
    return list(answer.results)


def sending(body: bytes, topic: str = TOPIC) -> pb.SendRequest:
    return pb.SendRequest(topic=topic, messages=[pb.Message(body=body)])


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


def test_the_same_id_of_a_delayed_message_gets_the_same_recall_handle(stubs: Stubs) -> None:
    stubs.create_topic(type=pb.DELAY, unique_ids_ms=10_000)
    message = pb.Message(message_id="1", body=b"a", delay_ms=60_000)
    (first,) = send(stubs, message)
    (again,) = send(stubs, message)
    assert first.recall_handle
    assert (again.recall_handle, again.duplicate) == (first.recall_handle, True)
    stubs.broker.Recall(pb.RecallRequest(topic=TOPIC, recall_handle=first.recall_handle), timeout=CALL_S)
    (anew,) = send(stubs, message)
    assert not anew.duplicate, "what was taken back gives its id free"


def test_the_same_id_of_a_half_message_gets_the_same_transaction_until_it_is_rolled_back(stubs: Stubs) -> None:
    stubs.create_topic(type=pb.TRANSACTION, unique_ids_ms=10_000)
    message = pb.Message(message_id="1", body=b"a", transaction=True)
    (first,) = send(stubs, message)
    (again,) = send(stubs, message)
    assert (again.transaction_id, again.duplicate) == (first.transaction_id, True)
    end = pb.TransactionEnd(transaction_id=first.transaction_id, resolution=pb.ROLLBACK)
    stubs.broker.EndTransaction(pb.EndTransactionRequest(ends=[end]), timeout=CALL_S)
    (anew,) = send(stubs, message)
    assert not anew.duplicate


def test_messages_of_higher_priority_come_first(stubs: Stubs) -> None:
    stubs.create_topic(type=pb.PRIORITY)
    stubs.create_group()
    send(stubs, *(pb.Message(body=str(level).encode(), priority=level) for level in (0, 5, 9, 1, 1023)))
    assert bodies(stubs.pop(max_messages=3)) == [b"9", b"1023", b"5"]


def test_a_send_beyond_the_quota_is_refused_with_the_time_to_retry(shop: Stubs, clock: FakeClock) -> None:
    update(shop, quota=pb.Quota(send_messages_per_s=4))
    shop.send(b"a", b"b", b"c", b"d")
    refused = refusal(shop.broker.Send, sending(b"e"))
    assert (refused.code, refused.info.field, refused.info.retry_after_ms) == ("RATE_LIMITED", "topic", 250)
    clock.advance(249)
    assert refusal(shop.broker.Send, sending(b"e")).info.retry_after_ms == 1
    clock.advance(1)
    shop.send(b"e")


def test_a_body_beyond_the_quota_is_refused_alone(shop: Stubs) -> None:
    update(shop, quota=pb.Quota(message_bytes=3))
    good, bad, last = send(shop, pb.Message(body=b"abc"), pb.Message(body=b"abcd"), pb.Message(body=b"z"))
    assert pb.Code.Name(bad.error.code) == "INVALID_FIELD"
    assert bad.error.field == "messages[1].body"
    assert (good.offset, last.offset) == (0, 1)


def test_a_pop_waits_for_its_token_and_no_longer(shop: Stubs, clock: FakeClock, parked: Parked) -> None:
    update(shop, quota=pb.Quota(pop_messages_per_s=2))
    shop.send(*(str(number).encode() for number in range(9)))
    assert len(bodies(shop.pop())) == 2
    assert refusal(shop.broker.Pop, pb.PopRequest(topic=TOPIC, group=GROUP)).info.retry_after_ms == 500
    short, long = shop.pop_later(wait_ms=200), shop.pop_later(wait_ms=60_000)
    parked.wait_for(2)
    clock.advance(200)
    refused = read_refusal(short.exception())
    assert (refused.code, refused.info.retry_after_ms) == ("RATE_LIMITED", 300)
    assert not long.done()
    clock.advance(300)
    assert bodies(long.result()) == [b"2"]
    assert shop.stats().waiters == 0


def test_a_pop_at_the_limit_of_leased_messages_is_refused_after_its_wait(
    shop: Stubs, clock: FakeClock, parked: Parked
) -> None:
    shop.admin.UpdateGroup(pb.UpdateGroupRequest(group=pb.Group(name=GROUP, in_flight_max=2)), timeout=CALL_S)
    shop.send(b"a", b"b", b"c")
    leased = shop.pop()
    call = shop.pop_later(wait_ms=5_000)
    parked.wait_for(1)
    clock.advance(4_999)
    assert not call.done()
    clock.advance(1)
    refused = read_refusal(call.exception())
    assert (refused.code, refused.info.field) == ("IN_FLIGHT_LIMIT", "group")
    assert refused.info.retry_after_ms > 0
    shop.ack(*handles(leased))
    assert bodies(shop.pop()) == [b"c"]


def test_a_topic_at_its_limit_of_bytes_names_the_group_that_holds_the_most(shop: Stubs) -> None:
    update(shop, retention=pb.Retention(max_bytes=1 << 20))
    shop.pop()
    send(shop, pb.Message(body=b"x" * 700_000))
    refused = refusal(shop.broker.Send, sending(b"y" * 700_000))
    assert refused.code == "STORAGE_FULL"
    assert f"group {GROUP!r} has 1 messages of topic {TOPIC!r} to do" in refused.info.message
    (row,) = shop.admin.GetStats(pb.GetStatsRequest(topic=TOPIC), timeout=CALL_S).topics
    assert 700_000 < row.bytes < 701_000
    shop.ack(*handles(shop.pop()))
    send(shop, pb.Message(body=b"y" * 700_000))
    assert bodies(shop.pop()) == [b"y" * 700_000]


def test_a_purged_topic_is_empty_and_takes_new_messages(shop: Stubs, parked: Parked) -> None:
    shop.send(b"a", b"b", b"c")
    (handle,) = handles(shop.pop(max_messages=1))
    purge = pb.PurgeTopicRequest(name=TOPIC)
    assert shop.admin.PurgeTopic(purge, timeout=CALL_S).dropped == 3
    assert shop.ack(handle) == ["HANDLE_LAPSED"]
    call = shop.pop_later()
    parked.wait_for(1)
    assert shop.admin.PurgeTopic(purge, timeout=CALL_S).dropped == 0
    (sent,) = shop.send(b"d")
    assert sent.offset == 3
    assert bodies(call.result()) == [b"d"]


@pytest.mark.slow
def test_purged_dead_letters_are_not_counted(shop: Stubs) -> None:
    shop.send(b"a")
    shop.change(handles(shop.pop())[0], reject=pb.Reject())
    assert shop.stats().dead == 1
    assert shop.admin.PurgeTopic(pb.PurgeTopicRequest(name=f"%DLQ%{GROUP}"), timeout=CALL_S).dropped == 1
    assert shop.stats().dead == 0
