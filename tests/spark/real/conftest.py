"""A streaming query for the tests of this folder, and what a topic holds."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import popmq
from tests.spark.conftest import QUERY, Broker


class Query:
    """A streaming query on the test's broker: its options, its checkpoint, and the batches that its sink got.

    `failing` maps a batch to what happens there after its rows are stored, once.
    """

    def __init__(self, spark: SparkSession, broker: Broker, folder: Path, **options: Any) -> None:
        self.spark = spark
        self.options = {"endpoint": broker.endpoint} | QUERY | options
        self.checkpoint = str(folder / "checkpoint")
        self.stored: dict[int, list[list[str]]] = {}
        self.failing: dict[int, Callable[[], None]] = {}

    def load(self) -> DataFrame:
        options = {name: str(value) for name, value in self.options.items()}
        return self.spark.readStream.format("popmq").options(**options).load()

    def run(self, rows: DataFrame | None = None, **trigger: Any) -> StreamingQuery:
        """Runs until everything that is there now is stored; raises what ended the query."""
        writer = (self.load() if rows is None else rows).writeStream.foreachBatch(self._store)
        writer = writer.option("checkpointLocation", self.checkpoint)
        query = writer.trigger(**trigger or {"availableNow": True}).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()
        return query

    @property
    def ids(self) -> list[str]:
        """What a sink that knows batches by their number holds."""
        return sorted(message for runs in self.stored.values() for message in runs[0])

    def _store(self, rows: DataFrame, batch: int) -> None:
        self.stored.setdefault(batch, []).append(sorted(row.message_id for row in rows.select("message_id").collect()))
        self.failing.pop(batch, lambda: None)()


@pytest.fixture
def query(spark: SparkSession, broker: Broker, tmp_path: Path) -> Query:
    return Query(spark, broker, tmp_path, maxRowsPerTrigger=20, minPartitions=2)


def fail() -> None:
    raise OSError("the sink's disk is gone")


def in_topic(client: popmq.Client, topic: str) -> Counter[str]:
    """What a reader finds. The broker publishes a committed batch in pieces: until the numbers stand still."""
    found: Counter[str] = Counter()
    for row in client.offsets.query(topic):
        at = row.min_offset
        while at < row.max_offset:
            page = client.pull_columns(topic, row.queue, at, row.max_offset, 4_000)
            found.update(body.decode() for body in page.columns.body)
            at = page.next_offset
    return found
