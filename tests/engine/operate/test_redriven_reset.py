"""What was redriven and is in no queue any more: a group that is moved back keeps it, one that is moved on does not."""

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.delivery import invalidated, sweep
from tests.engine.dead_letters import died, piece
from tests.engine.lives import story
from tests.engine.rig import HOUR, MINUTE, Rig, bodies, parsed
from tests.engine.traffic.traffic_fifo import in_order

#: What retention drops goes by chunks: here each message has one.
pytestmark = pytest.mark.usefixtures("a_chunk_a_commit")

EARLIEST = ("EARLIEST", 0)


def redriven(rig: Rig, *, hole: bool = False) -> None:
    """Message a was redriven after its chunk was dropped; `hole`: an older message is still in the queue."""
    rig.topic(keep_ms=HOUR)
    rig.group()
    if hole:
        rig.group("slow")
        rig.pop(group="slow")
        rig.send("older")
        rig.ack(rig.pop())
    else:
        rig.pop()
    died(rig, "a")
    if hole:
        held = rig.pop(1, group="slow", invisible_ms=12 * HOUR)
        rig.ack(rig.pop(group="slow"), group="slow")
        assert bodies(held) == ["older"]
    for _ in range(3):
        rig.advance(HOUR)
    assert bodies_in_queue(rig) == (["older"] if hole else [])
    rig.send("b")
    assert piece(rig).topics == {"t": 1}


def bodies_in_queue(rig: Rig) -> list[str]:
    return [parsed(row[0]).body.decode() for row in rig.browse("t").rows]


def hold(rig: Rig, how: str) -> None:
    """The redriven message is held in one of the ways in which a group may hold it."""
    if how == "owned":
        rig.attach(lease_ms=HOUR)
        assert len(rig.seal(1).rows) == 2
    elif how == "released by an owner":
        rig.attach(lease_ms=MINUTE)
        rig.seal(1)
        rig.advance(2 * MINUTE)
    elif how != "retry":
        rows = rig.pop(invisible_ms=HOUR)
        assert sorted(bodies(rows)) == ["a", "b"]
        if how == "backoff":
            rig.release(rows, delay_ms=HOUR)


HOWS = ["retry", "leased", "backoff", "owned", "released by an owner"]


@pytest.mark.parametrize("hole", [False, True], ids=["before the first", "in a hole"])
@pytest.mark.parametrize("how", HOWS)
def test_a_redriven_message_that_left_its_queue_is_delivered_after_a_reset_to_the_earliest(
    rig: Rig, how: str, hole: bool
) -> None:
    redriven(rig, hole=hole)
    hold(rig, how)
    rig.do(ask.ResetOffsets("t", "g", EARLIEST))
    assert rig.numbers().retry == 1
    assert rig.findings() == []
    rig.restart()
    rows = rig.pop()
    assert sorted(bodies(rows)) == (["a", "b", "older"] if hole else ["a", "b"])
    rig.ack(rows)
    assert rig.pop() == []


@pytest.mark.parametrize("how", HOWS)
def test_a_reset_to_the_latest_drops_redriven_messages_too(rig: Rig, how: str) -> None:
    redriven(rig)
    hold(rig, how)
    rig.do(ask.ResetOffsets("t", "g", ("LATEST", 0)))
    numbers = rig.numbers()
    assert (numbers.ready, numbers.retry, numbers.in_flight, numbers.backoff) == (0, 0, 0, 0)
    assert rig.pop() == []


def test_a_reset_to_the_latest_of_an_empty_queue_drops_redriven_messages(rig: Rig) -> None:
    rig.pair()
    rig.do(ask.UpdateTopic("t", 0, (False, HOUR)))
    died(rig, "a")
    for _ in range(3):
        rig.advance(HOUR)
    assert piece(rig).topics == {"t": 1}
    rig.do(ask.ResetOffsets("t", "g", ("LATEST", 0)))
    assert (rig.numbers().retry, rig.pop()) == (0, [])


