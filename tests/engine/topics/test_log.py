"""Messages that are read together are those that are read one by one, up to the first that needs more than that."""

import random

import pytest

from popmq_server.embedded.rules.topics.log import Log, entries
from popmq_server.values.message import RECORD_HEAD_BYTES, read_head, read_record
from tests.engine.rig import Rig

Unit = tuple[int, int, int]
PLENTY = 1 << 30


def sent(rig: Rig, *commits: list[str]) -> tuple[int, list[Unit]]:
    """The topic, and (offset, position, size) of each message."""
    topic = rig.topic()
    for bodies in commits:
        rig.send(*bodies)
    with rig.reading() as kv:
        return topic.topic_id, entries(kv, topic.topic_id, 0, 0, 100)


@pytest.mark.parametrize("body", [True, False], ids=["whole", "without body"])
@pytest.mark.parametrize("place", [None, 0, 5, 9, 15, 21, -1])
def test_messages_read_together_are_those_read_one_by_one(rig: Rig, place: int | None, body: bool) -> None:
    topic, units = sent(rig, ["a", "b" * 200], ["c" * 20_000], ["d", "e"])
    if place is not None:
        rig.damage(3, place=place)
    with rig.reading() as kv:
        found = Log(kv).sound(topic, units, PLENTY, True, body)
        one_by_one = [Log(kv).fetch(topic, *unit[1:], read_record if body else read_head) for unit in units]
    if place is not None:
        rig.damage(3, place=place)  # flips the bit back: the store is whole at the end of each test
    whole = one_by_one if place is None else one_by_one[:3]
    assert [*zip(found.stored_ms, found.data, strict=True)] == whole
    assert found.bytes_left == PLENTY - sum(size for _, _, size in units[: len(whole)])
    starts = [units[first][1] for first in (0, 2, 3)]
    assert found.chunks == [*zip((0, 2, 3), starts, strict=True)][: 3 if place is None else 2]


def test_messages_read_together_end_where_the_next_does_not_fit_and_the_first_fits_if_it_must(rig: Rig) -> None:
    topic, units = sent(rig, ["a" * 10, "b" * 10, "c"])
    size = units[0][2]
    with rig.reading() as kv:
        log = Log(kv)
        assert [len(log.sound(topic, units, room, True).data) for room in (1, 2 * size - 1, 2 * size)] == [1, 1, 2]
        assert [len(log.sound(topic, units, room, False).data) for room in (1, 2 * size - 1, 2 * size)] == [0, 1, 2]
        assert log.sound(topic, units, 1, False).chunks == []


def test_an_entry_that_points_elsewhere_ends_the_messages_read_together(rig: Rig) -> None:
    """Also where what it points to is shorter than the head of a record, or belongs to another topic."""
    topic, units = sent(rig, ["a", "b"])
    _, position, size = units[1]
    end = position + size
    heads = (RECORD_HEAD_BYTES - 1, RECORD_HEAD_BYTES, RECORD_HEAD_BYTES + 1)
    wrong = [(1, end - short, size) for short in (0, 1, *heads)]
    wrong += [(1, position, short) for short in (0, 3, 4, RECORD_HEAD_BYTES, size - 1, size + 1, 2 * size)]
    draw = random.Random(5)
    wrong += [(1, draw.randrange(units[0][1], end + 9), draw.randrange(2 * size)) for _ in range(2_000)]
    with rig.reading() as kv:
        for unit in wrong:
            expected = [units[0]] + [unit] * (unit in units or unit[1:] == units[0][1:])
            assert len(Log(kv).sound(topic, [units[0], unit], PLENTY, True).data) == len(expected), unit
        assert Log(kv).sound(topic + 1, units, PLENTY, True).data == []
