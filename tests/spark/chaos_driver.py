"""A Spark driver that is meant to be killed: queries from one topic into tables and topics, each to its end.

    python -m tests.spark.chaos_driver ENDPOINT FOLDER ROWS_PER_TRIGGER PATH…

A path is a mode of the source and a sink: lease-table, offsets-topic. Tasks fail now and then. A driver that is started
again goes on from the checkpoints in FOLDER. At the end it writes what the tables hold to FOLDER/tables.json.
"""

import json
import os
import random
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from popmq_spark.java import java_environment

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Of first attempts; a second one never fails, or tasks would run out of attempts.
TASK_FAILURES = 0.05


def flaky(batches: "Iterable[pa.RecordBatch]") -> "Iterator[pa.RecordBatch]":
    """Passes rows on, and fails some tasks after their first rows."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context
    fails = context.attemptNumber() == 0 and random.random() < TASK_FAILURES
    for batch in batches:
        yield batch
        if fails:
            raise OSError("this task fails once")


def move(spark: "SparkSession", endpoint: str, folder: Path, rows_per_trigger: int, paths: Sequence[str]) -> None:
    """Runs all queries to the end of the topic, and writes what their tables hold."""
    queries = [_start(spark, endpoint, folder, rows_per_trigger, path) for path in paths]
    for query in queries:
        query.awaitTermination()
    tables = [path for path in paths if path.endswith("-table")]
    bodies = {path: [row.body.decode() for row in spark.read.parquet(str(folder / path)).collect()] for path in tables}
    (folder / "tables.new").write_text(json.dumps(bodies))
    (folder / "tables.new").rename(folder / "tables.json")


def _start(spark: "SparkSession", endpoint: str, folder: Path, rows_per_trigger: int, path: str) -> "StreamingQuery":
    mode, _, sink = path.partition("-")
    source = spark.readStream.format("popmq").option("endpoint", endpoint).option("topic", "in")
    source = source.option("mode", mode).option("group", path).option("minPartitions", 2)
    if mode == "lease":
        source = source.option("invisibleTime", "2s")
    rows = source.option("maxRowsPerTrigger", rows_per_trigger).load().select("body")
    writer = rows.mapInArrow(flaky, rows.schema).writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{path}"))
    if sink == "table":
        return writer.format("parquet").option("path", str(folder / path)).start()
    writer = writer.format("popmq").option("endpoint", endpoint).option("topic", path)
    return writer.option("delivery", "exactly-once").start()


def main(endpoint: str, folder: Path, rows_per_trigger: int, paths: Sequence[str]) -> None:
    os.environ.update(java_environment(), SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2,4]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.speculation", "true").config("spark.sql.shuffle.partitions", "2")
    move(
        builder.config("spark.local.dir", str(folder / "spark")).getOrCreate(),
        endpoint,
        folder,
        rows_per_trigger,
        paths,
    )


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
