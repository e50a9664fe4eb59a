"""The Spark connector of PopMQ: a leased, sealed, replayable source for Structured Streaming.

    spark.readStream.format("popmq").option("endpoint", "127.0.0.1:8081") \\
        .option("topic", "orders").option("group", "spark").load()

An installed connector is found by its name. Where the lookup does not see it (a session that started before it was
installed, another Python), register it: `popmq_spark.register(spark)`.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: "SparkSession") -> None:
    """Makes `format("popmq")` known to this session."""
    from popmq_spark.source import PopMQDataSource

    spark.dataSource.register(PopMQDataSource)
