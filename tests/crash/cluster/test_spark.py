"""Spark reads a topic of a cluster by offsets while gateways and a broker are killed: Parquet and Delta have each
message once. Delta is there after `make build/delta/ready`.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import popmq
from harness.rocketmq_cluster import RocketMQCluster
from tests.crash.cluster.parts.rig import QUEUES, Record, doors
from tests.crash.conftest import Scale

pytestmark = [pytest.mark.chaos, pytest.mark.spark, pytest.mark.whole]

#: A Python with a Spark that has a Delta.
DELTA_PYTHON = Path("build/delta/bin/python")
PATHS = ("offsets-table", *(("offsets-delta",) * DELTA_PYTHON.exists()))
#: The tables, by their number.
WORDS = {1: "Parquet", 2: "Parquet and Delta"}
ROWS = 50
#: Seconds for a table's batch: one takes some 10 s while processes die.
BATCH_S = 60.0


@contextmanager
def driver(endpoint: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The query of tests/spark, in a process of its own; ended with the block."""
    python = str(DELTA_PYTHON) if DELTA_PYTHON.exists() else sys.executable
    words = [python, "-W", "ignore", "-m", "tests.spark.real.chaos_driver"]
    with (folder / "driver.log").open("ab") as log:
        process = subprocess.Popen(
            [*words, endpoint, str(folder), str(ROWS), "local[2,4]", *PATHS], stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def test_spark_has_each_message_once_whatever_is_killed(
    rocketmq: RocketMQCluster, tmp_path: Path, scale: Scale, record: Record
) -> None:
    batches, chance, killed = scale.pick(short=20, whole=200), random.Random(scale.seed), Counter[str]()
    sent = Counter(str(number) for number in range(batches * ROWS))
    with doors(tmp_path, rocketmq.name_server) as open_:
        with popmq.Client(open_.endpoint) as client:
            client.topics.create("in", queues=QUEUES)
            for path in PATHS:
                client.groups.create(path)
            bodies = [*sent]
            for first in range(0, len(bodies), 250):
                client.send("in", bodies[first : first + 250])
        log = tmp_path / "driver.log"
        with driver(open_.endpoint, tmp_path) as process:
            until_s = time.monotonic() + batches * BATCH_S
            longest_s = scale.pick(short=8, whole=25)
            while process.poll() is None and time.monotonic() < until_s:
                time.sleep(chance.uniform(3.0, longest_s))
                victim = chance.choice(("gateway", "gateway", "gateway", "broker"))
                if victim == "broker":
                    rocketmq.kill("a")
                    rocketmq.restart("a")
                else:
                    gateway = open_.gateways[killed[victim] % 2]
                    gateway.kill()
                    gateway.start()
                killed[victim] += 1
        assert process.returncode == 0, log.read_text()[-3000:]
    tables = json.loads((tmp_path / "tables.json").read_text())
    found = {path: Counter(tables[path]) for path in PATHS}
    # By the number of the last one: Spark keeps the commits of the last 100 batches.
    commits = {path: (tmp_path / f"checkpoint-{path}" / "commits").glob("[0-9]*") for path in PATHS}
    done = {path: 1 + max(int(commit.name) for commit in found) for path, found in commits.items()}
    counts = {
        "tables": len(PATHS),
        "batches_of_each": min(done.values()),
        "messages_in_each": sent.total(),
        "missing": sum((sent - each).total() for each in found.values()),
        "twice": sum((each - sent).total() for each in found.values()),
        "gateways_killed": killed["gateway"],
        "brokers_killed": killed["broker"],
        "query_restarts": log.read_text().count("query failed, again"),
    }
    told = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items())
    record(
        f"Spark reads by offsets into {WORDS[len(PATHS)]}, gateways and a broker are killed", "gateways", counts, told
    )
    assert found == dict.fromkeys(PATHS, sent)
    assert min(done.values()) >= batches
    assert killed["gateway"] > 0
