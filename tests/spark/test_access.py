"""A query with an access key over TLS; and that its secret is in no offset, no checkpoint, no plan and no repr."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import popmq
from harness.broker_process import own_port
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_spark.options import OptionError, Options
from tests.spark.reading.microbatch import MicroBatches, ids
from tests.wire.access.signing import secret_of, write_keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY = {"topic": "orders", "group": "spark", "longPollTimeout": "0s"}
KEYS = {
    "root": ["*"],
    "query": ["receive:orders/spark"],
    "other": ["receive:orders/audit", "send:orders"],
    "reader": ["receive:orders"],
    "sender": ["send:orders"],
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """With TLS and access keys, a topic and 20 messages; the group is made by the query."""
    write_keys(tmp_path / "keys.toml", KEYS)
    keys, data = tmp_path / "keys.toml", tmp_path / "data"
    with EmbeddedBroker(data, sync="none", tls_port=own_port(), access_keys=keys) as broker:
        with popmq.Client(broker.endpoint, access_key="root", secret=secret_of("root")) as client:
            client.topics.create("orders", queues=2)
            client.send("orders", [str(number) for number in range(20)])
        yield broker


def options(broker: EmbeddedBroker, key: str, secret: str = "") -> dict[str, str]:
    reached = {"endpoint": broker.tls_endpoint, "tlsCa": str(broker.certificate)}
    return QUERY | reached | {"accessKey": key, "secret": secret or secret_of(key)}


def test_a_query_reads_with_a_key_over_tls_and_its_offsets_hold_none_of_it(broker: EmbeddedBroker) -> None:
    query = MicroBatches(**options(broker, "query"), maxRowsPerTrigger=8, minPartitions=2)
    try:
        assert query.run() == 3
        assert len(ids(query.rows())) == 20
        shown = [*query.offsets, *(repr(part) for part in query.parts()), repr(Options.parse(options(broker, "query")))]
    finally:
        query.stop()
    assert [text for text in shown if secret_of("query") in text] == []
    assert [text for text in query.offsets if "query" in text] == []


@pytest.mark.parametrize("key", [("other", ""), ("query", "not its secret"), ("nobody", "")])
def test_a_key_that_does_not_allow_it_ends_the_query(broker: EmbeddedBroker, key: tuple[str, str]) -> None:
    query = MicroBatches(**options(broker, *key))
    try:
        with pytest.raises(popmq.errors.Denied, match="access key"):
            query.run()
    finally:
        query.stop()


@pytest.mark.parametrize(("key", "group"), [("query", "spark"), ("reader", "")])
def test_a_query_by_offsets_reads_with_a_key_and_its_offsets_hold_none_of_it(
    broker: EmbeddedBroker, key: str, group: str
) -> None:
    given: dict[str, str] = options(broker, key) | {"mode": "offsets", "group": group}
    if group:
        with popmq.Client(broker.endpoint, access_key="root", secret=secret_of("root")) as client:
            client.groups.create(group)
    else:
        del given["group"]
    query = MicroBatches(**given, maxRowsPerTrigger=8)
    try:
        assert query.run() == 3
        assert len(ids(query.rows())) == 20
        shown = [*query.offsets, *(repr(part) for part in query.parts())]
    finally:
        query.stop()
    assert [text for text in shown if secret_of(key) in text] == []


@pytest.mark.parametrize(
    ("key", "group"),
    [("other", "spark"), ("sender", ""), ("query", "new")],
    ids=["of another group", "no reader", "new"],
)
def test_a_key_that_does_not_allow_it_ends_a_query_by_offsets(broker: EmbeddedBroker, key: str, group: str) -> None:
    given: dict[str, str] = options(broker, key) | {"mode": "offsets", "group": group}
    if not group:
        del given["group"]
    query = MicroBatches(**given)
    try:
        with pytest.raises(popmq.errors.Denied, match="access key"):
            query.run()
    finally:
        query.stop()


def test_the_key_may_come_from_the_environment(broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPMQ_ACCESS_KEY", "query")
    monkeypatch.setenv("POPMQ_SECRET", secret_of("query"))
    query = MicroBatches(**QUERY, endpoint=broker.endpoint)
    try:
        assert query.run() == 1
    finally:
        query.stop()


def test_wrong_options_are_reported_without_the_secret() -> None:
    given = QUERY | {"endpoint": "x:1", "secret": "hidden-secret", "tls": "yes", "accesskeys": "hidden"}
    for wrong in (given, {name: value for name, value in given.items() if name != "accesskeys"}):
        with pytest.raises(OptionError) as error:
            Options.parse(wrong)
        assert "hidden" not in str(error.value)


@pytest.mark.spark
@pytest.mark.slow
def test_spark_writes_the_secret_nowhere(broker: EmbeddedBroker, spark: "SparkSession", tmp_path: Path) -> None:
    rows = spark.readStream.format("popmq").options(**options(broker, "query")).load()
    table, checkpoint = tmp_path / "table", tmp_path / "checkpoint"
    writer = rows.selectExpr("CAST(body AS STRING) AS text").writeStream.format("parquet")
    query = writer.option("path", str(table)).option("checkpointLocation", str(checkpoint))
    running = query.trigger(availableNow=True).start()
    running.awaitTermination()
    assert {row.text for row in spark.read.parquet(str(table)).collect()} == {str(number) for number in range(20)}
    plan = io.StringIO()
    with contextlib.redirect_stdout(plan):
        running.explain(True)
        rows.explain(True)
    progress = "".join(each.json for each in running.recentProgress)
    written = [path for path in (*checkpoint.rglob("*"), *table.rglob("*")) if path.is_file()]
    assert written
    assert progress
    assert plan.getvalue()
    assert secret_of("query") not in plan.getvalue() + progress
    assert [path.name for path in written if secret_of("query").encode() in path.read_bytes()] == []
