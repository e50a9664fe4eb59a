"""What the examples share: a Spark session, and a small shop whose orders and payments are messages.

python examples/spark/shop.py [ENDPOINT]     sends the orders and the payments, once
"""

import json
import os
import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import popmq
from popmq_spark.java import java_environment

from pyspark.sql import DataFrame, SparkSession  # isort: skip  (popmq chooses gRPC's settings first)

ORDERS, PAYMENTS = "shop-orders", "shop-payments"
CUSTOMERS = ("ann", "bob", "cid", "dee")
MIDNIGHT = datetime(2026, 1, 31, tzinfo=UTC)

#: How Spark reads an order and a payment.
ORDER = "order BIGINT, customer STRING, amount DOUBLE, at TIMESTAMP"
PAYMENT = "order BIGINT, at TIMESTAMP"


def orders(count: int) -> Iterator[dict[str, object]]:
    """Orders of one day, one each two minutes; always the same."""
    dice = random.Random(7)
    for number in range(count):
        at = MIDNIGHT + timedelta(minutes=2 * number)
        yield {
            "order": number,
            "customer": dice.choice(CUSTOMERS),
            "amount": dice.randrange(1, 200) / 4,
            "at": at.isoformat(),
        }


def payments(count: int) -> Iterator[dict[str, object]]:
    """Payments of two orders in three, half an hour after the order."""
    for order in orders(count):
        if int(str(order["order"])) % 3:
            at = datetime.fromisoformat(str(order["at"])) + timedelta(minutes=30)
            yield {"order": order["order"], "at": at.isoformat()}


def fill(client: popmq.Client, count: int = 360) -> None:
    """Makes the two topics and sends everything; does nothing if they are there."""
    if ORDERS in {topic.name for topic in client.topics.list()}:
        return
    for topic in (ORDERS, PAYMENTS):
        client.topics.create(topic, queues=2)
    for topic, rows in ((ORDERS, orders(count)), (PAYMENTS, payments(count))):
        messages = [popmq.Message(json.dumps(row), key=str(row["order"])) for row in rows]
        for first in range(0, len(messages), 20):
            client.send(topic, messages[first : first + 20])


def read(spark: SparkSession, endpoint: str, topic: str, schema: str, group: str = "") -> DataFrame:
    """A stream of the JSON bodies of a topic: by offsets, or by leases that a group shares with other consumers.

    Either way a batch that fails is read again exactly.
    """
    from pyspark.sql.functions import from_json

    stream = spark.readStream.format("popmq").option("endpoint", endpoint)
    stream = stream.option("group", group) if group else stream.option("mode", "offsets")
    rows = stream.option("topic", topic).option("maxRowsPerTrigger", 100).load()
    return rows.select(from_json(rows.body.cast("string"), schema).alias("row")).select("row.*")


def session() -> SparkSession:
    """A Spark of this machine, with RocksDB for state."""
    os.environ.update(java_environment(), PYSPARK_PYTHON=sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2")
    builder = builder.config("spark.sql.session.timeZone", "UTC").config("spark.log.level", "ERROR")
    return builder.getOrCreate()


def endpoint() -> str:
    """Of the command line, else the one of `popmq serve`."""
    return sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:8081"


if __name__ == "__main__":
    with popmq.Client(endpoint()) as shop:
        fill(shop)
