"""Looking at single messages over the wire, and redriving dead letters: what the contract says of them."""

from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.embedded.state import checkpoints
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, bodies, check_error, handles

DEAD = f"%DLQ%{GROUP}"


def reject(shop: Stubs, *texts: bytes, reason: str = "no such account", topic: str = TOPIC) -> None:
    """Dead letters of these messages."""
    shop.send(*texts, topic=topic)
    for handle in handles(shop.pop(topic, max_messages=len(texts))):
        shop.change(handle, reject=pb.Reject(reason=reason))


def redriven(shop: Stubs, **fields: Any) -> pb.RedriveDeadLettersResponse:
    request = pb.RedriveDeadLettersRequest(**{"group": GROUP, **fields})
    answer: pb.RedriveDeadLettersResponse = shop.admin.RedriveDeadLetters(request, timeout=CALL_S)
    for failure in answer.failures:
        check_error(failure.error)
    return answer


def failures(answer: pb.RedriveDeadLettersResponse) -> list[tuple[int, str, str]]:
    return [(each.offset, each.message_id, pb.Code.Name(each.error.code)) for each in answer.failures]


def look_up(shop: Stubs, **fields: Any) -> pb.LookUpResponse:
    request = pb.LookUpRequest(**{"topic": TOPIC, **fields})
    answer: pb.LookUpResponse = shop.admin.LookUp(request, timeout=CALL_S)
    assert not any(delivery.handle for delivery in answer.deliveries)
    return answer


def why(shop: Stubs, message_id: str, **fields: Any) -> list[pb.MessageLife]:
    return list(shop.admin.Why(pb.WhyRequest(message_id=message_id, **fields), timeout=CALL_S).lives)


def peek(shop: Stubs, **fields: Any) -> list[pb.Delivery]:
    request = pb.PeekRequest(**{"topic": TOPIC, "group": GROUP, **fields})
    deliveries = shop.broker.Peek(request, timeout=CALL_S).deliveries
    assert not any(delivery.handle for delivery in deliveries)
    return list(deliveries)


# ── RedriveDeadLetters ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_dead_letters_are_named_by_offset_and_by_id_and_each_once(shop: Stubs) -> None:
    reject(shop, b"a", b"b", b"c", b"d")
    answer = redriven(shop, offsets=[3, 0, 3, 9], message_ids=["a", "b", "nobody"])
    assert (answer.redriven, failures(answer)) == (
        3,
        [(-1, "nobody", "MESSAGE_NOT_FOUND"), (9, "", "MESSAGE_NOT_FOUND")],
    )
    assert sorted(bodies(shop.pop())) == [b"a", b"b", b"d"]


def test_one_call_of_why_or_redrive_searches_all_leases(shop: Stubs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "LOOKS_MAX", 1)
    shop.create_topic("fifo", queues=1, type=pb.FIFO)
    texts = [b"a", b"b", b"c", b"d"]
    messages = [pb.Message(message_id=text.decode(), body=text, message_group=text.decode()) for text in texts]
    shop.broker.Send(pb.SendRequest(topic="fifo", messages=messages), timeout=CALL_S)
    for _ in texts:
        shop.change(handles(shop.pop("fifo", max_messages=1))[0], reject=pb.Reject(reason="poison"))
    shop.admin.ResetOffsets(pb.ResetOffsetsRequest(topic="fifo", group=GROUP, offsets={0: 0}), timeout=CALL_S)
    assert sorted(bodies(shop.pop("fifo", max_messages=1))[0] for _ in texts) == texts
    (life,) = [each for each in why(shop, "d") if each.topic == "fifo"]
    assert life.groups[0].state == "leased"
    assert redriven(shop, offsets=[3]).redriven == 1
    assert redriven(shop).redriven == 3


@pytest.mark.slow
def test_a_redrive_may_be_limited_to_one_topic(shop: Stubs) -> None:
    shop.create_topic("other")
    reject(shop, b"a")
    reject(shop, b"b", topic="other")
    assert redriven(shop, topic="other").redriven == 1
    assert bodies(shop.pop("other")) == [b"b"]
    assert (shop.stats().dead, bodies(shop.pop())) == (1, [])


# ── LookUp ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def keyed(shop: Stubs, text: bytes, *keys: str) -> None:
    message = pb.Message(message_id=text.decode(), body=text, keys=keys, properties={"a": "b"})
    shop.broker.Send(pb.SendRequest(topic=TOPIC, messages=[message]), timeout=CALL_S)


