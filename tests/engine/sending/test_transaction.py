"""Half messages: visible if and only if committed, ended once, whoever asks and whatever happens in between."""

import itertools
import logging
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.commands import Ended, Place, queries
from popmq_server.contract.commands.numbers import MessagePreview
from popmq_server.embedded import operations
from popmq_server.embedded.rules.operate.purge import PURGE_KEYS_MAX
from popmq_server.embedded.rules.sending import placing
from popmq_server.embedded.rules.sending.transaction import DONE_KEEP_MS, FIRST_CHECK_MS, FORGET_MAX
from popmq_server.embedded.state import space
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.values.handles import read_transaction, transaction_text
from tests.engine.faults import failing_put, killed_before_answer, killed_before_commit
from tests.engine.rig import HOUR, MINUTE, Rig, bodies, refusal, refusals
from tests.engine.traffic.traffic_timing import (
    delayed,
    ending,
    halves,
    later,
    make_topic,
    recall,
    send,
    step_wall,
    texts,
    timed_pair,
    transaction_of,
    waiting,
)


@pytest.fixture
def open_ones(rig: Rig) -> list[Place]:
    """Half messages a, b, c of topic t."""
    timed_pair(rig, "TRANSACTION")
    return send(rig, *(later(text, transaction=True) for text in "abc"))


def end(rig: Rig, *places: Place, commit: bool) -> list[Any]:
    results: list[Any] = rig.do(ending(places, commit))
    return results


# ── Commit, rollback ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S2.10")
@pytest.mark.slow
def test_a_half_message_is_invisible_to_every_kind_of_read(rig: Rig, open_ones: list[Place]) -> None:
    assert all(place.transaction_id and not place.recall_handle for place in open_ones)
    assert rig.pop() == []
    assert texts(rig) == []
    assert (rig.numbers().ready, waiting(rig)) == (0, (0, 3))
    assert rig.browse("t").max_offset == 0
    rig.do(ask.UpdateTopic("t", 0, (False, MINUTE)))
    rig.restart()
    rig.advance(71 * HOUR)
    assert rig.pop() == []
    assert halves(rig) == ["a", "b", "c"], "retention does not count before it is visible"


@pytest.mark.slow
def test_a_committed_message_gets_its_place_at_the_commit_and_wakes_a_parked_pop(
    rig: Rig, open_ones: list[Place]
) -> None:
    rig.send("before")
    committed = rig.commit(ending(open_ones[1:2], True))
    assert committed.results == [[Ended("b", Place(0, 1))]]
    assert committed.woken == {(None, "t")}
    rows = rig.pop()
    assert bodies(rows) == ["before", "b"]
    assert waiting(rig) == (0, 2)


def test_a_rollback_leaves_nothing_but_the_memory_of_it(rig: Rig, open_ones: list[Place]) -> None:
    assert end(rig, *open_ones, commit=False) == [Ended(text, Place()) for text in "abc"]
    assert [rig.read(name) for name in ("half", "hmsg", "hdue", "log")] == [[]] * 4
    assert len(rig.read("tdone")) == 3
    assert rig.pop() == []


def test_a_batch_may_hold_both_decisions_and_ends_of_several_topics(rig: Rig, open_ones: list[Place]) -> None:
    make_topic(rig, "u", "DELAY")
    (other,) = send(rig, later("x", transaction=True), topic="u")
    ends = [ask.End(transaction_of(place), place is not open_ones[0]) for place in (*open_ones, other)]
    results = rig.do(ask.EndTransaction(tuple(ends)))
    assert [result.message_id for result in results] == ["a", "b", "c", "x"]
    assert (texts(rig), texts(rig, "u")) == (["b", "c"], ["x"])


