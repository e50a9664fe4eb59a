"""Offsets: committed by consumers that pull, queried, reset and cloned by an operator."""

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.embedded.rules.delivery import sweep
from popmq_server.embedded.rules.pulling import offsets
from popmq_server.errors import Refused
from tests.engine.pull_steps import (
    RETRY,
    commit,
    committed,
    finish,
    pull,
    pulled_again,
    pulling,
    reset,
    send_back,
    sums,
    switch,
    texts,
)
from tests.engine.rig import (
    HOUR,
    MINUTE,
    SECOND,
    Rig,
    bodies,
    deliveries,
    numbered,
    refusal,
    refusals,
    sealing,
    sending,
)
from tests.engine.traffic.traffic_fifo import fifo_pair, send_fifo

EARLIEST, LATEST = ("EARLIEST", 0), ("LATEST", 0)


@pytest.fixture
def shop(rig: Rig) -> Rig:
    """Topic t with ten messages, and group g, which pops it."""
    rig.pair()
    rig.send(*numbered("m", 10))
    return rig


# ── UpdateOffsets ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_commit_moves_forward_and_counts_as_acked(rig: Rig) -> None:
    pulling(rig).send(*numbered("m", 5))
    assert (commit(rig, 3), committed(rig), sums(rig)) == (3, [3], (2, 0, 0, 0, 3))
    assert (commit(rig, 3), commit(rig, 5), sums(rig)) == (0, 2, (0, 0, 0, 0, 5))


@pytest.mark.mechanism("S2.47")
def test_a_commit_may_move_backward_and_messages_read_again_are_counted_again(rig: Rig) -> None:
    pulling(rig).send(*numbered("m", 5))
    commit(rig, 4)
    assert (commit(rig, 1), committed(rig), sums(rig)) == (0, [1], (4, 0, 0, 0, 4))
    assert (commit(rig, 5), sums(rig)) == (4, (0, 0, 0, 0, 8))


def test_a_commit_survives_a_crash(rig: Rig) -> None:
    pulling(rig).send(*numbered("m", 5))
    commit(rig, 3)
    rig.crash()
    assert (committed(rig), sums(rig)) == ([3], (2, 0, 0, 0, 3))


def test_several_queues_are_committed_together_or_not_at_all(rig: Rig) -> None:
    pulling(rig, queues=2)
    for number in range(4):
        rig.send(f"m{number}")
    assert rig.do(ask.UpdateOffsets("t", "g", {0: 1, 1: 2})) == (3, False)
    assert refusal(rig.run(ask.UpdateOffsets("t", "g", {0: 2, 1: 3}))[0]) == "INVALID_FIELD"
    assert committed(rig) == [1, 2]


@pytest.mark.parametrize(("queue", "offset"), [(0, 6), (1, 0), (65_536, 0)])
def test_a_commit_beyond_the_end_or_of_no_queue_is_refused_and_changes_nothing(
    rig: Rig, queue: int, offset: int
) -> None:
    pulling(rig).send(*numbered("m", 5))
    with pytest.raises(Refused) as refused:
        commit(rig, offset, queue)
    assert (refused.value.code, refused.value.field) == ("INVALID_FIELD", f"offsets[{queue}]")
    assert committed(rig) == [0]


def test_a_commit_below_the_first_offset_commits_the_first_offset(rig: Rig) -> None:
    """Retention dropped messages that the consumer still had in hand, which is not an error of the consumer."""
    rig.topic(by_age=True, keep_ms=HOUR)
    rig.group()
    switch(rig, "PULL")
    rig.send(*numbered("m", 5))
    rig.advance(HOUR + MINUTE)
    rig.send("new")
    assert (commit(rig, 3), committed(rig), rig.numbers().dropped) == (0, [5], 5)
    assert commit(rig, 6) == 1


def test_a_group_that_pops_commits_nothing(shop: Rig) -> None:
    assert refusal(shop.run(ask.UpdateOffsets("t", "g", {0: 1}))[0]) == "WRONG_CONSUME_MODE"
    asked = [ask.UpdateOffsets("nobody", "g", {0: 1}), ask.UpdateOffsets("t", "nobody", {0: 1})]
    assert refusals(shop.run(*asked)) == ["TOPIC_NOT_FOUND", "GROUP_NOT_FOUND"]


