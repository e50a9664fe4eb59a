"""From Kafka to PopMQ: one query reads both while producers move over, and stores each order once.

    python examples/spark/from_kafka.py ENDPOINT KAFKA        KAFKA is host:port of its broker

The table does not notice from which broker an order came, but for a column that tells. When nothing has come from
Kafka for long enough, the next version of the query reads PopMQ alone, from a new checkpoint and the same group.
"""

import os
import sys
from pathlib import Path

import shop
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

from popmq_spark.java import java_environment


def streams(spark: SparkSession, endpoint: str, kafka: str) -> DataFrame:
    """Orders of both: body and origin."""
    theirs = spark.readStream.format("kafka").option("kafka.bootstrap.servers", kafka)
    theirs = theirs.option("subscribe", shop.ORDERS).option("startingOffsets", "earliest").load()
    ours = spark.readStream.format("popmq").option("endpoint", endpoint).option("mode", "offsets")
    ours = ours.option("topic", shop.ORDERS).option("group", "shop-table").load()
    return (
        theirs.selectExpr("value AS body")
        .withColumn("origin", lit("kafka"))
        .union(ours.select("body").withColumn("origin", lit("popmq")))
    )


def run(spark: SparkSession, endpoint: str, kafka: str, folder: Path) -> DataFrame:
    """Stores what is there now in Parquet; returns the table: order, origin."""
    rows = streams(spark, endpoint, kafka).selectExpr(
        "CAST(get_json_object(CAST(body AS STRING), '$.order') AS BIGINT) AS number", "origin"
    )
    query = rows.writeStream.format("parquet").option("path", str(folder / "orders"))
    query.option("checkpointLocation", str(folder / "checkpoint-from-kafka")).trigger(
        availableNow=True
    ).start().awaitTermination()
    return spark.read.parquet(str(folder / "orders"))


def session() -> SparkSession:
    """A Spark with the package of its Kafka source."""
    import pyspark

    os.environ.update(java_environment(), PYSPARK_PYTHON=sys.executable)
    package = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}"
    builder = SparkSession.builder.master("local[2]").config("spark.jars.packages", package)
    return builder.config("spark.log.level", "ERROR").getOrCreate()


if __name__ == "__main__":
    run(session(), sys.argv[1], sys.argv[2], Path("build/examples")).groupBy("origin").count().show()