def test_the_last_of_two_resets_decides(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    redriven(rig)
    monkeypatch.setattr(sweep, "SWEEP_MAX", 0)
    rig.do(ask.ResetOffsets("t", "g", EARLIEST))
    rig.do(ask.ResetOffsets("t", "g", ("LATEST", 0)))
    monkeypatch.undo()
    rig.restart()
    rig.settle()
    assert rig.numbers().retry == 0


@pytest.mark.parametrize("how", ["waiting", "leased"])
def test_a_redriven_message_of_a_fifo_topic_waits_in_its_message_group_after_a_reset(rig: Rig, how: str) -> None:
    rig.do(ask.CreateTopic("f", 1, False, HOUR, type="FIFO"))
    rig.group()
    rig.pop(topic="f")
    rig.do(in_order("a1"))
    rig.reject(rig.pop(topic="f"))
    for _ in range(3):
        rig.advance(HOUR)
    rig.do(in_order("a2"))
    assert piece(rig).topics == {"f": 1}
    if how == "leased":
        assert bodies(rig.pop(1, topic="f", invisible_ms=HOUR)) == ["a1"]
    rig.do(ask.ResetOffsets("f", "g", EARLIEST))
    assert rig.findings() == []
    for text in ("a1", "a2"):
        rows = rig.pop(1, topic="f")
        assert bodies(rows) == [text]
        rig.ack(rows)


def test_a_dead_letter_of_a_fifo_topic_is_redriven_though_its_group_stands_before_its_lost_place(rig: Rig) -> None:
    rig.do(ask.CreateTopic("f", 1, False, HOUR, type="FIFO"))
    for group in ("g", "slow"):
        rig.group(group)
        rig.pop(topic="f", group=group)
    rig.do(in_order("b1"))
    rig.do(in_order("a1"))
    rows = rig.pop(topic="f")
    rig.ack(rows[:1])
    rig.reject(rows[1:])
    held = rig.pop(1, topic="f", group="slow", invisible_ms=12 * HOUR)
    rig.ack(rig.pop(topic="f", group="slow"), group="slow")
    for _ in range(3):
        rig.advance(HOUR)
    rig.do(ask.ResetOffsets("f", "g", EARLIEST))
    assert bodies(held) == ["b1"]
    assert piece(rig).topics == {"f": 1}
    rows = rig.pop(topic="f")
    assert sorted(bodies(rows)) == ["a1", "b1"]
    rig.ack(rows)


def test_a_switch_to_pop_keeps_redriven_messages_that_left_their_queue(rig: Rig) -> None:
    redriven(rig, hole=True)
    rig.do(ask.SetConsumeMode("t", "g", "PULL"))
    rig.do(ask.UpdateOffsets("t", "g", {0: 0}))
    rig.do(ask.SetConsumeMode("t", "g", "POP"))
    assert rig.numbers().retry == 1
    assert sorted(bodies(rig.pop())) == ["a", "b", "older"]


def test_why_shows_a_lease_that_ended_because_the_group_was_moved(rig: Rig) -> None:
    redriven(rig)
    hold(rig, "leased")
    rig.do(ask.ResetOffsets("t", "g", EARLIEST))
    assert "released" in story(rig, "a")


@pytest.mark.slow
@pytest.mark.parametrize("days", [1, 4])
def test_the_checker_accepts_redriven_messages_that_were_finished(rig: Rig, days: int) -> None:
    redriven(rig)
    rig.ack(rig.pop())
    for _ in range(24 * days):
        rig.advance(HOUR)
        assert rig.findings() == []


def test_the_checker_sees_a_redriven_message_that_is_nowhere(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its place is still in the queue: another message of its chunk is held, and the rest of the chunk went."""
    monkeypatch.setattr(invalidated, "stays", lambda *_: False)
    monkeypatch.setattr(sweep, "_tell_dropped", lambda *_: None)
    rig.topic(keep_ms=HOUR)
    for group in ("g", "slow"):
        rig.group(group)
        rig.pop(group=group)
    rig.send("a", "older", "b", "c", "d")
    rows = rig.pop()
    rig.reject(rows[:1])
    rig.ack(rows[1:])
    slow = rig.pop(group="slow", invisible_ms=12 * HOUR)
    rig.ack([slow[0], *slow[2:]], group="slow")
    for _ in range(4):
        rig.advance(HOUR)
    assert len(rig.read("kept")) == 1
    assert piece(rig).topics == {"t": 1}
    rig.do(ask.ResetOffsets("t", "g", EARLIEST))
    assert rig.findings() == ["group g in t: queue 0 offset 0 was redriven, and is neither held nor finished"]
    rig.do(ask.DeleteGroup("g"))


def test_the_checker_accepts_redriven_messages_skipped_by_an_operator(rig: Rig) -> None:
    redriven(rig)
    rig.do(ask.ResetOffsets("t", "g", ("LATEST", 0)))
    rig.pop()
    assert rig.findings() == []
    rig.do(ask.ResetOffsets("t", "g", EARLIEST))
    assert rig.findings() == []
