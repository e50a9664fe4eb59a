"""mode=offsets, called as Spark calls it: ranges in Spark's own log, read by offset, exactly the same again."""

import json
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

import popmq
from popmq_spark.options import OptionError
from popmq_spark.positions import OffsetError
from popmq_spark.queue_ends import DataLoss
from tests.spark.conftest import TOPIC, Broker
from tests.spark.reading.microbatch import CRASH_POINTS, Crash, MicroBatches, Row, ids

Make = Callable[..., MicroBatches]


@pytest.fixture
def query(broker: Broker) -> Make:
    """A query in mode=offsets; as a group only if one is named."""

    def make(**options: Any) -> MicroBatches:
        made = broker.query(mode="offsets", **options)
        if "group" not in options:
            del made.options["group"]
        return made

    return make


def bodies(rows: list[Row]) -> list[str]:
    return sorted((row["body"].decode().strip(".") for row in rows), key=int)


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def test_every_message_is_read_once_in_batches_of_the_limit_and_nothing_is_leased(broker: Broker, query: Make) -> None:
    sent = broker.send(47)
    stream = query(maxRowsPerTrigger=20, minPartitions=3)
    assert stream.run() == 3
    assert [len(stream.sink[batch]) for batch in range(3)] == [20, 20, 7]
    assert sorted(ids(stream.rows())) == sorted(sent)
    assert broker.client.broker.stats().groups == ()
    assert {(row["delivery_attempt"], row["popmq_epoch"]) for row in stream.rows()} == {(None, None)}


@pytest.mark.parametrize("crash", CRASH_POINTS)
def test_a_driver_that_dies_anywhere_repeats_its_batch_with_the_same_rows(
    broker: Broker, query: Make, crash: str
) -> None:
    sent = broker.send(30)
    stream = query(maxRowsPerTrigger=20)
    with pytest.raises(Crash):
        stream.trigger(crash=crash)
    sent += broker.send(10)
    broker.restart()
    stream.start(maxRowsPerTrigger=7, minPartitions=4)
    stream.run()
    assert sorted(ids(stream.rows())) == sorted(sent)
    assert all(stream.repeated[batch] == stream.sink[batch] for batch in stream.repeated)


def test_a_batch_is_read_again_as_it_was_planned_also_when_the_filter_has_changed(broker: Broker, query: Make) -> None:
    broker.client.send(TOPIC, [popmq.Message(str(number), tag="ab"[number % 2]) for number in range(10)])
    stream = query(tag="a")
    with pytest.raises(Crash):
        stream.trigger(crash="rows stored")
    del stream.options["tag"]
    stream.start(sql="TAGS = 'b'")
    stream.trigger()
    assert bodies(stream.repeated[0]) == bodies(stream.sink[0]) == ["0", "2", "4", "6", "8"]
    broker.client.send(TOPIC, [popmq.Message(str(number), tag="ab"[number % 2]) for number in range(10, 14)])
    stream.run()
    assert bodies(stream.sink[1]) == ["11", "13"]


def test_two_answers_of_initial_offset_do_not_change_where_the_first_batch_begins(broker: Broker, query: Make) -> None:
    broker.send(10)
    stream = query(startingOffsets="latest")
    reader = stream.start()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(100))
    broker.send(5)
    later = reader.latestOffset(end, ReadMaxRows(100))
    assert sum(len(stream.read(part)) for part in reader.partitions(reader.initialOffset(), later)) == 5


def test_latest_is_durable_with_the_first_trigger_before_there_is_a_message(broker: Broker, query: Make) -> None:
    broker.send(10)
    stream = query(startingOffsets="latest")
    assert stream.trigger()
    stream.stop()
    late = broker.send(6)
    stream.run()
    assert sorted(ids(stream.rows())) == sorted(late)


def test_more_tasks_than_queues_share_the_rows_evenly_and_fewer_tasks_read_several_queues(
    broker: Broker, query: Make
) -> None:
    sent = broker.send(100)
    for options, sizes in (
        ({"minPartitions": 8}, [12, 13] * 4),
        ({"maxPartitions": 2, "maxRecordsPerPartition": 10}, [50, 50]),
    ):
        stream = query(**options)
        stream.trigger()
        reads = [stream.read(part) for part in stream.parts()]
        assert [len(rows) for rows in reads] == sizes
        assert sorted(ids(row for rows in reads for row in rows)) == sorted(sent)


