"""From pulling to popping: a group goes on where its offsets are."""

import pytest

from popmq_server.contract import commands as ask
from tests.engine.pull_steps import (
    commit,
    pull,
    pulling,
    send_back,
    sums,
    switch,
)
from tests.engine.rig import HOUR, MINUTE, Rig, numbered, refusal


def test_a_group_pops_on_from_its_committed_offset(rig: Rig) -> None:
    pulling(rig).send(*numbered("m", 10))
    assert len(pull(rig, 0).rows) == 10
    commit(rig, 4)
    switch(rig, "POP")
    assert refusal(rig.run(ask.UpdateOffsets("t", "g", {0: 10}))[0]) == "WRONG_CONSUME_MODE"
    rows = rig.pop()
    assert [(row.body, row.attempt) for row in rows] == [(f"m{number}", 1) for number in range(4, 10)]
    rig.ack(rows)
    assert sums(rig) == (0, 0, 0, 0, 10)


def test_messages_that_were_sent_back_are_popped(rig: Rig) -> None:
    pulling(rig).send("a", "b", "c")
    commit(rig, 3)
    send_back(rig, 0, delay_ms=0)
    send_back(rig, 2, delay_ms=MINUTE)
    switch(rig, "POP")
    assert [(row.body, row.attempt) for row in rig.pop()] == [("a", 2)]
    rig.advance(MINUTE)
    assert ("c", 2) in [(row.body, row.attempt) for row in rig.pop()]


def test_a_message_sent_back_and_not_committed_is_popped_once(rig: Rig) -> None:
    """Its queue has it still: with the copy it would be finished twice."""
    pulling(rig).send(*numbered("m", 5))
    send_back(rig, 1, 3, delay_ms=0)
    send_back(rig, 4, delay_ms=MINUTE)
    commit(rig, 2)
    switch(rig, "POP")
    rows = rig.pop()
    rig.ack(rows)
    assert sorted((row.body, row.attempt) for row in rows) == [("m1", 2), ("m2", 1), ("m3", 1), ("m4", 1)]
    rig.advance(HOUR)
    assert (rig.pop(), sums(rig)) == ([], (0, 0, 0, 0, 6))


@pytest.mark.slow
def test_a_message_sent_back_at_the_committed_offset_is_popped_once(rig: Rig) -> None:
    """The first offset that is not committed is one of those that the queue has still."""
    pulling(rig).send("m0", "m1")
    send_back(rig, 1, delay_ms=0)
    commit(rig, 1)
    switch(rig, "POP")
    assert rig.numbers().retry == 0
    assert [(row.body, row.attempt) for row in rig.pop()] == [("m1", 1)]
