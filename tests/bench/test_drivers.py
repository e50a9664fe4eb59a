"""Load programs in Python: callers count what they moved, and the result is that of bench/loadgen."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.compare import PYTHON_SUBJECTS
from bench.peers.drivers import __main__ as drivers
from bench.peers.drivers.legs import Options, Run, Tally, by_tasks, by_threads
from bench.peers.drivers.with_popmq import EmbeddedPopMQ

KEYS = {"messages", "elapsed_s", "p50_ms", "p99_ms", "p999_ms", "load_cpu_s", "undelivered"}


def given(endpoint: str, leg: str, batch: int = 1, callers: int = 3, seconds: float = 60.0) -> Options:
    return Options("popmq-sdk", endpoint, leg, "b1", batch, callers, seconds, 100)


@pytest.fixture(autouse=True)
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What begins a run, once all callers are ready: its word comes at once."""
    words: list[str] = []

    def go() -> str:
        words.append("go")
        return words[-1]

    monkeypatch.setattr("builtins.input", go)
    return words


def stock(count: int) -> Callable[[], int]:
    """A topic of so many messages, of which each step takes one."""
    left, lock = [count], threading.Lock()

    def take() -> int:
        with lock:
            left[0] -= 1
            return int(left[0] >= 0)

    return take


def test_threads_share_a_topic_until_it_is_empty(said: list[str]) -> None:
    take, opened = stock(100), set[int]()

    def open_(caller: int) -> Callable[[], int]:
        assert not said, "all connections are open before the run begins"
        opened.add(caller)
        return take

    run = Run(60.0)
    tallies = by_threads(open_, 4, run)
    assert (opened, said) == ({0, 1, 2, 3}, ["go"])
    assert run.result(tallies).keys() == KEYS
    assert run.result(tallies)["messages"] == 100


async def test_tasks_share_a_topic_until_it_is_empty() -> None:
    take, run = stock(100), Run(60.0)

    async def step() -> int:
        return take()

    assert run.result(await by_tasks(step, 4, run))["messages"] == 100


def test_a_run_that_is_over_begins_no_step() -> None:
    tallies = by_threads(lambda _: stock(100), 2, Run(-1.0))
    assert [tally.messages for tally in tallies] == [0, 0]


def test_an_error_of_a_step_ends_the_run() -> None:
    def fail() -> int:
        raise OSError("the file is locked")

    with pytest.raises(OSError, match="locked"):
        by_threads(lambda _: fail, 1, Run(60.0))


def test_percentiles_are_those_of_all_callers() -> None:
    run = Run(1.0)
    run.begin()
    told = run.result([Tally([0.001] * 98, 98, 1e9), Tally([0.005, 0.009], 2, 1e9)])
    assert (told["messages"], told["p50_ms"], told["p99_ms"], told["p999_ms"]) == (100, 1.0, 9.0, 9.0)


def test_bodies_have_the_size_and_start_with_the_time() -> None:
    first, second = given("", "send", batch=2).texts()
    assert len(first) == len(second) == 100
    assert int(first[:19]) <= int(second[:19])


@pytest.mark.parametrize("batch", [1, 3])
async def test_popmq_receives_what_it_sent_in_this_process_too(batch: int, tmp_path: Path) -> None:
    library = EmbeddedPopMQ(given(str(tmp_path / "data"), "receive", batch))
    async with library.opened():
        await library.prepare(["b1"])
        sent = [await library.send() for _ in range(2)]
        assert sent == [await library.receive() for _ in range(2)] == [batch, batch]
        assert await library.receive() == 0


@pytest.mark.parametrize("target", [*drivers.TASKS, *drivers.THREADS])
def test_every_target_is_measured_beside_the_others(target: str) -> None:
    (works,) = (subject.faces[target] for subject in PYTHON_SUBJECTS.values() if target in subject.faces)
    assert {work.leg for work in works} == {"send", "receive"}
