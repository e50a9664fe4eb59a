"""The sink without Spark: writers are called in Spark's order, with pickled copies, and die where a process may."""

import pickle
import random
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

import popmq
from popmq_spark import clients
from popmq_spark.options import OptionError
from popmq_spark.schema import SchemaError
from popmq_spark.source import PopMQDataSource
from popmq_spark.writing import requests, write
from popmq_spark.writing.write import BadRowError, BatchWriter, StreamWriter, WriteError, Written
from tests.spark.conftest import TOPIC, Broker

Writer = StreamWriter | BatchWriter
BODY = StructType([StructField("body", StringType())])


def table(**columns: Sequence[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def bodies(*texts: str) -> pa.RecordBatch:
    return table(body=list(texts))


EITHER_NAME = pytest.mark.parametrize("options", [{}, {"txnAppId": "job"}], ids=["the id of the query", "txnAppId"])


def told(patch: pytest.MonkeyPatch, query: str, batch: int) -> None:
    """Lets the tasks that follow see a query and a batch, as Spark's TaskContext tells them."""
    patch.setattr(write, "_task_property", {write.QUERY_ID: query, write.BATCH_ID: str(batch)}.__getitem__)


class Sink:
    """A sink of a streaming query, as Spark makes it: a new writer for each use, pickled into its tasks."""

    def __init__(self, broker: Broker, patch: pytest.MonkeyPatch, **options: str) -> None:
        self.broker = broker
        self.patch = patch
        self.options = {"endpoint": broker.endpoint, "topic": TOPIC, "delivery": "exactly-once"} | options
        self.schema = BODY

    def writer(self) -> StreamWriter:
        source = PopMQDataSource({name.lower(): value for name, value in self.options.items()})
        made = pickle.loads(pickle.dumps(source)).streamWriter(self.schema, False)
        assert isinstance(made, StreamWriter)
        return made

    def task(self, batch: int, *rows: pa.RecordBatch, query: str = "q") -> Written:
        told(self.patch, query, batch)
        self.schema = from_arrow_schema(rows[0].schema) if rows else BODY
        written = pickle.loads(pickle.dumps(self.writer())).write(iter(rows))
        assert isinstance(written, Written)
        return written

    def commit(self, batch: int, *messages: Written) -> None:
        self.writer().commit(pickle.loads(pickle.dumps(list(messages))), batch)

    def batch(self, batch: int, *tasks: pa.RecordBatch) -> None:
        """A micro-batch in which nothing fails."""
        self.commit(batch, *(self.task(batch, rows) for rows in tasks))

    def stored(self, topic: str = TOPIC) -> list[str]:
        return sorted(message.body.decode() for message in self.messages(topic))

    def messages(self, topic: str = TOPIC) -> list[popmq.Delivery]:
        """Everything that a reader of the topic finds, once the broker has published what is committed."""
        self.broker.clock.advance(0)
        found: list[popmq.Delivery] = []
        for queue in range(self.broker.client.topics.get(topic).queues):
            found += self.broker.client.messages.browse(topic, queue, 0, 4096).deliveries
        return found


@pytest.fixture
def sink(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sink]:
    yield Sink(broker, monkeypatch)
    for client in clients._clients.values():
        client.close()
    clients._clients.clear()


# ── Exactly once ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_rows_are_in_the_topic_once_their_batch_is_committed(sink: Sink) -> None:
    written = [sink.task(0, bodies("1", "2"), bodies("3")), sink.task(0, bodies("4"))]
    assert [(message.rows, message.bad_rows) for message in written] == [(3, 0), (1, 0)]
    assert sink.stored() == []
    sink.commit(0, *written)
    assert sink.stored() == ["1", "2", "3", "4"]


def test_a_batch_that_spark_repeats_is_in_the_topic_once(sink: Sink) -> None:
    sink.batch(0, bodies("1"), bodies("2"))
    sink.batch(0, bodies("1"), bodies("2"))
    sink.batch(1, bodies("3"))
    assert sink.stored() == ["1", "2", "3"]


@pytest.mark.slow
def test_attempts_that_lose_leave_nothing(sink: Sink) -> None:
    sink.task(0, bodies("1"))
    winner = sink.task(0, bodies("1"))
    sink.commit(0, winner)
    assert sink.stored() == ["1"]


def test_an_aborted_batch_leaves_nothing_and_runs_again_under_its_number(sink: Sink) -> None:
    written = sink.task(0, bodies("1"))
    sink.writer().abort([written, None], 0)
    with pytest.raises(popmq.errors.StageNotFound):
        sink.commit(0, written)
    sink.batch(0, bodies("1"))
    assert sink.stored() == ["1"]


def test_a_batch_without_rows_is_committed_too(sink: Sink) -> None:
    sink.commit(0, sink.task(0))
    sink.commit(0, sink.task(0))
    with pytest.raises(WriteError, match="batch 0 is not stored"):
        sink.batch(0, bodies("late"))
    assert sink.stored() == []


def test_a_batch_of_too_many_tasks_says_what_to_do(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "STAGES_MAX", 2)
    sink.batch(0, *map(bodies, "12"))
    with pytest.raises(WriteError, match=r"batch 1 has 3 stages, .*at most 2 .*coalesce"):
        sink.batch(1, *map(bodies, "345"))
    assert sink.stored() == ["1", "2"]


def test_queries_do_not_share_batches(sink: Sink) -> None:
    sink.commit(0, sink.task(0, bodies("1"), query="a"))
    sink.commit(0, sink.task(0, bodies("2"), query="b"))
    assert sink.stored() == ["1", "2"]


@EITHER_NAME
def test_a_stream_whose_name_has_later_batches_fails_and_stores_nothing(sink: Sink, options: dict[str, str]) -> None:
    sink.options |= options
    for batch in (0, 1):
        sink.batch(batch, bodies(f"old {batch}"))
    for _ in range(2):
        with pytest.raises(WriteError, match=r"batch 0 is not stored.*a later batch.*Set .*txnAppId"):
            sink.batch(0, bodies("new 1", "new 2"))
    assert sink.stored() == ["old 0", "old 1"]


def test_a_batch_of_another_checkpoint_with_the_number_of_the_last_one_fails(sink: Sink) -> None:
    sink.options["txnAppId"] = "invoices"
    sink.commit(0, sink.task(0, bodies("old"), query="a"))
    with pytest.raises(WriteError, match=r"batches of another checkpoint.*committed by origin 'a'.*Set txnAppId"):
        sink.commit(0, sink.task(0, bodies("new"), query="b"))
    sink.options["txnAppId"] = "invoices 2"
    sink.commit(0, sink.task(0, bodies("new"), query="b"))
    assert sink.stored() == ["new", "old"]


@EITHER_NAME
def test_a_repeat_of_a_query_s_own_batch_with_other_rows_counts_as_done(sink: Sink, options: dict[str, str]) -> None:
    sink.options |= options
    sink.batch(3, bodies("1", "2"))
    sink.batch(3, bodies("1"))
    assert sink.stored() == ["1", "2"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_each_row_is_in_the_topic_once_through_failing_tasks_drivers_and_brokers(sink: Sink, seed: int) -> None:
    """Tasks fail and are repeated, drivers die before and after the commit, the broker restarts."""
    chance = random.Random(seed)
    expected: list[str] = []
    for batch in range(8):
        tasks = [[f"{batch}.{task}.{row}" for row in range(chance.randint(1, 4))] for task in range(2)]
        expected += [text for task in tasks for text in task]
        committed = False
        while not committed or chance.random() < 0.3:
            attempts = [[sink.task(batch, bodies(*task)) for _ in range(chance.randint(1, 2))] for task in tasks]
            if chance.random() < 0.3:
                continue
            if chance.random() < 0.2:
                sink.broker.restart()
            sink.commit(batch, *(chance.choice(tried) for tried in attempts))
            committed = True
    assert sink.stored() == sorted(expected)


def test_a_sink_without_a_query_says_what_to_do(sink: Sink) -> None:
    with pytest.raises(WriteError, match=r"sql\.streaming\.queryId.*txnAppId"):
        sink.writer().write(iter([bodies("1")]))


# ── At least once, and batch writes ──────────────────────────────────────────────────────────────────────────────────


def test_a_sink_with_at_least_once_sends_at_once_and_commits_nothing(sink: Sink) -> None:
    sink.options["delivery"] = "at-least-once"
    written = sink.task(0, bodies("1"))
    assert sink.stored() == ["1"]
    sink.commit(0, written)
    assert sink.stored() == ["1"]


def batch_writer(sink: Sink, **options: str) -> BatchWriter:
    given = {name.lower(): value for name, value in (sink.options | options).items()}
    made = PopMQDataSource(given).writer(BODY, False)
    assert isinstance(made, BatchWriter)
    return made


def test_a_batch_write_in_foreach_batch_is_exactly_once_by_its_number(sink: Sink) -> None:
    for _ in range(2):
        writer = batch_writer(sink, txnAppId="job", txnVersion="7")
        writer.commit([writer.write(iter([bodies("1")]))])
    assert sink.stored() == ["1"]


@pytest.mark.parametrize("version", ["6", "7"])
def test_a_write_in_foreach_batch_of_another_checkpoint_under_the_same_name_fails(sink: Sink, version: str) -> None:
    for query, number, body in (("a", "7", "old"), ("b", version, "new")):
        told(sink.patch, query, int(number))
        writer = batch_writer(sink, txnAppId="job", txnVersion=number)
        written = writer.write(iter([bodies(body)]))
        if query == "a":
            writer.commit([written])
    with pytest.raises(WriteError, match="batches of another checkpoint"):
        writer.commit([written])
    assert sink.stored() == ["old"]


def test_a_plain_batch_write_sends_at_once(sink: Sink) -> None:
    writer = batch_writer(sink, delivery="at-least-once")
    writer.commit([writer.write(iter([bodies("1")]))])
    assert sink.stored() == ["1"]


# ── Columns ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_columns_become_the_fields_of_messages(sink: Sink) -> None:
    sink.broker.client.topics.create("other", queues=1)
    rows = table(
        value=[b"a", b"b"],
        topic=["other", None],
        key=["k", None],
        tag=["red", None],
        message_id=["id-1", "id-2"],
        properties=pa.array([[("colour", "blue")], None], pa.map_(pa.string(), pa.string())),
    )
    sink.batch(0, rows)
    (message,) = sink.messages("other")
    assert (message.body, message.key, message.tag, message.message_id) == (b"a", "k", "red", "id-1")
    assert message.properties == {"colour": "blue"}
    assert [other.message_id for other in sink.messages()] == ["id-2"]


def test_delays_priorities_and_message_groups_reach_topics_of_their_type(sink: Sink) -> None:
    client = sink.broker.client
    client.topics.create("later", type="DELAY")
    client.topics.create("ledger", type="FIFO")
    client.topics.create("urgent", type="PRIORITY")
    sink.options["topic"] = "later"
    at = datetime(2100, 1, 1, tzinfo=UTC)
    sink.batch(0, table(body=["soon"], delay=[10.5]))
    sink.batch(1, table(body=["then"], deliver_at=pa.array([at], pa.timestamp("us", tz="UTC"))))
    assert sink.stored("later") == []
    sink.broker.clock.advance(10_500)
    assert sink.stored("later") == ["soon"]
    assert [row.due_ms for row in client.messages.list_delayed("later").messages] == [round(at.timestamp() * 1000)]
    sink.options["topic"] = "ledger"
    sink.batch(2, table(body=[str(n) for n in range(9)], message_group=["g"] * 9))
    assert [message.body for message in sink.messages("ledger")] == [str(n).encode() for n in range(9)]
    sink.options["topic"] = "urgent"
    sink.batch(3, table(body=["low", "high"], priority=[0, 9]))
    assert [message.body for message in sink.messages("urgent")] == [b"low", b"high"], "by queue"


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"key": ["a"]}, "need one column body"),
        ({"body": ["a"], "value": ["b"]}, "need one column body"),
        ({"body": [1]}, "the column body is bigint; a sink takes binary or string"),
        ({"body": ["a"], "colour": ["red"]}, "does not use the column 'colour'"),
        ({"body": ["a"], "properties": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32()))}, "is map<string,int>"),
        ({"body": ["a"], "delay": [1], "deliver_at": [datetime(2030, 1, 1, tzinfo=UTC)]}, "exclude each other"),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_anything_is_written(
    sink: Sink, columns: dict[str, list[Any]], complaint: str
) -> None:
    with pytest.raises(SchemaError, match=complaint):
        sink.task(0, table(**columns))


