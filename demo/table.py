"""The Spark side: a quiet local session, the query that fills the table, and the table read back."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from demo.flights import Carrier
from popmq_spark.java import java_environment

#: What the messages hold; the table gets these columns.
FLIGHT = """row BIGINT, year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT,
    sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING,
    air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP"""

ROWS_PER_TRIGGER = 40_000

#: What goes wrong in Spark, or between it and us when its Java dies.
SPARK_ERRORS = (PySparkException, Py4JError, ConnectionError)


@contextmanager
def quiet_spark(folder: Path) -> Iterator[SparkSession]:
    """Spark on two cores, on the loopback, its files in `folder`, all that it says in `folder/spark.log`."""
    os.environ.update(java_environment())
    os.environ.update(SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(folder / "spark"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.host": "127.0.0.1",
    }
    builder = SparkSession.builder.master("local[2]").appName("popmq-demo")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _stderr_into(folder / "spark.log"):
        spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        # Where Java is dead already there is nothing to stop, and this error would hide the one that matters.
        with suppress(*SPARK_ERRORS):
            spark.stop()


@contextmanager
def _stderr_into(log: Path) -> Iterator[None]:
    """Java inherits the file as its stderr and keeps it; ours comes back."""
    sys.stderr.flush()
    ours = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)


class FlightTable:
    """A Parquet table in `folder` that a streaming query fills from a topic."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
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
            .option("maxRowsPerTrigger", ROWS_PER_TRIGGER)
            .option("minPartitions", 2)
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
