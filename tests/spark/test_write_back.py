"""Rows that the source has read are rows that the sink takes: nothing of their messages is lost on the way."""

import gzip
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import popmq
from popmq_spark.columns import to_arrow
from popmq_spark.rows import Row, check_columns, rows
from popmq_spark.schema import SchemaError
from popmq_spark.source import PopMQDataSource
from tests.spark.conftest import TOPIC, Broker

PACKED = gzip.compress(b"long")
SENT = popmq.Message(PACKED, key="k", more_keys=("k2",), tag="red", properties={"a": "b"}, encoding="GZIP")
ALL = {"includekeys": "true", "includeproperties": "true", "includedeadletter": "true", "decode": "false"}


def written(**columns: Any) -> Row:
    """The only row of a table with a column body and these."""
    return next(rows(pa.RecordBatch.from_pydict({"body": ["x"], **columns}), TOPIC))


def test_rows_are_written_back_as_they_were_read(broker: Broker) -> None:
    broker.client.send(TOPIC, SENT)
    reading = broker.query(**ALL)
    reading.run()
    schema = PopMQDataSource({"endpoint": broker.endpoint, "topic": TOPIC, "group": "spark"} | ALL).schema()
    check_columns(schema, has_topic=False)
    table = pa.RecordBatch.from_pylist(reading.rows())
    (row,) = rows(table, "")
    assert row.topic == TOPIC
    assert row.message is not None
    for name in ("body", "key", "more_keys", "tag", "properties", "encoding"):
        found = getattr(row.message, name)
        assert (tuple(found) if name == "more_keys" else found) == getattr(SENT, name)
    assert row.message.message_id == reading.rows()[0]["message_id"]


@pytest.mark.parametrize(
    ("columns", "keys"),
    [
        ({"keys": [["a", "b"]]}, ("a", "b")),
        ({"keys": [["a", "b"]], "key": ["a"]}, ("a", "b")),
        ({"keys": [["a", "b"]], "key": ["c"]}, ("c", "a", "b")),
        ({"keys": [["a", "b"]], "key": ["b"]}, ("b", "a")),
        ({"keys": pa.array([[]], pa.list_(pa.string())), "key": ["c"]}, ("c",)),
        ({"keys": pa.array([None], pa.list_(pa.string()))}, ("",)),
    ],
)
def test_all_keys_of_a_row_are_keys_of_its_message(columns: dict[str, Any], keys: tuple[str, ...]) -> None:
    message = written(**columns).message
    assert message is not None
    assert (message.key, *message.more_keys) == keys


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({"keys": [["a", None]]}, "a key is null"),
        ({"keys": [[None]]}, "a key is null"),
        ({"encoding": ["RAR"]}, "the encoding is 'RAR', it must be one of GZIP, ZLIB, ZSTD, LZ4"),
    ],
)
def test_a_row_with_keys_or_an_encoding_that_no_message_can_have_is_named(columns: dict[str, Any], fault: str) -> None:
    row = written(**columns)
    assert (row.message, row.reason) == (None, fault)


def test_rows_that_name_the_topic_they_come_from_are_not_sent_there_by_accident() -> None:
    read = from_arrow_schema(pa.schema([("topic", pa.string()), ("queue_offset", pa.int64()), ("body", pa.binary())]))
    with pytest.raises(SchemaError, match="drop the column to write to the option's topic"):
        check_columns(read, has_topic=True)


def test_keys_that_are_no_texts_are_refused() -> None:
    wrong = from_arrow_schema(pa.schema([("body", pa.string()), ("keys", pa.list_(pa.int64()))]))
    with pytest.raises(SchemaError, match="is array<bigint>; a sink takes array<string>"):
        check_columns(wrong, has_topic=True)


def test_a_body_without_its_encoding_is_read_as_it_was_sent() -> None:
    """No encodings came with an answer whose reader does not ask for them."""
    answer = popmq.Columns(["m"], [PACKED], [""], [""], [0], [0], [0], [0], [1], [{}])
    assert answer.unpacked(0) == PACKED
    assert to_arrow(answer, TOPIC, None, pa.schema([("body", pa.binary())]))["body"].to_pylist() == [PACKED]
