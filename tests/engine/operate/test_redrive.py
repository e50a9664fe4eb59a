"""Redrive: dead letters are delivered again, none lost and none twice, whatever happens on the way."""

from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.embedded.rules.operate import redrive
from tests.engine.dead_letters import DEAD, all_again, counted, died, offsets, piece
from tests.engine.faults import failing_put
from tests.engine.rig import MINUTE, SECOND, Rig, bodies, message, numbered, parsed, refusal

# ── Where they go ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_dead_letter_is_delivered_again_with_its_own_bytes_and_attempts_from_one(rig: Rig) -> None:
    rig.pair()
    sent = message("a", keys=("k",), tag="red", properties={"x": "y"})
    rig.do(ask.Send("t", (sent,), bytes=1))
    rig.pop()
    rig.advance(MINUTE)
    rig.reject(rig.pop(), reason="poison")
    assert parsed(rig.browse(DEAD).rows[0][0]).dead_letter.attempts == 2
    assert piece(rig, offsets=(0,)) == operations.RedrivenPiece({"t": 1}, [], 1, 0, 0)
    (row,) = rig.popped().rows
    assert row[0] == sent.data
    assert row[2:5] == (0, 0, 1), "its old place, and its first attempt"


def test_a_redriven_message_goes_only_to_the_group_of_its_dead_letter(rig: Rig) -> None:
    rig.pair()
    rig.group("other")
    died(rig, "a")
    assert bodies(rig.pop(group="other")) == ["a"]
    piece(rig)
    assert (bodies(rig.pop(group="other")), bodies(rig.pop())) == ([], ["a"])


def test_a_redriven_message_is_not_counted_or_read_in_the_dead_letter_topic(rig: Rig) -> None:
    rig.pair()
    rig.group("h")
    died(rig, *"abc")
    assert counted(rig) == (0, 3)
    rig.popped("%DLQ%g", "h", max_messages=1)
    assert piece(rig, offsets=(1,)).topics == {"t": 1}
    assert counted(rig) == (1, 2)
    assert rig.numbers("h", DEAD).ready == 1
    assert rig.do(ask.Available(DEAD, "h"))[0] == 1
    assert offsets(rig) == [0, 2]
    assert bodies(rig.pop(topic=DEAD, group="h")) == ["c"]
    rig.restart()
    assert (counted(rig), offsets(rig), rig.numbers("h", DEAD).ready) == ((1, 2), [0, 2], 0)


@pytest.mark.slow
def test_a_page_of_dead_letters_is_full_however_many_before_them_are_gone(rig: Rig) -> None:
    rig.pair()
    died(rig, *numbered("m", 100))
    piece(rig, offsets=tuple(range(97)))
    page = rig.browse(DEAD, count=2)
    assert ([row[3] for row in page.rows], page.next_offset) == ([97, 98], 99)


def test_a_leased_dead_letter_is_not_delivered_again_once_it_is_redriven(rig: Rig) -> None:
    rig.pair()
    rig.group("h")
    died(rig, "a", "b")
    rig.pop(topic=DEAD, group="h")
    piece(rig, offsets=(0,))
    rig.advance(MINUTE)
    assert rig.numbers("h", DEAD).retry == 2
    assert bodies(rig.pop(topic=DEAD, group="h")) == ["b"]
    assert rig.numbers("h", DEAD).retry == 0


def test_a_redriven_message_that_fails_again_is_a_new_dead_letter(rig: Rig) -> None:
    rig.pair(max_attempts=2)
    died(rig, "a", reason="first")
    piece(rig)
    for _ in range(2):
        rig.release(rig.pop(), delay_ms=0, reason="second")
    (letter,) = rig.dead()
    assert (letter.dead_letter.reason, letter.dead_letter.attempts) == ("second", 2)
    assert (letter.dead_letter.topic, letter.dead_letter.queue, letter.dead_letter.offset) == ("t", 0, 0)
    assert offsets(rig) == [1]
    piece(rig)
    assert rig.popped().rows[0][0] == message("a").data


def test_a_dead_letter_of_a_dead_letter_is_the_dead_letter_that_it_was(rig: Rig) -> None:
    """h pops the dead letters of g and rejects one: redriven it is g's dead letter again, for h."""
    rig.pair()
    rig.group("h")
    died(rig, "a", reason="first")
    (before,) = rig.popped(DEAD, "h").rows
    rig.advance(MINUTE)
    rig.reject(rig.pop(topic=DEAD, group="h"), "second", "h")
    assert [letter.dead_letter.reason for letter in rig.dead("h")] == ["second"]
    assert piece(rig, group="h").topics == {DEAD: 1}
    (after,) = rig.popped(DEAD, "h").rows
    assert after[0] == before[0]
    assert parsed(after[0]).dead_letter.reason == "first"


def test_a_parked_pop_is_woken(rig: Rig) -> None:
    rig.pair()
    died(rig, "a")
    assert rig.commit(operations.RedrivePiece("g")).woken == {("g", "t")}