def test_entries_of_a_retry_topic_below_a_committed_number_are_done(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offsets, "ENTRIES_MAX", 2)
    pulling(rig).send(*numbered("m", 6))
    commit(rig, 6)
    send_back(rig, *range(6), delay_ms=0)
    numbers = [place[1] for place in pulled_again(rig)]
    assert rig.do(ask.UpdateOffsets(RETRY, "g", {0: numbers[5]})) == (2, True), "a piece, and more is left"
    assert commit(rig, numbers[5], topic=RETRY) == 3
    assert [place[0] for place in pulled_again(rig)] == ["m5"]
    assert committed(rig, RETRY) == [numbers[5]]
    assert commit(rig, numbers[0], topic=RETRY) == 0, "what is done does not come again"
    assert sums(rig) == (0, 0, 1, 0, 11)


def test_commits_of_a_retry_topic_are_checked(rig: Rig) -> None:
    pulling(rig).group("h")
    end = rig.do(ask.QueryOffsets(RETRY))[0].max_offset
    asked = [
        ask.UpdateOffsets(RETRY, "g", {0: end}),
        ask.UpdateOffsets(RETRY, "g", {0: end + 1}),
        ask.UpdateOffsets(RETRY, "g", {1: 0}),
        ask.UpdateOffsets(RETRY, "h", {0: 0}),
        ask.UpdateOffsets("%RETRY%g+u", "g", {0: 0}),
    ]
    assert refusals(rig.run(*asked)) == ["", *["INVALID_FIELD"] * 3, "TOPIC_NOT_FOUND"]
    switch(rig, "POP")
    assert refusals(rig.run(asked[0])) == ["WRONG_CONSUME_MODE"]


# ── QueryOffsets ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S2.48")
def test_the_ends_and_what_a_group_has_committed(rig: Rig) -> None:
    rig.topic("t", 2)
    rig.group()
    rig.send("a", "b")
    rows = rig.do(ask.QueryOffsets("t", "g"))
    assert [row[:5] for row in rows] == [(0, 0, 2, -1, -1), (1, 0, 0, -1, -1)], "no position yet, and a look makes none"
    rig.pop(1)
    assert rig.do(ask.QueryOffsets("t", "g"))[0][:5] == (0, 0, 2, 1, -1)
    assert rig.do(ask.QueryOffsets("t"))[0][:5] == (0, 0, 2, -1, -1)
    asked = [ask.QueryOffsets("nobody", "g"), ask.QueryOffsets("t", "nobody"), ask.QueryOffsets("%RETRY%g+u", "g")]
    assert refusals(rig.run(*asked)) == ["TOPIC_NOT_FOUND", "GROUP_NOT_FOUND", "TOPIC_NOT_FOUND"]


def test_the_first_offset_stored_at_or_after_a_time(rig: Rig) -> None:
    rig.topic()
    times = []
    for number in range(7):
        rig.send(f"m{number}", f"n{number}")
        times.append(rig.now)
        rig.skip(SECOND)

    def at(since_ms: int) -> int:
        return int(rig.do(ask.QueryOffsets("t", "", since_ms))[0].at_timestamp)

    assert [at(time) for time in times] == list(range(0, 14, 2))
    assert [at(time + 1) for time in times] == list(range(2, 15, 2))
    assert (at(0), at(rig.now + HOUR)) == (0, 14)


def test_a_retry_topic_has_one_queue_whose_committed_offset_is_its_first_entry(rig: Rig) -> None:
    pulling(rig).send("a", "b")
    (empty,) = rig.do(ask.QueryOffsets(RETRY, "g"))
    assert empty.min_offset == empty.max_offset == empty.committed
    send_back(rig, 0, 1, delay_ms=0)
    (row,) = rig.do(ask.QueryOffsets(RETRY, "g"))
    assert (row.min_offset, row.max_offset, row.committed) == (empty.max_offset, empty.max_offset + 2, row.min_offset)
    assert rig.do(ask.QueryOffsets(RETRY))[0].committed == -1
    assert refusal(rig.run(ask.QueryOffsets(RETRY, "g", 5))[0]) == "INVALID_FIELD"


# ── ResetOffsets ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("D.27")
def test_a_reset_starts_over_and_drops_leases_and_retries(shop: Rig) -> None:
    rows = shop.pop(9)
    shop.ack(rows[:2])
    shop.release(rows[2:4], delay_ms=0)
    shop.release(rows[4:6], delay_ms=MINUTE)
    assert sums(shop) == (1, 3, 2, 2, 2)
    assert reset(shop, EARLIEST) == {0: 0}
    assert sums(shop) == (10, 0, 0, 0, 2)
    assert refusals(shop.ack(rows)) == ["HANDLE_LAPSED"] * 9
    again = shop.pop()
    assert [(row.body, row.attempt) for row in again] == [(f"m{number}", 1) for number in range(10)]
    shop.ack(again)
    shop.advance(HOUR)
    assert (shop.pop(), sums(shop)) == ([], (0, 0, 0, 0, 12))