def test_a_queue_that_comes_during_the_stream_is_read_from_its_first_message(broker: Broker, query: Make) -> None:
    sent = broker.send(8)
    stream = query()
    stream.run()
    broker.client.topics.update(TOPIC, queues=9)
    sent += broker.send(45)
    stream.run()
    assert sorted(ids(stream.rows())) == sorted(sent)
    assert {row["queue_id"] for row in stream.rows()} == set(range(9))


def test_a_topic_that_comes_to_match_the_pattern_is_read_from_its_first_message(broker: Broker, query: Make) -> None:
    stream = query(topicPattern="ord.*|pay.*", startingOffsets="latest")
    del stream.options["topic"]
    stream.run()
    broker.client.topics.create("payments", queues=2)
    broker.client.topics.create("refunds")
    for topic in (TOPIC, "payments", "refunds"):
        broker.client.send(topic, [topic])
    stream.run()
    assert sorted(row["topic"] for row in stream.rows()) == [TOPIC, "payments"]
    reader = stream.reader
    assert reader
    assert reader.reportLatestOffset() == {"behind": 0, "topics": {TOPIC: 0, "payments": 0}}


def test_several_topics_are_one_stream(broker: Broker, query: Make) -> None:
    broker.client.topics.create("payments")
    broker.send(10)
    broker.client.send("payments", ["p"])
    stream = query(topics=f"{TOPIC}, payments", maxRowsPerTrigger=4)
    del stream.options["topic"]
    stream.run()
    assert len(stream.rows()) == 11


@pytest.mark.parametrize(
    ("start", "read"),
    [
        ("earliest", numbers(20)),
        ("latest", []),
        ("a time", numbers(20)[10:]),
        ('{"orders": {"0": 5, "1": -1, "2": -2}}', ["0", "1", "2", "3", "4"]),
    ],
)
def test_a_stream_begins_where_its_option_says(broker: Broker, query: Make, start: str, read: list[str]) -> None:
    broker.send(10)
    broker.clock.advance(1_000)
    since = broker.clock.now_ms()
    broker.client.send(TOPIC, numbers(20)[10:])
    if start.startswith("{"):
        queues = {row.queue: row for row in broker.client.offsets.query(TOPIC)}
        place = {queue: row.max_offset for queue, row in queues.items()}
        first = next(row["queue_id"] for row in _all(query) if row["body"] == b"0")
        start = json.dumps({TOPIC: {str(queue): -2 if queue == first else at for queue, at in place.items()}})
        read = bodies([row for row in _all(query) if row["queue_id"] == first])
    stream = query(startingOffsets=str(since) if start == "a time" else start)
    stream.run()
    assert bodies(stream.rows()) == read


@pytest.mark.parametrize("available_now", [False, True])
def test_a_stream_ends_at_a_time_also_at_one_that_comes_later(broker: Broker, query: Make, available_now: bool) -> None:
    until = broker.clock.now_ms() + 1_000
    sent = broker.send(10)
    stream = query(endingOffsets=str(until), maxRowsPerTrigger=4)
    stream.start(available_now=available_now)
    stream.run()
    assert sorted(ids(stream.rows())) == sorted(sent)
    sent += broker.send(10)
    broker.clock.advance(1_000)
    broker.send(10)
    stream.start(available_now=available_now)
    stream.run()
    assert sorted(ids(stream.rows())) == sorted(sent)
    assert stream.reader
    assert stream.reader.reportLatestOffset() == {"behind": 0, "topics": {TOPIC: 0}}, "what it never reads"


@pytest.mark.parametrize("mode", ["offsets", "lease"])
def test_a_stream_does_not_begin_in_the_future(broker: Broker, mode: str) -> None:
    stream = broker.query(mode=mode, startingOffsets="2999-01-01T00:00:00Z")
    with pytest.raises((OptionError, popmq.errors.InvalidField), match=r"2999-01-01.* is in the future"):
        stream.run()
    assert broker.client.groups.list() == []


@pytest.mark.parametrize("group", ["", "lag"])
def test_a_stream_that_is_to_begin_at_messages_that_are_gone_tells_of_them(
    broker: Broker, query: Make, group: str
) -> None:
    broker.send(20)
    broker.client.topics.purge(TOPIC)
    broker.send(4)
    stream = query(startingOffsets='{"orders": {"0": 2}}', **{"group": group} if group else {})
    with pytest.raises(DataLoss, match=r"3 messages of queue 0 of topic 'orders' between offsets 2 and 4 are gone"):
        stream.run()


