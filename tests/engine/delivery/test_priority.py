"""PRIORITY topics: the urgent first, across queues, and nothing waits for ever: counted (F.03)."""

import itertools
import random
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.values.message import Extra
from popmq_server.values.outgoing import Outgoing
from popmq_server.values.turns import Turns
from tests.engine.rig import HOUR, KEEP, MINUTE, Delivery, Rig, bodies, message


def topic(rig: Rig, queues: int = 10, **group: Any) -> None:
    rig.do(ask.CreateTopic("t", queues, False, KEEP, "PRIORITY"))
    rig.group(**group)
    rig.pop()


def urgent(level: int, text: str = "") -> Outgoing:
    return message(text or f"p{level}")._replace(extra=Extra(priority=level) if level else None)


def send(rig: Rig, *levels: int) -> list[int]:
    """One message for each level; the queues they went to."""
    places = rig.do(
        ask.Send("t", tuple(urgent(level, f"p{level}.{place}") for place, level in enumerate(levels)))
    ).places
    return [place.queue for place in places]


def backlog(rig: Rig, levels: dict[int, int]) -> None:
    send(rig, *(level for level, count in levels.items() for _ in range(count)))


def queues(rows: list[Delivery]) -> list[int]:
    return [row.queue for row in rows]


def served(rig: Rig, pops: int, **asked: Any) -> list[int]:
    """The queue of each of so many pops of one message."""
    return [rig.pop(1, **asked)[0].queue for _ in range(pops)]


def longest_wait(turns: list[int], queue: int) -> int:
    """The greatest number of pops from one that serves a queue, or the first, to the next one."""
    places = [-1, *(place for place, at in enumerate(turns) if at == queue), len(turns)]
    return max(after - before for before, after in itertools.pairwise(places))


# ── The urgent first ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_message_goes_to_the_queue_of_its_priority_and_what_is_higher_to_the_last(rig: Rig) -> None:
    topic(rig, 4)
    assert send(rig, 0, 1, 2, 3, 4, 1023) == [0, 1, 2, 3, 3, 3]


def test_a_batch_is_filled_from_high_to_low_in_the_order_of_sending(rig: Rig) -> None:
    topic(rig)
    send(rig, 0, 9, 5, 0, 9, 5)
    assert bodies(rig.pop(4)) == ["p9.1", "p9.4", "p5.2", "p5.5"]
    assert bodies(rig.pop(4)) == ["p0.0", "p0.3"]


def test_a_later_message_of_higher_priority_is_delivered_first(rig: Rig) -> None:
    topic(rig)
    send(rig, 1, 1)
    send(rig, 8)
    assert queues(rig.pop(2)) == [8, 1]


def test_named_queues_are_visited_from_high_to_low_whatever_their_order_in_the_request(rig: Rig) -> None:
    topic(rig)
    send(rig, 1, 2, 3, 4)
    assert queues(rig.pop(queues=(2, 4, 1))) == [4, 2, 1]


def test_a_token_is_sealed_from_high_to_low(rig: Rig) -> None:
    topic(rig)
    send(rig, 0, 5, 9)
    rig.attach(topic="t")
    sealed = rig.seal(1, max_messages=2)
    assert [row[2] for row in sealed.rows] == [9, 5]
    assert [row[2] for row in rig.seal(1).rows] == [9, 5], "a replay keeps the order"


def test_a_queue_at_its_limit_of_leases_is_stepped_over(rig: Rig) -> None:
    topic(rig, in_flight_max=2)
    backlog(rig, {9: 5, 3: 5})
    assert queues(rig.pop()) == [9, 9, 3, 3]
    assert rig.pop() == []


def test_a_group_without_priorities_in_its_topic_still_rotates(rig: Rig) -> None:
    rig.pair(3)
    for text in "abcdef":
        rig.send(text)
    assert len(set(served(rig, 3))) == 3


