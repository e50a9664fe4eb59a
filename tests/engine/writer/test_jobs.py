"""Periodic work is done by jobs, and one that fails stops no other: each has a postponement of its own."""

import logging
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.delivery import sweep
from popmq_server.embedded.rules.operate import purge
from popmq_server.embedded.state import jobs
from popmq_server.embedded.state.jobs import RETRY_MS, Job, Skipped
from popmq_server.embedded.writer.timetable import Timetable
from popmq_server.values.ids import GroupId, TopicId
from popmq_server.values.records import SweepWork
from tests.engine.faults import failing_put
from tests.engine.rig import DAY, HOUR, MINUTE, SECOND, Rig, bodies

ALWAYS = {
    "purge": (purge, "step"),
    "sweep": (sweep, "step"),
}


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "popmq")


def fail(*_: Any) -> None:
    raise RuntimeError("bug")


def minutes(rig: Rig, count: int) -> None:
    for _ in range(count):
        rig.advance(MINUTE)


@pytest.mark.parametrize("which", ALWAYS)
def test_a_purge_or_a_sweep_that_always_raises_does_not_stop_retention(
    rig: Rig, which: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.topic("t", by_age=True, keep_ms=HOUR)
    rig.topic("other")
    rig.group("g")
    rig.pop()
    rig.send("a", "b")
    with monkeypatch.context() as patched:
        patched.setattr(*ALWAYS[which], fail)
        rig.do(ask.DeleteTopic("other"))
        rig.core.state.sweeps.load((GroupId(10), TopicId(11)), odd_sweep())
        rig.advance(SECOND)
        rig.skip(2 * HOUR)
        minutes(rig, 5)
        assert rig.browse("t").rows == []
    for where in list(rig.core.state.sweeps):
        rig.core.state.sweeps._base.pop(where, None)
    minutes(rig, 2)
    assert rig.read("purge") == []


def odd_sweep() -> SweepWork:
    """A sweep of what is not there: it has one step, which forgets it."""
    return SweepWork(looked_at=1, to_retry=True)


def test_a_deleted_topic_that_cannot_be_removed_does_not_delay_the_removal_of_others(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "ab":
        rig.topic(name)
        rig.send("x", topic=name)
    bad = rig.core.state.ids[("t", "a")]
    step = purge.step

    def only_others(tx: Any, entity_id: int, *how: Any) -> None:
        if entity_id == bad:
            fail()
        step(tx, entity_id, *how)

    with monkeypatch.context() as patched:
        patched.setattr(purge, "step", only_others)
        rig.run(ask.DeleteTopic("a"), ask.DeleteTopic("b"))  # so that the one that fails is the first of both
        rig.advance(SECOND)
        assert len(rig.read("purge")) == 1
        assert len(rig.read("log")) == 1
    rig.advance(jobs.POSTPONE_MS)
    assert rig.read("log") == []


def test_each_job_that_raises_is_postponed_alone(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """All jobs of the broker but the leases' fail for a day, and leases end in time all the same."""
    rig.pair()
    rig.send("a")
    broken = [job for job in rig.core.timetable.jobs if job.name != "lease"]
    assert len(broken) >= 10
    with monkeypatch.context() as patched:
        for job in broken:
            patched.setattr(job, "next_ms", lambda tx: tx.now_ms)
            patched.setattr(job, "moved_by", None)
            patched.setattr(job, "step", fail)
        patched.setattr(rig.core, "timetable", Timetable(rig.core.timetable.jobs))
        for _ in range(10):
            assert bodies(rig.pop(invisible_ms=SECOND)) == ["a"]
            rig.advance(SECOND)
        assert sorted(rig.failures) == sorted(job.name for job in broken)
    assert isinstance(broken[0], Job)
    rig.advance(DAY)


def test_a_piece_that_meets_a_full_map_is_tried_again_smaller_and_grows_back(rig: Rig) -> None:
    rig.pair()
    count = 64
    rig.send(*(str(number) for number in range(count)))
    for _ in range(count):
        rig.pop(1, invisible_ms=SECOND)
    rig.skip(SECOND)
    reviving = rig.core.timetable.jobs[-1]
    before = reviving.at_most(1000)
    with failing_put(20):
        rig.run()
    assert reviving.at_most(1000) == before // 2
    assert not rig.due, "it does not spin"
    rig.advance(jobs.RETRY_MS)
    assert reviving.at_most(1000) == before
    assert rig.numbers().retry == count


def test_a_lease_without_adjacent_pages_that_is_no_dead_letter_costs_no_work_once_it_is_noted(rig: Rig) -> None:
    """Its wait is noted in memory only, so there is nothing to commit: the piece is done all the same."""
    rig.pair()
    rig.send("a")
    rig.pop(1, invisible_ms=SECOND)
    rig.skip(SECOND)
    for _ in range(2 * jobs.HALVINGS_MAX):
        rig.skip(jobs.RETRY_MS)
        with failing_put(1):
            rig.run()
    pieces = 0
    while rig.due and pieces < 10:
        rig.run()
        pieces += 1
    assert pieces < 10, "it does not spin"
    rig.advance(2 * jobs.RETRY_MS)
    assert rig.numbers().retry == 1


@pytest.mark.parametrize("waiting", [1, 2, 5])
def test_items_that_lack_pages_are_tried_in_turns_and_never_hold_up_the_next_items(waiting: int) -> None:
    skipped, tried = Skipped(), list[bytes]()
    keys = [bytes((65 + number,)) for number in range(waiting)]
    for now in range(0, 3 * waiting * RETRY_MS, RETRY_MS // 2):
        if skipped.is_time(now):
            skipped.go_back()
        for key in [key for key in keys if key >= skipped.start]:
            if key >= skipped.start:
                tried.append(key)
                skipped.lacks_pages(key, now)
        assert skipped.start > keys[-1]
    assert tried == (4 * keys)[:-1]


def test_an_item_without_adjacent_pages_is_tried_alone_and_after_one_without_room_all_are_read_again() -> None:
    skipped = Skipped(b"\1")
    skipped.lacks_pages(b"\1a", 0)
    skipped.lacks_room(b"\1c", 0)
    assert skipped.next_ms() == RETRY_MS
    assert not skipped.is_time(RETRY_MS - 1)
    assert skipped.is_time(RETRY_MS)
    skipped.go_back()
    assert skipped.start == b"\1a\0"
    skipped.lacks_room(b"\1b", RETRY_MS)
    assert skipped.start == b"\1b\0"
