"""Leases: what a client does with its deliveries, and what their time does."""

from collections.abc import Iterator
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.store import checkpoint
from popmq_server.values.handles import make_handle
from popmq_server.values.limits import DELAYS_MS_DEFAULT
from tests.engine.rig import HOUR, MINUTE, SECOND, Delivery, Rig, bodies, numbered, refusals, sending


def sent_and_popped(rig: Rig, *texts: str, **asked: Any) -> list[Delivery]:
    rig.send(*texts)
    return rig.pop(len(texts), **asked)


# ── Ack ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("I.26")
def test_every_handle_of_an_ack_gets_its_own_result(rig: Rig) -> None:
    rig.pair()
    rig.group("other")
    a, b, c = sent_and_popped(rig, "a", "b", "c")
    foreign = rig.pop(1, group="other")[0]
    late = make_handle(c.lease.ck_id, 2, c.lease.nonce)
    asked = (
        b.handle,
        a.handle,
        b.handle,  # twice in one request
        foreign.handle,
        make_handle(10**9, 0, 1),  # never given out
        make_handle(*a.lease._replace(nonce=1)),
        make_handle(*a.lease._replace(member=3)),
        "damaged",
        late,
    )
    results = rig.do(ask.Ack("g", asked)).results
    assert refusals(results) == [
        "", "", "HANDLE_LAPSED", "INVALID_HANDLE", "INVALID_HANDLE", "INVALID_HANDLE", "INVALID_HANDLE",
        "INVALID_HANDLE", "",
    ]  # fmt: skip
    assert [result.field for result in results[2:6] if result] == [f"handles[{place}]" for place in range(2, 6)]
    assert rig.numbers().acked == 3
    assert rig.numbers("other").in_flight == 1


@pytest.mark.mechanism("D.61", "I.15")
@pytest.mark.slow
def test_a_dead_handle_stays_dead(rig: Rig) -> None:
    rig.pair()
    acked, released, rejected, lapsed = sent_and_popped(rig, "a", "b", "c", "d")
    rig.ack([acked])
    rig.release([released], delay_ms=HOUR)
    rig.reject([rejected])
    rig.advance(MINUTE)
    for row in (acked, released, rejected, lapsed):
        assert refusals(rig.ack([row])) == ["HANDLE_LAPSED"]
        assert refusals(rig.extend([row], MINUTE)) == ["HANDLE_LAPSED"]
    rig.restart()
    assert refusals(rig.ack([acked, released, rejected, lapsed])) == ["HANDLE_LAPSED"] * 4


@pytest.mark.mechanism("D.20")
def test_an_ack_at_the_deadline_wins_over_the_revive_that_runs_after_it(rig: Rig) -> None:
    rig.pair()
    rows = sent_and_popped(rig, "a")
    rig.skip(2 * MINUTE)
    assert rig.ack(rows) == [None]
    rig.settle()
    assert rig.pop() == []


@pytest.mark.mechanism("S1.19")
def test_acks_of_a_commit_run_before_the_revive_and_the_revive_before_pops(rig: Rig) -> None:
    rig.pair()
    a, b = sent_and_popped(rig, "a", "b")
    rig.skip(MINUTE)
    popped, acked = rig.run(ask.Pop("t", "g"), ask.Ack("g", (a.handle,)))
    assert acked.results == [None]
    assert [row[3] for row in popped.rows] == [b.offset]


@pytest.mark.mechanism("S2.02")
def test_sends_of_a_commit_run_before_pops(rig: Rig) -> None:
    rig.pair()
    popped, _ = rig.run(ask.Pop("t", "g"), sending("a"))
    assert len(popped.rows) == 1


# ── Extend ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("D.42")
def test_extending_a_whole_batch_moves_one_small_key(rig: Rig) -> None:
    rig.pair()
    rows = sent_and_popped(rig, *numbered("m", 100))
    before = rig.read("ck")
    assert set(rig.extend(rows, HOUR)) == {(rig.now + HOUR, False)}
    assert rig.read("ck") == before
    assert len(rig.read("due")) == 1
    rig.advance(HOUR - 1)
    assert rig.pop() == []
    rig.advance(1)
    assert len(rig.pop(200)) == 100