@pytest.mark.parametrize(("to", "first"), [(EARLIEST, "m0"), (LATEST, "new"), (("TIMESTAMP", 1), "m0")])
def test_a_reset_goes_to_the_first_the_end_or_a_time(shop: Rig, to: tuple[str, int], first: str) -> None:
    shop.pop(5)
    reset(shop, to)
    shop.send("new")
    assert bodies(shop.pop(1)) == [first]


def test_a_reset_by_time_finds_messages_stored_in_the_same_commit(shop: Rig) -> None:
    shop.skip(MINUTE)
    sent, moved = shop.run(sending("late"), ask.ResetOffsets("t", "g", ("TIMESTAMP", shop.now)))
    assert (sent.first, moved.offsets) == (10, {0: 10})


@pytest.mark.slow
def test_a_reset_of_some_queues_leaves_the_others_alone(rig: Rig) -> None:
    rig.pair(queues=2)
    for number in range(6):
        rig.send(f"m{number}")
    rows = rig.pop()
    rig.release(rows[:3], delay_ms=0)
    rig.release(rows[3:4], delay_ms=HOUR)
    kept = sorted(row.body for row in rows if row.queue == 1)
    retries = sum(row.queue == 1 for row in rows[:3])
    assert reset(rig, offsets={0: 1}) == {0: 1, 1: 3}
    numbers = rig.numbers()
    assert (numbers.ready, numbers.backlog) == (2, 5)
    assert numbers.retry == retries
    assert refusals(rig.ack([row for row in rows[4:] if row.queue == 1])) == ["" for row in rows[4:] if row.queue == 1]
    assert refusals(rig.ack([row for row in rows[4:] if row.queue == 0])) == [
        "HANDLE_LAPSED" for row in rows[4:] if row.queue == 0
    ]
    rig.advance(HOUR)
    got = sorted(row.body for row in rig.pop() if row.queue == 1)
    assert set(got) | {row.body for row in rows[4:] if row.queue == 1} == set(kept)


def test_a_reset_of_a_group_that_pulls_moves_its_committed_offsets(rig: Rig) -> None:
    pulling(rig).send(*numbered("m", 5))
    commit(rig, 5)
    send_back(rig, 1, delay_ms=0)
    send_back(rig, 2, delay_ms=MINUTE)
    reset(rig, offsets={0: 2})
    assert (committed(rig), sums(rig), pulled_again(rig)) == ([2], (3, 0, 0, 0, 5), [])
    rig.advance(MINUTE)
    assert pulled_again(rig) == []


def test_a_reset_fixes_the_start_of_a_group_that_had_none(rig: Rig) -> None:
    rig.topic()
    rig.group()
    rig.send("a", "b")
    assert reset(rig, LATEST) == {0: 2}
    rig.send("c")
    assert bodies(rig.pop()) == ["c"]


@pytest.mark.parametrize("offsets", [{0: 11}, {1: 0}, {65_536: 0}])
def test_a_reset_out_of_range_is_refused_and_changes_nothing(shop: Rig, offsets: dict[int, int]) -> None:
    shop.pop(3)
    with pytest.raises(Refused) as refused:
        reset(shop, offsets=offsets)
    assert refused.value.code == "INVALID_FIELD"
    assert sums(shop) == (7, 3, 0, 0, 0)


def test_a_reset_to_dropped_offsets_is_refused(rig: Rig) -> None:
    rig.topic(by_age=True, keep_ms=HOUR)
    rig.group()
    rig.send("a", "b")
    rig.advance(HOUR + MINUTE)
    asked = [ask.ResetOffsets("t", "g", None, {0: 1}), ask.ResetOffsets("t", "g", None, {0: 2})]
    assert refusals(rig.run(*asked)) == ["INVALID_FIELD", ""]


def test_names_of_a_reset_are_checked(shop: Rig) -> None:
    shop.group("new")
    asked = [
        ask.ResetOffsets("nobody", "g", EARLIEST),
        ask.ResetOffsets("t", "nobody", EARLIEST),
        ask.CloneOffsets("nobody", "g", "g"),
        ask.CloneOffsets("t", "nobody", "g"),
        ask.CloneOffsets("t", "g", "nobody"),
        ask.CloneOffsets("t", "new", "g"),
    ]
    found = shop.run(*asked)
    assert [(refusal(one), one.field) for one in found] == [
        ("TOPIC_NOT_FOUND", "topic"),
        ("GROUP_NOT_FOUND", "group"),
        ("TOPIC_NOT_FOUND", "topic"),
        ("GROUP_NOT_FOUND", "from_group"),
        ("GROUP_NOT_FOUND", "group"),
        ("INVALID_FIELD", "from_group"),
    ]


