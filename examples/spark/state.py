"""Loyalty points: a state of one's own for each customer, by transformWithState.

    python examples/spark/state.py [ENDPOINT]

A customer has a point for each whole 10 of every order. Spark keeps the states in RocksDB, and each batch's version of
them with its checkpoint: a batch that is repeated begins from the states before it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import shop
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.functions import max
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

import popmq

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
POINTS = "customer STRING, points BIGINT, orders BIGINT"


class Points(StatefulProcessor):
    """Points and number of orders of one customer."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("points", "points BIGINT, orders BIGINT")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        points, orders = self._state.get() or (0, 0)
        for row in rows:
            points += int(row.amount // 10)
            orders += 1
        self._state.update((points, orders))
        yield Row(customer=key[0], points=points, orders=orders)

    def close(self) -> None:
        """Nothing is open."""


def run(spark: SparkSession, endpoint: str, folder: Path, group: str = "") -> DataFrame:
    """Reads all orders that are there; returns the table: customer, points, orders."""
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
    orders = shop.read(spark, endpoint, shop.ORDERS, shop.ORDER, group)
    rows = orders.groupBy("customer").transformWithState(Points(), POINTS, "Update", "None")
    table = folder / "points"

    def store(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(str(table / f"batch={number}"))

    query = rows.writeStream.outputMode("update").foreachBatch(store)
    query.option("checkpointLocation", str(folder / "checkpoint-state")).trigger(
        availableNow=True
    ).start().awaitTermination()
    # Both only grow: the greatest is the last.
    rows = spark.read.parquet(str(table)).groupBy("customer")
    return rows.agg(max("points").alias("points"), max("orders").alias("orders"))


if __name__ == "__main__":
    with popmq.Client(shop.endpoint()) as client:
        shop.fill(client)
    run(shop.session(), shop.endpoint(), Path("build/examples")).orderBy("customer").show()
