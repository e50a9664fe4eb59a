"""Measures the Spark connector without Spark: its tasks and its driver, beside the calls that they make.

The JVM's part is left out, since it is the same for every source; `local_spark.py` measures with it. Rates are
compared within one run, one process each.
"""

import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa

import popmq
from bench.measuring.floors import Floor
from bench.measuring.load import Spec
from bench.measuring.measure import loads, run
from bench.parts.legs import Effort, Results
from bench.parts.one_batch import ACK_P99_MS, acks_beside_a_batch
from harness.broker_process import BrokerProcess
from popmq_spark.source import PopMQDataSource

TOPIC, BODY = "spark", b"x" * 1024
MESSAGES = 102_400
LONG, LONG_BODY, LONG_MESSAGES = "spark-long", b"x" * 16_384, 12_800
BATCH, CALLERS = 256, 8
#: Tasks that run at once.
TASKS = 2
#: The exactly-once sink beside sends of the SDK.
SINK_RATIO = 0.5
#: The source beside pops and acks of raw stubs.
SOURCE_RATIO = 0.8
EMPTY_TRIGGER_MS = 20.0
#: Rows without their bodies of 16 KiB beside rows with them.
BARE_RATIO = 3.0
#: A micro-batch of this many short messages has to take the same time with any backlog after it.
SHALLOW, DEEP, SHORT_ROWS, BACKLOG_RATIO = "spark-shallow", "spark-deep", 10_000, 0.7


def everything(scratch: Path, effort: Effort, results: Results, say: Callable[[str], None]) -> None:
    """Fills a topic, and reads and writes it in each way."""
    with BrokerProcess(scratch / "spark") as broker, popmq.Client(broker.endpoint) as client:
        client.topics.create(TOPIC, queues=8)
        client.topics.create("out", queues=8)
        client.groups.create("plain")
        say("Spark connector: sink")
        sends = _rate(MESSAGES, lambda: _fill(client, TOPIC, [popmq.Message(BODY)] * BATCH, MESSAGES))
        sink = _rate(MESSAGES, lambda: _write(broker.endpoint))
        say("Spark connector: source")
        pops = _raw_pops(broker.endpoint)
        leased = _rate(MESSAGES, lambda: _stream(broker.endpoint, mode="lease", group="leased"))
        ranges, bare = _with_and_without(broker.endpoint, TOPIC, MESSAGES)
        say("Spark connector: long bodies")
        client.topics.create(LONG, queues=8)
        _fill(client, LONG, [popmq.Message(LONG_BODY)] * 64, LONG_MESSAGES)
        long, bare_of_long = _with_and_without(broker.endpoint, LONG, LONG_MESSAGES)
        say(f"Spark connector: a backlog of {effort.backlog:,}")
        flat = _deep_beside_shallow(client, broker.endpoint, effort.backlog)
        say("Spark connector: empty triggers")
        idle = {mode: _trigger_ms(broker.endpoint, mode) for mode in ("lease", "offsets")}
        say(f"Spark connector: a batch of {effort.rows:,} rows")
        beside, alone, batch_s = acks_beside_a_batch(client, effort.rows)
    results.notes |= {
        "Spark connector, sends of the SDK, messages/s": sends,
        "Spark connector, exactly-once sink, rows/s": sink,
        "Spark connector, pops and acks of raw stubs, messages/s": pops,
        "Spark connector, mode=lease, rows/s": leased,
        "Spark connector, mode=offsets, rows/s": ranges,
        "Spark connector, mode=offsets without body, rows/s": bare,
        f"Spark connector, one exactly-once batch of {effort.rows:,} rows, s": batch_s,
        "Spark connector, acks without such a batch, p99, ms": alone,
        "Spark connector, rows without body beside rows with it, 1 KiB": bare / ranges,
    }
    results.floors += [
        Floor("Spark source (lease) beside pop and ack", leased / pops, SOURCE_RATIO, "×", at_most=False),
        Floor("Spark source (offsets) beside pop and ack", ranges / pops, SOURCE_RATIO, "×", at_most=False),
        Floor("Spark exactly-once sink beside sends", sink / sends, SINK_RATIO, "×", at_most=False),
        Floor("Spark rows without their bodies of 16 KiB", bare_of_long / long, BARE_RATIO, "×", at_most=False),
        *(
            Floor(
                f"{effort.backlog:,} waiting beside {SHORT_ROWS:,}, mode={mode}",
                ratio,
                BACKLOG_RATIO,
                "×",
                at_most=False,
            )
            for mode, ratio in flat.items()
        ),
        Floor(f"acks beside a batch of {effort.rows:,} rows, p99", beside, ACK_P99_MS, "ms"),
        *(Floor(f"empty trigger, mode={mode}", ms, EMPTY_TRIGGER_MS, "ms") for mode, ms in idle.items()),
    ]


