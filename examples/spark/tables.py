"""One stream into a database and back into a topic, each order once, with foreachBatch.

    python examples/spark/tables.py [ENDPOINT]

A repeated batch has the same number and the same rows. The database forgets what it has of that number and stores it
again; the topic knows the numbers of its batches. The database is Derby, whose jar comes with Spark; any other that
JDBC reaches is used in the same way.
"""

from pathlib import Path

import shop
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit, struct, to_json

import popmq

COPIES = "shop-orders-copied"


def run(spark: SparkSession, endpoint: str, folder: Path) -> DataFrame:
    """Reads all orders that are there; returns the database's table: number, customer, amount, batch."""
    url = f"jdbc:derby:{folder / 'derby'};create=true"
    derby = {"driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver"}
    columns = "number BIGINT, customer VARCHAR(20), amount DOUBLE, batch BIGINT"
    execute(spark, url, f"CREATE TABLE orders ({columns})", unless="X0Y32")

    def store(batch: DataFrame, number: int) -> None:
        batch.persist()
        execute(spark, url, f"DELETE FROM orders WHERE batch = {number}")
        rows = batch.selectExpr("order AS number", "customer", "amount").withColumn("batch", lit(number))
        rows.write.jdbc(url, "orders", mode="append", properties=derby)
        copies = batch.select(to_json(struct("*")).alias("body"), batch.order.cast("string").alias("key"))
        copies.write.format("popmq").option("endpoint", endpoint).option("topic", COPIES).option(
            "delivery", "exactly-once"
        ).option("txnAppId", "copies").option("txnVersion", number).mode("append").save()
        batch.unpersist()

    query = shop.read(spark, endpoint, shop.ORDERS, shop.ORDER).writeStream.foreachBatch(store)
    query.option("checkpointLocation", str(folder / "checkpoint-tables")).trigger(
        availableNow=True
    ).start().awaitTermination()
    stored = spark.read.jdbc(url, "orders", properties=derby)
    return stored.toDF(*(name.lower() for name in stored.columns))  # a database has its own case


def execute(spark: SparkSession, url: str, statement: str, unless: str = "") -> None:
    """Runs one statement; an error with the SQL state `unless` is none."""
    from py4j.protocol import Py4JJavaError

    connection = spark._jvm.java.sql.DriverManager.getConnection(url)
    try:
        connection.createStatement().execute(statement)
    except Py4JJavaError as error:
        if error.java_exception.getSQLState() != unless:
            raise
    finally:
        connection.close()


if __name__ == "__main__":
    with popmq.Client(shop.endpoint()) as client:
        shop.fill(client)
        client.topics.create(COPIES)
    run(shop.session(), shop.endpoint(), Path("build/examples")).orderBy("number").show(12)
