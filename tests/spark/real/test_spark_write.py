"""The sinks in a real Spark: what a query writes is in the topic once, whoever fails on the way."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from tests.spark.conftest import Broker

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    # py4j leaves sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

OUT = "out"


@pytest.fixture
def out(broker: Broker) -> Callable[[], list[str]]:
    """What a reader finds in the topic that is written to."""
    broker.client.topics.create(OUT, queues=1)

    def stored() -> list[str]:
        broker.clock.advance(0)
        return sorted(found.body.decode() for found in broker.client.messages.browse(OUT, 0, 0, 4096).deliveries)

    return stored


def copy(rows: DataFrame, broker: Broker, folder: Path) -> None:
    """Writes a stream into the topic, until everything that is there now is written."""
    writer = rows.writeStream.format("popmq").option("checkpointLocation", str(folder / "checkpoint"))
    writer = writer.options(endpoint=broker.endpoint, topic=OUT, delivery="exactly-once")
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.smoke
def test_a_batch_that_spark_repeats_after_a_commit_is_known(
    spark: SparkSession, broker: Broker, tmp_path: Path, out: Callable[[], list[str]]
) -> None:
    """The driver dies between the sink's commit and its own entry in the commit log, which is therefore missing."""
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "0").write_text("0a\n0b\n")
    copy(spark.readStream.format("text").load(str(texts)), broker, tmp_path)
    for entry in (tmp_path / "checkpoint" / "commits").glob("*0*"):
        entry.unlink()
    (texts / "1").write_text("1a\n")
    copy(spark.readStream.format("text").load(str(texts)), broker, tmp_path)
    assert out() == ["0a", "0b", "1a"]


def test_a_batch_write_in_foreach_batch_knows_a_batch_by_its_number(
    spark: SparkSession, broker: Broker, out: Callable[[], list[str]]
) -> None:
    rows = spark.createDataFrame([("a", 1), ("b", 2)], "value STRING, n INT").select("value")
    options = {"endpoint": broker.endpoint, "topic": OUT, "txnAppId": "job", "txnVersion": "3"}
    for _ in range(2):
        rows.write.format("popmq").options(delivery="exactly-once", **options).mode("append").save()
    assert out() == ["a", "b"]
    rows.write.format("popmq").options(endpoint=broker.endpoint, topic=OUT).mode("append").save()
    assert out() == ["a", "a", "b", "b"]
    plain = {"endpoint": broker.endpoint, "topic": OUT}
    with pytest.raises(Exception, match="a topic is not overwritten"):
        rows.write.format("popmq").options(**plain).mode("overwrite").save()
    odd = rows.selectExpr("value", "1 AS n")
    with pytest.raises(Exception, match="does not use the column 'n'"):
        odd.write.format("popmq").options(**plain).mode("append").save()


def test_a_query_with_a_new_checkpoint_does_not_take_the_batches_of_another_one_for_its_own(
    spark: SparkSession, broker: Broker, tmp_path: Path, out: Callable[[], list[str]]
) -> None:
    """In foreachBatch, where Spark tells the tasks of a write which query it is for."""

    def store(rows: DataFrame, batch: int) -> None:
        writer = rows.write.format("popmq").options(endpoint=broker.endpoint, topic=OUT, delivery="exactly-once")
        writer.option("txnAppId", "job").option("txnVersion", batch).mode("append").save()

    def run(name: str) -> None:
        (tmp_path / name).mkdir()
        (tmp_path / name / "text").write_text(f"{name}\n")
        rows = spark.readStream.format("text").load(str(tmp_path / name)).writeStream.foreachBatch(store)
        rows.option("checkpointLocation", str(tmp_path / f"{name}-checkpoint")).trigger(
            availableNow=True
        ).start().awaitTermination()

    run("old")
    with pytest.raises(Exception, match="has batches of another checkpoint"):
        run("new")
    assert out() == ["old"]
