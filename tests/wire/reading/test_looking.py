"""Looking at messages over the wire, and redriving dead letters: what the contract says of them."""

from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.embedded.state import checkpoints
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, bodies, check_error, handles, reject


def redriven(shop: Stubs, **fields: Any) -> pb.RedriveDeadLettersResponse:
    request = pb.RedriveDeadLettersRequest(**{"group": GROUP, **fields})
    answer: pb.RedriveDeadLettersResponse = shop.admin.RedriveDeadLetters(request, timeout=CALL_S)
    for failure in answer.failures:
        check_error(failure.error)
    return answer


def why(shop: Stubs, message_id: str, **fields: Any) -> list[pb.MessageLife]:
    return list(shop.admin.Why(pb.WhyRequest(message_id=message_id, **fields), timeout=CALL_S).lives)


# ── RedriveDeadLetters ───────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.capability("discard")
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


@pytest.mark.capability("discard")
@pytest.mark.slow
def test_a_redrive_may_be_limited_to_one_topic(shop: Stubs) -> None:
    shop.create_topic("other")
    reject(shop, "no", b"a")
    reject(shop, "no", b"b", topic="other")
    assert redriven(shop, topic="other").redriven == 1
    assert bodies(shop.pop("other")) == [b"b"]
    assert (shop.stats().dead, bodies(shop.pop())) == (1, [])


# ── Retry topics by name ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.embedded("retries of groups that pop in one order")
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
