"""Mechanisms of the reference about the store that no other test names. Ids are those of mechanisms.md."""

import struct

import pytest

from popmq_server.contract import commands as ask
from popmq_server.values.outgoing import tag_hash
from tests.engine.rig import HOUR, MINUTE, Rig, bodies, message, sending
from tests.known import known


@pytest.mark.mechanism("S0.33", "S2.15")
def test_an_index_unit_is_twenty_bytes_of_place_size_and_tag(rig: Rig) -> None:
    """Read with a format of its own; the place is that of the record, byte by byte."""
    rig.topic()
    rig.do(ask.Send("t", (message("a", tag="red"), message("bb"))))
    ((_, units),) = rig.read("cq")
    ((start, chunk),) = rig.read("log")
    assert len(units) == 2 * 20
    for unit, tag in zip(struct.iter_unpack(">QI8s", units), (tag_hash("red"), bytes(8)), strict=True):
        position, size, found = unit
        begin = position - int.from_bytes(start, "big")
        record = chunk[begin : begin + size]
        assert (size, int.from_bytes(record[4:8], "big"), found) == (len(record), len(record) - 20, tag)


@pytest.mark.mechanism("D.22")
def test_a_lease_whose_message_was_dropped_never_returns_a_later_message(rig: Rig) -> None:
    """A lease names a place in the byte stream; a dropped message is not replaced by its neighbours."""
    rig.topic(by_age=True, keep_ms=MINUTE)
    rig.group()
    rig.send("old", "older")
    rows = rig.pop(1, invisible_ms=12 * HOUR)
    for _ in range(3):
        rig.advance(MINUTE)
    rig.send("new")
    rig.advance(12 * HOUR)
    found = bodies(rig.pop())
    assert "older" not in found, "it was dropped unread"
    assert [body for body in found if body != "new"] == [row.body for row in rows]
    assert known(rig.numbers().dropped) + len(found) == 3


@pytest.mark.mechanism("S2.46")
def test_positions_in_the_store_are_those_of_the_last_answer(rig: Rig) -> None:
    """Nothing is saved periodically: the position of a pop is on disk with its answer."""
    rig.topic(queues=2)
    rig.group()
    rig.run(sending("a", "b"), sending("c"))
    taken = bodies(rig.pop(2))
    before = rig.read("poff")
    rig.crash()
    assert rig.read("poff") == before
    assert sum(int.from_bytes(offset, "big") for _, offset in before) == 2
    assert sorted(taken + bodies(rig.pop())) == ["a", "b", "c"]
