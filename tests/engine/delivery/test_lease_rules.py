"""Mechanisms of the reference that no other test names: what is leased, comes back, and is never mixed up.

Ids in the docstrings are those of mechanisms.md.
"""

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.values.handles import make_handle
from tests.engine.rig import DAY, HOUR, MINUTE, SECOND, Delivery, Rig, bodies, numbered, refusals, sending


@pytest.mark.mechanism("S1.15", "S1.20")
def test_only_the_messages_of_a_batch_that_were_not_acked_come_back(rig: Rig) -> None:
    """The retry topic grows by the members without an ack, and by nothing else."""
    rig.pair()
    rig.send(*"abcdef")
    rig.ack(rig.pop()[1::2])
    assert rig.numbers().retry == 0
    rig.advance(MINUTE)
    assert rig.numbers().retry == 3
    assert [(row.body, row.attempt) for row in rig.pop()] == [("a", 2), ("c", 2), ("e", 2)]


@pytest.mark.mechanism("S1.09", "S1.16", "D.36")
@pytest.mark.slow
def test_a_batch_is_one_checkpoint_and_nothing_of_it_is_left_once_it_is_acked(rig: Rig) -> None:
    """One record and one deadline whatever the batch, and none after the last ack."""
    rig.topic(queues=3)
    rig.group()
    rig.run(*(sending(*numbered(f"{queue}.", 50)) for queue in range(3)))
    rows = rig.pop(150)
    assert (len(rows), len(rig.read("ck")), len(rig.read("due"))) == (150, 1, 1)
    rig.ack(rows[:149])
    assert (len(rig.read("ck")), len(rig.read("due"))) == (1, 1)
    rig.ack(rows[149:])
    assert (rig.read("ck"), rig.read("due")) == ([], [])


@pytest.mark.mechanism("D.02")
@pytest.mark.slow
def test_a_lease_on_a_quiet_topic_is_kept_as_long_as_it_was_given(rig: Rig) -> None:
    """No table with a time-out of its own ends a lease early."""
    rig.pair()
    rig.send("a", "b")
    rows = rig.pop(invisible_ms=12 * HOUR)
    for _ in range(11):
        rig.advance(HOUR)
        assert rig.pop() == []
    assert rig.ack(rows[:1]) == [None]
    rig.advance(HOUR)
    assert [(row.body, row.attempt) for row in rig.pop()] == [("b", 2)]


@pytest.mark.mechanism("D.03")
def test_a_lease_that_is_extended_to_the_deadline_it_has_is_still_a_lease(rig: Rig) -> None:
    """The same deadline again neither doubles nor loses the message, alone or with its batch."""
    rig.pair()
    rig.send("a", "b", "c")
    rows = rig.pop()
    rig.extend(rows, MINUTE)
    rig.extend(rows[:1], MINUTE)
    rig.extend(rows[:2], MINUTE)
    rig.restart()
    assert rig.ack(rows[1:2]) == [None]
    rig.advance(MINUTE)
    assert sorted((row.body, row.attempt) for row in rig.pop()) == [("a", 2), ("c", 2)]


@pytest.mark.mechanism("S1.08", "D.07")
def test_the_handle_of_a_retry_names_that_retry(rig: Rig) -> None:
    """Retries of two queues with one offset, popped together, are acked one by one."""
    rig.topic(queues=2)
    rig.group()
    rig.run(sending("a"), sending("b"))
    rig.release(rig.pop(), delay_ms=0)
    first, second = rig.pop()
    assert (first.offset, first.queue != second.queue) == (second.offset, True)
    assert rig.ack([second]) == [None]
    rig.advance(MINUTE)
    assert [(row.body, row.attempt) for row in rig.pop()] == [(first.body, 3)]