def test_dead_letters_of_a_group_that_pulls_are_pulled_from_its_retry_topic(rig: Rig) -> None:
    rig.pair()
    died(rig, "a", "b")
    rig.do(ask.SetConsumeMode("t", "g", "PULL"))
    assert piece(rig).topics == {"t": 2}
    page = rig.browse("%RETRY%g+t")
    assert [(row[2], row[3], row[4]) for row in page.rows] == [(0, 0, 0), (0, 1, 0)]
    rig.do(ask.UpdateOffsets("%RETRY%g+t", "g", {0: page.min_offset + 1}))
    rig.do(ask.SetConsumeMode("t", "g", "POP"))
    assert [(row.body, row.attempt) for row in rig.pop()] == [("b", 1)]


def test_dead_letters_of_a_topic_that_was_purged_are_delivered_again(rig: Rig) -> None:
    rig.pair()
    died(rig, "a")
    rig.send("b")
    rig.do(ask.PurgeTopic("t"))
    rig.settle()
    assert piece(rig).topics == {"t": 1}
    rig.send("c")
    assert sorted(bodies(rig.pop())) == ["a", "c"]


def test_a_message_that_is_read_again_after_a_reset_may_be_redriven_too(rig: Rig) -> None:
    rig.pair()
    died(rig, "a")
    rig.do(ask.ResetOffsets("t", "g", offsets={0: 0}))
    piece(rig)
    rows = rig.pop()
    assert sorted((row.body, row.attempt) for row in rows) == [("a", 1), ("a", 1)]
    rig.ack(rows)


# ── Which ones ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_dead_letters_are_named_by_offset_and_what_is_not_there_is_reported(rig: Rig) -> None:
    rig.pair()
    died(rig, *"abcd")
    done = piece(rig, offsets=(1, 3, 9))
    assert (done.topics, done.done) == ({"t": 2}, 3)
    assert [(failure.offset, failure.why.code) for failure in done.failures] == [(9, "MESSAGE_NOT_FOUND")]
    assert bodies(rig.pop()) == ["b", "d"]
    (again,) = piece(rig, offsets=(1,)).failures
    assert (again.why.code, "was redriven" in again.why.message) == ("MESSAGE_NOT_FOUND", True)
    assert rig.pop() == []


def test_a_dead_letter_that_is_named_twice_is_redriven_once(rig: Rig) -> None:
    rig.pair()
    died(rig, "a", "b")
    assert piece(rig, offsets=(1, 1, 0, 1)) == operations.RedrivenPiece({"t": 2}, [], 4, 0, 0)
    assert bodies(rig.pop()) == ["b", "a"]


def found(rig: Rig, *message_ids: str) -> dict[int, str]:
    letters: dict[int, str] = {}
    below: int | None = None
    while below != 0:
        some, below = rig.do(operations.FindDeadLetters("g", frozenset(message_ids), below))
        letters |= some
    return letters


def test_dead_letters_are_found_by_message_id(rig: Rig) -> None:
    rig.pair()
    died(rig, *numbered("m", 30))
    died(rig, "a", "b")
    piece(rig, offsets=(30,))
    assert found(rig, "m7", "b", "a", "nobody") == {7: "m7", 31: "b"}


def test_a_key_is_not_taken_for_a_message_id(rig: Rig) -> None:
    rig.pair()
    rig.do(ask.Send("t", (message("a", keys=("b",)),), bytes=1))
    rig.reject(rig.pop())
    assert found(rig, "b") == {}
    assert found(rig, "a", "b") == {0: "a"}


@pytest.mark.usefixtures("a_chunk_a_commit")
def test_a_search_for_dead_letters_is_done_in_pieces(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redrive, "SEARCH_STEPS", 3)
    rig.pair()
    for text in numbered("m", 10):
        died(rig, text)
    some, below = rig.do(operations.FindDeadLetters("g", frozenset({"m0", "m9"})))
    assert (some, below > 0) == ({9: "m9"}, True)
    assert found(rig, "m0", "m9") == {0: "m0", 9: "m9"}


def test_a_redrive_of_one_topic_leaves_dead_letters_of_others(rig: Rig) -> None:
    rig.pair()
    rig.topic("u")
    rig.pop(topic="u")
    died(rig, "a")
    died(rig, "b", topic="u")
    assert all_again(rig, topic="u") == []
    assert (rig.numbers("g", "u").retry, rig.numbers().retry) == (1, 0)
    (failure,) = piece(rig, offsets=(0,), topic="u").failures
    assert (failure.why.code, failure.message_id) == ("MESSAGE_NOT_FOUND", "a")


@pytest.mark.slow
def test_a_redrive_of_all_goes_in_pieces_and_each_names_the_next_offset(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redrive, "PIECE_LETTERS", 10)
    rig.pair()
    died(rig, *numbered("m", 25))
    first = piece(rig)
    assert (first.topics, first.next, first.stop) == ({"t": 10}, 10, 25)
    assert all_again(rig) == []
    assert sorted(bodies(rig.pop(100))) == sorted(numbered("m", 25))


