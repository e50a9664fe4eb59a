"""The first way of the flights: the query that fills a Parquet table, and the table read back."""

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from demo.flights import Carrier

#: The fields of the messages, which become the columns of the table.
FLIGHT = """row BIGINT, year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT,
    sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING,
    air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP"""

#: A run has some eight micro-batches, between which programs can be killed; fewer, if they would be small.
BATCHES, ROWS_MIN = 8, 5_000
#: The lease of what Spark has popped. A driver that was killed comes back for it; on a busy machine that takes minutes.
INVISIBLE_TIME = "15m"


class FlightTable:
    """A Parquet table in `folder` that a streaming query fills from a topic with `total` messages."""

    def __init__(self, spark: SparkSession, folder: Path, total: int) -> None:
        self.rows_per_trigger = max(ROWS_MIN, total // BATCHES + 1)
        self._spark = spark
        self._path = str(folder / "table")
        self._checkpoint = str(folder / "checkpoint")

    def fill(self, endpoint: str, topic: str, group: str, **trigger: Any) -> StreamingQuery:
        """Starts the query; `trigger` as in DataStreamWriter.trigger, by default as fast as it can."""
        source = (
            self._spark.readStream.format("popmq")
            .option("endpoint", endpoint)
            .option("topic", topic)
            .option("group", group)
            .option("maxRowsPerTrigger", self.rows_per_trigger)
            .option("minPartitions", 2)
            .option("invisibleTime", INVISIBLE_TIME)
            .load()
        )
        flights = source.select(
            F.from_json(F.col("body").cast("string"), FLIGHT).alias("flight"),
            "tag",
            "message_id",
            "delivery_attempt",
        ).select("flight.*", "tag", "message_id", "delivery_attempt")
        writer = flights.writeStream.format("parquet").option("path", self._path)
        writer = writer.option("checkpointLocation", self._checkpoint)
        return (writer.trigger(**trigger) if trigger else writer).start()

    def counts(self) -> tuple[int, int, int]:
        """Rows; different flights among them, by their row number; rows whose message was delivered more than once."""
        found = self._spark.read.parquet(self._path).agg(
            F.count("*"), F.countDistinct("row"), F.count_if(F.col("delivery_attempt") != 1)
        )
        rows, different, repeated = found.first() or (0, 0, 0)
        return rows, different, repeated

    def carriers(self) -> dict[str, Carrier]:
        """Flights and delays by carrier, from the table; the carrier is the message's tag."""
        rows = (
            self._spark.read.parquet(self._path)
            .groupBy("tag")
            .agg(F.count("*"), F.count("arr_delay"), F.coalesce(F.sum("arr_delay"), F.lit(0)))
            .collect()
        )
        return {carrier: Carrier(*numbers) for carrier, *numbers in rows}
