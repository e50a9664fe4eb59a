"""A broker that can be restarted, in this process, on a clock that the tests move; and one Spark for the whole run."""

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import popmq
from harness.broker_process import own_port
from popmq_server.clock import FakeClock
from popmq_server.embedded_broker import EmbeddedBroker
from tests.spark.reading.microbatch import MicroBatches

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "orders"

#: Options of every test's query. The broker's clock stands still, so an idle trigger must not wait there.
QUERY = {"topic": TOPIC, "group": "spark", "longPollTimeout": "0s"}


class Broker:
    """The embedded broker on one data folder and one port, and a client of it."""

    def __init__(self, data: Path, clock: FakeClock) -> None:
        self.clock = clock
        self._data = data
        self._port = own_port()
        self._embedded: EmbeddedBroker | None = None
        self._queries: list[MicroBatches] = []

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        self._embedded = EmbeddedBroker(self._data, port=self._port, clock=self.clock, sync="none")
        self._embedded.start()
        self.client = popmq.Client(self.endpoint)

    def stop(self) -> None:
        self.client.close()
        if self._embedded:
            self._embedded.stop()
        self._embedded = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        for query in self._queries:
            query.stop()
        self.stop()

    def query(self, **options: Any) -> MicroBatches:
        """A streaming query on this broker; its drivers are stopped with the broker."""
        query = MicroBatches(**{"endpoint": self.endpoint} | QUERY | options)
        self._queries.append(query)
        return query

    def send(self, count: int, size: int = 0) -> list[str]:
        """Sends so many messages, one queue after the other, and returns their ids."""
        bodies = [str(number).encode().rjust(size, b".") for number in range(count)]
        ids: list[str] = []
        for first in range(0, count, 5):
            receipts = self.client.send(TOPIC, [popmq.Message(body) for body in bodies[first : first + 5]])
            ids += [receipt.message_id for receipt in receipts]
        return ids

    def group(self, name: str = "spark") -> popmq.GroupStats:
        return self.client.broker.stats(TOPIC, name).groups[0]

    def let_leases_run_out(self, seconds: float = 60.0) -> None:
        self.clock.advance(round(seconds * 1000) + 1)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> "Iterator[SparkSession]":
    """One Spark for the whole run, because a JVM takes seconds to start: two tasks at once, three attempts each."""
    from pyspark.sql import SparkSession

    from popmq_spark.java import java_environment

    os.environ.update(java_environment(), SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    # Every Java of these tests lives for seconds: with these it takes a quarter less CPU.
    os.environ["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    folder = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
    }
    builder = SparkSession.builder.master("local[2,3]").appName("popmq-tests")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """A broker with the topic `orders`, whose time stands still until it is moved."""
    broker = Broker(tmp_path / "data", FakeClock())
    broker.start()
    broker.client.topics.create(TOPIC, queues=4)
    yield broker
    broker.close()
