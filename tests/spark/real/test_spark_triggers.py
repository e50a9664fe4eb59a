"""What a query in a real Spark does between its batches and at its end: waiting, stopping, telling, and going on."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

import popmq_spark
from popmq_server.embedded.loop.long_poll import Waiters
from tests.spark.conftest import TOPIC, Broker
from tests.spark.real.conftest import Query

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    # py4j leaves sockets to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]

#: How long a test waits for what Spark does beside it.
PATIENCE_S = 60.0


class Parked:
    """The waits that have begun at the broker, counted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self._changed = threading.Condition()
        park = Waiters.park

        async def counting(watchers: Waiters, key: tuple[str, str], seen: tuple[int, int], deadline_ms: int) -> bool:
            with self._changed:
                self.count += 1
                self._changed.notify_all()
            return await park(watchers, key, seen, deadline_ms)

        monkeypatch.setattr(Waiters, "park", counting)

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.count >= count, PATIENCE_S), f"{self.count} of {count} waits"


@pytest.fixture
def parked(monkeypatch: pytest.MonkeyPatch) -> Parked:
    return Parked(monkeypatch)


def test_an_idle_query_asks_once_for_each_long_poll(broker: Broker, query: Query, parked: Parked) -> None:
    query.options["longPollTimeout"] = "2s"
    running = query.load().writeStream.format("noop").option("checkpointLocation", query.checkpoint).start()
    try:
        for waits in range(1, 11):
            parked.wait_for(waits)
            broker.clock.advance(2_000)
        parked.wait_for(11)
        assert parked.count == 11
    finally:
        running.stop()


def test_stop_does_not_wait_for_a_long_poll(broker: Broker, query: Query, parked: Parked) -> None:
    query.options["longPollTimeout"] = "30s"
    running = query.load().writeStream.format("noop").option("checkpointLocation", query.checkpoint).start()
    parked.wait_for(1)
    stopping = threading.Thread(target=running.stop)
    stopping.start()
    stopping.join(15)
    assert not stopping.is_alive()
    assert not running.isActive
    assert running.exception() is None
    sent = broker.send(5)
    query.run()
    assert query.ids == sorted(sent)


@pytest.mark.parametrize(
    ("trigger", "complaint"),
    [
        ({"continuous": "1 second"}, "does not support continuous"),
        ({"realTime": "5 minutes"}, "(?i)real.?time"),
    ],
)
def test_triggers_that_spark_has_not_for_python_sources_are_refused(
    broker: Broker, query: Query, trigger: dict[str, str], complaint: str
) -> None:
    writer = query.load().writeStream.format("console").outputMode("update")
    with pytest.raises(PySparkException, match=complaint):
        writer.option("checkpointLocation", query.checkpoint).trigger(**trigger).start().awaitTermination(60)


class Seen(StreamingQueryListener):
    """For each batch: whether Spark's commit log has it when the listener is called, and the backlog."""

    def __init__(self, commits: Path) -> None:
        self.batches: list[tuple[int, bool, int]] = []
        self.ended = threading.Event()
        self._commits = commits

    def onQueryStarted(self, event: QueryStartedEvent) -> None: ...

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        (behind,) = popmq_spark.backlog(progress)
        self.batches.append((progress.batchId, (self._commits / str(progress.batchId)).exists(), behind.messages))

    def onQueryIdle(self, event: QueryIdleEvent) -> None: ...

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self.ended.set()


def test_a_listener_learns_of_a_batch_when_spark_s_commit_log_has_it(
    spark: SparkSession, broker: Broker, query: Query
) -> None:
    broker.send(50)
    seen = Seen(Path(query.checkpoint) / "commits")
    spark.streams.addListener(seen)
    try:
        query.run()
        assert seen.ended.wait(PATIENCE_S)
    finally:
        spark.streams.removeListener(seen)
    assert seen.batches == [(0, True, 50), (1, True, 30), (2, True, 10)]


def test_a_batch_that_was_robbed_fails_a_strict_query_and_a_lax_one_goes_on_with_the_rest(
    broker: Broker, query: Query, tmp_path: Path
) -> None:
    broker.send(40)
    script = Path(__file__).with_name("driver_to_kill.py")
    command = [sys.executable, "-W", "ignore", str(script), broker.endpoint, TOPIC, "spark", str(tmp_path)]
    killed = subprocess.run(command, capture_output=True, text=True, start_new_session=True)
    assert killed.returncode == -9, killed.stderr[-2000:]
    before = json.loads((tmp_path / "batch-1.json").read_text())
    broker.let_leases_run_out()
    stolen = broker.client.pop(TOPIC, "spark", 4)
    assert len(stolen) == 4
    query.options["failOnLeaseLoss"] = "true"
    with pytest.raises(StreamingQueryException, match="of epoch 2 went to other consumers"):
        query.run()
    assert query.stored == {1: []}  # the sink was called, and got no rows
    later = broker.send(5)
    query.options["failOnLeaseLoss"] = "false"
    query.run()
    rest = {*before} - {delivery.message_id for delivery in stolen}
    assert query.stored == {1: [sorted(rest)], 2: [sorted(later)]}
    assert broker.group().in_flight == len(stolen)
