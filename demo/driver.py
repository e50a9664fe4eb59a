"""Spark on two cores, which may be killed and started again."""

import logging
import os
import shlex
import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # py4j has no types
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from demo.patience import sentence
from harness.processes import descendants
from popmq_spark.java import java_environment

#: A short run is over before the second compiler of Java has paid for its work, which takes a core from all others.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

#: Errors of Spark, and of the connection to its Java process when that dies.
SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)


class SparkFailedError(RuntimeError):
    """An error of Spark, in one sentence."""


def quick_python(folder: Path) -> Path:
    """A program in `folder` that is this Python, for the processes that Spark starts.

    Spark has them import PySpark from an archive without compiled modules: each compiles hundreds of files anew, for
    more than a second of a core. The same modules are in this environment, compiled.
    """
    python = folder / "python"
    path = shlex.quote(os.environ.get("PYTHONPATH", ""))
    python.write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {shlex.quote(sys.executable)} "$@"\n')
    python.chmod(0o755)
    return python


class Driver:
    """A quiet local session on the loopback: its files in `folder`, its output and py4j's in `folder/spark.log`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.session: SparkSession

    def start(self) -> None:
        os.environ.update(java_environment())
        os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=str(quick_python(self._folder)))
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
        settings = {
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.local.dir": str(self._folder / "spark"),
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.session.timeZone": "UTC",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.extraJavaOptions": JAVA_OPTIONS,
            # A busy machine is slow, not gone.
            "spark.network.timeout": "600s",
            "spark.python.authenticate.socketTimeout": "120s",
        }
        # Four attempts for a task: one is lost with each worker that is killed.
        builder = SparkSession.builder.master("local[2,4]").appName("popmq-demo")
        for name, value in settings.items():
            builder = builder.config(name, value)
        with _stderr_into(self._folder / "spark.log"):
            self.session = builder.getOrCreate()

    def kill_worker(self) -> bool:
        """Kills a Python worker of the tasks with -9; False when there is none at this moment."""
        workers = descendants(self._java, b"pyspark.daemon")
        if len(workers) > 1:
            with suppress(ProcessLookupError):
                os.kill(max(workers), signal.SIGKILL)
                return True
        return False

    def kill(self) -> None:
        """Kills Java with -9, and its Python processes with it. `start` makes a new session."""
        # By its command: PySpark does not know a Java yet that it waits for, and such a Java outlives it.
        for java in descendants(os.getpid(), b"pyspark-shell"):
            for pid in (java, *descendants(java, b"")):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        # PySpark has no public way to forget a Java that is dead.
        SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None

    def stop(self) -> None:
        # Where Java is dead already there is nothing to stop, and this error would hide the one that matters.
        with suppress(*SPARK_ERRORS):
            self.session.stop()

    @property
    def _java(self) -> int:
        gateway = SparkContext._gateway
        assert gateway is not None
        return int(gateway.proc.pid)


@contextmanager
def quiet_spark(folder: Path) -> Iterator[Driver]:
    """A driver that is stopped at the end, and killed after an error: a Spark that hangs does not stop."""
    driver = Driver(folder)
    with _logs_into(folder / "spark.log"):
        try:
            driver.start()
            yield driver
        except SPARK_ERRORS as error:
            text = sentence(error)  # without Java it has none
            driver.kill()
            raise SparkFailedError(text) from error
        except BaseException:
            driver.kill()
            raise
        driver.stop()


@contextmanager
def _logs_into(log: Path) -> Iterator[None]:
    """What py4j logs, partly by the root logger, is of interest after a failure only: each killed Java is an error."""
    root, handler = logging.getLogger(), logging.FileHandler(log)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


@contextmanager
def _stderr_into(log: Path) -> Iterator[None]:
    """Java inherits the file as its stderr and keeps it; ours comes back."""
    sys.stderr.flush()
    ours = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)
