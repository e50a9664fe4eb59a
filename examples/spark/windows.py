"""Turnover by customer and hour: a windowed aggregate whose state survives failures, and a picture of it.

    python examples/spark/windows.py [ENDPOINT]

The result is a table of Parquet that each batch replaces; a batch that Spark repeats replaces it by the same.
"""

from pathlib import Path

import shop
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, sum, window

import popmq


def run(spark: SparkSession, endpoint: str, folder: Path, group: str = "") -> DataFrame:
    """Reads all orders that are there; returns the table: customer, hour, turnover."""
    orders = shop.read(spark, endpoint, shop.ORDERS, shop.ORDER, group)
    hours = orders.withWatermark("at", "1 hour").groupBy(window("at", "1 hour"), "customer")
    turnover = hours.agg(sum("amount").alias("turnover"))
    rows = turnover.select("customer", col("window.start").alias("hour"), "turnover")
    table = str(folder / "turnover")

    def store(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(table)

    query = rows.writeStream.outputMode("complete").foreachBatch(store)
    query.option("checkpointLocation", str(folder / "checkpoint-windows")).trigger(
        availableNow=True
    ).start().awaitTermination()
    return spark.read.parquet(table)


def over(spark: SparkSession, endpoint: str, folder: Path, group: str = "") -> DataFrame:
    """Only the hours that are over: six hours after them no order is waited for, and each is written once."""
    orders = shop.read(spark, endpoint, shop.ORDERS, shop.ORDER, group)
    hours = orders.withWatermark("at", "6 hours").groupBy(window("at", "1 hour"), "customer")
    turnover = hours.agg(sum("amount").alias("turnover"))
    rows = turnover.select("customer", col("window.start").alias("hour"), "turnover")
    query = rows.writeStream.outputMode("append").format("parquet").option("path", str(folder / "over"))
    query.option("checkpointLocation", str(folder / "checkpoint-over")).trigger(
        availableNow=True
    ).start().awaitTermination()
    return spark.read.parquet(str(folder / "over"))


def draw(rows: DataFrame, picture: Path) -> None:
    """A line for each customer."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 4))
    table = rows.orderBy("hour").toPandas()
    for customer, lines in table.groupby("customer"):
        axes.plot(lines["hour"], lines["turnover"], marker="o", label=customer)
    axes.set_title("Turnover by customer and hour")
    axes.legend()
    figure.savefig(picture)
    plt.close(figure)


if __name__ == "__main__":
    with popmq.Client(shop.endpoint()) as client:
        shop.fill(client)
    here = Path("build/examples")
    here.mkdir(parents=True, exist_ok=True)
    table = run(shop.session(), shop.endpoint(), here)
    table.orderBy("hour", "customer").show(12)
    draw(table, here / "turnover.png")
    print(f"the picture is {here / 'turnover.png'}")