@pytest.mark.slow
def test_an_answer_that_was_cut_is_gone_on_with_from_its_last_time(shop: Stubs, clock: FakeClock) -> None:
    for number in range(5):
        keyed(shop, f"{number}".encode(), "k")
        clock.advance(1_000)
    first = look_up(shop, key="k", max_messages=2)
    assert first.more
    rest = look_up(shop, key="k", until_ms=first.deliveries[-1].stored_ms)
    assert [each.message.body for each in rest.deliveries] == [b"3", b"2", b"1", b"0"]
    assert not rest.more


# ── Why ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_whole_life_of_a_message_is_reported(shop: Stubs, clock: FakeClock) -> None:
    shop.create_group("audit")
    shop.pop(group="audit")
    start = clock.now_ms()
    shop.send(b"a")
    clock.advance(1_000)
    (handle,) = handles(shop.pop(client_id="worker-1", invisible_ms=30_000))
    clock.advance(1_000)
    shop.change(handle, reject=pb.Reject(reason="no such account"))
    clock.advance(1_000)
    redriven(shop)
    (life,) = why(shop, "a")
    assert (life.topic, life.queue, life.offset, life.stored_ms, life.place) == (TOPIC, 0, 0, start, "stored")
    groups = {group.group: group for group in life.groups}
    assert {name: group.state for name, group in groups.items()} == {GROUP: "retry", "audit": "ready"}
    assert all(group.explanation for group in life.groups)
    worker = {"client_id": "worker-1", "attempt": 1}
    assert list(groups[GROUP].events) == [
        pb.LifeEvent(time_ms=start, what="sent"),
        pb.LifeEvent(time_ms=start + 1_000, what="popped", until_ms=start + 31_000, **worker),  # type: ignore[arg-type]
        pb.LifeEvent(time_ms=start + 2_000, what="rejected", client_id="worker-1", reason="no such account"),
        pb.LifeEvent(time_ms=start + 2_000, what="dead", reason="no such account", **worker),  # type: ignore[arg-type]
        pb.LifeEvent(time_ms=start + 3_000, what="redriven"),
    ]
    assert [group.group for group in why(shop, "a", group="audit")[0].groups] == ["audit"]
    assert [one.topic for one in why(shop, "a", topic=TOPIC)] == [TOPIC]


# ── Peek ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


# ── Retry topics by name ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_retry_topic_is_shown_by_name(shop: Stubs) -> None:
    name = f"%RETRY%{GROUP}+{TOPIC}"
    shop.send(b"a", b"b", b"c")
    for handle in handles(shop.pop(max_messages=2)):
        shop.change(handle, release=pb.Release(delay_ms=0))
    found = shop.admin.GetTopic(pb.GetTopicRequest(name=name), timeout=CALL_S)
    assert (found.topic.name, found.topic.queues) == (name, 1)
    (queue,) = found.queues
    assert (queue.min_offset, queue.max_offset - queue.min_offset) == (1, 2)
    numbers = shop.admin.GetStats(pb.GetStatsRequest(topic=name), timeout=CALL_S)
    assert [(each.topic, each.messages) for each in numbers.topics] == [(name, 2)]
    assert [(each.group, each.topic, each.retry) for each in numbers.groups] == [(GROUP, TOPIC, 2)]
    page = shop.admin.Browse(pb.BrowseRequest(topic=name, offset=queue.min_offset + 1), timeout=CALL_S)
    assert [each.message.body for each in page.deliveries] == [b"b"]


def test_leases_tell_their_kind(shop: Stubs) -> None:
    shop.create_topic("ledger", type=pb.FIFO, queues=1)
    shop.send(b"a", b"b")
    first, _ = handles(shop.pop())
    shop.change(first, release=pb.Release(delay_ms=0))
    shop.pop()
    messages = [pb.Message(message_id=text, body=b"x", message_group=text[0]) for text in ("a1", "b1")]
    shop.broker.Send(pb.SendRequest(topic="ledger", messages=messages), timeout=CALL_S)
    one, _ = handles(shop.pop("ledger"))
    shop.change(one, release=pb.Release(delay_ms=5_000))
    leases = shop.admin.ListLeases(pb.ListLeasesRequest(group=GROUP), timeout=CALL_S).leases
    assert sorted((lease.topic, lease.kind, lease.undone) for lease in leases) == [
        ("ledger", "backoff", 1),
        ("ledger", "fifo", 1),
        (TOPIC, "normal", 1),
        (TOPIC, "retry", 1),
    ]
