"""What Spark sees before a query runs: the name, the columns, and how light the modules are."""

import dataclasses
import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any, cast

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

import popmq
import popmq_spark
from popmq_spark.columns import arrow_schema, to_arrow
from popmq_spark.options import OptionError
from popmq_spark.pyspark_version import PySparkVersionError
from popmq_spark.schema import SchemaError
from popmq_spark.source import PopMQDataSource

OPTIONS = {"endpoint": "127.0.0.1:8081", "topic": "orders", "group": "spark"}

ROWS = popmq.Columns(
    message_id=["a", "b"],
    body=[b"\x00\xff", b"two"],
    tag=["red", ""],
    key=["", "k"],
    queue=[3, 0],
    offset=[2**40, 1],
    born_ms=[1_700_000_000_123, 0],
    stored_ms=[1_700_000_000_456, 1_700_000_000_789],
    attempt=[1, 2],
    properties=[{"colour": "blue", "size": "9"}, {}],
    message_group=["", "g"],
    priority=[0, 5],
    encoding=["", "ZSTD"],
)


def source(**options: str) -> PopMQDataSource:
    return PopMQDataSource(OPTIONS | options)


def test_the_format_is_called_popmq_and_found_by_its_module() -> None:
    import pyspark_popmq

    assert pyspark_popmq.DefaultSource is PopMQDataSource
    assert PopMQDataSource.name() == "popmq"


@pytest.mark.slow
def test_looking_the_source_up_loads_neither_grpc_nor_arrow() -> None:
    """Spark looks up all installed sources in one process; a slow or failing import would harm every one of them."""
    loaded = "import sys, pyspark_popmq; print([m for m in ('grpc', 'pyarrow', 'popmq') if m in sys.modules])"
    said = subprocess.run([sys.executable, "-W", "ignore", "-c", loaded], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_wrong_options_are_refused_when_the_source_is_made() -> None:
    with pytest.raises(OptionError, match="maxRowsPerTrigger"):
        source(maxrowspertrigger="many")


def test_options_that_only_a_batch_read_refuses_pass_load_and_end_the_read() -> None:
    leasing = source()
    columns = leasing.schema()
    with pytest.raises(OptionError, match="leave out mode and group"):
        leasing.reader(columns)


def test_wrong_options_beside_a_schema_of_the_user_and_no_mode_end_the_query_instead_of_load() -> None:
    wrong = PopMQDataSource({"topic": "orders", "endpoint": "127.0.0.1:8081", "topik": "orders"})
    with pytest.raises(OptionError, match="unknown option 'topik'"):
        wrong.reader(StructType([StructField("message_id", StringType())]))


def test_the_columns_are_the_documented_ones_and_properties_come_on_demand() -> None:
    places = ["topic", "queue_id", "queue_offset"]
    message = ["message_id", "key", "body", "tag", "message_group", "priority", "encoding"]
    message += ["born_ts", "store_ts"]
    assert source().schema().names == [*places, *message, "delivery_attempt", "popmq_epoch"]
    assert "properties" in source(includeproperties="true").schema().names
    assert "keys" in source(includekeys="true").schema().names


def test_the_arrow_types_are_those_that_spark_checks_for() -> None:
    schema = source(includeproperties="true", includedeadletter="true", includekeys="true").schema()
    assert {"properties", "dead_letter", "keys"} < {*schema.names}
    assert arrow_schema(schema).equals(to_arrow_schema(schema, timezone="UTC"))


def test_an_answer_becomes_a_batch_with_nulls_for_what_was_left_out() -> None:
    schema = arrow_schema(source(includeproperties="true").schema())
    first, second = to_arrow(ROWS, "orders", 7, schema).to_pylist()
    assert first == {
        "topic": "orders",
        "queue_id": 3,
        "queue_offset": 2**40,
        "message_id": "a",
        "key": None,
        "body": b"\x00\xff",
        "tag": "red",
        "properties": [("colour", "blue"), ("size", "9")],
        "message_group": None,
        "priority": 0,
        "encoding": None,
        "born_ts": datetime(2023, 11, 14, 22, 13, 20, 123000, UTC),
        "store_ts": datetime(2023, 11, 14, 22, 13, 20, 456000, UTC),
        "delivery_attempt": 1,
        "popmq_epoch": 7,
    }
    assert (second["key"], second["tag"], second["born_ts"], second["properties"]) == ("k", None, None, [])


def test_a_schema_of_the_user_chooses_columns_and_their_order() -> None:
    chosen = StructType([field for name in ("tag", "topic") for field in source().schema() if field.name == name])
    batch = to_arrow(ROWS, "orders", 7, arrow_schema(chosen))
    assert batch.schema.equals(pa.schema([("tag", pa.string()), ("topic", pa.string())]))
    assert batch.to_pydict() == {"tag": ["red", None], "topic": ["orders", "orders"]}


@pytest.mark.parametrize(
    ("field", "complaint"),
    [("colour", "no column 'colour'; the columns are topic,"), ("body", "column body is binary, not string")],
)
def test_a_wrong_schema_is_refused_with_a_sentence(field: str, complaint: str) -> None:
    with pytest.raises(SchemaError, match=complaint):
        source().streamReader(StructType([StructField(field, StringType())]))


NO_KEY, NO_EPOCH = (
    StructField("key", StringType(), nullable=False),
    StructField("popmq_epoch", LongType(), nullable=False),
)
TOPIC_COLUMN = StructField("topic", StringType())


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ([NO_KEY], "the column key may be null: leave NOT NULL out"),
        ([TOPIC_COLUMN, NO_EPOCH], "the column popmq_epoch may be null"),
        ([TOPIC_COLUMN, TOPIC_COLUMN], "names a column twice: topic, topic"),
    ],
)
def test_a_schema_with_which_spark_would_give_wrong_answers_is_refused(
    fields: list[StructField], complaint: str
) -> None:
    for read in (source().streamReader, source().reader):
        with pytest.raises(SchemaError, match=complaint):
            read(StructType(fields))


