"""Owners and sealed tokens: the same set until it is acked, whatever happened meanwhile."""

from __future__ import annotations

from tests.engine.rig import HOUR, Rig


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
