"""Retention: chunks go when their time has come, and nothing that is still needed goes with them."""

from __future__ import annotations

from tests.engine.rig import HOUR, MINUTE, Rig, bodies


def minutes(rig: Rig, count: int) -> None:
    """Housekeeping looks once a minute."""
    for _ in range(count):
        rig.advance(MINUTE)


def test_a_lease_outlives_the_chunk_of_its_acked_members_and_a_restart(rig: Rig) -> None:
    rig.topic(by_age=True, keep_ms=MINUTE)
    rig.group()
    rig.send("a")
    rig.skip(30_000)
    rig.send("b")
    rig.send("c")
    rows = rig.pop(invisible_ms=HOUR)
    rig.ack(rows[:1])
    minutes(rig, 2)
    assert len(rig.read("log")) == 2
    rig.restart()
    assert rig.ack(rows[1:]) == [None, None]


def test_a_lease_with_a_hole_in_its_middle_comes_back(rig: Rig) -> None:
    rig.topic(by_age=True, keep_ms=MINUTE)
    rig.group()
    for text in "abc":
        rig.send(text)
    rows = rig.pop(invisible_ms=30 * MINUTE)
    rig.ack(rows[1:2])
    minutes(rig, 31)
    assert len(rig.read("log")) == 2
    assert bodies(rig.pop()) == ["a", "c"]