def test_a_column_that_is_never_null_may_be_said_to_be_so() -> None:
    assert source().streamReader(StructType([StructField("topic", StringType(), nullable=False)]))


def test_a_time_that_is_no_date_becomes_null_and_ends_no_query() -> None:
    """Any producer may send one, and the message is read again after each failure."""
    impossible = dataclasses.replace(ROWS, born_ms=[2**62, 2**63 - 1])
    batch = to_arrow(impossible, "orders", 7, arrow_schema(source().schema()))
    assert batch.to_pydict()["born_ts"] == [None, None]


def test_a_schema_without_a_column_is_refused_because_its_rows_could_not_be_counted() -> None:
    with pytest.raises(ValueError, match="the schema has no column: name one"):
        source().streamReader(StructType([]))


@pytest.mark.parametrize("version", ["3.5.1", "4.0.0", "4.1.2.dev1"])
def test_a_pyspark_that_is_too_old_is_named_with_the_one_that_is_needed(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    for start in (
        source,
        lambda: popmq_spark.register(cast(Any, None)),
        lambda: popmq_spark.drain(cast(Any, None), "a"),
    ):
        with pytest.raises(PySparkVersionError, match=f"needs PySpark 4.2 or newer, this is {re.escape(version)}"):
            start()


@pytest.mark.parametrize("version", ["4.2.0", "4.10.1", "5.0.0.dev0"])
def test_newer_releases_of_pyspark_are_taken(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    assert source().schema()


def test_the_module_that_the_docs_name_is_there_after_the_import() -> None:
    assert popmq_spark.java.JAVA_MAJOR_MIN == 17


TABLE = {"provider": "popmq", "owner": "someone", "comment": "mine"}


def test_a_table_is_read_with_the_options_of_its_creation_though_spark_forgets_them() -> None:
    given = {"endpoint": "127.0.0.1:8081", "topic": "orders", "secret": "hidden", "maxPartitions": "7"}
    options = given | TABLE | {f"option.{name}": value for name, value in given.items()}
    schema = StructType.fromJson(json.loads(PopMQDataSource(options).schema().json()))
    assert schema.names == source().schema().names
    assert "hidden" not in schema.json()
    options_of_it = PopMQDataSource({"maxpartitions": "3"}).reader(schema)._options  # type: ignore[attr-defined]
    assert (options_of_it.endpoint, options_of_it.topic, options_of_it.max_partitions) == (
        "127.0.0.1:8081",
        "orders",
        3,
    )
    leases = PopMQDataSource(options | {"option.group": "spark"}).schema()
    with pytest.raises(OptionError, match=r"spark\.read leases nothing"):
        PopMQDataSource({}).reader(leases)
    assert PopMQDataSource({}).streamReader(leases)._options.group == "spark"  # type: ignore[attr-defined]


def test_a_wrong_option_of_a_table_is_refused_but_no_property_of_spark() -> None:
    with pytest.raises(OptionError, match="unknown option 'colour'"):
        PopMQDataSource(TABLE | {"option.colour": "red", "colour": "red"}).schema()
    with pytest.raises(OptionError, match="unknown option 'owner'"):
        source(owner="not of a table")