def test_a_column_that_comes_twice_is_refused_before_anything_is_written(sink: Sink) -> None:
    sink.schema = StructType([*BODY.fields, *[StructField("key", StringType())] * 2])
    with pytest.raises(SchemaError, match="several columns key: drop or rename the others"):
        sink.writer()


def test_rows_need_a_topic_from_somewhere(sink: Sink) -> None:
    del sink.options["topic"]
    with pytest.raises(SchemaError, match="name the topic"):
        sink.writer()


# ── Bad rows ─────────────────────────────────────────────────────────────────────────────────────────────────────────

BAD: list[tuple[dict[str, list[Any]], str]] = [
    ({"body": pa.array([None], pa.string())}, "the body is null"),
    ({"body": [""]}, "the body has 0 bytes"),
    ({"body": [b"x" * ((4 << 20) + 1)]}, "the body has 4194305 bytes"),
    ({"body": ["a"], "tag": ["two words"]}, "the tag"),
    ({"body": ["a"], "topic": ["nowhere"]}, "no topic 'nowhere'"),
    ({"body": ["a"], "topic": ["bad name!"]}, "topic 'bad name!' may only have"),
    ({"body": ["a"], "topic": ["%DLQ%x"]}, "is a dead-letter topic"),
    ({"body": ["a"], "topic": ["t" * 70_000]}, "topic has 70000 characters"),
    ({"body": ["a"], "key": ["k" * 70_000]}, "the key has 70000 characters"),
    ({"body": ["a"], "priority": [-1]}, "the priority is -1"),
    ({"body": ["a"], "priority": [1 << 31]}, "the priority is 2147483648"),
    ({"body": ["a"], "delay": [float("nan")]}, "the delay is nan"),
    ({"body": ["a"], "delay": [1e300]}, "the delay is 1e\\+300"),
    ({"body": ["a"], "deliver_at": pa.array([1 << 60], pa.timestamp("us", tz="UTC"))}, "not in the years 1–9999"),
    ({"body": ["a"], "deliver_at": pa.array([-(1 << 60)], pa.timestamp("us", tz="UTC"))}, "not in the years 1–9999"),
    ({"body": ["a"], "delay": [1.0]}, "needs a topic of another type"),
    ({"body": ["a"], "properties": pa.array([[("k", None)]], pa.map_(pa.string(), pa.string()))}, "a property is null"),
    (
        {"body": ["a"], "properties": pa.array([[("k", "ä" * 33_000)]], pa.map_(pa.string(), pa.string()))},
        "66001 bytes",
    ),
]


