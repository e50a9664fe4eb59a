"""Spark reads a topic of a cluster by offsets while gateways and a broker are killed: Parquet has each message once."""

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

PATH, ROWS = "offsets-table", 50
DRIVER_S = 1_800.0


@contextmanager
def driver(endpoint: str, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The query of tests/spark, in a process of its own; ended with the block."""
    words = [sys.executable, "-W", "ignore", "-m", "tests.spark.real.chaos_driver"]
    with (folder / "driver.log").open("ab") as log:
        process = subprocess.Popen(
            [*words, endpoint, str(folder), str(ROWS), "local[2,4]", PATH], stdout=log, stderr=log
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
            client.groups.create(PATH)
            bodies = [*sent]
            for first in range(0, len(bodies), 250):
                client.send("in", bodies[first : first + 250])
        log = tmp_path / "driver.log"
        with driver(open_.endpoint, tmp_path) as process:
            until_s = time.monotonic() + DRIVER_S
            while process.poll() is None and time.monotonic() < until_s:
                time.sleep(chance.uniform(3.0, 8.0))
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
    found = Counter(json.loads((tmp_path / "tables.json").read_text())[PATH])
    done = sum(1 for _ in (tmp_path / f"checkpoint-{PATH}" / "commits").glob("[0-9]*"))
    restarts = log.read_text().count("query failed, again")
    counts = {
        "batches": done,
        "messages": found.total(),
        "missing": (sent - found).total(),
        "twice": (found - sent).total(),
        "gateways_killed": killed["gateway"],
        "brokers_killed": killed["broker"],
        "query_restarts": restarts,
    }
    told = ", ".join(f"{name.replace('_', ' ')} {count:,}" for name, count in counts.items())
    record("Spark reads by offsets while gateways and a broker are killed", "gateways", counts, told)
    assert found == sent
    assert done >= batches
    assert killed["gateway"] > 0
