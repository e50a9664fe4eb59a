"""A Spark driver with speculation on a cluster: queries whose first task is slow until Spark has started another copy.

    python -m tests.spark.real.speculation_driver ENDPOINT FOLDER MASTER PATH…

A path is a mode of the source and a sink: `table` is Parquet, `topic` exactly once, `sent` a topic at least once. Each
copy of a task leaves the bodies that it read in FOLDER/copies; Spark writes its event log to FOLDER/events.
"""

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from popmq_spark.java import java_environment
from popmq_spark.source import PopMQDataSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: How long a copy waits for the other one.
PATIENCE_S = 120.0
DELIVERIES = {"topic": "exactly-once", "sent": "at-least-once"}
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.efficiency.enabled": "false",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}


class Copies:
    """The copies of the tasks of one query, which have a file each when they have passed all of their rows on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def slow(self, batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
        """Passes the rows of a task on. The first copy of the query's first task then does not end by itself.

        The second copy ends after the first one has come that far: Spark kills the first when it has passed its rows.
        """
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context
        bodies = []
        for rows in batches:
            bodies += [body.decode() for body in rows.column("body").to_pylist()]
            yield rows
        batch = context.getLocalProperty("streaming.sql.batchId")
        task, copy = context.partitionId(), context.attemptNumber()
        (self._folder / f"batch={batch},task={task},copy={copy}").write_text(json.dumps(bodies))
        if (batch, task) == ("0", 0):
            self._wait(copy)

    def _wait(self, copy: int) -> None:
        first = self._folder / "batch=0,task=0,copy=0"
        deadline = time.monotonic() + PATIENCE_S
        while not (copy and first.exists()):
            time.sleep(0.05)
            if time.monotonic() > deadline:
                raise OSError("Spark did not run two copies of this task")


class SlowSource(PopMQDataSource):
    """The data source "slow-popmq": a sink whose first task has written its rows and does not end."""

    @classmethod
    def name(cls) -> str:
        return "slow-popmq"

    def streamWriter(self, schema: StructType, overwrite: bool) -> "SlowWriter":  # type: ignore[override]
        given = {name: value for name, value in self.options.items() if name != "copies"}
        return SlowWriter(PopMQDataSource(given).streamWriter(schema, overwrite), Copies(Path(self.options["copies"])))


class SlowWriter(DataSourceStreamArrowWriter):
    def __init__(self, writer: DataSourceStreamArrowWriter, copies: Copies) -> None:
        self._writer = writer
        self._copies = copies

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> WriterCommitMessage:
        return self._writer.write(self._copies.slow(iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._writer.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._writer.abort(messages, batchId)


def run(spark: "SparkSession", endpoint: str, folder: Path, path: str) -> None:
    """Runs one query to the end of the topic, in micro-batches of two tasks. A request has fewer rows than a task."""
    mode, _, sink = path.partition("-")
    copies = folder / "copies" / path
    copies.mkdir(parents=True)
    source = spark.readStream.format("popmq").options(endpoint=endpoint, topic="in", mode=mode, group=path)
    rows = source.options(minPartitions=2, maxRowsPerTrigger=100).load().select("body")
    if sink == "table":
        writer = rows.mapInArrow(Copies(copies).slow, rows.schema).writeStream.format("parquet")
        writer = writer.option("path", str(folder / path))
    else:
        writer = rows.writeStream.format("slow-popmq").options(endpoint=endpoint, topic=path, copies=str(copies))
        writer = writer.options(delivery=DELIVERIES[sink], maxRowsPerRequest=10)
    writer = writer.queryName(path).option("checkpointLocation", str(folder / f"checkpoint-{path}"))
    writer.trigger(availableNow=True).start().awaitTermination()


def main(endpoint: str, folder: Path, master: str, paths: list[str]) -> None:
    os.environ.update(java_environment(), SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master)
    (folder / "events").mkdir()
    for name, value in {**SETTINGS, "spark.eventLog.dir": (folder / "events").as_uri()}.items():
        builder = builder.config(name, value)
    spark = builder.config("spark.local.dir", str(folder / "spark")).getOrCreate()
    spark.dataSource.register(SlowSource)
    for path in paths:
        run(spark, endpoint, folder, path)
    stored = {path: spark.read.parquet(str(folder / path)) for path in paths if path.endswith("-table")}
    bodies = {path: [row.body.decode() for row in rows.collect()] for path, rows in stored.items()}
    (folder / "tables.json").write_text(json.dumps(bodies))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4:])
