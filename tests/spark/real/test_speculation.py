"""Speculation: Spark runs a second copy of a slow task while the first one still runs, and every row is stored once.

Spark starts such a copy only on another host than the first one's. So this is a standalone cluster: a master and two
workers of one core, one on "127.0.0.1" and the other on "localhost", which are two hosts to Spark.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest

import popmq
from harness.broker_process import BrokerProcess, own_port
from popmq_spark.java import java_environment
from tests.spark.real.conftest import in_topic

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

HOSTS = ("127.0.0.1", "localhost")
#: What messages pass through: a mode of the source, and a sink that has each row once.
PATHS = ("lease-table", "lease-topic", "offsets-topic")
#: A sink that has the rows of both copies, since it sends at least once: it shows that the other sinks got them, too.
TWICE = "lease-sent"
MESSAGES = 200
DRIVER_S = 300.0


@contextmanager
def cluster(folder: Path) -> Iterator[str]:
    """A standalone Spark with a worker on each host; its master's address."""
    home, port = Path(pyspark.__file__).parent, own_port()
    environment = os.environ | java_environment() | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "SPARK_DAEMON_MEMORY": "256m"}
    spark_class, master = str(home / "bin" / "spark-class"), f"spark://127.0.0.1:{port}"
    with ExitStack() as stack:

        def start(name: str, *words: str) -> None:
            command = [spark_class, f"org.apache.spark.deploy.{name}", *words]
            log = stack.enter_context((folder / "cluster.log").open("a"))
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)

        start("master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        wait_for_port(port)
        for host in HOSTS:
            where = ("--host", host, "--webui-port", "0", "--work-dir", str(folder / f"worker-{host}"))
            start("worker.Worker", *where, "--cores", "1", "--memory", "512M", master)
        yield master


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
        except OSError:
            assert time.monotonic() < deadline, "the master of the cluster does not listen"
            time.sleep(0.1)
        else:
            return


class Tasks:
    """The tasks of Spark's event log, as its "Task Info" with the "Stage ID"."""

    def __init__(self, folder: Path) -> None:
        (log,) = (folder / "events").iterdir()
        events = [json.loads(line) for line in log.read_text().splitlines()]
        #: Stage → the name of its query.
        self._queries = {
            stage: event["Properties"].get("spark.job.description", "").partition("\n")[0]
            for event in events
            if event["Event"] == "SparkListenerJobStart"
            for stage in event["Stage IDs"]
        }
        started, ended = (
            {
                event["Task Info"]["Task ID"]: event["Task Info"] | {"Stage ID": event["Stage ID"]}
                for event in events
                if event["Event"] == f"SparkListenerTask{what}"
            }
            for what in ("Start", "End")
        )
        self._tasks: list[dict[str, Any]] = [*(started | ended).values()]

    def first(self, query: str) -> list[dict[str, Any]]:
        """The copies of the first task of a query. "Finish Time" is 0 where Spark stopped before the task had ended."""
        stages = [task["Stage ID"] for task in self._tasks if self._queries[task["Stage ID"]] == query]
        copies = [task for task in self._tasks if (task["Stage ID"], task["Index"]) == (min(stages), 0)]
        return sorted(copies, key=lambda task: int(task["Attempt"]))


def test_a_task_that_spark_runs_twice_at_once_stores_its_rows_once(tmp_path: Path) -> None:
    sent = [str(number) for number in range(MESSAGES)]
    with (
        BrokerProcess(tmp_path / "broker") as broker,
        popmq.Client(broker.endpoint) as client,
        cluster(tmp_path) as master,
    ):
        client.topics.create("in", queues=4)
        for path in (*PATHS, TWICE):
            client.topics.create(path, queues=2)
        client.send("in", sent)
        command = [sys.executable, "-W", "ignore", "-m", "tests.spark.real.speculation_driver", broker.endpoint]
        words = [*command, str(tmp_path), master, *PATHS, TWICE]
        driver = subprocess.run(words, capture_output=True, text=True, timeout=DRIVER_S, check=False)
        assert driver.returncode == 0, driver.stderr[-3000:]
        found = {path: Counter(rows) for path, rows in json.loads((tmp_path / "tables.json").read_text()).items()}
        found |= {path: in_topic(client, path) for path in (*PATHS, TWICE) if not path.endswith("-table")}
        groups = {row.group: row for row in client.broker.stats("in").groups}
    tasks = Tasks(tmp_path)
    for path in (*PATHS, TWICE):
        first, second = tasks.first(path)
        assert (first["Speculative"], second["Speculative"]) == (False, True)
        assert first["Host"] != second["Host"]
        assert first["Launch Time"] < second["Launch Time"] < second["Finish Time"]
        assert not second["Killed"]
        assert first["Killed"] or not first["Finish Time"]
        read = [json.loads((tmp_path / "copies" / path / f"batch=0,task=0,copy={n}").read_text()) for n in range(2)]
        assert read[0] == read[1] != []
    assert found.pop(TWICE) >= Counter(sent) + Counter(read[1])
    assert found == {path: Counter(sent) for path in PATHS}
    assert {(row.ready, row.retry, row.in_flight) for row in groups.values()} == {(0, 0, 0)}
    assert [row.acked for name, row in groups.items() if name.startswith("lease-")] == [MESSAGES] * 3
