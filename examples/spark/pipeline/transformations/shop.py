"""A declarative pipeline: orders of a topic → large orders → another topic.

spark-pipelines run --spec examples/spark/pipeline/spark-pipeline.yml
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import from_json, struct, to_json

spark = SparkSession.active()
ENDPOINT = spark.conf.get("popmq.endpoint")
ORDER = "order BIGINT, customer STRING, amount DOUBLE, at TIMESTAMP"

dp.create_sink(
    "large_orders",
    "popmq",
    {"endpoint": ENDPOINT, "topic": "shop-large-orders", "delivery": "exactly-once"},
)


@dp.temporary_view
def orders() -> DataFrame:
    """The orders of the topic."""
    stream = spark.readStream.format("popmq").option("endpoint", ENDPOINT).option("mode", "offsets")
    rows = stream.option("topic", "shop-orders").load()
    return rows.select(from_json(rows.body.cast("string"), ORDER).alias("row")).select("row.*")


@dp.append_flow(target="large_orders")
def large() -> DataFrame:
    """Orders of 40 and more, as messages."""
    rows = spark.readStream.table("orders").where("amount >= 40")
    return rows.select(to_json(struct("*")).alias("body"), rows.order.cast("string").alias("key"))
