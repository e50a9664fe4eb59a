"""FIFO topics: order within a message group through leases, failures, crashes; other message groups go on."""

from collections import Counter

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.delivery import fifo_pick
from popmq_server.values.message import Extra
from tests.engine.rig import HOUR, MINUTE, SECOND, Delivery, Rig, bodies, message, numbered, refusal, refusals
from tests.engine.traffic.traffic_fifo import dead_texts, fifo_pair, send_fifo


def order_of(rows: list[Delivery], message_group: str) -> list[str]:
    return [row.body for row in rows if row.body.startswith(message_group)]


# ── What a batch holds, and what it locks ────────────────────────────────────────────────────────────────────────────


def test_a_batch_holds_messages_of_one_message_group_in_order(rig: Rig) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a1", "b1", "a2", "a3", "b2")
    rows = rig.pop()
    assert order_of(rows, "a") == ["a1", "a2", "a3"]
    assert order_of(rows, "b") == ["b1", "b2"]


@pytest.mark.mechanism("S1.47")
def test_a_message_group_is_out_once_and_others_go_on(rig: Rig) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2", "b1")
    first = rig.pop(1)
    assert bodies(first) == ["a1"]
    assert bodies(rig.pop()) == ["b1"], "a2 waits behind a1"
    assert rig.pop() == []
    rig.ack(first)
    assert bodies(rig.pop()) == ["a2"]


def test_a_later_message_waits_after_the_waiting_ones_of_its_message_group(rig: Rig) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2")
    first = rig.pop(1)
    assert rig.pop() == []
    send_fifo(rig, "a3")
    rig.ack(first)
    assert [bodies(rig.pop(1)) for _ in range(1)] == [["a2"]]
    assert rig.pop() == []


@pytest.mark.mechanism("D.59", "I.11")
@pytest.mark.slow
def test_one_stuck_message_group_stops_no_other(rig: Rig) -> None:
    """The reference keeps order by queue: there one stuck message stops all message groups of it."""
    fifo_pair(rig)
    send_fifo(rig, "a1")
    stuck = rig.pop(invisible_ms=HOUR)
    for number in range(50):
        send_fifo(rig, f"a{number + 2}", f"b{number}", f"c{number}")
        rows = rig.pop()
        assert bodies(rows) == [f"b{number}", f"c{number}"]
        rig.ack(rows)
    assert bodies(stuck) == ["a1"]
    assert rig.numbers().waiting == 50


def test_the_lock_opens_with_the_last_of_the_message_group(rig: Rig) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2", "a3")
    one, two = rig.pop(2)
    send_fifo(rig, "a4")
    rig.ack([two])
    assert rig.pop() == []
    rig.ack([one])
    assert bodies(rig.pop()) == ["a3", "a4"]


@pytest.mark.mechanism("D.29")
def test_acks_out_of_order_are_kept(rig: Rig) -> None:
    """The reference starts again at the first that is not acked, and sends later ones again."""
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2", "a3")
    rows = rig.pop()
    rig.ack(rows[1:2])
    rig.advance(MINUTE)
    assert bodies(rig.pop()) == ["a1", "a3"]


def test_two_groups_do_not_lock_each_other(rig: Rig) -> None:
    fifo_pair(rig)
    rig.group("h")
    send_fifo(rig, "a1", "a2")
    assert bodies(rig.pop(1)) == bodies(rig.pop(1, group="h")) == ["a1"]


def test_a_message_group_has_one_queue(rig: Rig) -> None:
    fifo_pair(rig, queues=8)
    send_fifo(rig, *(f"{name}{turn}" for turn in range(4) for name in "abcdefgh"))
    queues = {row.body[0]: row.queue for row in rig.pop()}
    assert len(queues) == 8
    assert len(set(queues.values())) > 1
    send_fifo(rig, *(f"{name}9" for name in "abcdefgh"))


def test_the_number_of_queues_of_a_fifo_topic_stays(rig: Rig) -> None:
    fifo_pair(rig)
    assert refusal(rig.run(ask.UpdateTopic("t", 9, None))[0]) == "INVALID_FIELD"
    assert rig.do(ask.UpdateTopic("t", 1, (True, HOUR))).keep_ms == HOUR


@pytest.mark.mechanism("D.58")
@pytest.mark.slow
def test_a_message_without_a_message_group_is_refused_and_its_neighbours_are_stored(rig: Rig) -> None:
    fifo_pair(rig)
    entries = (message("x"), message("a1")._replace(extra=Extra("a")))
    sent = rig.do(ask.Send("t", entries))
    assert refusals(sent.places) == ["INVALID_FIELD", ""]
    assert bodies(rig.pop()) == ["a1"]


def test_a_message_group_in_a_normal_topic_is_refused(rig: Rig) -> None:
    rig.pair()
    sent = rig.do(ask.Send("t", (message("a1")._replace(extra=Extra("a")),)))
    assert refusals(sent.places) == ["INVALID_FIELD"]


