"""The Spark driver of local_spark.py: a session on `local[2]` that does what its standard input asks for.

    python -m bench.parts.local_spark_driver FOLDER ENDPOINT TOPIC OUT MESSAGES

A line `lease`, `offsets` or `write` reads the topic by such a query, or writes rows to OUT; the answer is a line
`rate` with rows/s. It ends with its input.
"""

from __future__ import annotations

import json
import os
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from popmq_spark.java import java_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Of one micro-batch, and of one of its tasks.
ROWS_PER_TRIGGER, ROWS_PER_TASK = 50_000, 25_000
BODY_BYTES = 1024


def read(spark: SparkSession, folder: Path, endpoint: str, topic: str, mode: str) -> float:
    """Rows/s of a query that reads the whole topic; the first micro-batch, which starts everything, is left out.

    Spark takes the rows, and stores none of them (its sink `noop`).
    """
    name = uuid.uuid4().hex
    source = spark.readStream.format("popmq").options(endpoint=endpoint, topic=topic, mode=mode)
    source = source.options(maxRowsPerTrigger=ROWS_PER_TRIGGER, maxRecordsPerPartition=ROWS_PER_TASK)
    rows = (source.option("group", name) if mode == "lease" else source).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(folder / name))
    running = query.trigger(availableNow=True).start()
    running.awaitTermination()
    progress = [_plain(row) for row in running.recentProgress]
    batches = [row for row in progress if row["numInputRows"]][1:]
    taken_ms = sum(row["durationMs"]["triggerExecution"] for row in batches)
    return float(1000 * sum(row["numInputRows"] for row in batches) / taken_ms)


def write(spark: SparkSession, endpoint: str, topic: str, messages: int) -> float:
    """Rows/s of one exactly-once batch of two tasks, commit included."""
    rows = spark.range(0, messages, 1, 2).selectExpr(f"repeat('x', {BODY_BYTES}) AS body")
    writer = rows.write.format("popmq").options(endpoint=endpoint, topic=topic, delivery="exactly-once")
    began = time.perf_counter()
    writer.options(txnAppId=uuid.uuid4().hex, txnVersion=1).mode("append").save()
    return messages / (time.perf_counter() - began)


def _plain(progress: Any) -> Any:
    return json.loads(progress.json) if hasattr(progress, "json") else progress


def main(folder: Path, endpoint: str, topic: str, out: str, messages: int) -> None:
    os.environ.update(java_environment(), SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.log.level", "ERROR")
    spark = builder.config("spark.local.dir", str(folder / "local")).getOrCreate()
    for line in sys.stdin:
        what = line.strip()
        done = write(spark, endpoint, out, messages) if what == "write" else read(spark, folder, endpoint, topic, what)
        print(f"rate {done}", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]))
