"""The whole broker under one scheduler: seeds find nothing, planted bugs are found, and a seed repeats exactly."""

import functools
import os
import subprocess
import sys
from typing import Any

import pytest

from popmq_server.embedded.loop.long_poll import Waiters
from tests.simulated import planted, story
from tests.simulated.scheduler import MS, Condition, Hangs, Lock, Process, S, Scheduler, Thread
from tests.sources import ROOT

#: Seeds of the short form, in parts; and those in which a planted bug must be found.
PARTS, PART = 2, 50
FOUND_WITHIN = 100


def failed(seeds: range) -> list[str]:
    return [str(outcome) for seed in seeds if (outcome := story.run(seed)).findings]


@pytest.mark.slow
@pytest.mark.smoke
def test_a_dozen_seeds_find_nothing() -> None:
    assert failed(range(12)) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_a_hundred_seeds_find_nothing(part: int) -> None:
    assert failed(range(part * PART, (part + 1) * PART)) == []


@pytest.mark.slow
@pytest.mark.parametrize("bug", planted.BUGS)
def test_a_bug_at_a_seam_is_found_within_a_hundred_seeds(bug: str) -> None:
    with planted.planted(bug):
        assert any(story.run(seed).findings for seed in range(FOUND_WITHIN))


@pytest.mark.slow
@pytest.mark.smoke
@pytest.mark.process
def test_a_seed_repeats_exactly_in_another_process_with_other_hashes() -> None:
    """Of three seeds, with the content of all bytes on the wire. The second process has run another seed before."""

    def traces(hashes: str, *before: int) -> str:
        program = "import sys; from tests.simulated.story import run; print([run(int(s)).trace for s in sys.argv[1:]])"
        seeds = [str(seed) for seed in (*before, 1, 2, 3)]
        command = [sys.executable, "-c", program, *seeds]
        environment = os.environ | {"PYTHONHASHSEED": hashes}
        ran = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
        return ", ".join(ran.stdout.strip("[]\n").split(", ")[-3:])

    assert traces("1") == traces("2", 4)


@pytest.mark.slow
def test_a_finding_names_the_command_that_repeats_it_and_the_last_events(monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(*_: Any) -> None:
        raise RuntimeError("no such lot")

    monkeypatch.setattr(Waiters, "generation", raises)
    told = str(story.run(0))
    assert "make simulate SEED=0" in told
    assert "no such lot" in told
    assert "the last events:\n    10" in told


# ── The scheduler ────────────────────────────────────────────────────────────────────────────────────────────────────


def ran(seed: int, *strands: Any) -> Scheduler:
    """A scheduler that has run functions of itself, each as a strand."""
    scheduler = Scheduler(seed)
    process = Process(scheduler, "p")
    for number, run in enumerate(strands):
        process.start(str(number), functools.partial(run, scheduler))
    try:
        scheduler.run(lambda: not scheduler.strands)
    finally:
        scheduler.end()
    return scheduler


def orders(seed: int) -> str:
    said: list[str] = []

    def say(what: str) -> Any:
        def run(scheduler: Scheduler) -> None:
            for _ in range(3):
                said.append(what)
                scheduler.pause(0)

        return run

    ran(seed, say("a"), say("b"))
    return "".join(said)


def test_a_seed_decides_who_goes_on_and_other_seeds_decide_otherwise() -> None:
    assert [orders(seed) for seed in range(20)] == [orders(seed) for seed in range(20)]
    assert len({orders(seed) for seed in range(20)}) > 5


def test_time_jumps_to_what_is_due_and_no_wait_is_real() -> None:
    times: list[int] = []

    def sleep(scheduler: Scheduler) -> None:
        for _ in range(3):
            scheduler.pause(600 * S)
            times.append(scheduler.now_ns // S)

    ran(0, sleep)
    assert times == [1600, 2200, 2800]


def test_what_waits_for_ever_is_told_by_name() -> None:
    with pytest.raises(Hangs, match="waiting for ever: p/0"):
        ran(0, lambda scheduler: scheduler.wait(lambda: False))


def test_a_condition_wakes_who_waits_and_a_lock_lets_one_in() -> None:
    scheduler_of: list[Scheduler] = []
    said: list[str] = []

    def first(scheduler: Scheduler) -> None:
        lock = Lock(scheduler)
        condition = Condition(lock)

        def other() -> None:
            with condition:
                said.append("other")
                scheduler.pause(5 * MS)
                condition.notify_all()
                said.append("told")

        with condition:
            thread = Thread(scheduler, other)
            thread.start()
            scheduler.pause(5 * MS)
            said.append("waits")
            assert not condition.wait(0.0)
            assert condition.wait(60.0)
        thread.join()
        said.append("joined")
        scheduler_of.append(scheduler)

    ran(3, first)
    assert said == ["waits", "other", "told", "joined"]
    assert scheduler_of[0].now_ns < 1001 * S


def test_a_killed_process_does_not_go_on_and_its_blocks_end() -> None:
    said: list[str] = []

    def story_of(scheduler: Scheduler) -> None:
        process = Process(scheduler, "victim")

        def victim() -> None:
            try:
                scheduler.pause(1 * S)
                said.append("went on")
            finally:
                scheduler.pause(1 * S)
                said.append("ended")

        process.start("main", victim)
        scheduler.pause(1 * MS)
        process.kill()
        said.append("killed")

    ran(0, story_of)
    assert said == ["ended", "killed"]