def test_a_member_extended_alone_outlives_its_batch(rig: Rig) -> None:
    rig.pair()
    a, b, c = sent_and_popped(rig, "a", "b", "c")
    rig.extend([b], HOUR)
    rig.advance(MINUTE)
    assert bodies(rig.pop(invisible_ms=2 * HOUR)) == ["a", "c"]
    rig.advance(HOUR - MINUTE - 1)
    assert rig.pop() == []
    assert rig.ack([b]) == [None]
    assert refusals(rig.ack([a, c])) == ["HANDLE_LAPSED"] * 2


@pytest.mark.mechanism("S1.11")
def test_a_lease_can_be_made_shorter(rig: Rig) -> None:
    rig.pair()
    rows = sent_and_popped(rig, "a", "b", invisible_ms=HOUR)
    rig.extend(rows[:1], SECOND)
    rig.advance(SECOND)
    assert [(row.body, row.attempt) for row in rig.pop()] == [("a", 2)]


@pytest.mark.mechanism("S1.17", "D.06", "S1.18")
@pytest.mark.slow
def test_a_handle_lives_through_extensions_and_restarts(rig: Rig) -> None:
    rig.pair()
    rows = sent_and_popped(rig, "a", "b")
    for turn in range(6):
        assert refusals(rig.extend(rows[turn % 2 :], 3 * MINUTE)) == [""] * (2 - turn % 2)
        rig.advance(MINUTE)
        rig.restart()
    assert rig.ack(rows) == [None, None]


def test_extending_counts_no_attempt(rig: Rig) -> None:
    rig.pair()
    rows = sent_and_popped(rig, "a")
    for _ in range(3):
        rig.extend(rows, MINUTE)
    rig.advance(MINUTE)
    assert [row.attempt for row in rig.pop()] == [2]


# ── Release, reject ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S1.12", "D.08")
@pytest.mark.parametrize("attempt", range(1, len(DELAYS_MS_DEFAULT) + 3))
def test_a_release_without_a_delay_waits_by_the_table_and_its_last_entry_repeats(rig: Rig, attempt: int) -> None:
    rig.pair(max_attempts=100)
    rows = sent_and_popped(rig, "a")
    for _ in range(attempt - 1):
        rig.release(rows, delay_ms=0)
        rows = rig.pop()
    delay_ms = DELAYS_MS_DEFAULT[min(attempt, len(DELAYS_MS_DEFAULT)) - 1]
    assert rig.release(rows, delay_ms=None) == [(rig.now + delay_ms, False)]
    assert rig.numbers().backoff == 1
    rig.advance(delay_ms - 1)
    assert rig.pop() == []
    rig.advance(1)
    assert [row.attempt for row in rig.pop()] == [attempt + 1]


@pytest.mark.mechanism("S2.58")
def test_the_default_backoff_is_the_table_of_the_contract() -> None:
    minutes = (*range(1, 11), 20, 30, 60, 120)
    assert (10 * SECOND, 30 * SECOND, *(number * MINUTE for number in minutes)) == DELAYS_MS_DEFAULT


def test_a_group_may_have_a_table_of_its_own(rig: Rig) -> None:
    rig.pair(delays_ms=(0, 5 * SECOND))
    rows = sent_and_popped(rig, "a")
    assert rig.release(rows, delay_ms=None) == [(rig.now, False)]
    assert rig.release(rig.pop(), delay_ms=None) == [(rig.now + 5 * SECOND, False)]


def test_a_release_without_delay_is_visible_at_once_and_wakes_a_parked_pop(rig: Rig) -> None:
    rig.pair()
    rows = sent_and_popped(rig, "a", "b")
    change = ask.ChangeInvisibleTime("g", (ask.Change(rows[0].handle, "release", 0),))
    assert ("g", "t") in rig.commit(change).woken
    assert [(row.body, row.attempt) for row in rig.pop()] == [("a", 2)]
    assert rig.ack(rows[1:]) == [None]


def test_an_uncounted_release_gives_the_attempt_back(rig: Rig) -> None:
    rig.pair(max_attempts=1)
    rows = sent_and_popped(rig, "a")
    for _ in range(3):
        assert [row.attempt for row in rows] == [1]
        assert rig.release(rows, delay_ms=0, uncounted=True) == [(rig.now, False)]
        rows = rig.pop()
    assert rig.numbers().dead == 0