def test_a_stream_ends_at_offsets_and_reads_other_queues_on(broker: Broker, query: Make) -> None:
    broker.send(40)
    stream = query(endingOffsets='{"orders": {"0": 3, "1": -2, "2": -1}}')
    stream.run()
    broker.send(40)
    stream.run()
    read = Counter(row["queue_id"] for row in stream.rows())
    ends = {row.queue: row.max_offset for row in broker.client.offsets.query(TOPIC)}
    assert read == {0: 3, 2: ends[2], 3: ends[3]}


def test_a_stream_that_ends_at_offsets_of_another_topic_is_refused(broker: Broker, query: Make) -> None:
    with pytest.raises(OptionError, match="topic 'payments', which this query does not read"):
        query(endingOffsets='{"payments": {"0": 3}}').trigger()


def _all(query: Make) -> list[Row]:
    stream = query()
    stream.run()
    return stream.rows()


def test_available_now_reads_up_to_the_ends_at_its_start_by_the_limit(broker: Broker, query: Make) -> None:
    early = broker.send(25)
    stream = query(maxRowsPerTrigger=10)
    stream.start(available_now=True)
    late = []
    while stream.trigger():
        late += broker.send(7)
    assert sorted(ids(stream.rows())) == sorted(early)
    assert len(stream.sink) == 3
    stream.start(available_now=True)
    stream.run()
    assert sorted(ids(stream.rows())) == sorted(early + late)


def test_trigger_once_reads_everything_in_one_batch(broker: Broker, query: Make) -> None:
    sent = broker.send(25)
    stream = query(maxRowsPerTrigger=10, maxBytesPerTrigger="1m")
    assert stream.run_once()
    assert sorted(ids(stream.sink[0])) == sorted(sent)


def test_bytes_admit_as_many_rows_as_fit_by_their_mean_size(broker: Broker, query: Make) -> None:
    broker.send(40, size=100_000)
    stream = query(maxBytesPerTrigger="1m")
    stream.trigger()
    assert 8 <= len(stream.sink[0]) <= 11


@pytest.mark.parametrize("sizes", [(20_000, 20_000), (1_000, 60_000)], ids=["alike", "from small to large"])
def test_bytes_admit_rows_by_a_look_at_some_where_the_engine_knows_no_sizes(
    broker: Broker, query: Make, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, int]
) -> None:
    """A micro-batch has maxBytesPerTrigger, but for 30 %, as long as what it takes is like what waits."""
    dice = random.Random(1)
    for _ in range(150):
        broker.client.send(TOPIC, ["x" * dice.randint(*sizes) for _ in range(4)])
    offsets = type(broker.client.offsets)
    ends = offsets.query
    looks = list[int]()
    pull = popmq.Client.pull_columns

    def unknown(calls: Any, *place: Any, **how: Any) -> list[popmq.QueueOffsets]:
        return [replace(row, bytes_behind=0) for row in ends(calls, *place, **how)]

    def pull_columns(client: popmq.Client, topic: str, queue: int, *place: Any, **how: Any) -> Any:
        if how["columns"] == ("body", "key", "properties"):
            looks.append(queue)
        return pull(client, topic, queue, *place, **how)

    monkeypatch.setattr(offsets, "query", unknown)
    monkeypatch.setattr(popmq.Client, "pull_columns", pull_columns)
    stream = query(maxBytesPerTrigger="2m")
    for batch in range(2):
        stream.trigger()
        size = sum(len(row["body"]) for row in stream.sink[batch])
        assert 0.7 < size / (2 << 20) < 1.3
    assert len(looks) == 4 * len(set(looks)) <= 16, "the look is taken once, and not for each micro-batch"


def test_few_rows_wait_for_more_until_they_have_waited_long_enough(broker: Broker, query: Make) -> None:
    now = [0.0]
    stream = query(minRowsPerTrigger=10, maxTriggerDelay="60s")
    stream.clock = lambda: now[0]
    broker.send(9)
    assert not stream.trigger()
    now[0] = 59.0
    assert not stream.trigger()
    now[0] = 60.0
    assert stream.trigger()
    broker.send(10)
    assert stream.trigger()
    assert [len(rows) for rows in stream.sink.values()] == [9, 10]


