"""The source in a real Spark: what is sent is what is stored, whoever fails on the way."""

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import popmq
import popmq_spark
from tests.spark.conftest import TOPIC, Broker
from tests.spark.real.conftest import Query, fail

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    # py4j leaves sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.smoke
@pytest.mark.wheel
def test_available_now_moves_everything_into_a_parquet_table_and_leaves_nothing_in_flight(
    spark: SparkSession, broker: Broker, tmp_path: Path, query: Query
) -> None:
    sent = broker.send(50)
    table, checkpoint = str(tmp_path / "table"), str(tmp_path / "checkpoint")

    def run() -> None:
        writer = query.load().writeStream.format("parquet").option("path", table)
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()

    run()
    assert sorted(row.message_id for row in spark.read.parquet(table).collect()) == sorted(sent)
    assert (broker.group().in_flight, broker.group().acked) == (0, 50)
    run()
    assert spark.read.parquet(table).count() == 50
    assert (broker.group().in_flight, broker.group().acked) == (0, 50)


def test_a_task_that_fails_half_way_is_repeated_with_the_same_rows(
    broker: Broker, query: Query, tmp_path: Path
) -> None:
    sent = broker.send(50)

    def fail_first(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context
        for batch in batches:
            yield batch
            if context.attemptNumber() == 0:
                (tmp_path / f"failed-{context.taskAttemptId()}").touch()
                raise OSError("the executor's disk is gone")

    rows = query.load()
    query.run(rows.mapInArrow(fail_first, rows.schema))
    assert len(list(tmp_path.glob("failed-*"))) == 6  # three batches of two tasks
    assert query.ids == sorted(sent)
    assert broker.group().in_flight == 0


def test_a_sink_that_fails_after_storing_gets_the_same_batch_again_also_with_other_options(
    broker: Broker, query: Query
) -> None:
    sent = broker.send(70)
    query.failing[1] = fail
    with pytest.raises(StreamingQueryException, match="the sink's disk is gone"):
        query.run()
    sent += broker.send(10)
    query.options |= {"maxRowsPerTrigger": 15, "minPartitions": 3}
    query.run()
    assert query.stored[1][0] == query.stored[1][1]
    assert [len(runs[0]) for runs in query.stored.values()] == [20, 20, 15, 15, 10]
    assert query.ids == sorted(sent)
    assert broker.group().in_flight == 0


def test_kill_9_of_the_driver_between_sink_and_commit_repeats_the_same_batch(
    broker: Broker, query: Query, tmp_path: Path
) -> None:
    sent = broker.send(50)
    script = Path(__file__).with_name("driver_to_kill.py")
    command = [sys.executable, "-W", "ignore", str(script), broker.endpoint, TOPIC, "spark", str(tmp_path)]
    killed = subprocess.run(command, capture_output=True, text=True, start_new_session=True)
    assert killed.returncode == -9, killed.stderr[-2000:]
    before = {batch: json.loads((tmp_path / f"batch-{batch}.json").read_text()) for batch in (0, 1)}
    assert broker.group().in_flight == 20  # of the batch that was stored and not committed
    broker.let_leases_run_out()
    sent += broker.send(5)
    query.run()
    assert query.stored[1] == [sorted(before[1])]
    assert sorted(before[0] + query.ids) == sorted(sent)
    assert broker.group().in_flight == 0


def test_a_restart_of_the_broker_in_mid_query_is_not_noticed(broker: Broker, query: Query) -> None:
    sent = broker.send(60)
    query.failing = {0: broker.restart, 1: broker.restart}
    query.run()
    assert query.ids == sorted(sent)
    assert broker.group().in_flight == 0


def test_a_batch_that_is_read_several_times_is_the_same_each_time(broker: Broker, query: Query) -> None:
    broker.send(40)
    seen: list[tuple[int, int, list[str]]] = []

    def look(rows: DataFrame, batch: int) -> None:
        seen.append((rows.count(), rows.limit(3).count(), sorted(row.message_id for row in rows.collect())))

    query.load().writeStream.foreachBatch(look).trigger(availableNow=True).start().awaitTermination()
    assert [(rows, some) for rows, some, _ in seen] == [(20, 3), (20, 3)]
    assert len({message for _, _, messages in seen for message in messages}) == 40
    assert broker.group().in_flight == 0


def test_a_union_with_itself_sees_every_message_twice_and_acks_it_once(broker: Broker, query: Query) -> None:
    sent = broker.send(30)
    rows = query.load()
    query.run(rows.union(rows))
    assert query.ids == sorted(sent * 2)
    assert (broker.group().acked, broker.group().in_flight) == (30, 0)


def test_trigger_once_leaves_its_batch_to_be_acked_by_the_next_run(broker: Broker, query: Query) -> None:
    sent = broker.send(30)
    query.run(once=True)
    assert query.ids == sorted(sent)
    assert broker.group().in_flight == 30
    query.run(once=True)
    assert broker.group().in_flight == 0


def test_a_watermark_s_batch_without_data_reads_nothing_and_acks_nothing_too_much(broker: Broker, query: Query) -> None:
    sent = broker.send(20)
    rows = query.load().withWatermark("store_ts", "1 second").dropDuplicatesWithinWatermark(["message_id"])
    query.run(rows)
    broker.clock.advance(10_000)
    sent += broker.send(10)
    progresses = query.run(rows).recentProgress
    assert [progress.numInputRows for progress in progresses] == [10, 0]
    assert query.ids == sorted(sent)
    assert (broker.group().in_flight, broker.group().acked) == (0, 30)


def test_a_running_query_takes_what_comes_and_shows_the_group_in_its_progress(
    broker: Broker, query: Query, tmp_path: Path
) -> None:
    sent = broker.send(30)
    writer = query.load().writeStream.format("memory").queryName("running")
    running = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    try:
        running.processAllAvailable()
        sent += broker.send(30)
        running.processAllAvailable()
        stored = [row.message_id for row in query.spark.table("running").collect()]
        assert sorted(stored) == sorted(sent)
        progress = next(progress for progress in running.recentProgress if progress.numInputRows)
        assert json.loads(progress.sources[0].latestOffset)["ready"] >= 10
        (behind,) = popmq_spark.backlog(progress)
        assert behind.topic == TOPIC
        assert behind.messages >= 10
    finally:
        running.stop()


def test_a_schema_of_the_user_chooses_columns(broker: Broker, query: Query) -> None:
    broker.send(3)
    options = {name: str(value) for name, value in query.options.items()}
    rows = query.spark.readStream.format("popmq").options(**options).schema("message_id STRING, topic STRING").load()
    seen: list[Any] = []
    writer = rows.writeStream.foreachBatch(lambda batch, number: seen.extend(batch.collect()))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert [row.topic for row in seen] == [TOPIC] * 3


def test_a_wrong_schema_ends_the_query_with_a_sentence(query: Query) -> None:
    options = {name: str(value) for name, value in query.options.items()}
    rows = query.spark.readStream.format("popmq").options(**options).schema("colour STRING").load()
    with pytest.raises(StreamingQueryException, match="there is no column 'colour'"):
        query.run(rows)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"maxRowsPerTrigger": "many"}, "expected a whole number from 1 to 1000000"),
        ({"topik": "orders"}, r"unknown option 'topik' \(did you mean topic\?\)"),
    ],
)
def test_wrong_options_end_in_load(query: Query, options: dict[str, str], complaint: str) -> None:
    query.options |= options
    with pytest.raises(AnalysisException, match=complaint):
        query.load()


