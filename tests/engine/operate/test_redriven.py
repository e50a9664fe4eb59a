"""What was redriven: in its message group, from the give-up topic, and the space that it takes."""

from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.embedded.store.keys import RQ_VALUE
from popmq_server.values.message import GIVE_UP_TOPIC, Extra
from popmq_server.values.outgoing import Outgoing
from tests.engine.dead_letters import DEAD, died, piece
from tests.engine.rig import DAY, HOUR, KEEP, MINUTE, SECOND, Rig, bodies, message, numbered, parsed
from tests.engine.traffic.traffic_fifo import in_order

# ── FIFO ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def fifo(rig: Rig, **settings: Any) -> None:
    rig.do(ask.CreateTopic("f", 1, False, KEEP, type="FIFO"))
    rig.group("g", **settings)
    rig.pop(topic="f")


def test_a_redriven_message_of_a_fifo_topic_comes_before_the_waiting_ones_of_its_message_group(rig: Rig) -> None:
    fifo(rig)
    rig.do(in_order("a1", "a2", "a3", "b1"))
    rig.reject(rig.pop(1, topic="f"))
    (second,) = rig.pop(1, topic="f")
    assert second.body == "a2"
    assert piece(rig).topics == {"f": 1}
    assert rig.numbers("g", "f").retry == 0
    assert bodies(rig.pop(topic="f")) == ["b1"], "its message group is locked"
    rig.ack([second])
    assert [(row.body, row.attempt, row.offset) for row in rig.pop(topic="f")] == [("a1", 1, 0), ("a3", 1, 2)]


def test_a_redriven_message_of_a_fifo_topic_that_fails_again_is_a_new_dead_letter(rig: Rig) -> None:
    fifo(rig, max_attempts=1)
    rig.do(in_order("a1"))
    for _ in range(3):
        rig.pop(topic="f")
        rig.advance(MINUTE)
        assert rig.numbers("g", "f").dead == 1
        assert piece(rig).topics == {"f": 1}
        rig.restart()
    assert [(row.body, row.attempt) for row in rig.pop(topic="f")] == [("a1", 1)]


def test_a_message_of_a_fifo_topic_that_comes_again_anyhow_is_not_delivered_twice(rig: Rig) -> None:
    """After a reset it is unread, then it waits, then it is leased; each time its dead letter is redriven."""
    rig.topic("u")
    for stage in range(3):
        name = f"f{stage}"
        rig.do(ask.CreateTopic(name, 1, False, KEEP, type="FIFO"))
        rig.group("g")
        rig.pop(topic=name)
        rig.do(in_order("a1", "a2", "b1", topic=name))
        rig.reject(rig.pop(1, topic=name))
        rig.do(ask.ResetOffsets(name, "g", offsets={0: 0}))
        if stage:
            (first,) = rig.pop(1, topic=name)
            assert first.body == "a1"
        if stage == 1:
            rig.release([first], delay_ms=0)
        assert piece(rig).topics == {name: 1}
        assert rig.numbers("g", name).dead == 0
        assert rig.read("bare") == [], "no copy was needed"
        rig.send("x", topic="u")
        assert rig.findings() == []
        if stage == 2:
            rig.ack([first])
        told = bodies(rig.pop(topic=name))
        assert told == (["a1", "a2", "b1"] if stage < 2 else ["a2", "b1"])


def test_a_dead_letter_whose_neighbours_of_the_batch_are_still_leased_is_delivered_again(rig: Rig) -> None:
    fifo(rig)
    rig.do(in_order("a1", "a2"))
    one, two = rig.pop(topic="f")
    rig.reject([one])
    assert piece(rig).topics == {"f": 1}
    rig.ack([two])
    assert bodies(rig.pop(topic="f")) == ["a1"]


def test_two_dead_letters_of_one_message_of_a_fifo_topic_are_one_message(rig: Rig) -> None:
    fifo(rig)
    rig.do(in_order("a1"))
    for _ in range(2):
        rig.do(ask.ResetOffsets("f", "g", offsets={0: 0}))
        rig.reject(rig.pop(topic="f"))
    assert piece(rig).topics == {"f": 2}
    rows = rig.pop(topic="f")
    assert (bodies(rows), rig.numbers("g", "f").waiting) == (["a1"], 0)


def test_a_redriven_message_of_a_fifo_topic_goes_where_the_consume_mode_looks(rig: Rig) -> None:
    fifo(rig)
    rig.do(in_order("a1", "a2", "b1"))
    rig.reject(rig.pop(1, topic="f"))
    rig.do(ask.SetConsumeMode("f", "g", "PULL"))
    rig.settle()
    piece(rig)
    assert [parsed(row[0]).message_id for row in rig.browse("%RETRY%g+f").rows] == ["a1"]
    assert rig.numbers("g", "f").retry == 1
    rig.do(ask.SetConsumeMode("f", "g", "POP"))
    rig.settle()
    rows = rig.pop(topic="f")
    assert (rig.numbers("g", "f").retry, bodies(rows)) == (0, ["a1", "a2", "b1"])


