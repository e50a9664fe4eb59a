"""What becomes of a delivery: acked, extended, released, rejected, or left until its lease runs out."""

from __future__ import annotations

from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.embedded_broker import EmbeddedBroker
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, bodies, codes, handles

DLQ = f"%DLQ%{GROUP}"


def popped(shop: Stubs, **fields: Any) -> str:
    """The handle of one message, sent and popped."""
    shop.send(b"a")
    (handle,) = handles(shop.pop(**fields))
    return handle


def changes(shop: Stubs, *entries: pb.InvisibleTimeChange) -> list[pb.InvisibleTimeResult]:
    request = pb.ChangeInvisibleTimeRequest(group=GROUP, changes=entries)
    return list(shop.broker.ChangeInvisibleTime(request, timeout=CALL_S).results)


def test_an_acked_message_never_comes_back(either_shop: Stubs, clock: FakeClock) -> None:
    assert either_shop.ack(popped(either_shop)) == [""]
    clock.advance(43_200_000)
    assert bodies(either_shop.pop()) == []
    assert either_shop.stats().acked == 1


@pytest.mark.slow
def test_the_answer_to_an_ack_without_failures_is_empty(either_shop: Stubs) -> None:
    either_shop.send(b"a", b"b")
    request = pb.AckRequest(group=GROUP, handles=handles(either_shop.pop()))
    assert either_shop.broker.Ack(request, timeout=CALL_S) == pb.AckResponse()


@pytest.mark.slow
def test_a_handle_is_good_once_also_within_one_request(either_shop: Stubs) -> None:
    handle = popped(either_shop)
    assert either_shop.ack(handle, handle) == ["", "HANDLE_LAPSED"]
    assert either_shop.ack(handle) == ["HANDLE_LAPSED"]
    assert either_shop.stats().acked == 1


def test_a_late_ack_is_refused_and_the_message_comes_back(either_shop: Stubs, clock: FakeClock) -> None:
    handle = popped(either_shop, invisible_ms=1_000)
    clock.advance(1_000)
    assert either_shop.ack(handle) == ["HANDLE_LAPSED"]
    assert bodies(either_shop.pop()) == [b"a"]
    assert either_shop.ack(handle) == ["HANDLE_LAPSED"], "the handle names one delivery, not the message"


def test_4096_deliveries_are_acked_in_one_request(either_shop: Stubs) -> None:
    message = pb.Message(body=b"x")
    either_shop.broker.Send(pb.SendRequest(topic=TOPIC, messages=[message] * 4096), timeout=CALL_S)
    taken = handles(either_shop.pop(max_messages=4096))
    assert either_shop.ack(*taken) == [""] * 4096
    assert either_shop.stats().acked == 4096


@pytest.mark.mechanism("S1.11")
@pytest.mark.slow
@pytest.mark.parametrize("invisible_ms", [1_000, 90_000, 43_200_000])
def test_extend_moves_the_deadline_from_now_sooner_or_later(
    either_shop: Stubs, clock: FakeClock, invisible_ms: int
) -> None:
    handle = popped(either_shop, invisible_ms=60_000)
    clock.advance(30_000)
    result = either_shop.change(handle, extend=pb.Extend(invisible_ms=invisible_ms))
    assert (result.visible_ms, result.dead_lettered) == (clock.now_ms() + invisible_ms, False)
    clock.advance(invisible_ms - 1)
    assert bodies(either_shop.pop()) == []
    clock.advance(1)
    (again,) = either_shop.pop().deliveries
    assert again.attempt == 2


@pytest.mark.mechanism("S1.18")
@pytest.mark.slow
def test_a_handle_lives_through_extends_and_a_restart(folder: Any, clock: FakeClock) -> None:
    with EmbeddedBroker(folder, clock=clock, sync="none") as broker, Stubs(broker.endpoint) as shop:
        shop.create_topic(queues=1)
        shop.create_group()
        handle = popped(shop)
        for _ in range(5):
            clock.advance(50_000)
            assert not shop.change(handle, extend=pb.Extend(invisible_ms=60_000)).HasField("error")
    with EmbeddedBroker(folder, clock=clock, sync="none") as broker, Stubs(broker.endpoint) as shop:
        assert not shop.change(handle, extend=pb.Extend(invisible_ms=60_000)).HasField("error")
        assert shop.ack(handle) == [""]


def test_one_message_of_a_batch_may_be_extended_alone(either_shop: Stubs, clock: FakeClock) -> None:
    either_shop.send(b"a", b"b", b"c")
    first, second, third = handles(either_shop.pop(invisible_ms=1_000))
    extended = either_shop.change(second, extend=pb.Extend(invisible_ms=60_000)).handle or second
    clock.advance(1_000)
    assert bodies(either_shop.pop()) == [b"a", b"c"]
    assert either_shop.ack(first, extended, third) == ["HANDLE_LAPSED", "", "HANDLE_LAPSED"]


@pytest.mark.slow
def test_a_message_released_with_delay_zero_is_visible_at_once_and_its_handle_lapses(
    either_shop: Stubs, clock: FakeClock
) -> None:
    handle = popped(either_shop)
    result = either_shop.change(handle, release=pb.Release(delay_ms=0))
    assert (result.visible_ms, result.dead_lettered) == (clock.now_ms(), False)
    assert either_shop.ack(handle) == ["HANDLE_LAPSED"]
    (again,) = either_shop.pop().deliveries
    assert (again.message.body, again.attempt) == (b"a", 2)