def test_an_idle_trigger_looks_again_until_its_time_is_over(broker: Broker, query: Make) -> None:
    now = [0.0]
    stream = query(longPollTimeout="500ms")
    stream.clock = lambda: now[0]
    reader: Any = stream.start()

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if now[0] > 0.2:
            broker.send(1)

    reader.sleep = sleep
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMaxRows(10)) is not start
    assert 0.2 < now[0] < 0.3
    reader.sleep = lambda seconds: now.__setitem__(0, now[0] + seconds)
    end = reader.latestOffset(start, ReadMaxRows(10))
    assert reader.latestOffset(end, ReadMaxRows(10)) is end


# ── What is lost ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("read_before", [False, True], ids=["planned", "unread"])
def test_dropped_messages_fail_the_stream_with_the_cure_or_are_passed_over(
    broker: Broker, query: Make, read_before: bool
) -> None:
    broker.send(20)
    stream = query()
    if read_before:
        stream.run()
        broker.send(20)
    else:
        with pytest.raises(Crash):
            stream.trigger(crash="offsets written")
    broker.client.topics.purge(TOPIC)
    kept = broker.send(10)
    stream.start()
    with pytest.raises(DataLoss, match=r"name a group: retention keeps .* set failOnDataLoss to false"):
        stream.run()
    stream.start(failOnDataLoss="false")
    stream.run()
    assert set(ids(stream.rows())) >= set(kept)
    assert len(stream.rows()) == 10 + 20 * read_before


def test_a_topic_created_again_is_a_data_loss_and_not_an_endless_wait(broker: Broker, query: Make) -> None:
    broker.send(20)
    stream = query()
    stream.run()
    broker.client.topics.delete(TOPIC)
    broker.client.topics.create(TOPIC, queues=4)
    with pytest.raises(DataLoss, match="created again"):
        stream.trigger()
    again = broker.send(6)
    stream.start(failOnDataLoss="false")
    stream.run()
    assert sorted(ids(stream.rows())[20:]) == sorted(again)


# ── The group ────────────────────────────────────────────────────────────────────────────────────────────────────────


def committed(broker: Broker, group: str = "lag") -> int:
    return sum(row.committed for row in broker.client.offsets.query(TOPIC, group))


def test_a_group_shows_the_lag_and_is_committed_after_the_log_of_spark(broker: Broker, query: Make) -> None:
    broker.send(30)
    stream = query(group="lag", maxRowsPerTrigger=10)
    stream.trigger()
    assert committed(broker) == 0
    stream.trigger()
    assert committed(broker) == 10
    stream.run()
    assert committed(broker) == 30
    assert broker.group("lag").ready == 0


def test_a_new_checkpoint_goes_on_where_the_group_stands(broker: Broker, query: Make) -> None:
    broker.send(30)
    stream = query(group="lag")
    stream.run()
    late = broker.send(5)
    other = query(group="lag")
    other.run()
    assert sorted(ids(other.rows())) == sorted(late)


def test_a_group_that_pops_the_topic_is_refused_and_unharmed(broker: Broker, query: Make) -> None:
    broker.send(3)
    broker.client.groups.create("workers")
    broker.client.pop(TOPIC, "workers", 1)
    with pytest.raises(OptionError, match="the group workers pops the topic orders"):
        query(group="workers").trigger()
    assert len(broker.client.pop(TOPIC, "workers", 10)) == 2


def test_a_stream_by_offsets_reads_the_same_without_its_group(broker: Broker, query: Make) -> None:
    sent = broker.send(20)
    stream = query(group="lag", maxRowsPerTrigger=10)
    stream.trigger()
    broker.client.groups.delete("lag")
    stream.run()
    assert sorted(ids(stream.rows())) == sorted(sent)


def test_a_checkpoint_of_the_other_mode_is_refused_with_what_to_do(broker: Broker, query: Make) -> None:
    broker.send(3)
    leased = broker.query()
    leased.run()
    stream = query()
    stream.offsets, stream.commits = leased.offsets, leased.commits
    with pytest.raises(OffsetError, match=r"mode=offsets reads offsets of version 2; .* start with a new checkpoint"):
        stream.trigger()


def test_a_lite_topic_that_is_named_is_refused(broker: Broker, query: Make) -> None:
    broker.client.topics.create("small", type="LITE")
    broker.client.send("small", [popmq.Message("1", lite_topic="one")])
    with pytest.raises(popmq.errors.InvalidField, match="has type LITE"):
        query(topic="small").trigger()
