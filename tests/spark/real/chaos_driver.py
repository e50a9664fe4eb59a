"""A Spark driver that is meant to be killed: queries from one topic into tables and topics, each to its end.

    python -m tests.spark.real.chaos_driver ENDPOINT FOLDER ROWS_PER_TRIGGER MASTER PATH…

A path is a mode of the source and a sink: lease-table (Parquet), offsets-topic, lease-delta. Tasks and sinks fail now
and then (`faults`): then the query is started again. A driver that is started again goes on from the checkpoints in
FOLDER. At the end it writes what the tables hold to FOLDER/tables.json.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import cloudpickle

from popmq_spark.java import java_environment
from tests.spark.real import faults

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

#: Queries that run at once. Spark gives each one's Python ten seconds to start, which a busy machine needs for a few.
AT_ONCE = 2
#: Restarts of queries by one driver: of 400 batches some 150 fail, by faults that are put in and by what is killed.
RESTARTS_MAX = 1000
#: For Spark 4.2: there is none for 4.3 yet.
DELTA = "io.delta:delta-spark_4.2_2.13:4.4.0"


def move(spark: "SparkSession", endpoint: str, folder: Path, rows_per_trigger: int, paths: Sequence[str]) -> None:
    """Runs all queries to the end of the topic, and writes what their tables hold."""
    cloudpickle.register_pickle_by_value(faults)  # type: ignore[no-untyped-call]
    spark.dataSource.register(faults.FailingSource)
    _run(paths, lambda path: _start(spark, endpoint, folder, rows_per_trigger, path))
    tables = {path: path.partition("-")[2] for path in paths if not path.endswith("-topic")}
    bodies = {}
    for path, sink in tables.items():
        rows = spark.read.format("parquet" if sink == "table" else sink).load(str(folder / path))
        bodies[path] = [row.body.decode() for row in rows.collect()]
    (folder / "tables.new").write_text(json.dumps(bodies))
    (folder / "tables.new").rename(folder / "tables.json")


def _run(paths: Sequence[str], start: "Callable[[str], StreamingQuery]") -> None:
    """Runs each query to its end, some at once, and starts one again as soon as it has failed."""
    from pyspark.errors import StreamingQueryException

    waiting, running, restarts = [*paths], dict[str, "StreamingQuery"](), 0
    while waiting or running:
        while waiting and len(running) < AT_ONCE:
            path = waiting.pop(0)
            running[path] = start(path)
        for path, query in [*running.items()]:
            try:
                if query.awaitTermination(1):
                    del running[path]
            except StreamingQueryException as error:
                print("query failed, again:", str(error)[:2000], flush=True)
                restarts += 1
                if restarts > RESTARTS_MAX:
                    raise
                running[path] = start(path)


def _start(spark: "SparkSession", endpoint: str, folder: Path, rows_per_trigger: int, path: str) -> "StreamingQuery":
    mode, _, sink = path.partition("-")
    source = spark.readStream.format("popmq").option("endpoint", endpoint).option("topic", "in")
    source = source.option("mode", mode).option("group", path).option("minPartitions", 2)
    if mode == "lease":
        source = source.option("invisibleTime", "2s")
    rows = source.option("maxRowsPerTrigger", rows_per_trigger).load().select("body")
    failing = faults.Faults(folder, path)
    failing.mend()
    writer = rows.mapInArrow(failing.in_task, rows.schema).writeStream.trigger(availableNow=True)
    writer = writer.option("checkpointLocation", str(folder / f"checkpoint-{path}"))
    if sink == "table":
        return writer.format("parquet").option("path", str(folder / path)).start()
    if sink == "delta":
        return writer.foreachBatch(failing.into_delta(str(folder / path))).start()
    writer = writer.format("failing-popmq").option("folder", str(folder)).option("path", path)
    writer = writer.option("endpoint", endpoint).option("topic", path)
    return writer.option("delivery", "exactly-once").start()


def main(endpoint: str, folder: Path, rows_per_trigger: int, master: str, paths: Sequence[str]) -> None:
    os.environ.update(java_environment(), SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    # Every Java here lives for a minute: with these it takes a quarter less CPU.
    os.environ["JDK_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    os.environ.update(SPARK_LOCAL_HOSTNAME="localhost", SPARK_WORKER_DIR=str(folder / "executors"))
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.task.maxFailures", "8").config("spark.log.level", "ERROR")
    if any(path.endswith("-delta") for path in paths):
        builder = builder.config("spark.jars.packages", DELTA)
        # Delta reads its own log in 50 tasks by default; each batch here has 50 rows.
        builder = builder.config("spark.databricks.delta.snapshotPartitions", "2")
        builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        builder = builder.config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
    spark = builder.config("spark.local.dir", str(folder / "spark")).getOrCreate()
    move(spark, endpoint, folder, rows_per_trigger, paths)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5:])
