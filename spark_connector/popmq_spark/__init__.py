"""The Spark connector of PopMQ: a leased, sealed, replayable source for Structured Streaming.

    spark.readStream.format("popmq").option("endpoint", "127.0.0.1:8081") \\
        .option("topic", "orders").option("group", "spark").load()

Spark finds an installed connector by its name. If it does not (the session started before the installation, or uses
another Python), register it: `popmq_spark.register(spark)`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from popmq_spark.lease.draining import Drain

__all__ = ["drain", "register"]


def register(spark: "SparkSession") -> None:
    """Makes `format("popmq")` known to this session."""
    from popmq_spark.source import PopMQDataSource

    spark.dataSource.register(PopMQDataSource)


def drain(spark: "SparkSession", name: str, **options: Any) -> "Drain":
    """A `with` block that empties a topic once: `drain.rows` are acked when the block ends without an error.

    `name` names the job: an unfinished drain is repeated by the next one of its name. `options` are
    those of `mode=lease`. What is promised, and what is not: `popmq_spark.lease.draining`.
    """
    from popmq_spark.lease.draining import Drain

    return Drain(spark, name, options)
