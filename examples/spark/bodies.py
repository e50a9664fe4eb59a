"""Bodies in JSON, Avro and Protobuf, read as columns.

    python examples/spark/bodies.py [ENDPOINT]

`from_json` takes a schema that is made by example, of a body that is there. Protobuf is decoded by the classes that
protoc makes (here made at run time), and the rows go through Arrow. Avro needs Spark's own package `spark-avro`.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyspark
import shop
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import from_json, schema_of_json

import popmq

JSON, PROTOBUF, AVRO = "shop-json", "shop-protobuf", "shop-avro"
#: Of the JVM that uses `avro`; it has the version of Spark.
AVRO_PACKAGE = f"org.apache.spark:spark-avro_2.13:{pyspark.__version__}"
AVRO_SCHEMA = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "order", "type": "long"},
            {"name": "customer", "type": "string"},
            {"name": "amount", "type": "double"},
        ],
    }
)
COLUMNS = "order BIGINT, customer STRING, amount DOUBLE"


def order_class() -> Any:
    """The class of `message Order { int64 order = 1; string customer = 2; double amount = 3; }`."""
    kinds = (("order", 3), ("customer", 9), ("amount", 1))
    fields = [
        descriptor_pb2.FieldDescriptorProto(name=name, number=number, type=kind, label=1)
        for number, (name, kind) in enumerate(kinds, 1)
    ]
    order = descriptor_pb2.DescriptorProto(name="Order", field=fields)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", message_type=[order]))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))


def decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Bodies → the columns of an order."""
    made = order_class()
    for batch in batches:
        orders = [made.FromString(body) for body in batch.column("body").to_pylist()]
        yield pa.RecordBatch.from_pydict(
            {
                "order": [order.order for order in orders],
                "customer": [order.customer for order in orders],
                "amount": [order.amount for order in orders],
            }
        )


def bodies(spark: SparkSession, endpoint: str, topic: str) -> DataFrame:
    return spark.read.format("popmq").option("endpoint", endpoint).option("topic", topic).schema("body BINARY").load()


def from_json_by_example(spark: SparkSession, endpoint: str) -> DataFrame:
    """The schema is that of the first body."""
    rows = bodies(spark, endpoint, JSON)
    first = rows.first()
    assert first is not None
    schema = spark.range(1).select(schema_of_json(first.body.decode())).first()
    return rows.select(from_json(rows.body.cast("string"), schema[0]).alias("row")).select("row.*")


def from_protobuf(spark: SparkSession, endpoint: str) -> DataFrame:
    return bodies(spark, endpoint, PROTOBUF).mapInArrow(decode, COLUMNS)


def avro(spark: SparkSession, endpoint: str) -> DataFrame:
    """Of a JVM that has AVRO_PACKAGE: writes the orders in Avro, and reads them."""
    from pyspark.sql.avro.functions import from_avro, to_avro
    from pyspark.sql.functions import struct

    rows = from_json_by_example(spark, endpoint).select(
        to_avro(struct("order", "customer", "amount"), AVRO_SCHEMA).alias("body")
    )
    writer = rows.write.format("popmq").option("endpoint", endpoint).option("topic", AVRO)
    writer.mode("append").save()
    read = bodies(spark, endpoint, AVRO)
    return read.select(from_avro(read.body, AVRO_SCHEMA).alias("row")).select("row.*")


def fill(client: popmq.Client, count: int = 50) -> None:
    """The same orders in JSON and in Protobuf."""
    made = order_class()
    for topic in (JSON, PROTOBUF, AVRO):
        client.topics.create(topic, queues=2)
    for order in shop.orders(count):
        client.send(JSON, [json.dumps(order)])
        known = {name: order[name] for name in ("order", "customer", "amount")}
        client.send(PROTOBUF, [made(**known).SerializeToString()])


if __name__ == "__main__":
    with popmq.Client(shop.endpoint()) as client:
        fill(client)
    spark = shop.session()
    from_json_by_example(spark, shop.endpoint()).show(5)
    from_protobuf(spark, shop.endpoint()).show(5)