@pytest.mark.mechanism("D.15")
def test_leases_of_equal_offset_and_time_in_different_queues_do_not_collide(rig: Rig) -> None:
    """Same start offset, same pop time, same deadline, same group; only the queue differs."""
    rig.topic(queues=4)
    rig.group()
    rig.run(*(sending(f"q{queue}") for queue in range(4)))
    rows = [rig.pop(1, queues=(queue,))[0] for queue in range(4)]
    assert {row.offset for row in rows} == {0}
    assert rig.ack(rows[2:3]) == [None]
    rig.advance(MINUTE)
    assert sorted(bodies(rig.pop())) == ["q0", "q1", "q3"]


@pytest.mark.mechanism("D.16")
@pytest.mark.slow
def test_leases_that_were_due_long_before_a_start_are_revived(rig: Rig) -> None:
    """The scan begins at the first key, not near the clock."""
    rig.pair()
    rig.send("a", "b", "c")
    for seconds in (1, 600, 40_000):
        rig.pop(1, invisible_ms=seconds * SECOND)
    rig.skip(5 * DAY)
    rig.crash()
    rig.settle()
    assert bodies(rig.pop()) == ["a", "b", "c"]


@pytest.mark.mechanism("S2.59")
def test_a_retry_is_the_message_as_it_was_sent(rig: Rig) -> None:
    """Id, body and everything else; the attempt is one more, the place is the origin's."""
    rig.topic(queues=2)
    rig.group()
    rig.send("other")
    rig.send("a")
    first = rig.popped(queues=(1,)).rows[0]
    rig.advance(MINUTE)
    again = next(row for row in rig.popped().rows if row[2] == 1)
    assert again[:4] == first[:4]
    assert (first[4], again[4]) == (1, 2)


@pytest.mark.mechanism("S1.48", "S1.49")
def test_a_pop_takes_no_more_than_was_asked_from_retries_and_queues_together(rig: Rig) -> None:
    """Retries first or last, the bound counts both, and what is over is in `rest`."""
    rig.topic(queues=3)
    rig.group()
    rig.run(*(sending(*numbered(f"old{queue}.", 4)) for queue in range(3)))
    rig.release(rig.pop(12), delay_ms=0)
    rig.run(*(sending(*numbered(f"new{queue}.", 4)) for queue in range(3)))
    left = 24
    for _ in range(6):
        popped = rig.popped(max_messages=4)
        left -= 4
        assert (len(popped.rows), popped.rest) == (4, left)


@pytest.mark.mechanism("S1.42")
@pytest.mark.slow
def test_a_pop_that_leaves_messages_wakes_the_next_parked_pop(rig: Rig) -> None:
    """Chain waking; a pop that took the last message, or found none, wakes no other pop."""
    rig.pair()
    rig.send("a", "b", "c")
    assert rig.commit(ask.Pop("t", "g", max_messages=2)).woken == {("g", "t")}
    assert rig.commit(ask.Pop("t", "g", max_messages=2)).woken == set()
    assert rig.commit(ask.Pop("t", "g")).woken == set()


@pytest.mark.mechanism("D.56")
def test_one_pop_finds_the_one_message_in_whatever_queue_it_is(rig: Rig) -> None:
    """A pop does not wait at an empty queue while another queue has messages. A new group begins at queue 0."""
    rig.topic(queues=8)
    for number in range(8):
        rig.group(f"g{number}", start_from="LATEST")
        assert rig.pop(group=f"g{number}") == []
        rig.send(str(number))
        assert bodies(rig.pop(1, group=f"g{number}")) == [str(number)]


@pytest.mark.mechanism("S3.01")
def test_one_group_reads_several_topics_and_each_on_its_own(rig: Rig) -> None:
    """Positions, retries and counts are those of the pair."""
    for topic in ("t", "u"):
        rig.topic(topic)
    rig.group()
    rig.send("a", "b", topic="t")
    rig.send("x", topic="u")
    rig.release(rig.pop(1, topic="t"), delay_ms=0)
    assert bodies(rig.pop(topic="u")) == ["x"]
    assert (rig.numbers(topic="t").retry, rig.numbers(topic="u").retry) == (1, 0)
    assert [(row.body, row.attempt) for row in rig.pop(topic="t")] == [("b", 1), ("a", 2)]