# ── Nothing starves ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_nine_pops_in_ten_take_the_highest_priority_and_the_tenth_a_waiting_queue(rig: Rig) -> None:
    topic(rig)
    backlog(rig, {9: 60, 0: 60})
    assert served(rig, 40) == ([9] * 9 + [0]) * 4


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3, 10])
def test_every_queue_is_served_within_ten_pops_for_each_queue_that_waits(rig: Rig, count: int) -> None:
    """Also one in the middle, between two that never run empty."""
    topic(rig)
    levels = list(range(10 - count, 10))
    backlog(rig, dict.fromkeys(levels, 190))
    turns = served(rig, 200)
    assert turns.count(9) == 180
    for level in levels[:-1]:
        assert longest_wait(turns, level) <= 10 * (count - 1)
    assert turns[9] == levels[0], "of those that were never visited the lowest comes first"


@pytest.mark.slow
def test_batches_that_are_always_filled_by_the_most_urgent_leave_the_tenth_to_others(rig: Rig) -> None:
    topic(rig)
    backlog(rig, {9: 400, 4: 20})
    got = [queues(rig.pop(8)) for _ in range(20)]
    assert [batch.count(4) for batch in got] == ([0] * 9 + [8]) * 2


@pytest.mark.slow
def test_clients_that_take_turns_with_queues_of_their_own_all_reach_their_low_ones(rig: Rig) -> None:
    topic(rig)
    backlog(rig, dict.fromkeys(range(10), 100))
    turns = [rig.pop(1, queues=named)[0].queue for _ in range(50) for named in ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9))]
    assert turns[::2].count(4) == turns[1::2].count(9) == 45
    assert {0, 1, 2, 3} < set(turns)
    assert {5, 6, 7, 8} < set(turns)


@pytest.mark.slow
def test_any_mix_of_batches_and_named_queues_keeps_the_bound(rig: Rig) -> None:
    """Fewer than 10 pops that name a queue, for each queue of the topic, lie between two that serve it."""
    topic(rig)
    chance = random.Random(7)
    sets: list[tuple[int, ...]] = [(), (0, 5, 9), (3, 9), (2, 4, 6, 8)]
    backlog(rig, dict.fromkeys(range(10), 300) | {9: 1000})
    waited = dict.fromkeys(range(10), 0)
    for _ in range(800):
        named = chance.choice(sets)
        batch = queues(rig.pop(chance.choice((1, 1, 1, 2)), queues=named))
        for queue in named or range(10):
            waited[queue] = 0 if queue in batch else waited[queue] + 1
        assert max(waited.values()) < 10 * 10


def test_one_pop_in_five_still_begins_with_the_retry_topic_and_takes_no_turn_away(rig: Rig) -> None:
    topic(rig)
    backlog(rig, {5: 40})
    rig.release(rig.pop(40), delay_ms=0)
    (where,) = rig.core.state.turns.committed()
    rig.core.state.turns.load(where, Turns())
    backlog(rig, {9: 60, 0: 60})
    got = [rig.pop(1)[0] for _ in range(50)]
    assert [place for place, row in enumerate(got, 1) if row.attempt == 2] == [5, 10, 15, 20, 25, 30, 35, 40, 45, 50]
    low = [place for place, row in enumerate(got, 1) if row.queue == 0]
    assert low == [12, 24, 37, 49], "every tenth of the pops that visit queues"


def test_retries_fill_the_rest_of_a_batch(rig: Rig) -> None:
    topic(rig)
    backlog(rig, {9: 2})
    rig.release(rig.pop(1), delay_ms=0)
    assert [(row.queue, row.attempt) for row in rig.pop()] == [(9, 1), (9, 2)]


@pytest.mark.slow
def test_tokens_and_ordinary_pops_have_their_turns_together(rig: Rig) -> None:
    topic(rig)
    backlog(rig, {9: 60, 0: 60})
    rig.attach(topic="t", lease_ms=HOUR)
    turns = []
    for epoch in range(1, 11):
        turns += [row[2] for row in rig.seal(epoch, max_messages=1).rows]
        turns += queues(rig.pop(1))
    assert turns == ([9] * 9 + [0]) * 2


def test_turns_go_with_their_topic_and_group(rig: Rig) -> None:
    topic(rig)
    send(rig, 1)
    rig.pop(queues=(1, 2))
    assert rig.core.state.turns.committed()
    rig.do(ask.DeleteTopic("t"))
    rig.advance(MINUTE)
    assert rig.core.state.turns.committed() == {}