def test_an_unfinished_reset_does_not_drop_messages_redriven_after_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("popmq_server.embedded.rules.delivery.sweep.SWEEP_MAX", 1)
    fifo(rig)
    rig.do(in_order("a1", "a2", "a3", "a4"))
    (head,) = rig.pop(1, topic="f")
    rig.pop(topic="f")  # a2, a3, a4 wait
    rig.reject([head])
    reset, redriven = rig.run(ask.ResetOffsets("f", "g", offsets={0: 4}), operations.RedrivePiece("g"))
    assert (reset.left, redriven.topics) == (True, {"f": 1})
    rig.settle()
    assert bodies(rig.pop(topic="f")) == ["a1"]


def test_a_redriven_message_of_a_fifo_topic_can_be_browsed_in_the_retry_topic(rig: Rig) -> None:
    fifo(rig)
    rig.do(in_order("b1", "a1", "c1"))
    rig.reject(rig.pop(topic="f"))
    piece(rig)
    rows = rig.browse("%RETRY%g+f").rows
    assert [(parsed(row[0]).message_id, row[3]) for row in rows] == [("b1", 0), ("a1", 1), ("c1", 2)]


# ── Given-up half messages ───────────────────────────────────────────────────────────────────────────────────────────


def half(text: str, **asked: Any) -> Outgoing:
    data = pb.Message(message_id=text, body=text.encode(), transaction=True, **asked).SerializeToString()
    return message(text)._replace(data=data, extra=Extra(delay_ms=asked.get("delay_ms", 0), transaction=True))


def given_up(rig: Rig, *messages: Outgoing, unique_ids_ms: int = 0) -> None:
    """Half messages that a live producer was asked about in vain."""
    rig.do(ask.CreateTopic("x", 1, False, KEEP, type="TRANSACTION", unique_ids_ms=unique_ids_ms))
    rig.group()
    rig.pop(topic="x")
    rig.do(ask.Send("x", messages, bytes=1))
    rig.do(operations.Listen(frozenset({"x"})))
    for _ in range(40):
        rig.skip(30 * SECOND)
        while rig.due:
            checks = rig.commit().timed.checks
            if checks:
                rig.do(operations.CountChecks(tuple((check.transaction, check.number) for check in checks)))


def test_half_messages_that_were_given_up_are_committed(rig: Rig) -> None:
    given_up(rig, half("a"), half("b"))
    assert [row[3] for row in rig.browse(GIVE_UP_TOPIC).rows] == [0, 1]
    done = piece(rig, group="", offsets=(1,))
    assert (done.topics, done.failures) == ({"x": 1}, [])
    (row,) = rig.popped("x").rows
    assert (row[0], row[3]) == (half("b").data, 0)
    assert [row[3] for row in rig.browse(GIVE_UP_TOPIC).rows] == [0]
    rig.restart()
    assert piece(rig, group="").topics == {"x": 1}
    assert bodies(rig.pop(topic="x")) == ["a"]
    assert piece(rig, group="").topics == {}


def test_a_delay_of_a_half_message_counts_from_its_late_commit(rig: Rig) -> None:
    given_up(rig, half("a", delay_ms=HOUR))
    piece(rig, group="")
    assert rig.pop(topic="x") == []
    rig.advance(HOUR - 1)
    assert rig.pop(topic="x") == []
    rig.advance(1)
    assert bodies(rig.pop(topic="x")) == ["a"]


def test_a_late_commit_moves_a_unique_id_and_not_its_time(rig: Rig) -> None:
    began = rig.now
    given_up(rig, half("a"), unique_ids_ms=HOUR)
    piece(rig, group="")
    rig.advance(began + HOUR - 1 - rig.now)
    assert rig.do(ask.Send("x", (message("a"),))).places == (ask.Place(0, 0, duplicate=True),)
    rig.advance(1)
    assert rig.do(ask.Send("x", (message("a"),))).places == (ask.Place(0, 1),)


def test_a_half_message_that_is_committed_can_be_popped_in_the_same_commit(rig: Rig) -> None:
    given_up(rig, half("a"))
    _, popped = rig.run(operations.RedrivePiece(""), ask.Pop("x", "g"))
    assert [row[3] for row in popped.rows] == [0]


# ── Space ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_copy_goes_when_nothing_points_at_it_any_more(rig: Rig) -> None:
    rig.pair()
    died(rig, "a", "b")
    before = len(rig.read("log"))
    piece(rig)
    assert (len(rig.read("bare")), len(rig.read("log"))) == (1, before + 1)
    rows = rig.pop(invisible_ms=12 * HOUR)
    rig.ack(rows[:1])
    rig.advance(2 * MINUTE)
    assert len(rig.read("bare")) == 1, "one of them is still leased"
    rig.ack(rows[1:])
    rig.advance(MINUTE)
    assert (rig.read("bare"), len(rig.read("log"))) == ([], before)


