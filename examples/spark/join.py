"""Which orders were paid within two hours: a join of two streams, whose state survives failures.

    python examples/spark/join.py [ENDPOINT]

An order waits in Spark's state for its payment, and a payment for its order, until the watermark is two hours past
them.
"""

from pathlib import Path

import shop
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import expr

import popmq


def run(spark: SparkSession, endpoint: str, folder: Path, group: str = "") -> DataFrame:
    """Reads all that is there; returns the table: order, customer, amount, paid_at."""
    orders = shop.read(spark, endpoint, shop.ORDERS, shop.ORDER, group).withWatermark("at", "1 hour")
    payments = shop.read(spark, endpoint, shop.PAYMENTS, shop.PAYMENT, group).withWatermark("at", "1 hour")
    payments = payments.withColumnsRenamed({"order": "paid", "at": "paid_at"})
    in_time = expr("order = paid AND paid_at BETWEEN at AND at + INTERVAL 2 HOURS")
    rows = orders.join(payments, in_time).select("order", "customer", "amount", "paid_at")
    query = rows.writeStream.format("parquet").option("path", str(folder / "paid"))
    query.option("checkpointLocation", str(folder / "checkpoint-join")).trigger(
        availableNow=True
    ).start().awaitTermination()
    return spark.read.parquet(str(folder / "paid"))


if __name__ == "__main__":
    with popmq.Client(shop.endpoint()) as client:
        shop.fill(client)
    run(shop.session(), shop.endpoint(), Path("build/examples")).orderBy("order").show(12)
