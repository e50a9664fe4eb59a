"""A day of a topic again: read by the time at which it was stored, and sent to another topic.

    python examples/spark/replay.py [ENDPOINT] [DAY]        DAY is 2026-01-31; the default is today, UTC

Nothing is leased, so no consumer notices. The copies have the ids of the originals; the number of the day makes the
write exactly-once: a second replay of the same day adds nothing.
"""

import sys
from datetime import UTC, date, datetime, time, timedelta

import shop
from pyspark.sql import DataFrame, SparkSession

import popmq

REPLAYED = "shop-orders-replayed"


def read_day(spark: SparkSession, endpoint: str, day: date) -> DataFrame:
    """What was stored on that day, by UTC."""
    midnight = datetime.combine(day, time(), UTC)
    reader = spark.read.format("popmq").option("endpoint", endpoint).option("topic", shop.ORDERS)
    reader = reader.option("startingOffsets", midnight.isoformat())
    return reader.option("endingOffsets", (midnight + timedelta(days=1)).isoformat()).load()


def run(spark: SparkSession, endpoint: str, day: date) -> int:
    """Sends the day's orders to another topic, once; returns how many there are."""
    orders = read_day(spark, endpoint, day).select("message_id", "key", "tag", "body")
    writer = orders.write.format("popmq").option("endpoint", endpoint).option("topic", REPLAYED)
    writer = (
        writer.option("delivery", "exactly-once").option("txnAppId", "replay").option("txnVersion", day.toordinal())
    )
    writer.mode("append").save()
    return orders.count()


if __name__ == "__main__":
    with popmq.Client(shop.endpoint()) as client:
        shop.fill(client)
        client.topics.create(REPLAYED)
    day = date.fromisoformat(sys.argv[2]) if len(sys.argv) > 2 else datetime.now(UTC).date()
    print(f"{run(shop.session(), shop.endpoint(), day)} orders of {day} are in {REPLAYED}")
