"""Makes Spark find `format("popmq")` by itself.

At the first unknown format Spark imports every top-level module named `pyspark_…` and registers its `DefaultSource`.
An import error in one of them makes Spark drop all of them, so this one imports PySpark's own modules and ours, and
gRPC only when a query runs.
"""

from popmq_spark.source import PopMQDataSource as DefaultSource

__all__ = ["DefaultSource"]