def test_a_copy_outlives_the_retention_of_its_topic_while_it_waits(rig: Rig) -> None:
    rig.topic(by_age=True, keep_ms=HOUR)
    rig.group()
    rig.pop()
    died(rig, "a", "b", "c")
    piece(rig)
    rig.ack(rig.pop()[1:])
    for _ in range(3):
        rig.advance(HOUR)
    assert len(rig.read("kept")) == 1
    rows = rig.pop()
    assert bodies(rows) == ["a"]
    rig.ack(rows)
    for _ in range(3):
        rig.advance(MINUTE)
    assert [rig.read(name) for name in ("bare", "kept", "pin", "idx")][:3] == [[], [], []]


def test_copies_without_a_pointer_are_looked_for_in_pieces(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("popmq_server.embedded.rules.retention.retention.LOOKS_MAX", 20)
    rig.pair()
    died(rig, *numbered("m", 9))
    for offset in range(9):
        piece(rig, offsets=(offset,))
    held = rig.pop(1, invisible_ms=12 * HOUR)
    rig.ack(rig.pop())
    rig.advance(MINUTE)
    assert len(rig.read("bare")) == 1
    rig.ack(held)


def test_the_redriven_mark_of_a_dead_letter_is_dropped_with_its_chunk(rig: Rig) -> None:
    rig.pair()
    rig.do(ask.UpdateTopic(DEAD, 0, (False, HOUR)))
    for text in "abc":
        died(rig, text)
    piece(rig, offsets=(0, 2))
    rig.advance(MINUTE)
    rig.advance(HOUR)
    rig.advance(2 * MINUTE)
    assert (rig.read("gone"), rig.browse(DEAD).min_offset, rig.numbers().dead) == ([], 3, 0)


def test_redriven_dead_letters_do_not_count_as_dropped_unread(rig: Rig) -> None:
    rig.pair()
    rig.group("h")
    rig.pop(topic=DEAD, group="h")
    rig.do(ask.UpdateTopic(DEAD, 0, (True, HOUR)))
    died(rig, *"abcde")
    piece(rig, offsets=(1, 3))
    rig.advance(2 * HOUR)
    rig.advance(2 * MINUTE)
    assert rig.numbers("h", DEAD).dropped == 3


@pytest.mark.slow
@pytest.mark.usefixtures("a_chunk_a_commit")
def test_dead_letters_that_were_all_redriven_go_before_their_time(rig: Rig) -> None:
    """Else each round of a poisoned message through the dead-letter topic would leave a copy for ten years."""
    rig.pair()
    rig.group("h")
    rig.popped(DEAD, "h")
    for text in "abcd":
        died(rig, text)
    before = len(rig.read("log"))
    piece(rig, offsets=(1, 2))
    rig.ack(rig.pop())
    rig.advance(KEEP - MINUTE)
    rig.advance(MINUTE)
    assert len(rig.read("log")) == before, "dead letters are kept for 72 h"
    for _ in range(2):
        rig.advance(HOUR)
    assert len(rig.read("log")) == before - 2
    assert (rig.numbers().dead, rig.numbers("h", DEAD).ready) == (2, 2)
    rig.restart()
    assert [row[3] for row in rig.browse(DEAD).rows] == [0, 3]
    rows = rig.pop(topic=DEAD, group="h")
    assert bodies(rows) == ["a", "d"]
    rig.ack(rows, "h")
    assert rig.numbers("h", DEAD).dropped == 0
    piece(rig, offsets=(0, 3))
    rig.ack(rig.pop())
    rig.advance(MINUTE)
    rig.advance(KEEP)
    for _ in range(2):
        rig.advance(HOUR)
    assert (rig.browse(DEAD).min_offset, rig.read("gone")) == (4, [])


def test_a_deleted_group_leaves_no_redriven_messages(rig: Rig) -> None:
    rig.pair()
    died(rig, "a", "b")
    piece(rig)
    rig.do(ask.DeleteGroup("g"))
    for _ in range(3):
        rig.advance(MINUTE)
    assert [rig.read(name) for name in ("gone", "bare", "rq", "pin")] == [[], [], [], []]


def test_an_entry_points_into_a_chunk_of_its_own_topic(rig: Rig) -> None:
    rig.pair()
    died(rig, "a")
    rig.advance(DAY)
    piece(rig)
    ((_, value),) = rig.read("rq")
    position = RQ_VALUE.unpack_from(value)[0]
    assert [key[-8:] for key, _ in rig.read("bare")] == [position.to_bytes(8, "big")]
    assert value[RQ_VALUE.size :] == b"redriven"
