"""Owners and sealed tokens: the same set until it is acked, whatever happened meanwhile."""

from __future__ import annotations

from popmq_server import commands as ask
from tests.engine.rig import HOUR, Rig, bodies


def test_the_end_is_told_from_the_retries_of_this_topic(rig: Rig) -> None:
    rig.topic("t")
    rig.topic("u")
    rig.group()
    rig.attach()
    rig.send("a", "b", topic="u")
    rig.seal(1, topic="u")
    rig.advance(2 * HOUR)  # the owner has lost two messages of another topic
    rig.send("x", "y")
    rig.release(rig.pop(), delay_ms=0)
    first = rig.seal(2, max_messages=1)
    assert (len(first.rows), first.sealed) == (1, (1, False, 0, 0))
    assert rig.seal(2, chunk=1).sealed == (1, True, 0, 0)


def test_an_exclusive_group_keeps_what_its_owner_lost_until_it_is_opened(rig: Rig) -> None:
    rig.topic()
    rig.group(exclusive_owner=True)
    rig.attach()
    rig.send("a", "b")
    rig.seal(1)
    rig.advance(2 * HOUR)
    assert rig.pop() == []
    assert rig.numbers().in_flight == 2
    rig.do(ask.UpdateGroup("g", {"exclusive_owner": False}))
    rig.settle()
    assert bodies(rig.pop()) == ["a", "b"]