@pytest.mark.mechanism("S1.21", "D.50", "I.23")
def test_each_group_gets_its_own_retries_however_their_names_lie_inside_each_other(rig: Rig) -> None:
    """All of them have something in their retry topics of one topic, in any order."""
    rig.topic()
    names = ("b", "a_b", "a", "a_b_t")
    for name in names:
        rig.group(name)
    rig.send("m1", "m2")
    for turn, name in enumerate(names):
        rows = rig.pop(group=name)
        rig.release(rows[turn % 2 :], group=name, delay_ms=0)
    for turn, name in enumerate(names):
        again = rig.pop(group=name)
        assert [(row.body, row.attempt) for row in again] == [("m1", 2), ("m2", 2)][turn % 2 :]
        assert rig.ack(again, group=name) == [None] * len(again)


# ── One winner ───────────────────────────────────────────────────────────────────────────────────────────────────────


def ack(rig: Rig, row: Delivery) -> ask.Ack:
    return ask.Ack("g", (row.handle,))


def extend(rig: Rig, row: Delivery) -> ask.ChangeInvisibleTime:
    return ask.ChangeInvisibleTime("g", (ask.Change(row.handle, "extend", HOUR),))


def release(rig: Rig, row: Delivery) -> ask.ChangeInvisibleTime:
    return ask.ChangeInvisibleTime("g", (ask.Change(row.handle, "release", 0),))


def reject(rig: Rig, row: Delivery) -> ask.ChangeInvisibleTime:
    return ask.ChangeInvisibleTime("g", (ask.Change(row.handle, "reject"),))


def done(result: Any) -> bool:
    """Whether a command of one handle got the answer that it happened."""
    return refusals(result.results if isinstance(result, ask.Acked) else result) == [""]


ENDS: dict[str, Callable[[Rig, Delivery], Any]] = {"ack": ack, "release": release, "reject": reject}


@pytest.mark.mechanism("D.23", "I.16")
@pytest.mark.parametrize("order", list(itertools.permutations(ENDS)), ids="-".join)
@pytest.mark.parametrize("together", [True, False], ids=["one commit", "three commits"])
def test_the_first_ack_release_or_reject_at_the_deadline_of_a_lease_wins(
    rig: Rig, order: tuple[str, ...], together: bool
) -> None:
    """The first command wins, before the revive; the message ends as its answer said."""
    rig.pair()
    rig.send("a")
    row = rig.pop()[0]
    rig.skip(MINUTE)
    commands = [ENDS[name](rig, row) for name in order]
    results = rig.run(*commands) if together else [rig.run(command)[0] for command in commands]
    assert [done(result) for result in results] == [True, False, False]
    rig.settle()
    found = {"ack": rig.numbers().acked, "release": rig.numbers().retry, "reject": rig.numbers().dead}
    assert found == {name: int(name == order[0]) for name in ENDS}


def test_an_extension_in_the_millisecond_of_the_deadline_wins_over_the_revive(rig: Rig) -> None:
    """And the ack after it is still good; a millisecond of revive earlier it is not."""
    rig.pair()
    rig.send("a", "b")
    late, kept = rig.pop()
    rig.skip(MINUTE)
    assert done(rig.run(extend(rig, kept))[0])
    rig.settle()
    assert [done(result) for result in rig.run(ack(rig, kept), ack(rig, late))] == [True, False]
    assert bodies(rig.pop()) == ["a"]


# ── What nothing is left of ──────────────────────────────────────────────────────────────────────────────────────────


def rounds(rig: Rig, count: int, chance: random.Random) -> None:
    """Messages that are sent, leased, renewed, released, and in the end all acked."""
    for number in range(count):
        rig.send(*numbered(f"{number}.", 5), producer="p", number=number + 1)
        rows = rig.pop(client_id="c", attempt_id=str(number))
        rig.extend(rows[: chance.randrange(3)], MINUTE)
        rig.release(rows[3:], delay_ms=chance.choice([0, SECOND]))
        rig.advance(2 * SECOND)
        rig.ack([*rows[:3], *rig.pop()])