# ── Failures ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S1.41")
def test_a_head_in_backoff_keeps_its_message_group_and_only_that(rig: Rig) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2", "b1")
    rows = rig.pop()
    rig.release([row for row in rows if row.body == "a1"], delay_ms=10 * SECOND)
    rig.ack([row for row in rows if row.body == "b1"])
    send_fifo(rig, "a3", "b2")
    assert bodies(rig.pop()) == ["b2"]
    rig.advance(10 * SECOND - 1)
    assert rig.pop() == []
    rig.advance(1)
    again = rig.pop()
    assert [(row.body, row.attempt) for row in again] == [("a1", 2), ("a2", 1), ("a3", 1)]


def test_messages_after_a_failed_head_lose_their_handles_and_no_attempt(rig: Rig) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2", "a3", "b1")
    rows = {row.body: row for row in rig.pop()}
    rig.release([rows["a2"]], delay_ms=0, reason="no")
    assert refusals(rig.ack([rows["a3"], rows["a1"], rows["b1"]])) == ["HANDLE_LAPSED", "", ""]
    assert [(row.body, row.attempt) for row in rig.pop()] == [("a2", 2), ("a3", 1)]


@pytest.mark.slow
def test_an_uncounted_release_gives_every_attempt_back(rig: Rig) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2")
    rig.release(rig.pop(), delay_ms=0, uncounted=True)
    assert [(row.body, row.attempt) for row in rig.pop()] == [("a1", 1), ("a2", 1)]


@pytest.mark.mechanism("S1.52")
@pytest.mark.parametrize("released", [False, True])
def test_a_timeout_or_a_release_of_a_batch_counts_only_the_first_of_each_message_group(
    rig: Rig, released: bool
) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2", "b1", "b2")
    rows = rig.pop()
    rig.release(rows, delay_ms=0) if released else rig.advance(MINUTE)
    assert sorted((row.body, row.attempt) for row in rig.pop()) == [("a1", 2), ("a2", 1), ("b1", 2), ("b2", 1)]


def test_a_member_extended_alone_keeps_the_message_group_when_the_others_time_out(rig: Rig) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2", "a3")
    rows = rig.pop()
    rig.extend(rows[:1], HOUR)
    rig.advance(MINUTE)
    assert rig.pop() == [], "a2 and a3 wait behind a1"
    rig.ack(rows[:1])
    assert [(row.body, row.attempt) for row in rig.pop()] == [("a2", 1), ("a3", 1)]


def test_a_change_after_the_release_of_an_earlier_message_of_its_group_has_lapsed(rig: Rig) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2")
    one, two = rig.pop()
    changes = ask.Change(one.handle, "release", 0), ask.Change(two.handle, "extend", MINUTE)
    assert refusals(rig.do(ask.ChangeInvisibleTime("g", changes))) == ["", "HANDLE_LAPSED"]


def test_a_head_is_dead_lettered_after_its_last_attempt_and_its_message_group_goes_on(rig: Rig) -> None:
    fifo_pair(rig, max_attempts=2)
    send_fifo(rig, "a1", "a2")
    for _ in range(2):
        rig.release(rig.pop(1), delay_ms=0)
    assert dead_texts(rig) == ["a1"]
    assert bodies(rig.pop()) == ["a2"]


@pytest.mark.parametrize("how", ["rejected", "released for the last time"])
def test_messages_after_a_dead_lettered_head_can_still_be_acked(rig: Rig, how: str) -> None:
    fifo_pair(rig, max_attempts=3 if how == "rejected" else 1)
    send_fifo(rig, "a1", "a2")
    one, two = rig.pop()
    assert (rig.reject([one], "broken") if how == "rejected" else rig.release([one]))[0][1] is True
    assert refusals(rig.ack([two])) == [""]
    assert dead_texts(rig) == ["a1"]


def test_timeouts_end_in_the_dead_letter_topic_head_by_head(rig: Rig) -> None:
    fifo_pair(rig, max_attempts=1)
    send_fifo(rig, "a1", "a2")
    rig.pop()
    rig.advance(MINUTE)
    assert dead_texts(rig) == ["a1"]
    rig.pop()
    rig.advance(MINUTE)
    assert dead_texts(rig) == ["a1", "a2"]


# ── Fairness and bounds ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_hot_message_group_does_not_keep_the_others_out(rig: Rig) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a0")
    held = rig.pop()
    send_fifo(rig, *(f"a{number + 1}" for number in range(400)))
    rig.pop()
    rig.ack(held)
    send_fifo(rig, "b1", "c1")
    for _ in range(3):
        rows = rig.pop(16)
        rig.ack(rows)
        if "b1" in bodies(rows):
            break
    else:
        pytest.fail("b1 was not delivered in three pops")


