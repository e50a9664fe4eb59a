"""What becomes of a delivery: acked, extended, released, rejected, or left until its lease runs out."""

from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, codes, handles

DLQ = f"%DLQ%{GROUP}"


def popped(shop: Stubs, **fields: Any) -> str:
    """The handle of one message, sent and popped."""
    shop.send(b"a")
    (handle,) = handles(shop.pop(**fields))
    return handle


def changes(shop: Stubs, *entries: pb.InvisibleTimeChange) -> list[pb.InvisibleTimeResult]:
    request = pb.ChangeInvisibleTimeRequest(group=GROUP, changes=entries)
    return list(shop.broker.ChangeInvisibleTime(request, timeout=CALL_S).results)


@pytest.mark.slow
def test_the_answer_to_an_ack_without_failures_is_empty(either_shop: Stubs) -> None:
    either_shop.send(b"a", b"b")
    request = pb.AckRequest(group=GROUP, handles=handles(either_shop.pop()))
    assert either_shop.broker.Ack(request, timeout=CALL_S) == pb.AckResponse()


def test_4096_deliveries_are_acked_in_one_request(either_shop: Stubs) -> None:
    message = pb.Message(body=b"x")
    either_shop.broker.Send(pb.SendRequest(topic=TOPIC, messages=[message] * 4096), timeout=CALL_S)
    taken = handles(either_shop.pop(max_messages=4096))
    assert either_shop.ack(*taken) == [""] * 4096
    assert either_shop.stats().acked == 4096


@pytest.mark.promise("ack")
@pytest.mark.parametrize("reason", ["", "r" * 4096, "é" * 2048, "line\nbreak\0"])
def test_a_reject_moves_the_message_to_the_dead_letter_topic_at_once(shop: Stubs, reason: str) -> None:
    handle = popped(shop)
    result = shop.change(handle, reject=pb.Reject(reason=reason))
    assert (result.visible_ms, result.dead_lettered) == (0, True)
    assert shop.ack(handle) == ["HANDLE_LAPSED"]
    (dead,) = shop.admin.Browse(pb.BrowseRequest(topic=DLQ), timeout=CALL_S).deliveries
    assert dead.message.dead_letter.reason == reason
    assert dead.message.dead_letter.attempts == 1


def test_changes_of_one_request_are_done_each_on_its_own(shop: Stubs, clock: FakeClock) -> None:
    shop.send(*(str(number).encode() for number in range(6)))
    taken = handles(shop.pop(invisible_ms=60_000))
    results = changes(
        shop,
        pb.InvisibleTimeChange(handle=taken[0], extend=pb.Extend(invisible_ms=43_200_000)),
        pb.InvisibleTimeChange(handle="nonsense", extend=pb.Extend(invisible_ms=90_000)),
        pb.InvisibleTimeChange(handle=taken[1], release=pb.Release(delay_ms=0)),
        pb.InvisibleTimeChange(handle=taken[2], release=pb.Release(delay_ms=5_000)),
        pb.InvisibleTimeChange(handle=taken[1], reject=pb.Reject()),
        pb.InvisibleTimeChange(handle=taken[3], reject=pb.Reject(reason="bad")),
        pb.InvisibleTimeChange(handle=taken[4], extend=pb.Extend(invisible_ms=0)),
    )
    assert codes(results) == ["", "INVALID_HANDLE", "", "", "INVALID_FIELD", "", "INVALID_FIELD"]
    assert [result.visible_ms - clock.now_ms() for result in results if result.visible_ms] == [43_200_000, 0, 5_000]
    assert [result.dead_lettered for result in results] == [False] * 5 + [True, False]
    stats = shop.stats()
    assert (stats.in_flight, stats.retry, stats.backoff, stats.dead) == (3, 1, 1, 1)
    assert shop.ack(*taken) == ["", "HANDLE_LAPSED", "HANDLE_LAPSED", "HANDLE_LAPSED", "", ""]


@pytest.mark.promise("ack")
def test_each_of_very_many_changes_has_its_answer_and_a_refused_one_its_place(shop: Stubs) -> None:
    """One commit does not take them all (test_large_changes.py), which the client does not see."""
    shop.send(*(b"%d" % number for number in range(1_200)))
    taken = handles(shop.pop(max_messages=1_200))
    shop.ack(taken[1_100])
    results = changes(shop, *(pb.InvisibleTimeChange(handle=handle, release=pb.Release()) for handle in taken))
    refused = {place: result.error for place, result in enumerate(results) if result.HasField("error")}
    assert [(place, error.code, error.field) for place, error in refused.items()] == [
        (1_100, pb.HANDLE_LAPSED, "changes[1100].handle")
    ]
    assert (shop.stats().in_flight, shop.stats().backoff) == (0, 1_199)