@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize(("columns", "reason"), BAD, ids=[reason for _, reason in BAD])
def test_a_bad_row_fails_its_task_or_goes_to_the_topic_for_bad_rows(
    sink: Sink, columns: dict[str, Any], reason: str, delivery: str
) -> None:
    sink.options["delivery"] = delivery
    columns = {name: pa.concat_arrays([array := pa.array(values), array]) for name, values in columns.items()}
    with pytest.raises(BadRowError, match=reason):
        sink.task(0, table(**columns))
    sink.broker.client.topics.create("bad", queues=1)
    sink.options["badRowTopic"] = "bad"
    written = [sink.task(1, table(**columns)), sink.task(1, bodies("good"))]
    assert [(message.rows, message.bad_rows) for message in written] == [(0, 2), (1, 0)]
    sink.commit(1, *written)
    assert sink.stored() == ["good"]
    (bad, _) = sink.messages("bad")
    assert re.search(reason, bad.properties["bad_row_reason"])


def test_a_topic_for_bad_rows_that_is_not_there_fails_the_task(sink: Sink) -> None:
    sink.options["badRowTopic"] = "nowhere"
    with pytest.raises(BadRowError, match="badRowTopic 'nowhere' refuses"):
        sink.task(0, bodies(""))


# ── Requests, options ────────────────────────────────────────────────────────────────────────────────────────────────