@pytest.mark.parametrize("commit", [True, False])
def test_the_same_decision_is_answered_the_same_for_an_hour(rig: Rig, open_ones: list[Place], commit: bool) -> None:
    first = end(rig, *open_ones, commit=commit)
    twice = rig.run(ending(open_ones, commit), ending(open_ones, not commit))
    assert twice[0] == first
    assert refusals(twice[1]) == ["TRANSACTION_ENDED"] * 3
    rig.restart()
    rig.skip(DONE_KEEP_MS - 1)
    assert end(rig, *open_ones, commit=commit) == first
    assert refusals(end(rig, *open_ones, commit=not commit)) == ["TRANSACTION_ENDED"] * 3
    rig.skip(1)
    assert refusals(end(rig, *open_ones, commit=commit)) == ["TRANSACTION_NOT_FOUND"] * 3
    assert len(texts(rig)) == 3 * commit


def test_one_transaction_twice_in_a_request_is_ended_once(rig: Rig, open_ones: list[Place]) -> None:
    name = transaction_of(open_ones[0])
    ends = tuple(ask.End(name, commit) for commit in (True, True, False))
    first, second, third = rig.do(ask.EndTransaction(ends))
    assert first == second == Ended("a", Place(0, 0))
    assert refusal(third) == "TRANSACTION_ENDED"
    assert texts(rig) == ["a"]


def test_the_first_of_two_ends_of_a_transaction_in_one_commit_wins(rig: Rig, open_ones: list[Place]) -> None:
    rolled, committed = rig.run(ending(open_ones, False), ending(open_ones, True))
    assert refusals(rolled) == [""] * 3
    assert refusals(committed) == ["TRANSACTION_ENDED"] * 3
    assert texts(rig) == []


@pytest.mark.parametrize("part", ["txn_id", "nonce"])
def test_a_forged_id_ends_nothing_and_learns_nothing(rig: Rig, open_ones: list[Place], part: str) -> None:
    name = read_transaction(transaction_of(open_ones[0]))
    assert name is not None
    text = transaction_text(name._replace(**{part: getattr(name, part) + 7}))
    forged = ask.EndTransaction((ask.End(text, False),))
    assert refusals(rig.do(forged)) == ["TRANSACTION_NOT_FOUND"]
    end(rig, *open_ones, commit=True)
    assert refusals(rig.do(forged)) == ["TRANSACTION_NOT_FOUND"], "not even whether it ended"


@pytest.mark.slow
def test_ends_are_forgotten_in_bounded_pieces(rig: Rig) -> None:
    timed_pair(rig)
    for start in range(0, 2500, 500):
        places = send(rig, *(later(f"{start + place}", transaction=True) for place in range(500)))
        end(rig, *places, commit=False)
        rig.skip(15 * MINUTE)
    sizes = [len(rig.read("tdone"))]
    rig.skip(2 * DONE_KEEP_MS)
    while rig.due:
        rig.run()
        sizes.append(len(rig.read("tdone")))
    assert sizes[-1] == 0
    assert all(before - after <= FORGET_MAX for before, after in itertools.pairwise(sizes))


@pytest.mark.slow
def test_the_end_of_a_transaction_is_remembered_for_an_hour(rig: Rig, open_ones: list[Place]) -> None:
    first = end(rig, *open_ones, commit=True)
    for _ in range(59):
        rig.advance(MINUTE)
        assert end(rig, *open_ones, commit=True) == first


# ── With delay, order, priority ──────────────────────────────────────────────────────────────────────────────────────


def test_a_delay_counts_from_the_commit(rig: Rig) -> None:
    timed_pair(rig)
    places = send(rig, later("a", transaction=True, delay_ms=MINUTE))
    rig.advance(HOUR)
    (ended,) = end(rig, *places, commit=True)
    assert ended.place.recall_handle
    assert waiting(rig) == (1, 0)
    assert end(rig, *places, commit=True) == [ended], "a repetition gets the same handle"
    rig.advance(MINUTE - 1)
    assert rig.pop() == []
    rig.advance(1)
    assert bodies(rig.pop()) == ["a"]


def test_a_time_that_is_over_when_it_is_committed_is_visible_at_once(rig: Rig) -> None:
    timed_pair(rig)
    places = send(rig, *(later(str(wait), transaction=True, due_ms=rig.now + wait) for wait in (MINUTE, HOUR)))
    rig.advance(MINUTE)
    first, second = end(rig, *places, commit=True)
    assert first.place == Place(0, 0)
    assert second.place.recall_handle
    assert (texts(rig), delayed(rig)) == ([str(MINUTE)], [str(HOUR)])