def _rate(messages: int, work: Callable[[], int]) -> float:
    began = time.perf_counter()
    done = work()
    assert done == messages, f"{done} of {messages}"
    return messages / (time.perf_counter() - began)


def _fill(client: popmq.Client, topic: str, batch: list[popmq.Message], messages: int) -> int:
    for _ in range(0, messages, len(batch)):
        client.send(topic, batch)
    return messages


def _raw_pops(endpoint: str) -> float:
    """Messages/s of one process that pops and acks a whole topic by 256 through raw stubs."""
    spec = Spec("raw_pop", endpoint, TOPIC, "plain", batch=BATCH, callers=CALLERS, seconds=600)
    with loads([spec]) as waiting:
        (tally,) = run(waiting)
    assert tally.messages == MESSAGES
    return tally.messages / tally.elapsed_s


def _with_and_without(endpoint: str, topic: str, messages: int) -> tuple[float, float]:
    """Rows/s of all columns, and of all but the body: the best of three reads each, in turns."""

    def read(without: str) -> float:
        return _rate(messages, lambda: _stream(endpoint, without, mode="offsets", topic=topic))

    rates = [(read(""), read("body")) for _ in range(3)]
    return max(whole for whole, _ in rates), max(bare for _, bare in rates)


def _deep_beside_shallow(client: popmq.Client, endpoint: str, backlog: int) -> dict[str, float]:
    """Rows/s of one micro-batch with `backlog` messages in its topic, beside that with no more than it reads, by mode.

    The best of five each, in turns.
    """
    for topic, messages in ((SHALLOW, SHORT_ROWS), (DEEP, backlog)):
        client.topics.create(topic, queues=8)
        _fill(client, topic, [popmq.Message(b"x" * 100)] * 1_000, messages)

    def read(topic: str, mode: str, group: str) -> float:
        options = {"mode": mode, "maxRowsPerTrigger": str(SHORT_ROWS)} | ({"group": group} if mode == "lease" else {})
        return _rate(SHORT_ROWS, lambda: _stream(endpoint, topic=topic, batches=1, **options))

    found = {}
    for mode in ("lease", "offsets"):
        rates = [(read(DEEP, mode, f"deep-{turn}"), read(SHALLOW, mode, f"shallow-{turn}")) for turn in range(5)]
        found[mode] = max(deep for deep, _ in rates) / max(shallow for _, shallow in rates)
    return found


def _write(endpoint: str) -> int:
    """One batch of one task, as the sink of a job writes it."""
    from pyspark.sql.types import BinaryType, StructField, StructType

    options = {"endpoint": endpoint, "topic": "out", "delivery": "exactly-once", "txnAppId": "bench", "txnVersion": "1"}
    writer = PopMQDataSource(options).writer(StructType([StructField("body", BinaryType())]), False)
    rows = pa.RecordBatch.from_pydict({"body": [BODY] * 10_240})
    written: Any = writer.write(rows for _ in range(0, MESSAGES, 10_240))
    writer.commit([written])
    return int(written.rows)


def _stream(endpoint: str, without: str = "", batches: int = 0, **options: str) -> int:
    """Reads a topic from its first message to its last, two tasks at once as on `local[2]`, and acks in `mode=lease`.

    `batches`: ends after this many micro-batches.
    """
    given = {"endpoint": endpoint, "topic": TOPIC, "longPollTimeout": "0s", **options}
    source = PopMQDataSource(given)
    schema = source.schema()
    schema.fields = [field for field in schema.fields if field.name != without]
    schema.names = [field.name for field in schema.fields]
    reader: Any = source.streamReader(schema)
    start, rows, number = reader.initialOffset(), 0, 0
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) is not start:
        with ThreadPoolExecutor(TASKS) as tasks:
            rows += sum(tasks.map(lambda part: _rows(reader, part), reader.partitions(start, end)))
        start = end
        number += 1
        if number == batches:
            break
    reader.stop()
    return rows


def _rows(reader: Any, part: Any) -> int:
    """Reads one task's part; returns how many rows it has."""
    return sum(batch.num_rows for batch in reader.read(part))


def _trigger_ms(endpoint: str, mode: str) -> float:
    """Median milliseconds of the driver in a trigger that finds no messages."""
    given = {"endpoint": endpoint, "topic": "out", "mode": mode, "group": f"idle-{mode}", "longPollTimeout": "0s"}
    source = PopMQDataSource(given | {"startingOffsets": "latest"})
    reader: Any = source.streamReader(source.schema())
    limit = reader.getDefaultReadLimit()
    start = reader.initialOffset()
    start = reader.latestOffset(start, limit)
    taken = []
    for _ in range(50):
        began = time.perf_counter()
        assert reader.latestOffset(start, limit) is start
        taken.append(1000 * (time.perf_counter() - began))
    reader.stop()
    return statistics.median(taken)