def test_a_message_dead_lettered_during_a_redrive_of_all_is_not_redriven_by_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redrive, "PIECE_LETTERS", 1)
    rig.pair()
    died(rig, "a", "b")
    first = piece(rig)
    rig.reject(rig.pop())
    second = piece(rig, start=first.next, stop=first.stop)
    assert (first.next, first.stop, second.next, second.stop) == (1, 2, 2, 2)
    assert offsets(rig) == [2]


def test_a_piece_is_bounded_in_bytes_and_one_dead_letter_is_always_allowed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redrive, "PIECE_BYTES", 5000)
    rig.pair()
    died(rig, *("a" * 1000, "b" * 1000, "c" * 1000, "d" * 9000, "e"))
    assert [piece(rig).topics["t"] for _ in range(4)] == [2, 1, 1, 1]
    died(rig, *("f" * 1000, "g" * 1000, "h" * 1000))
    assert piece(rig, offsets=(5, 6, 7)).done == 2


# ── What stays ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_dead_letter_whose_origin_was_deleted_stays(rig: Rig) -> None:
    rig.pair()
    rig.topic("u")
    rig.pop(topic="u")
    died(rig, "a")
    died(rig, "b", topic="u")
    rig.do(ask.DeleteTopic("t"))
    rig.settle()
    done = piece(rig)
    assert done.topics == {"u": 1}
    assert [(failure.offset, failure.message_id, failure.why.code) for failure in done.failures] == [
        (0, "a", "TOPIC_NOT_FOUND")
    ]
    assert offsets(rig) == [0]


def test_a_dead_letter_is_not_redriven_into_a_topic_created_again(rig: Rig) -> None:
    rig.pair()
    died(rig, "a")
    rig.do(ask.DeleteTopic("t"))
    rig.advance(SECOND)
    rig.topic()
    rig.send("new")
    (failure,) = piece(rig).failures
    assert (failure.why.code, "created again" in failure.why.message) == ("TOPIC_NOT_FOUND", True)
    assert bodies(rig.pop()) == ["new"]
    assert offsets(rig) == [0]


def test_a_damaged_dead_letter_is_reported_and_stays(rig: Rig) -> None:
    rig.pair()
    died(rig, "a", "b")
    key, value = rig.read("log")[-1]
    rig.write(lambda kv: kv.put("log", key, value[:30] + b"X" + value[31:]))
    done = piece(rig)
    assert (done.topics, [failure.offset for failure in done.failures]) == ({"t": 1}, [0])
    rig.write(lambda kv: kv.put("log", key, value))


@pytest.mark.parametrize(
    ("asked", "code"), [({"group": "nobody"}, "GROUP_NOT_FOUND"), ({"group": ""}, "TOPIC_NOT_FOUND")]
)
def test_names_that_do_not_exist_are_refused(rig: Rig, asked: dict[str, Any], code: str) -> None:
    rig.pair()
    assert refusal(rig.run(operations.RedrivePiece(**asked))[0]) == code
    assert refusal(rig.run(operations.FindDeadLetters(asked["group"], frozenset({"a"})))[0]) == code


def test_the_dead_letter_topic_may_be_gone(rig: Rig) -> None:
    rig.pair()
    rig.do(ask.DeleteTopic(DEAD))
    assert refusal(rig.run(operations.RedrivePiece("g"))[0]) == "TOPIC_NOT_FOUND"


# ── Once, whatever happens ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_crash_between_two_pieces_loses_nothing_and_repeats_nothing(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redrive, "PIECE_LETTERS", 7)
    rig.pair()
    died(rig, *numbered("m", 30))
    for _ in range(3):
        piece(rig)
        rig.crash()
        assert rig.findings() == []
    all_again(rig)
    assert sorted(bodies(rig.pop(100))) == sorted(numbered("m", 30))
    assert rig.pop() == []


@pytest.mark.parametrize("put", range(1, 12))
def test_a_piece_is_done_whole_or_not_at_all(rig: Rig, put: int) -> None:
    rig.pair()
    died(rig, "a", "b")
    with failing_put(put) as hit:
        result = rig.run(operations.RedrivePiece("g"))[0]
    redriven = isinstance(result, operations.RedrivenPiece)
    assert redriven or hit.times  # a command that met the fault with others is tried once more, alone
    assert rig.findings() == []
    rig.crash()
    assert counted(rig) == ((2, 0) if redriven else (0, 2))
    all_again(rig)
    assert bodies(rig.pop()) == ["a", "b"]


def test_a_message_dead_lettered_in_the_commit_of_a_redrive_is_redriven_and_popped(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    row = rig.pop()[0]
    reject = ask.ChangeInvisibleTime("g", (ask.Change(row.handle, "reject"),))
    *_, done, popped = rig.run(reject, operations.RedrivePiece("g"), ask.Pop("t", "g"))
    assert done.topics == {"t": 1}
    assert [found[4] for found in popped.rows] == [1]
