"""The same over Spark Connect: a client without a JVM, and source and sink at the server.

    python examples/spark/connect.py [ENDPOINT] [REMOTE]

REMOTE is `local[2]` (a server of its own) or `sc://host`. The server's Python needs `popmq[spark]` too.
"""

import os
import sys
from pathlib import Path

import shop

import popmq
from popmq_spark.java import java_environment


def run(endpoint: str, folder: Path, remote: str) -> dict[str, int]:
    """Streams the orders into Parquet; returns the number of orders by customer."""
    os.environ.update(java_environment(), PYSPARK_PYTHON=sys.executable)
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(remote).getOrCreate()
    try:
        orders = shop.read(spark, endpoint, shop.ORDERS, shop.ORDER)
        query = orders.writeStream.format("parquet").option("path", str(folder / "connected"))
        query = query.option("checkpointLocation", str(folder / "checkpoint-connect"))
        query.trigger(availableNow=True).start().awaitTermination()
        table = spark.read.parquet(str(folder / "connected"))
        return {row["customer"]: row["count"] for row in table.groupBy("customer").count().collect()}
    finally:
        spark.stop()


if __name__ == "__main__":
    with popmq.Client(shop.endpoint()) as client:
        shop.fill(client)
    print(run(shop.endpoint(), Path("build/examples").resolve(), sys.argv[2] if len(sys.argv) > 2 else "local[2]"))
