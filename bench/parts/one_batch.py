"""One exactly-once batch of very many rows, while another client acks: how long do its acks take?

A process of its own writes the batch, as the sink of a job does. Here another client pops and acks one message after
the other, from the first staged row until the last row of the batch can be read.
"""

import multiprocessing
import time
from typing import Any

import pyarrow as pa

import popmq
from bench.measuring.measure import percentile
from harness.stubs import Stubs
from popmq_proto.v1 import popmq_pb2 as pb

ROWS, BODY = 1_000_000, b"x" * 100
ROWS_AT_ONCE = 10_000
#: 99 of 100 acks of another client.
ACK_P99_MS = 50.0
#: Acks between two looks at how far the batch is.
LOOK = 100


def acks_beside_a_batch(client: popmq.Client, rows: int = ROWS) -> tuple[float, float, float]:
    """p99 in milliseconds of acks beside the batch, and of acks before it; seconds of the batch."""
    for topic in ("batch", "acked"):
        client.topics.create(topic, queues=8)
    client.groups.create("acking")
    for _ in range(100):
        client.send("acked", [popmq.Message(b"x")] * 1_000)
    writer = multiprocessing.get_context("spawn").Process(target=write, args=(client.endpoint, rows))
    taken: list[float] = []
    with Stubs(client.endpoint) as stubs:
        alone = [_ack(stubs) for _ in range(1_000)]
        writer.start()
        began = time.perf_counter()
        while not _is_there(client, rows):
            assert writer.exitcode in (None, 0), "the batch failed"
            taken += [_ack(stubs) for _ in range(LOOK)]
        seconds = time.perf_counter() - began
    writer.join()
    return percentile(taken, 0.99), percentile(alone, 0.99), seconds


def write(endpoint: str, rows: int) -> None:
    """Stages all rows in one task, and commits them."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    from popmq_spark.source import PopMQDataSource

    options = {"endpoint": endpoint, "topic": "batch", "delivery": "exactly-once", "txnAppId": "one", "txnVersion": "1"}
    writer = PopMQDataSource(options).writer(StructType([StructField("body", BinaryType())]), False)
    batch = pa.RecordBatch.from_pydict({"body": [BODY] * ROWS_AT_ONCE})
    written: Any = writer.write(batch for _ in range(0, rows, ROWS_AT_ONCE))
    writer.commit([written])


def _is_there(client: popmq.Client, rows: int) -> bool:
    return sum(row.max_offset for row in client.offsets.query("batch")) == rows


def _ack(stubs: Stubs) -> float:
    """Milliseconds of one ack of one message."""
    popped = stubs.broker.Pop(pb.PopRequest(topic="acked", group="acking", max_messages=1), timeout=60)
    assert len(popped.deliveries) == 1, "there were too few messages to ack"
    request = pb.AckRequest(group="acking", handles=[popped.deliveries[0].handle])
    began = time.perf_counter()
    stubs.broker.Ack(request, timeout=60)
    return 1e3 * (time.perf_counter() - began)