def test_a_wall_clock_that_lags_keeps_a_committed_time_back(rig: Rig) -> None:
    timed_pair(rig)
    places = send(rig, later("a", transaction=True, due_ms=rig.now + 1), later("b", transaction=True, delay_ms=1))
    step_wall(rig, -HOUR)
    end(rig, *places, commit=True)
    rig.advance(1)
    assert texts(rig) == ["b"]
    rig.advance(HOUR)
    assert texts(rig) == ["b", "a"]


def test_a_committed_message_that_waits_can_be_recalled(rig: Rig) -> None:
    timed_pair(rig)
    places = send(rig, later("a", transaction=True, delay_ms=MINUTE))
    (ended,) = end(rig, *places, commit=True)
    assert recall(rig, ended.place) == "a"
    rig.advance(2 * MINUTE)
    assert rig.pop() == []
    assert refusals(end(rig, *places, commit=True)) == [""], "it was committed, and then recalled"


def test_half_messages_of_a_fifo_topic_are_ordered_by_their_commits(rig: Rig) -> None:
    timed_pair(rig, "FIFO", queues=4)
    asked = {"message_group": "x", "transaction": True}
    first, second, third = send(rig, *(later(text, **asked) for text in "123"), later("0", message_group="x"))[:3]
    end(rig, third, commit=True)
    end(rig, second, first, commit=True)
    rows = rig.pop()
    assert bodies(rows) == ["0", "3", "2", "1"]
    assert {row.queue for row in rows} == {placing.queue_of("x", 4)}


def test_a_committed_message_of_a_priority_topic_goes_to_the_queue_of_its_priority(rig: Rig) -> None:
    timed_pair(rig, "PRIORITY", queues=3)
    places = send(rig, *(later(str(priority), priority=priority, transaction=True) for priority in (0, 1, 7)))
    assert [ended.place.queue for ended in end(rig, *places, commit=True)] == [0, 1, 2]


# ── Crashes, faults ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_half_message_killed_before_its_commit_is_absent_and_after_it_is_there(rig: Rig) -> None:
    timed_pair(rig)
    asked = ask.Send("t", (later("a", transaction=True),), "p", 1)
    killed_before_commit(rig, asked)
    assert halves(rig) == []
    killed_before_answer(rig, asked)
    again = rig.do(asked)
    assert again.duplicate
    assert refusals(end(rig, *again.places, commit=True)) == [""]


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_killed_before_its_commit_changed_nothing(rig: Rig, open_ones: list[Place], commit: bool) -> None:
    killed_before_commit(rig, ending(open_ones, commit))
    assert halves(rig) == ["a", "b", "c"]
    assert texts(rig) == []
    assert refusals(end(rig, *open_ones, commit=not commit)) == [""] * 3


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_killed_before_its_answer_is_final(rig: Rig, open_ones: list[Place], commit: bool) -> None:
    killed_before_answer(rig, ending(open_ones, commit))
    assert refusals(end(rig, *open_ones, commit=not commit)) == ["TRANSACTION_ENDED"] * 3
    assert [ended.message_id for ended in end(rig, *open_ones, commit=commit)] == ["a", "b", "c"]
    assert len(texts(rig)) == 3 * commit


@pytest.mark.parametrize("number", range(1, 9))
@pytest.mark.parametrize("commit", [True, False])
def test_a_full_map_in_the_middle_of_an_end_changes_nothing(
    rig: Rig, open_ones: list[Place], commit: bool, number: int
) -> None:
    with failing_put(number) as hit:
        (result,) = rig.run(ending(open_ones, commit))
    assert refusal(result) in ("", "STORAGE_FULL") if hit.times else not refusal(result)
    if refusal(result):
        assert (halves(rig), texts(rig)) == (["a", "b", "c"], [])
    assert rig.findings() == []
    assert refusals(end(rig, *open_ones, commit=commit)) == [""] * 3
    assert len(texts(rig)) == 3 * commit


