"""What retention promises by default: nothing that a group has not finished is dropped, come late or gone back."""

from collections.abc import Callable

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.state import marks
from popmq_server.embedded.store.keys import TOPIC_AT, U64
from popmq_server.embedded.store.lmdb import Transaction
from tests.engine import lites
from tests.engine.rig import DAY, HOUR, KEEP, MINUTE, Rig, bodies, refusals, sending
from tests.engine.work import calls

#: What goes, goes by chunks: these tests say which by sending one by one.
pytestmark = pytest.mark.usefixtures("a_chunk_a_commit")

HOURLY = 71


def read_by(rig: Rig, *groups: str) -> None:
    """Messages m0 … m9, one chunk each, that these groups have finished."""
    rig.topic()
    for group in groups:
        rig.group(group)
        rig.pop(group=group)
    for number in range(10):
        rig.send(f"m{number}")
    for group in groups:
        rig.ack(rig.pop(group=group), group=group)


def hours(rig: Rig, count: int) -> None:
    for _ in range(count):
        rig.advance(HOUR)


def put_marks(rig: Rig, found: dict[bytes, bytes]) -> None:
    """Marks as an earlier release may have left them."""

    def put(kv: Transaction) -> None:
        for key, value in found.items():
            kv.put("mark", key, value)

    rig.write(put)


def chunks(rig: Rig) -> int:
    return len(rig.read("log"))


def reset(rig: Rig, offset: int) -> None:
    rig.do(ask.ResetOffsets("t", "g", offsets={0: offset}))


def clone(rig: Rig, offset: int) -> None:
    rig.group("other", start_from="LATEST")
    rig.do(ask.ResetOffsets("t", "other", offsets={0: offset}))
    rig.do(ask.CloneOffsets("t", "other", "g"))
    rig.do(ask.DeleteGroup("other"))


def set_back(rig: Rig, offset: int) -> None:
    rig.do(ask.SetConsumeMode("t", "g", "PULL"))
    rig.do(ask.UpdateOffsets("t", "g", {0: offset}))
    rig.do(ask.SetConsumeMode("t", "g", "POP"))


def set_back_by_a_pull(rig: Rig, offset: int) -> None:
    rig.do(ask.SetConsumeMode("t", "g", "PULL"))
    rig.do(ask.Pull("t", "g", 0, offset, commit_offset=offset))
    rig.do(ask.SetConsumeMode("t", "g", "POP"))


BACK = [reset, clone, set_back, set_back_by_a_pull]
Back = Callable[[Rig, int], None]


@pytest.mark.parametrize("back", BACK)
def test_unfinished_messages_of_a_group_that_went_back_are_kept(rig: Rig, back: Back) -> None:
    read_by(rig, "g")
    hours(rig, HOURLY)
    back(rig, 4)
    hours(rig, 5 * 24)
    assert (rig.numbers().ready, rig.numbers().dropped) == (6, 0)
    assert bodies(rig.pop()) == ["m4", "m5", "m6", "m7", "m8", "m9"]


@pytest.mark.parametrize("back", BACK)
def test_the_retention_time_restarts_when_a_group_that_went_back_has_passed_again(rig: Rig, back: Back) -> None:
    read_by(rig, "g")
    hours(rig, HOURLY)
    back(rig, 4)
    rig.ack(rig.pop())
    hours(rig, HOURLY)
    assert chunks(rig) == 6, "what is before the place it went back to goes at its own time"
    hours(rig, 2)
    assert chunks(rig) == 0


def test_a_group_that_comes_late_reads_all_that_there_is_when_it_comes(rig: Rig) -> None:
    read_by(rig, "g")
    hours(rig, HOURLY)
    rig.group("late")
    assert rig.pop(1, group="late", invisible_ms=HOUR)
    hours(rig, 5 * 24)
    assert (rig.numbers("late").ready, rig.numbers("late").retry, rig.numbers("late").dropped) == (9, 1, 0)
    assert len(rig.pop(group="late")) == 10


def test_a_group_that_begins_at_the_latest_moves_no_mark_back(rig: Rig) -> None:
    read_by(rig, "g")
    hours(rig, HOURLY)
    rig.group("late", start_from="LATEST")
    assert rig.pop(group="late") == []
    hours(rig, 2)
    assert chunks(rig) == 0


def test_a_topic_that_no_group_named_keeps_its_messages_from_when_they_were_stored(rig: Rig) -> None:
    rig.topic()
    rig.send("a")
    hours(rig, 24)
    rig.send("b")
    hours(rig, 47)
    assert chunks(rig) == 2
    hours(rig, 2)
    assert chunks(rig) == 1
    hours(rig, 24)
    assert chunks(rig) == 0


@pytest.mark.slow
def test_a_consumer_deployed_on_the_third_day_loses_nothing_that_it_is_reading(rig: Rig) -> None:
    read_by(rig)
    hours(rig, HOURLY)
    rig.group()
    rig.ack(rig.pop(3))
    hours(rig, 10 * 24)
    assert bodies(rig.pop()) == [f"m{number}" for number in range(3, 10)]
    assert rig.numbers().dropped == 0


def test_marks_of_an_earlier_release_that_say_too_much_drop_nothing_unread(rig: Rig) -> None:
    read_by(rig, "g")
    hours(rig, HOURLY)
    old = rig.read("mark")
    reset(rig, 0)
    put_marks(rig, dict(old))
    rig.restart()
    hours(rig, 5 * 24)
    assert (rig.numbers().ready, rig.numbers().dropped) == (10, 0)


def test_a_reset_restarts_the_retention_time_even_if_it_is_undone_at_once(rig: Rig) -> None:
    read_by(rig, "g")
    hours(rig, HOURLY)
    reset(rig, 8)
    reset(rig, 10)
    hours(rig, 2)
    assert chunks(rig) == 2
    hours(rig, 71)
    assert chunks(rig) == 0


