"""A stream into a Delta table, each order once, with foreachBatch.

    python examples/spark/delta.py [ENDPOINT]

Needs a Spark that has a Delta: `pip install "pyspark==4.2.0"`; the jars come from Maven. Delta remembers the last batch
of a writer (`txnAppId`) and drops a repeat of it.
"""

import os
import sys
from pathlib import Path

import shop
from pyspark.sql import DataFrame, SparkSession

import popmq
from popmq_spark.java import java_environment

PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"


def run(spark: SparkSession, endpoint: str, folder: Path) -> DataFrame:
    """Reads all orders that are there; returns the table."""
    table = str(folder / "orders-delta")

    def store(batch: DataFrame, number: int) -> None:
        writer = batch.write.format("delta").option("txnAppId", "shop-orders").option("txnVersion", number)
        writer.mode("append").save(table)

    query = shop.read(spark, endpoint, shop.ORDERS, shop.ORDER).writeStream.foreachBatch(store)
    query.option("checkpointLocation", str(folder / "checkpoint-delta")).trigger(
        availableNow=True
    ).start().awaitTermination()
    return spark.read.format("delta").load(table)


def session() -> SparkSession:
    """A Spark with Delta."""
    os.environ.update(java_environment(), PYSPARK_PYTHON=sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.jars.packages", PACKAGE)
    builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    catalog = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    return builder.config("spark.sql.catalog.spark_catalog", catalog).getOrCreate()


if __name__ == "__main__":
    with popmq.Client(shop.endpoint()) as client:
        shop.fill(client)
    run(session(), shop.endpoint(), Path("build/examples").resolve()).show(12)