# ── Owners ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("released", [False, True], ids=["bound", "its lease has expired"])
def test_a_reset_takes_sealed_sets_which_tell_it_as_torn_and_never_grow(shop: Rig, released: bool) -> None:
    shop.attach()
    first = shop.seal(1, max_messages=4)
    shop.ack(deliveries(first)[:1])
    shop.seal(1, chunk=1, max_messages=2)
    if released:
        shop.advance(MINUTE)
    reset(shop, EARLIEST)
    assert sums(shop) == (10, 0, 0, 0, 1)
    again = shop.seal(1)
    assert (again.rows, again.sealed, again.replay) == ([], (4, False, 3, 0), True)
    assert shop.seal(1, chunk=1).sealed == (2, False, 2, 0)
    assert shop.ack_up_to(1) == 0
    assert len(shop.seal(2, max_messages=32).rows) == 10
    assert shop.ack_up_to(2) == 10


@pytest.mark.slow
def test_a_reset_of_some_queues_takes_only_their_messages_from_an_owner(rig: Rig) -> None:
    rig.pair(queues=2)
    for number in range(4):
        rig.send(f"m{number}")
    rig.attach()
    sealed = deliveries(rig.seal(1))
    reset(rig, offsets={0: 0})
    left = [row for row in sealed if row.queue == 1]
    again = rig.seal(1)
    assert (bodies(deliveries(again)), again.sealed) == (bodies(left), (4, True, 2, 0))
    assert rig.ack_up_to(1) == 2


# ── FIFO ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_reset_of_a_fifo_topic_drops_waiting_messages_and_opens_the_locks(rig: Rig) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2", "a3", "b1", "b2")
    rows = rig.pop(1)
    rig.pop(1)
    rig.pop(1)
    assert rig.numbers().waiting > 0
    reset(rig, EARLIEST)
    assert (rig.numbers().waiting, rig.numbers().in_flight) == (0, 0)
    assert refusals(rig.ack(rows)) == ["HANDLE_LAPSED"]
    assert bodies(rig.pop()) == ["a1", "a2", "a3", "b1", "b2"]


def test_a_dead_letter_whose_message_a_reset_made_unread_is_delivered_once_after_a_redrive(rig: Rig) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2")
    rig.reject(rig.pop(1))
    reset(rig, EARLIEST)
    rig.do(operations.RedrivePiece("g"))
    assert rig.findings() == []
    send_fifo(rig, "a3")
    assert bodies(rig.pop()) == ["a1", "a2", "a3"]
    assert rig.numbers().dead == 0


def test_a_fifo_group_pops_nothing_until_a_reset_has_removed_its_waiting_messages(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    fifo_pair(rig)
    send_fifo(rig, *numbered("a", 12))
    rig.pop(1)
    rig.pop(1)
    assert rig.numbers().waiting == 11
    monkeypatch.setattr(sweep, "SWEEP_MAX", 4)
    rig.attach()
    moved, popped, sealed = rig.run(ask.ResetOffsets("t", "g", EARLIEST), ask.Pop("t", "g"), sealing(1))
    assert moved.left
    assert popped.rows == []
    assert sealed.sealed == (0, False, 0, 0), "an empty set, which is not the end"
    finish(rig, True)
    assert bodies(rig.pop()) == list(numbered("a", 12))


# ── CloneOffsets ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S2.50")
def test_a_clone_stands_where_the_other_stands_and_holds_nothing(shop: Rig) -> None:
    shop.group("h")
    shop.pop(7)
    held = shop.pop(2, group="h")
    done: operations.Reset = shop.do(ask.CloneOffsets("t", "g", "h"))
    finish(shop, done.left, group="h")
    assert done.offsets == {0: 7}
    assert refusals(shop.ack(held, "h")) == ["HANDLE_LAPSED"] * 2
    assert bodies(shop.pop(1, group="h")) == ["m7"]
    assert shop.numbers().in_flight == 7, "the other one is as it was"


def test_a_group_that_pulls_clones_one_that_pops(shop: Rig) -> None:
    shop.pop(4)
    shop.group("h")
    switch(shop, "PULL", group="h")
    shop.do(ask.CloneOffsets("t", "g", "h"))
    assert committed(shop, group="h") == [4]
    assert texts(pull(shop, 4, group="h", max_messages=1)) == ["m4"]