def test_a_group_that_went_back_holds_messages_in_each_queue(rig: Rig) -> None:
    rig.topic(queues=2)
    rig.group()
    rig.pop()
    for text in "abcdef":
        rig.send(text)
    rig.ack(rig.pop())
    hours(rig, HOURLY)
    rig.do(ask.ResetOffsets("t", "g", offsets={0: 2, 1: 1}))
    hours(rig, 5 * 24)
    assert sorted(bodies(rig.pop())) == ["d", "e", "f"]
    assert chunks(rig) == 3


def test_a_group_that_is_deleted_holds_nothing_any_more(rig: Rig) -> None:
    read_by(rig, "g", "gone")
    hours(rig, HOURLY)
    rig.do(ask.ResetOffsets("t", "gone", ("EARLIEST", 0)))
    hours(rig, 24)
    assert chunks(rig) == 10
    rig.do(ask.DeleteGroup("gone"))
    hours(rig, HOURLY)
    assert chunks(rig) == 10
    hours(rig, 2)
    assert chunks(rig) == 0


def test_a_lite_topic_keeps_unfinished_messages_of_a_group_that_was_put_back(rig: Rig) -> None:
    lites.create(rig)
    rig.group()
    lites.sync(rig, "c", "ADD", "ann")
    for number in range(3):
        lites.send(rig, f"ann:{number}")
    rig.ack(lites.pop(rig, "ann"))
    hours(rig, HOURLY)
    lites.sync(rig, "c", "ADD", "ann", start=("MIN", 0))
    hours(rig, 5 * 24)
    assert bodies(lites.pop(rig, "ann")) == ["ann:0", "ann:1", "ann:2"]


@pytest.mark.slow
def test_messages_that_a_group_has_not_committed_are_kept(rig: Rig) -> None:
    read_by(rig, "g")
    rig.do(ask.SetConsumeMode("t", "g", "PULL"))
    rig.send("m10")
    assert len(rig.do(ask.Pull("t", "g", 0, 10)).rows) == 1
    hours(rig, 5 * 24)
    assert chunks(rig) == 1
    rig.do(ask.UpdateOffsets("t", "g", {0: 11}))
    hours(rig, HOURLY)
    assert chunks(rig) == 1
    hours(rig, 2)
    assert chunks(rig) == 0


@pytest.mark.slow
def test_dead_letters_that_a_group_went_back_to_are_kept(rig: Rig) -> None:
    rig.topic()
    rig.group()
    rig.group("doctor")
    rig.pop(topic="%DLQ%g", group="doctor")
    rig.do(ask.UpdateTopic("%DLQ%g", 0, (False, KEEP)))
    rig.send("a")
    rig.reject(rig.pop())
    rig.ack(rig.pop(topic="%DLQ%g", group="doctor"), group="doctor")
    hours(rig, HOURLY)
    rig.do(ask.ResetOffsets("%DLQ%g", "doctor", ("EARLIEST", 0)))
    hours(rig, 5 * 24)
    assert bodies(rig.pop(topic="%DLQ%g", group="doctor")) == ["a"]


def test_a_topic_at_its_limit_of_bytes_keeps_messages_that_a_group_went_back_to(rig: Rig) -> None:
    rig.do(ask.CreateTopic("t", 1, False, KEEP, bytes_max=1 << 20))
    rig.group()
    rig.pop()
    for number in range(9):
        rig.send(f"m{number}" + "x" * 50_000)
    rig.ack(rig.pop())
    hours(rig, 1)
    reset(rig, 0)
    results = [rig.run(sending(f"n{number}" + "x" * 50_000))[0] for number in range(20)]
    assert refusals(results)[-1] == "STORAGE_FULL"
    assert rig.numbers().dropped == 0
    assert bodies(rig.pop(1)) == ["m0" + "x" * 50_000]


def test_a_group_put_at_a_time_gets_kept_messages_before_a_hole(rig: Rig) -> None:
    rig.topic(keep_ms=HOUR)
    for group in ("g", "slow"):
        rig.group(group)
        rig.pop(group=group)
    for number in range(9):
        rig.send(f"m{number}")
    rig.ack(rig.pop())
    held = rig.pop(1, group="slow", invisible_ms=12 * HOUR)
    rig.ack(rig.pop(group="slow"), group="slow")
    hours(rig, 3)
    rig.send("m9")
    rig.do(ask.ResetOffsets("t", "g", ("TIMESTAMP", held[0].stored_ms)))
    assert bodies(rig.pop()) == ["m0", "m9"]


# ── Marks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_marks_are_no_more_than_their_limit_however_long_messages_are_kept(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "MARKS_MAX", 10)
    rig.topic(keep_ms=10 * DAY)
    rig.group()
    for _ in range(24 * 25):
        rig.send("a")
        rig.ack(rig.pop())
        rig.advance(HOUR)
    assert len(rig.read("mark")) <= 12
    assert 24 * 10 <= chunks(rig) <= 24 * 11 + 2


def test_a_look_costs_the_same_however_many_marks_there_are(rig: Rig) -> None:
    read_by(rig, "g")
    topic_id = rig.core.state.ids[("t", "t")]

    def looks_at(count: int) -> int:
        times = (rig.now - KEEP - MINUTE, *(rig.now - number * MINUTE for number in range(count)))
        kept = {TOPIC_AT.pack(topic_id, time): U64.pack(1) for time in times}
        put_marks(rig, kept)
        rig.skip(2 * MINUTE)
        return calls(lambda: rig.run())

    rig.settle()
    looks_at(1)
    few, many = looks_at(200), looks_at(2000)
    assert many < 2 * few, (few, many)