def test_requests_are_bounded_in_rows_and_bytes_and_keep_the_order(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "REQUEST_BYTES_MAX", 600)
    monkeypatch.setattr(requests, "ROW_BYTES", 60)  # with an id and a time: some 100 bytes and the body
    sink.options["maxRowsPerRequest"] = "5"
    sizes: list[int] = []
    calls = type(sink.broker.client.sinks)
    stage = calls.stage

    def counted(sinks: Any, topic: str, messages: popmq.EncodedMessages, **how: Any) -> Any:
        sizes.append(len(messages))
        return stage(sinks, topic, messages, **how)

    monkeypatch.setattr(calls, "stage", counted)
    sink.broker.client.topics.create("one", queues=1)
    sink.options["topic"] = "one"
    texts = [*map(str, range(7)), "x" * 300, "y" * 300, "z" * 600, "end"]
    sink.batch(0, bodies(*texts))
    assert sizes == [5, 3, 1, 1, 1]
    assert [message.body.decode() for message in sink.messages("one")] == texts


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"delivery": "twice"}, "at-least-once or exactly-once"),
        ({"txnVersion": "1"}, "for write in foreachBatch"),
        ({"colour": "red"}, "unknown option 'colour'"),
        ({"maxRowsPerRequest": "5000"}, "from 1 to 4096"),
    ],
)
def test_wrong_options_of_a_sink_say_what_to_write(sink: Sink, options: dict[str, str], complaint: str) -> None:
    sink.options |= options
    with pytest.raises(OptionError, match=complaint):
        sink.writer()


@pytest.mark.parametrize("options", [{}, {"txnAppId": "job"}, {"txnVersion": "1"}])
def test_a_batch_write_that_is_to_be_exactly_once_needs_its_name_and_number(
    sink: Sink, options: dict[str, str]
) -> None:
    with pytest.raises(OptionError, match="needs txnAppId and txnVersion"):
        batch_writer(sink, **options)