def test_a_topic_that_is_not_there_ends_the_query_with_its_name(query: Query) -> None:
    query.options |= {"topic": "nowhere"}
    with pytest.raises(StreamingQueryException, match=r"TopicNotFound: .*nowhere"):
        query.run()


def test_a_stream_that_a_query_uses_twice_is_refused_with_leases_and_right_as_a_union_or_by_offsets(
    spark: SparkSession, broker: Broker, query: Query, tmp_path: Path
) -> None:
    sent = broker.send(10)

    def run(rows: DataFrame, name: str) -> list[str]:
        writer = rows.writeStream.format("parquet").option("path", str(tmp_path / name))
        writer = writer.option("checkpointLocation", str(tmp_path / f"{name}-checkpoint")).trigger(availableNow=True)
        writer.start().awaitTermination()
        return sorted(row.message_id for row in spark.read.parquet(str(tmp_path / name)).collect())

    def joined() -> DataFrame:
        rows = query.load().selectExpr("message_id", "CAST(body AS STRING) AS text")
        return rows.alias("a").join(rows.alias("b"), F.expr("a.message_id = b.message_id")).select("a.message_id")

    with pytest.raises(StreamingQueryException, match=r"another source of this Spark application.*mode=offsets"):
        run(joined(), "joined")
    assert (broker.group().ready, broker.group().acked) == (10, 0)
    rows = query.load().select("message_id")
    assert run(rows.union(rows), "union") == sorted(sent * 2)
    late = broker.send(5)
    assert run(query.load().select("message_id"), "after") == sorted(late), "the queries before it have ended"
    query.options = {"endpoint": broker.endpoint, "topic": TOPIC, "mode": "offsets"}
    assert run(joined(), "offsets") == sorted(sent + late)