def test_a_message_group_does_not_fill_a_batch_while_another_waits(rig: Rig) -> None:
    """Each message group gets an eighth of the batch; one of them gets the rest too."""
    fifo_pair(rig)
    send_fifo(rig, "a0", "b0")
    held = rig.pop()
    send_fifo(rig, *numbered("a", 40), *numbered("b", 40))
    assert rig.pop() == []
    rig.ack(held)
    for _ in range(2):
        rows = rig.pop(16)
        counts = Counter(text[0] for text in bodies(rows))
        assert (len(rows), min(counts["a"], counts["b"])) == (16, 2)
        rig.ack(rows)


def test_a_batch_is_filled_from_one_message_group_when_there_is_nothing_else(rig: Rig) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a0")
    held = rig.pop()
    send_fifo(rig, *(f"a{number + 1}" for number in range(40)))
    assert rig.pop() == []
    rig.ack(held)
    assert bodies(rig.pop(32)) == [f"a{number + 1}" for number in range(32)]


@pytest.mark.slow
def test_reading_stops_when_too_many_wait_and_goes_on_when_they_are_done(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fifo_pick, "WAITING_MAX", 5)
    fifo_pair(rig)
    send_fifo(rig, "a0")
    held = rig.pop()
    send_fifo(rig, *(f"a{number + 1}" for number in range(9)), "b1")
    assert rig.pop() == []
    assert rig.numbers().waiting == 5
    rig.ack(held)
    rows = rig.pop(4)
    rig.ack(rows)
    assert bodies(rows) == ["a1", "a2", "a3", "a4"]
    seen = []
    while rows := rig.pop():
        seen += bodies(rows)
        rig.ack(rows)
    assert [text for text in seen if text != "b1"] == ["a5", "a6", "a7", "a8", "a9"]
    assert "b1" in seen


def test_one_pop_parks_a_bounded_number_of_messages_and_the_next_goes_on(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fifo_pick, "NEW_WAITING_MAX", 10)
    fifo_pair(rig)
    send_fifo(rig, "a0")
    rig.pop()
    send_fifo(rig, *(f"a{number + 1}" for number in range(25)), "b1")
    answers = [rig.popped() for _ in range(3)]
    assert [answer.again for answer in answers] == [True, True, False]
    assert [len(answer.rows) for answer in answers] == [0, 0, 1]


@pytest.mark.mechanism("D.41")
def test_a_pop_wakes_others_only_while_something_can_be_delivered(rig: Rig) -> None:
    """A blocked message group is no reason to wake anybody."""
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2")
    rig.pop(1)
    rig.pop()
    assert rig.commit(ask.Pop("t", "g")).woken == set()


def test_a_pop_wakes_no_other_pop_for_message_groups_that_it_locked(rig: Rig) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2")
    first = rig.pop(1)
    rig.pop()
    rig.release(first, delay_ms=0)
    committed = rig.commit(ask.Pop("t", "g", max_messages=1))
    assert (committed.results[0].rest, committed.woken) == (0, set())


def test_an_ack_that_unlocks_a_message_group_wakes_a_parked_pop(rig: Rig) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2")
    rows = rig.pop(1)
    rig.pop()
    assert rig.commit(ask.Ack("g", (rows[0].handle,))).woken == {("g", "t")}


# ── Restarts and deletes ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("D.14")
def test_locks_and_lines_live_through_a_crash(rig: Rig) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2", "b1", "b2")
    rows = rig.pop(1)
    rig.crash()
    assert order_of(rig.pop(), "a") == []
    rig.ack(rows)
    rig.crash()
    assert bodies(rig.pop()) == ["a2"]


def test_a_deleted_topic_or_group_leaves_nothing_waiting(rig: Rig) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2", "a3")
    rig.pop(1)
    rig.pop()
    rig.do(ask.DeleteGroup("g"))
    rig.advance(MINUTE)
    assert rig.read("fwait") == rig.read("pin") == []
    assert not list(rig.core.state.waiting) + list(rig.core.state.locks)


def test_a_group_made_again_under_an_old_name_meets_no_lock(rig: Rig) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2")
    rig.pop(1)
    rig.do(ask.DeleteGroup("g"))
    rig.group("g")
    assert bodies(rig.pop()) == ["a1", "a2"]


def test_a_waiting_message_is_kept_when_its_chunk_is_dropped(rig: Rig) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a1")
    held = rig.pop(invisible_ms=12 * HOUR)
    send_fifo(rig, "a2")
    assert rig.pop() == []
    for _ in range(20):
        rig.extend(held, 12 * HOUR)
        rig.advance(10 * HOUR)
    rig.ack(held)
    assert bodies(rig.pop()) == ["a2"]


@pytest.mark.mechanism("D.57")
@pytest.mark.slow
def test_a_repeated_attempt_gets_the_same_messages_and_never_none_while_they_are_locked(rig: Rig) -> None:
    """In the reference a lost answer blocks a queue for the invisible time."""
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2")
    first = rig.pop(1, client_id="c", attempt_id="1")
    again = rig.pop(1, client_id="c", attempt_id="1")
    assert [row.handle for row in again] == [row.handle for row in first]
    assert again[0].attempt == 1