def test_a_nearly_full_store_refuses_ends_of_transactions_and_still_acks(
    rig: Rig, open_ones: list[Place], monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.send("x")
    rows = rig.pop()
    with monkeypatch.context() as patched:
        patched.setattr(space, "DISK_FREE_GROW", 1 << 60)
        patched.setattr(space, "DISK_FREE_STORE", 1 << 60)
        ended, acked = rig.run(ending(open_ones, True), ask.Ack("g", tuple(row.handle for row in rows)))
    assert refusal(ended) == "STORAGE_FULL"
    assert acked.results == [None]
    with monkeypatch.context() as patched:
        patched.setattr(space, "DISK_FREE_STORE", 1 << 60)
        rig.skip(HOUR)
        assert refusals(end(rig, *open_ones, commit=True)) == [""] * 3, "while only sends lack room they go on"


def test_damaged_bytes_are_set_aside_and_their_neighbours_commit(
    rig: Rig, open_ones: list[Place], caplog: pytest.LogCaptureFixture
) -> None:
    key, raw = rig.read("hmsg")[1]

    def damage(kv: Transaction) -> None:
        kv.put("hmsg", key, raw[:-1] + bytes((raw[-1] ^ 1,)))

    rig.write(damage)
    with caplog.at_level(logging.ERROR, "popmq.quarantine"):
        assert refusals(end(rig, *open_ones, commit=True)) == ["", "TRANSACTION_NOT_FOUND", ""]
    assert "do not match their checksum" in caplog.text
    assert rig.look(operations.StoreState())[1] == 1
    assert texts(rig) == ["a", "c"]
    assert halves(rig) == []


# ── Lists, deleted topics ────────────────────────────────────────────────────────────────────────────────────────────


def test_half_messages_are_listed_topic_by_topic_oldest_first(rig: Rig, open_ones: list[Place]) -> None:
    make_topic(rig, "u")
    send(rig, later("u1", transaction=True), topic="u")
    send(rig, later("d", transaction=True))
    assert halves(rig) == ["a", "b", "c", "d", "u1"]
    assert halves(rig, "t") == ["a", "b", "c", "d"]
    rows, _ = rig.look(queries.Transactions("", 2))
    assert [row.message_id for row in rows] == ["a", "b"]
    rows, total = rig.look(queries.Transactions("", 1))
    assert total == 5
    assert rows[0]._asdict() == {
        "topic": "t",
        "message_id": "a",
        "transaction_id": open_ones[0].transaction_id,
        "stored_ms": rig.now,
        "checks": 0,
        "next_check_ms": rig.now + FIRST_CHECK_MS,
        "preview": MessagePreview((), "", b"a", 1),
    }


def test_a_topic_created_again_has_no_transactions_of_the_old_one(rig: Rig, open_ones: list[Place]) -> None:
    rig.run(ask.DeleteTopic("t"), ask.CreateTopic("t", 1, False, HOUR, "TRANSACTION"))
    assert (halves(rig), waiting(rig)) == ([], (0, 0))
    assert refusals(end(rig, *open_ones, commit=True)) == ["TRANSACTION_NOT_FOUND"] * 3
    rig.settle()
    assert refusals(end(rig, *open_ones, commit=True)) == ["TRANSACTION_NOT_FOUND"] * 3
    assert texts(rig) == []
    assert [rig.read(name) for name in ("half", "hmsg", "hdue")] == [[]] * 3


@pytest.mark.slow
def test_the_half_messages_of_a_deleted_topic_go_in_bounded_pieces(rig: Rig) -> None:
    timed_pair(rig)
    make_topic(rig, "u")
    for start in range(0, 2500, 500):
        send(rig, *(later(f"{start + place}", transaction=True) for place in range(500)))
    send(rig, later("stays", transaction=True), topic="u")
    rig.do(ask.DeleteTopic("t"))
    left = [len(rig.read("half"))]
    while list(rig.core.state.purges):
        rig.run()
        left.append(len(rig.read("half")))
        rig.crash()
    assert all(before - after <= PURGE_KEYS_MAX for before, after in itertools.pairwise(left))
    assert halves(rig) == ["stays"]