def test_a_table_of_the_catalog_has_the_options_of_its_creation(spark: SparkSession, broker: Broker) -> None:
    broker.send(10)
    options = f"OPTIONS (endpoint '{broker.endpoint}', topic '{TOPIC}')"
    spark.sql(f"CREATE TABLE of_topic USING popmq {options}")
    try:
        assert spark.sql("SELECT count(*) FROM of_topic WHERE queue_offset < 100").collect()[0][0] == 10
    finally:
        spark.sql("DROP TABLE of_topic")


# ── mode=offsets ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ranges_of_offsets_survive_failing_tasks_sinks_and_a_restart_of_the_broker(
    broker: Broker, query: Query, tmp_path: Path
) -> None:
    query.options |= {"mode": "offsets", "startingOffsets": "latest", "minPartitions": 5}
    broker.send(3)
    query.run()
    sent = broker.send(50)
    rows = query.load()
    failed = str(tmp_path / "failed")

    def fail_first(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch
            if not Path(failed).exists():
                Path(failed).touch()
                raise OSError("the executor's disk is gone")

    query.failing = {1: broker.restart, 2: fail}
    with pytest.raises(StreamingQueryException, match="the sink's disk is gone"):
        query.run(rows.mapInArrow(fail_first, rows.schema))
    sent += broker.send(10)
    query.run()
    assert Path(failed).exists()
    assert query.stored[2][0] == query.stored[2][1]
    assert query.ids == sorted(sent)
    assert (broker.group().ready, broker.group().in_flight) == (0, 0)


def test_a_batch_read_counts_and_conditions_stay_spark_s_when_the_broker_applies_them(
    spark: SparkSession, broker: Broker
) -> None:
    broker.client.send(TOPIC, [popmq.Message(str(n), tag="ab"[n % 2], key=f"k{n % 5}") for n in range(20)])
    source = spark.read.format("popmq").option("endpoint", broker.endpoint).option("topic", TOPIC)
    assert source.load().count() == 20
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        rows = source.option("pushFilters", "true").load()
        few = rows.where("tag = 'a' AND key IN ('k0', 'k2') AND queue_offset >= 1 AND length(body) = 2").select("body")
        assert sorted(int(row.body) for row in few.collect()) == [10, 12]
        assert rows.where("store_ts < TIMESTAMP '2000-01-01 00:00:00'").count() == 0
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