def test_a_message_released_with_a_delay_comes_back_after_it(shop: Stubs, clock: FakeClock) -> None:
    result = shop.change(popped(shop), release=pb.Release(delay_ms=43_200_000))
    assert result.visible_ms == clock.now_ms() + 43_200_000
    assert shop.stats().backoff == 1
    clock.advance(43_199_999)
    assert bodies(shop.pop()) == []
    clock.advance(1)
    assert bodies(shop.pop()) == [b"a"]


@pytest.mark.slow
def test_a_message_released_without_a_delay_follows_the_backoff_of_its_group(stubs: Stubs, clock: FakeClock) -> None:
    stubs.create_topic(queues=1)
    stubs.create_group(backoff=pb.Backoff(delays_ms=[1_000, 5_000]))
    handle = popped(stubs)
    for delay_ms in (1_000, 5_000, 5_000):
        assert stubs.change(handle, release=pb.Release()).visible_ms == clock.now_ms() + delay_ms
        clock.advance(delay_ms)
        (handle,) = handles(stubs.pop())


@pytest.mark.mechanism("D.52")
def test_the_default_table_is_the_one_of_the_contract(shop: Stubs) -> None:
    minutes = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120]
    expected = [10_000, 30_000, *(minute * 60_000 for minute in minutes)]
    assert list(shop.create_group("fresh").backoff.delays_ms) == expected


def test_an_uncounted_release_gives_the_attempt_back(stubs: Stubs) -> None:
    stubs.create_topic(queues=1)
    stubs.create_group(max_attempts=1)
    handle = popped(stubs)
    for _ in range(3):
        result = stubs.change(handle, release=pb.Release(delay_ms=0, uncounted=True))
        assert not result.dead_lettered
        (again,) = stubs.pop().deliveries
        assert again.attempt == 1
        handle = again.handle
    assert stubs.change(handle, release=pb.Release(delay_ms=0)).dead_lettered


@pytest.mark.mechanism("S2.57")
@pytest.mark.slow
def test_the_last_attempt_ends_in_the_dead_letter_topic(stubs: Stubs, clock: FakeClock) -> None:
    stubs.create_topic(queues=1)
    stubs.create_group(max_attempts=2)
    first_pop_ms = clock.now_ms()
    popped(stubs, client_id="worker-1", invisible_ms=1_000)
    clock.advance(1_000)
    (handle,) = handles(stubs.pop(client_id="worker-2"))
    result = stubs.change(handle, release=pb.Release(reason="no such account"))
    assert (result.visible_ms, result.dead_lettered) == (0, True)
    (dead,) = stubs.admin.Browse(pb.BrowseRequest(topic=DLQ), timeout=CALL_S).deliveries
    assert dead.message.body == b"a"
    assert dead.message.dead_letter == pb.DeadLetter(
        topic=TOPIC,
        attempts=2,
        first_pop_ms=first_pop_ms,
        last_client="worker-2",
        reason="no such account",
        dead_ms=clock.now_ms(),
    )
    assert bodies(stubs.pop()) == []


def test_a_lease_that_runs_out_on_the_last_attempt_says_so(stubs: Stubs, clock: FakeClock) -> None:
    stubs.create_topic(queues=1)
    stubs.create_group(max_attempts=1)
    popped(stubs, invisible_ms=1_000)
    clock.advance(1_000)
    (dead,) = stubs.admin.Browse(pb.BrowseRequest(topic=DLQ), timeout=CALL_S).deliveries
    assert dead.message.dead_letter.reason == "lease expired"
    assert stubs.stats().dead == 1


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
        pb.InvisibleTimeChange(handle=taken[0], extend=pb.Extend(invisible_ms=90_000)),
        pb.InvisibleTimeChange(handle="nonsense", extend=pb.Extend(invisible_ms=90_000)),
        pb.InvisibleTimeChange(handle=taken[1], release=pb.Release(delay_ms=0)),
        pb.InvisibleTimeChange(handle=taken[2], release=pb.Release(delay_ms=5_000)),
        pb.InvisibleTimeChange(handle=taken[1], reject=pb.Reject()),
        pb.InvisibleTimeChange(handle=taken[3], reject=pb.Reject(reason="bad")),
        pb.InvisibleTimeChange(handle=taken[4], extend=pb.Extend(invisible_ms=0)),
    )
    assert codes(results) == ["", "INVALID_HANDLE", "", "", "INVALID_FIELD", "", "INVALID_FIELD"]
    assert [result.visible_ms - clock.now_ms() for result in results if result.visible_ms] == [90_000, 0, 5_000]
    assert [result.dead_lettered for result in results] == [False] * 5 + [True, False]
    stats = shop.stats()
    assert (stats.in_flight, stats.retry, stats.backoff, stats.dead) == (3, 1, 1, 1)
    assert shop.ack(*taken) == ["", "HANDLE_LAPSED", "HANDLE_LAPSED", "HANDLE_LAPSED", "", ""]


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


def test_a_single_message_of_an_owner_cannot_be_extended(shop: Stubs) -> None:
    shop.send(b"a", b"b")
    token = pb.Token(owner="query", generation=shop.attach().generation, epoch=1)
    first, second = handles(shop.pop(token=token))
    entry = pb.InvisibleTimeChange(handle=first, extend=pb.Extend(invisible_ms=60_000))
    (result,) = changes(shop, entry)
    assert (codes([result]), result.error.field) == (["INVALID_FIELD"], "changes[0].handle")
    assert shop.ack(first, second) == ["", ""], "an ack is allowed"
