"""The second way of the flights: by offsets into a windowed aggregate, from there exactly once into a topic.

The state is Spark's: flights and minutes late by carrier and hour, kept in the checkpoint. Each micro-batch sends the
windows that changed, so the last message of a window is its value.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from demo.flights import Carrier
from demo.table import FLIGHT

GROUP, SINK = "windows", "delays"

#: The fields of a message in the sink topic.
WINDOW = "carrier STRING, hour INT, start TIMESTAMP, flights BIGINT, delayed BIGINT, minutes BIGINT"

#: Carrier and hour of the day → its flights.
Cells = Mapping[tuple[str, int], Carrier]


def aggregate(
    spark: SparkSession, folder: Path, endpoint: str, topic: str, table_rows: int, **trigger: Any
) -> StreamingQuery:
    """Starts the query, of 2 × `table_rows` a micro-batch; a later one goes on where it was killed."""
    source = (
        spark.readStream.format("popmq")
        .option("endpoint", endpoint)
        .option("mode", "offsets")
        .option("topic", topic)
        .option("group", GROUP)
        .option("maxRowsPerTrigger", 2 * table_rows)
        .option("minPartitions", 2)
        .load()
    )
    flights = source.select(F.from_json(F.col("body").cast("string"), FLIGHT).alias("flight")).select("flight.*")
    # Without a watermark: the CSV has October before February, and a closed window would drop later rows.
    windows = flights.groupBy(F.window("time_hour", "1 hour"), "carrier", "hour").agg(
        F.count("*").alias("flights"),
        F.count("arr_delay").alias("delayed"),
        F.coalesce(F.sum("arr_delay"), F.lit(0)).alias("minutes"),
    )
    start = F.col("window.start").alias("start")
    value = F.struct("carrier", "hour", start, "flights", "delayed", "minutes")
    rows = windows.select(F.to_json(value).alias("body"), F.col("carrier").alias("key"))

    def send(changed: DataFrame, batch: int) -> None:
        """Spark's sinks from Python take no updates; a batch write does, and is known by the number of its batch."""
        writer = changed.write.format("popmq").option("endpoint", endpoint).option("topic", SINK).mode("append")
        writer.option("delivery", "exactly-once").option("txnAppId", GROUP).option("txnVersion", batch).save()

    writer = rows.writeStream.outputMode("update").foreachBatch(send)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint-delays"))
    return (writer.trigger(**trigger) if trigger else writer).start()


def cells(spark: SparkSession, endpoint: str) -> Cells:
    """Reads the sink topic as a table: the last message of each window, added up by carrier and hour of the day."""
    rows = spark.read.format("popmq").option("endpoint", endpoint).option("topic", SINK).load()
    value = F.from_json(F.col("body").cast("string"), WINDOW).alias("value")
    last = (
        rows.select(value, "queue_offset")
        .groupBy("value.carrier", "value.hour", "value.start")
        .agg(F.max_by("value", "queue_offset").alias("value"))
    )
    sums = last.groupBy("value.carrier", "value.hour").agg(
        F.sum("value.flights"), F.sum("value.delayed"), F.sum("value.minutes")
    )
    return {(carrier, hour): Carrier(*numbers) for carrier, hour, *numbers in sums.collect()}