@pytest.mark.mechanism("D.43")
@pytest.mark.slow
def test_memory_holds_unfinished_deliveries_and_nothing_of_finished_ones(rig: Rig) -> None:
    """The tables of a broker that has done much are as large as those of one that has done little.

    Both have run for a minute, so that retention has looked at the topic.
    """
    rig.pair()
    sizes = []
    for count in (40, 150):
        rounds(rig, count, random.Random(count))
        assert (rig.numbers().in_flight, rig.numbers().retry, rig.numbers().backoff) == (0, 0, 0)
        with rig.tables() as state:
            sizes.append([len(list(table)) for table in state.tables.with_layers()])
    assert sizes[0] == sizes[1]


@pytest.mark.mechanism("D.39")
def test_the_log_has_no_line_for_a_single_message(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    """Sends, pops, acks, revives, retries and dead letters are counted, not told one by one."""
    rig.pair(max_attempts=2)
    with caplog.at_level(0):
        rounds(rig, 20, random.Random(1))
        rig.send(*numbered("late", 20))
        for _ in range(3):
            rig.pop()
            rig.advance(MINUTE)
        rig.restart()
    assert rig.numbers().dead == 20
    assert caplog.records == []


@pytest.mark.mechanism("D.40", "I.19")
def test_an_idle_hour_is_sixty_looks_and_no_write(rig: Rig) -> None:
    """No polling: the writer sleeps until the next deadline, and without one until housekeeping."""
    rig.pair(queues=100)
    rig.send("a")
    rig.ack(rig.pop())
    rig.advance(2 * HOUR)  # after one hour it is written down once when the group last read
    until, looks, writes = rig.now + HOUR, 0, 0
    while rig.core.next_due_ms is not None and rig.core.next_due_ms <= until:
        rig.skip(rig.core.next_due_ms - rig.now)
        writes += rig.commit().wrote
        looks += 1
    assert (looks, writes) == (60, 0)
    rig.send("b")
    rig.pop(invisible_ms=SECOND)
    assert rig.core.next_due_ms == rig.now + SECOND


# ── Handles as clients send them ─────────────────────────────────────────────────────────────────────────────────────


def test_the_engine_refuses_handles_that_it_did_not_make(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b")
    first, second = rig.pop(2)
    good, forged = first.handle, make_handle(*second.lease._replace(nonce=1))
    results = rig.do(ask.Ack("g", (good, "no handle", forged, ""))).results
    assert refusals(results) == ["", "INVALID_HANDLE", "INVALID_HANDLE", "INVALID_HANDLE"]
    assert [result.field for result in results if result] == ["handles[1]", "handles[2]", "handles[3]"]
    changes = tuple(ask.Change(text, "extend", HOUR) for text in (good, "no handle", second.handle))
    results = rig.do(ask.ChangeInvisibleTime("g", changes))
    assert refusals(results) == ["HANDLE_LAPSED", "INVALID_HANDLE", ""]
    assert results[1].field == "changes[1].handle"


def test_an_unknown_group_or_topic_is_refused_before_a_malformed_handle(rig: Rig) -> None:
    rig.pair()
    asked = (
        ask.Ack("nobody", ("no handle",)),
        ask.ChangeInvisibleTime("nobody", (ask.Change("no handle", "extend", HOUR),)),
        ask.Recall("nowhere", "no handle"),
        ask.Recall("t", "no handle"),
        ask.EndTransaction((ask.End("no transaction", True),)),
    )
    *refused, (ended,) = rig.run(*asked)
    assert refusals([*refused, ended]) == [
        "GROUP_NOT_FOUND", "GROUP_NOT_FOUND", "TOPIC_NOT_FOUND", "INVALID_FIELD", "INVALID_FIELD"
    ]  # fmt: skip
    assert (refused[3].field, ended.field) == ("recall_handle", "transaction_id")
