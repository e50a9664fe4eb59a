"""The Spark connector of PopMQ: a leased, sealed, replayable source for Structured Streaming.

    spark.readStream.format("popmq").option("endpoint", "127.0.0.1:8081") \\
        .option("topic", "orders").option("group", "spark").load()

Spark finds an installed connector by its name. If it does not (the session started before the installation, or uses
another Python), register it: `popmq_spark.register(spark)`.
"""

from typing import TYPE_CHECKING, Any

from popmq_spark import java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress

    from popmq_spark.lease.draining import Drain
    from popmq_spark.progress import Backlog

__all__ = ["backlog", "drain", "java", "register"]


def register(spark: "SparkSession") -> None:
    """Makes `format("popmq")` known to this session.

    Raises `worker_python.WorkerPythonError` if the Python that Spark starts for its workers has no connector,
    `pyspark_version.PySparkVersionError` if PySpark is older than 4.2.
    """
    from popmq_spark.pyspark_version import check_pyspark
    from popmq_spark.source import PopMQDataSource
    from popmq_spark.worker_python import check_worker_python

    check_pyspark()
    check_worker_python(spark)
    spark.dataSource.register(PopMQDataSource)


def drain(spark: "SparkSession", name: str, **options: Any) -> "Drain":
    """A `with` block that empties a topic once: `drain.rows` are acked when the block ends without an error.

    `name` names the job: an unfinished drain is repeated by the next one of its name and limits. `options` are
    those of `mode=lease`. What is promised, and what is not: `popmq_spark.lease.draining`.
    """
    from popmq_spark.pyspark_version import check_pyspark

    check_pyspark()
    from popmq_spark.lease.draining import Drain

    return Drain(spark, name, options)


def backlog(progress: "StreamingQueryProgress") -> "list[Backlog]":
    """How many messages a query had before it when a trigger began, by topic.

    `progress`: `query.lastProgress`, or `event.progress` in a listener's `onQueryProgress`.
    """
    from popmq_spark.progress import of_progress

    return of_progress(progress)
