"""The same over Spark Connect: a client without a JVM, and source and sink at the server.

    python examples/spark/connect.py [ENDPOINT] [REMOTE]

REMOTE is `local[2]` (a server of its own) or `sc://host`. The server's Python needs `popmq[spark]` too.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import shop

import popmq
import popmq_spark
from popmq_spark.java import java_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: The topic that gets the orders back, each once.
COPIES = "shop-connected"
GROUP = "connected"


def run(endpoint: str, folder: Path, remote: str) -> "tuple[dict[str, int], list[popmq_spark.Backlog]]":
    """Streams the orders into Parquet, and by leases into a topic.

    Returns the number of orders by customer, and the backlog of the second query when its last trigger began.
    """
    os.environ.update(java_environment(), PYSPARK_PYTHON=sys.executable)
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(remote).getOrCreate()
    try:
        orders = shop.read(spark, endpoint, shop.ORDERS, shop.ORDER)
        query = orders.writeStream.format("parquet").option("path", str(folder / "connected"))
        query = query.option("checkpointLocation", str(folder / "checkpoint-connect"))
        query.trigger(availableNow=True).start().awaitTermination()
        table = spark.read.parquet(str(folder / "connected"))
        counts = {row["customer"]: row["count"] for row in table.groupBy("customer").count().collect()}
        return counts, copy(spark, endpoint, folder)
    finally:
        spark.stop()


def copy(spark: "SparkSession", endpoint: str, folder: Path) -> "list[popmq_spark.Backlog]":
    """Takes the orders from their topic by leases, and sends each exactly once to another."""
    source = spark.readStream.format("popmq").option("endpoint", endpoint).option("topic", shop.ORDERS)
    rows = source.option("group", GROUP).option("maxRowsPerTrigger", 100).load().select("body")
    sink = rows.writeStream.format("popmq").option("endpoint", endpoint).option("topic", COPIES)
    sink = sink.option("delivery", "exactly-once").option("checkpointLocation", str(folder / "checkpoint-copies"))
    query = sink.trigger(availableNow=True).start()
    query.awaitTermination()
    progress = query.lastProgress
    return popmq_spark.backlog(progress) if progress else []


if __name__ == "__main__":
    with popmq.Client(shop.endpoint()) as client:
        shop.fill(client)
        if COPIES not in {topic.name for topic in client.topics.list()}:
            client.topics.create(COPIES, queues=2)
    print(run(shop.endpoint(), Path("build/examples").resolve(), sys.argv[2] if len(sys.argv) > 2 else "local[2]"))