def test_different_delays_in_one_request_are_kept_apart(rig: Rig) -> None:
    rig.pair()
    a, b, c = sent_and_popped(rig, "a", "b", "c")
    changes = (
        ask.Change(a.handle, "release", 2 * SECOND),
        ask.Change(b.handle, "extend", HOUR),
        ask.Change(c.handle, "release", SECOND),
    )
    rig.do(ask.ChangeInvisibleTime("g", changes))
    rig.advance(SECOND)
    assert bodies(rig.pop()) == ["c"]
    rig.advance(SECOND)
    assert bodies(rig.pop()) == ["a"]
    assert rig.ack([b]) == [None]


def test_a_handle_that_stands_twice_in_a_change_is_refused_the_second_time(rig: Rig) -> None:
    rig.pair()
    row = sent_and_popped(rig, "a")[0]
    results = rig.release([row, row], delay_ms=0)
    assert refusals(results) == ["", "INVALID_FIELD"]
    assert len(rig.pop()) == 1


@pytest.mark.slow
def test_changing_one_lease_does_not_scan_its_batch(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [0]
    spans = checkpoint._spans

    def counted(starts: list[int], bits: int) -> Iterator[tuple[int, int, int]]:
        for span in spans(starts, bits):
            steps[0] += 1
            yield span

    count = 4096
    rig.topic()
    rig.group()
    rig.run(*(sending(text) for text in numbered("m", count)))
    rig.release(rig.pop(count), delay_ms=0)
    rows = rig.pop(count)
    assert len({row.lease.ck_id for row in rows}) == 1
    monkeypatch.setattr(checkpoint, "_spans", counted)
    rig.extend(rows[::2], HOUR)
    rig.release(rows[1::4], delay_ms=None)
    rig.ack(rows[::2])
    assert steps[0] < 12 * count


# ── Dead letters ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S2.56", "D.13", "I.07")
def test_a_message_after_its_last_attempt_is_one_dead_letter_and_is_not_delivered(rig: Rig) -> None:
    rig.pair(max_attempts=3)
    rig.send("a")
    for attempt in (1, 2, 3):
        assert [row.attempt for row in rig.pop()] == [attempt]
        rig.advance(MINUTE)
    assert rig.pop() == []
    assert [letter.body for letter in rig.dead()] == [b"a"]
    rig.advance(HOUR)
    assert (rig.numbers().dead, len(rig.dead())) == (1, 1)


@pytest.mark.mechanism("S2.55", "D.53", "S2.57")
def test_a_dead_letter_says_where_it_came_from_and_why(rig: Rig) -> None:
    rig.topic("t", queues=2)
    rig.group(max_attempts=2)
    rig.run(sending("x"), sending("y"))
    first_pop_ms = rig.now
    rig.release([row for row in rig.pop() if row.queue == 1], delay_ms=SECOND, reason="first try")
    rig.advance(SECOND)
    rows = rig.pop(client_id="worker-7")
    rig.release(rows, reason="it is broken")
    letter = rig.dead()[0]
    assert (letter.message_id, letter.body) == ("y", b"y")
    origin = letter.dead_letter
    assert (origin.topic, origin.queue, origin.offset, origin.attempts) == ("t", 1, 0, 2)
    assert (origin.first_pop_ms, origin.dead_ms) == (first_pop_ms, rig.now)
    assert (origin.last_client, origin.reason) == ("worker-7", "it is broken")


@pytest.mark.parametrize("how", ["release", "reject"])
def test_a_reason_of_four_kibibytes_reaches_the_dead_letter(rig: Rig, how: str) -> None:
    rig.pair(max_attempts=1)
    reason = "é" * 2048
    rows = sent_and_popped(rig, "a")
    assert rig.change(rows, how, reason=reason) == [(rig.now, True)]
    assert rig.dead()[0].dead_letter.reason == reason


def test_a_lease_that_ends_for_the_last_time_says_so_in_the_dead_letter(rig: Rig) -> None:
    rig.pair(max_attempts=1)
    sent_and_popped(rig, "a")
    rig.advance(MINUTE)
    assert rig.dead()[0].dead_letter.reason == "lease expired"


def test_a_rejected_message_is_dead_at_its_first_attempt(rig: Rig) -> None:
    rig.pair()
    rows = sent_and_popped(rig, "a", "b")
    rig.reject(rows[:1], reason="poison")
    assert [letter.dead_letter.attempts for letter in rig.dead()] == [1]
    assert rig.ack(rows[1:]) == [None]


def test_a_message_in_backoff_comes_back_though_the_maximum_was_lowered_meanwhile(rig: Rig) -> None:
    rig.pair()
    rig.release(sent_and_popped(rig, "a"), delay_ms=SECOND)
    rig.do(ask.UpdateGroup("g", {"max_attempts": 1}))
    rig.advance(SECOND)
    assert [row.attempt for row in rig.pop()] == [2]
    rig.advance(MINUTE)
    assert (rig.pop(), len(rig.dead())) == ([], 1)


def test_a_dead_letter_can_be_popped_by_another_group(rig: Rig) -> None:
    rig.pair(max_attempts=1)
    rig.group("undertaker")
    sent_and_popped(rig, "a")
    rig.advance(MINUTE)
    assert bodies(rig.pop(topic="%DLQ%g", group="undertaker")) == ["a"]


@pytest.mark.mechanism("I.23")
def test_dead_letters_of_groups_with_names_inside_each_other_stay_apart(rig: Rig) -> None:
    rig.topic()
    for name in ("a", "a_b", "b"):
        rig.group(name, max_attempts=1)
    rig.send("m")
    for name in ("a", "a_b", "b"):
        rows = rig.pop(group=name)
        rig.reject(rows, name, group=name)
    for name in ("a", "a_b", "b"):
        assert [letter.dead_letter.reason for letter in rig.dead(name)] == [name]


# ── Groups ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_retry_of_one_group_is_invisible_to_the_others(rig: Rig) -> None:
    rig.topic()
    for name in ("a", "a_b", "b"):
        rig.group(name)
    rig.send("m")
    rig.release(rig.pop(group="a"), "a", delay_ms=0)
    for name in ("a_b", "b"):
        assert [row.attempt for row in rig.pop(group=name)] == [1]
        assert rig.numbers(name).retry == 0
    assert [row.attempt for row in rig.pop(group="a")] == [2]


def test_an_attempt_id_is_scoped_to_client_topic_and_group(rig: Rig) -> None:
    rig.pair()
    rig.group("h")
    rig.topic("u")
    rig.send("a", "b", "c", "d")
    rig.send("e", topic="u")
    asked: dict[str, Any] = {"client_id": "c", "attempt_id": "1", "max_messages": 1}
    first = rig.popped(**asked)
    assert rig.popped(**asked).replay
    assert not rig.popped(**asked | {"client_id": "d"}).replay
    assert not rig.popped(**asked | {"attempt_id": "2"}).replay
    assert not rig.popped(group="h", **asked).replay
    assert not rig.popped(topic="u", **asked).replay
    assert rig.popped(**asked).ck_id == first.ck_id


def test_a_repeated_attempt_returns_unfinished_messages_without_counting(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b", "c")
    asked: dict[str, Any] = {"client_id": "c", "attempt_id": "1"}
    rows = rig.pop(**asked)
    rig.ack(rows[1:2])
    again = rig.pop(**asked)
    assert [(row.body, row.attempt, row.handle) for row in again] == [
        ("a", 1, rows[0].handle),
        ("c", 1, rows[2].handle),
    ]


def test_a_repeated_attempt_also_returns_messages_extended_alone(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b", "c")
    asked: dict[str, Any] = {"client_id": "c", "attempt_id": "1"}
    rows = rig.pop(**asked)
    rig.extend(rows[1:2], HOUR)
    assert [row.handle for row in rig.pop(**asked)] == [row.handle for row in rows]
    rig.advance(MINUTE)
    assert [row.handle for row in rig.pop(**asked)] == [rows[1].handle]
    assert rig.popped(**asked).due_ms == rig.now - MINUTE + HOUR


def test_a_repeated_attempt_after_its_lease_is_a_new_pop(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    asked: dict[str, Any] = {"client_id": "c", "attempt_id": "1"}
    rig.pop(**asked)
    rig.advance(MINUTE)
    assert [row.attempt for row in rig.pop(**asked)] == [2]
    rig.ack(rig.pop(**asked))
    assert rig.pop(**asked) == []


def test_unknown_groups_are_refused_whole(rig: Rig) -> None:
    rig.topic()
    results = rig.run(ask.Ack("x", (make_handle(1, 0, 1),)), ask.ChangeInvisibleTime("x", ()))
    assert refusals(results) == ["GROUP_NOT_FOUND"] * 2
