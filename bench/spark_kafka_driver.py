"""The Spark driver of bench/spark_kafka.py: reads from both brokers and writes to both, in turns, and prints rates.

python -m bench.spark_kafka_driver FOLDER ENDPOINT KAFKA MESSAGES SECONDS
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from popmq_spark.java import java_environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Of the Spark that runs it.
PACKAGE = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
ROUNDS, ROWS_PER_TRIGGER = 3, 25_000
SOURCES = ("kafka", "offsets", "lease")
SINKS = ("kafka", "at-least-once", "exactly-once")
#: Bytes of a body that is written.
BODY_BYTES = 1024


class Reads:
    """Streams of each source, with the same two columns: body and when it was sent."""

    def __init__(self, spark: SparkSession, folder: Path, endpoint: str, kafka: str) -> None:
        self._spark, self._folder, self._endpoint, self._kafka = spark, folder, endpoint, kafka
        self._number = 0

    def stream(self, source: str, topic: str, start: str) -> DataFrame:
        read = self._spark.readStream
        if source == "kafka":
            read = read.format("kafka").option("kafka.bootstrap.servers", self._kafka).option("subscribe", topic)
            read = read.option("maxOffsetsPerTrigger", ROWS_PER_TRIGGER).option("startingOffsets", start)
            return read.load().selectExpr("value AS body", "timestamp AS sent")
        read = read.format("popmq").option("endpoint", self._endpoint).option("topic", topic).option("mode", source)
        read = read.option("maxRowsPerTrigger", ROWS_PER_TRIGGER).option("startingOffsets", start)
        if source == "lease":
            read = read.option("group", f"reader-{self._number}")
        return read.load().selectExpr("body", "born_ts AS sent")

    def backlog(self, source: str) -> float:
        """Rows/s of a query that reads everything; the first micro-batch, which starts everything, is left out."""
        self._number += 1
        query = self.stream(source, "deep", "earliest").writeStream.format("parquet")
        query = query.option("path", str(self._folder / f"table-{self._number}"))
        running = query.option("checkpointLocation", self._checkpoint()).trigger(availableNow=True).start()
        running.awaitTermination()
        batches = [row for row in map(_plain, running.recentProgress) if row["numInputRows"]][1:]
        taken_ms = sum(row["durationMs"]["triggerExecution"] for row in batches)
        return float(1000 * sum(row["numInputRows"] for row in batches) / taken_ms)

    def live(self, source: str, seconds: int) -> float:
        """The median age in seconds of messages when the micro-batch that holds them has been written."""
        self._number += 1
        ages: list[tuple[float, int]] = []
        table = str(self._folder / f"table-{self._number}")

        def store(rows: DataFrame, number: int) -> None:
            rows.write.mode("append").parquet(f"{table}/batch={number}")
            done = time.time()
            stored = self._spark.read.parquet(f"{table}/batch={number}")
            found = stored.selectExpr("count(*) AS rows", "avg(unix_micros(sent)) / 1e6 AS sent").first()
            if found is not None and found.rows:
                ages.append((done - found.sent, found.rows))

        query = self.stream(source, "live", "latest").writeStream.foreachBatch(store)
        running = query.option("checkpointLocation", self._checkpoint()).start()
        while running.lastProgress is None:
            time.sleep(0.1)
        print(f"send {'kafka' if source == 'kafka' else 'popmq'}", flush=True)
        until = time.monotonic() + 4 * seconds
        while sum(rows for _, rows in ages) < 1000 * seconds and time.monotonic() < until:
            time.sleep(0.1)
        running.stop()
        return statistics.median(age for age, rows in ages for _ in range(rows))

    def _checkpoint(self) -> str:
        return str(self._folder / f"checkpoint-{self._number}")


def written(spark: SparkSession, sink: str, endpoint: str, kafka: str, messages: int) -> float:
    """Rows/s of one batch of two tasks into the topic `written`, commit included."""
    rows = spark.range(0, messages, 1, 2).selectExpr(f"repeat('x', {BODY_BYTES}) AS value")
    if sink == "kafka":
        writer = rows.write.format("kafka").option("kafka.bootstrap.servers", kafka)
    else:
        writer = rows.write.format("popmq").options(endpoint=endpoint, delivery=sink)
    if sink == "exactly-once":
        writer = writer.options(txnAppId=uuid.uuid4().hex, txnVersion=1)
    began = time.perf_counter()
    writer.option("topic", "written").mode("append").save()
    return messages / (time.perf_counter() - began)


def _plain(progress: Any) -> Any:
    return json.loads(progress.json) if hasattr(progress, "json") else progress


def main(folder: str, endpoint: str, kafka: str, messages: int, seconds: int) -> None:
    os.environ.update(java_environment(), SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.jars.packages", PACKAGE).config("spark.log.level", "ERROR")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    spark = builder.getOrCreate()
    reads = Reads(spark, Path(folder), endpoint, kafka)
    rates: dict[str, list[float]] = {source: [] for source in SOURCES}
    for _ in range(ROUNDS):
        for source in SOURCES:
            rates[source].append(reads.backlog(source))
            print(f"{source}: {rates[source][-1]:,.0f} rows/s", flush=True)
    written_rates: dict[str, list[float]] = {sink: [] for sink in SINKS}
    for _ in range(ROUNDS):
        for sink in SINKS:
            written_rates[sink].append(written(spark, sink, endpoint, kafka, messages))
            print(f"into {sink}: {written_rates[sink][-1]:,.0f} rows/s", flush=True)
    found = {source: {"rows/s": max(rates[source])} for source in SOURCES}
    for source in SOURCES:
        found[source]["s from send to table, median"] = reads.live(source, seconds)
        print(f"{source}: {found[source]}", flush=True)
    found["written"] = {sink: max(rates) for sink, rates in written_rates.items()}
    print(f"found {json.dumps(found)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
