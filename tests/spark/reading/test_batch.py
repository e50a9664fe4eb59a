"""spark.read: ranges of offsets, without a lease; what the conditions of a query leave out is not sent."""

import pickle
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, IsNull, LessThan

import popmq
from popmq_server.embedded.loop import parked_pulls
from popmq_spark.offsets.range_part import RangePart
from popmq_spark.offsets.range_reader import RangeReader
from popmq_spark.options import OptionError
from popmq_spark.queue_ends import DataLoss
from popmq_spark.source import PopMQDataSource
from tests.spark.conftest import TOPIC, Broker
from tests.spark.reading.microbatch import Row


def reader(broker: Broker, *conditions: Filter, **options: Any) -> RangeReader:
    given = {"endpoint": broker.endpoint, "topic": TOPIC} | {name: str(value) for name, value in options.items()}
    source = PopMQDataSource({name.lower(): value for name, value in given.items() if value})
    made = source.reader(source.schema())
    assert isinstance(made, RangeReader)
    if conditions:
        assert [*made.pushFilters([*conditions])] == [*conditions], "Spark checks every condition again"
    return made


def read(broker: Broker, *conditions: Filter, **options: Any) -> list[Row]:
    """All rows, read by a copy of the reader in each task."""
    made = reader(broker, *conditions, **options)
    parts = made.partitions()
    copy = pickle.loads(pickle.dumps(made))
    return [row for part in parts for rows in copy.read(pickle.loads(pickle.dumps(part))) for row in rows.to_pylist()]


def bodies(rows: list[Row]) -> list[int]:
    return sorted(int(row["body"]) for row in rows)


def pushed(broker: Broker, *conditions: Filter) -> list[int]:
    return bodies(read(broker, *conditions, pushFilters="true"))


def parts(broker: Broker, *conditions: Filter, **options: Any) -> list[RangePart]:
    return reader(broker, *conditions, **options).partitions()


@pytest.fixture
def twenty(broker: Broker) -> int:
    """Two sends of ten messages to two queues, a second apart; the time of the second."""
    messages = [popmq.Message(str(n), tag="abc"[n % 3], key=f"k{n % 4}") for n in range(20)]
    broker.client.send(TOPIC, messages[:10])
    broker.clock.advance(1_000)
    broker.client.send(TOPIC, messages[10:])
    return broker.clock.now_ms()


def test_a_topic_is_read_whole_twice_and_nothing_is_leased_or_stored(broker: Broker, twenty: int) -> None:
    assert bodies(read(broker)) == bodies(read(broker)) == list(range(20))
    assert broker.client.broker.stats().groups == ()


def test_browse_is_another_word_for_the_mode_that_leases_nothing(broker: Broker, twenty: int) -> None:
    assert bodies(read(broker, mode="browse")) == list(range(20))
    assert broker.client.broker.stats().groups == ()


@pytest.mark.slow
def test_a_read_begins_and_ends_by_time(broker: Broker, twenty: int) -> None:
    assert bodies(read(broker, startingOffsets=twenty)) == list(range(10, 20))
    assert bodies(read(broker, endingOffsets=twenty)) == list(range(10))
    assert read(broker, startingOffsets="latest") == []


def test_a_read_begins_and_ends_by_offset_and_other_queues_are_read_whole(broker: Broker, twenty: int) -> None:
    queue = read(broker, endingOffsets=twenty)[0]["queue_id"]
    options = {"startingOffsets": f'{{"orders": {{"{queue}": 2}}}}', "endingOffsets": f'{{"orders": {{"{queue}": 5}}}}'}
    assert bodies(read(broker, **options)) == [2, 3, 4, *range(10, 20)]


@pytest.mark.parametrize(
    ("offsets", "complaint"),
    [
        ('{"payments": {"0": 1}}', "topic 'payments', which this query does not read"),
        ('{"orders": {"9": 1}}', "queue 9 of topic 'orders', which has no such queue"),
        ('{"orders": {"0": -3}}', "in which -2 is the first message and -1 the end"),
        ('{"orders": 3}', "in which -2 is the first message and -1 the end"),
    ],
)
def test_offsets_that_cannot_be_meant_are_refused(broker: Broker, offsets: str, complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        read(broker, startingOffsets=offsets)


@pytest.mark.slow
def test_tasks_fit_the_rows(broker: Broker) -> None:
    (nothing,) = parts(broker)
    assert nothing.spans == ()
    broker.send(100)
    assert len(parts(broker)) == 1
    assert len(parts(broker, maxRecordsPerPartition=10)) == 10
    assert len(parts(broker, maxRecordsPerPartition=10, maxPartitions=3)) == 3
    assert len(parts(broker, minPartitions=8)) == 8


def test_several_topics_a_pattern_and_dead_letters_are_read(broker: Broker) -> None:
    broker.client.topics.create("payments")
    broker.client.send("payments", ["7"])
    broker.send(1)
    assert bodies(read(broker, topic="", topics="orders, payments")) == [0, 7]
    assert bodies(read(broker, topic="", topicPattern="pay.+")) == [7]
    broker.client.groups.create("billing")
    broker.client.reject(broker.client.pop("payments", "billing")[0], reason="no")
    assert bodies(read(broker, topic="%DLQ%billing")) == [7]
    assert bodies(read(broker, topic="", topicPattern="%DLQ%.+")) == [7]


def test_a_dead_letter_tells_where_it_came_from_and_why_in_a_column_of_its_own(broker: Broker) -> None:
    broker.client.groups.create("billing")
    broker.send(1)
    delivery = broker.client.pop(TOPIC, "billing")[0]
    broker.clock.advance(1_000)
    broker.client.reject(delivery, reason="no such account")
    popped = datetime.fromtimestamp(broker.clock.now_ms() / 1000 - 1, UTC)
    assert [row["dead_letter"] for row in read(broker, topic="%DLQ%billing", includeDeadLetter="true")] == [
        {
            "topic": TOPIC,
            "queue_id": delivery.queue,
            "queue_offset": delivery.offset,
            "attempts": 1,
            "first_pop_ts": popped,
            "last_client": broker.client.client_id,
            "reason": "no such account",
            "dead_ts": popped + timedelta(seconds=1),
        }
    ]
    assert [row["dead_letter"] for row in read(broker, includeDeadLetter="true")] == [None], "it is no dead letter"
    assert "dead_letter" not in read(broker, topic="%DLQ%billing")[0]


def test_modes_that_are_found_elsewhere_are_named(broker: Broker) -> None:
    with pytest.raises(OptionError, match=r"popmq_spark\.drain empties a topic"):
        read(broker, mode="drain")
    with pytest.raises(OptionError, match="leave out mode and group, or call"):
        read(broker, group="spark")


def test_a_batch_read_names_its_topics_and_its_filter_by_one_option(broker: Broker) -> None:
    for options in ({"topics": "a,b"}, {"topicPattern": "a"}, {"topic": ""}):
        with pytest.raises(OptionError, match="with one of the options topic, topics and topicPattern"):
            read(broker, **options)
    with pytest.raises(OptionError, match="tag and sql are both given"):
        read(broker, tag="a", sql="a = 1")


def test_filters_of_the_options_are_the_broker_s(broker: Broker, twenty: int) -> None:
    assert bodies(read(broker, tag="a || b")) == [n for n in range(20) if n % 3 < 2]
    assert bodies(read(broker, sql="TAGS = 'c'")) == [n for n in range(20) if n % 3 == 2]


# ── Conditions of the query ──────────────────────────────────────────────────────────────────────────────────────────


def test_pushed_conditions_narrow_the_messages_read(broker: Broker, twenty: int) -> None:
    second = datetime.fromtimestamp(twenty / 1000, UTC)
    assert pushed(broker, EqualTo(("tag",), "a")) == [n for n in range(20) if n % 3 == 0]
    assert pushed(broker, In(("tag",), ("a", "b"))) == [n for n in range(20) if n % 3 < 2]
    assert pushed(broker, In(("tag",), ("a", "b")), EqualTo(("tag",), "b")) == [n for n in range(20) if n % 3 == 1]
    assert pushed(broker, EqualTo(("key",), "k1")) == [n for n in range(20) if n % 4 == 1]
    assert pushed(broker, GreaterThanOrEqual(("store_ts",), second)) == list(range(10, 20))
    assert pushed(broker, LessThan(("store_ts",), second)) == list(range(20)), "one millisecond is Spark's to check"
    queue = read(broker, endingOffsets=twenty)[0]["queue_id"]
    assert pushed(broker, EqualTo(("queue_id",), queue)) == list(range(10))
    (part,) = parts(broker, EqualTo(("queue_id",), queue), GreaterThan(("queue_offset",), 6), pushFilters="true")
    assert [(span.queue, span.start, span.end) for span in part.spans] == [(queue, 7, 10)]


def test_a_time_that_ends_before_the_last_messages_leaves_them_at_the_broker(broker: Broker, twenty: int) -> None:
    until = datetime.fromtimestamp(twenty / 1000 - 0.5, UTC)
    parted = parts(broker, LessThan(("store_ts",), until), pushFilters="true")
    assert sum(span.end - span.start for part in parted for span in part.spans) == 10


def test_a_condition_that_no_tag_filter_can_say_is_left_to_spark(broker: Broker, twenty: int) -> None:
    for value in ("a || b", "*", " a", "", "a b", "a\x00", "a\u2003b"):
        (part,) = parts(broker, EqualTo(("tag",), value), pushFilters="true")
        assert part.tag is None
    for value in ("ü&", "(a)'", "\u200b"):
        assert pushed(broker, EqualTo(("tag",), value)) == []
    (part,) = parts(broker, IsNull(("tag",)), EqualTo(("body",), b"1"), pushFilters="true")
    assert sum(span.end - span.start for span in part.spans) == 20


@pytest.mark.parametrize(("count", "size"), [(256, 8), (257, 8), (256, 64), (1, 1 << 20)])
def test_more_tags_than_a_filter_may_have_are_left_to_spark(broker: Broker, twenty: int, count: int, size: int) -> None:
    tags = (*(str(n).zfill(size) for n in range(count - 1)), "a" * size)
    broker.client.send(TOPIC, popmq.Message("20", tag="a" * 8))
    (part,) = parts(broker, In(("tag",), tags), pushFilters="true")
    assert (part.tag is None) == ((count, size) != (256, 8))
    assert 20 in pushed(broker, In(("tag",), tags))


def test_a_reader_without_push_filters_takes_no_conditions(broker: Broker) -> None:
    from pyspark.sql.datasource import DataSourceReader

    assert type(reader(broker)).pushFilters is DataSourceReader.pushFilters
    assert type(reader(broker, pushFilters="true")).pushFilters is not DataSourceReader.pushFilters


def test_messages_dropped_between_plan_and_read_are_a_data_loss(broker: Broker, twenty: int) -> None:
    for fail in ("true", "false"):
        made = reader(broker, failOnDataLoss=fail)
        (part,) = made.partitions()
        broker.client.topics.purge(TOPIC)
        if fail == "true":
            with pytest.raises(DataLoss, match=r"10 messages of queue . of topic 'orders' between offsets 0 and 9"):
                list(made.read(part))
        else:
            assert list(made.read(part)) == []
        broker.send(20)


@pytest.mark.parametrize("piece", [2, 1000], ids=["in pieces", "in one"])
def test_messages_whose_ttl_is_over_are_left_out_and_are_no_loss(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    monkeypatch.setattr(parked_pulls, "PIECE_MESSAGES", piece)
    broker.client.topics.create("ticks", queues=1)
    broker.client.send("ticks", [popmq.Message(str(n), ttl="5s" if n % 3 else 0) for n in range(10)])
    assert bodies(read(broker, topic="ticks")) == list(range(10))
    broker.clock.advance(5_000)
    assert bodies(read(broker, topic="ticks")) == [0, 3, 6, 9]
    assert bodies(read(broker, topic="ticks", startingOffsets='{"ticks": {"0": 4}}', maxRecordsPerPartition=1)) == [
        6,
        9,
    ]


def test_options_of_a_stream_are_refused_in_a_batch_read(broker: Broker) -> None:
    for name, value in {"group": "g", "maxRowsPerTrigger": "5", "longPollTimeout": "5s"}.items():
        with pytest.raises(OptionError, match=f"unknown option '{name.lower()}'"):
            read(broker, mode="offsets", **{name: value})
    with pytest.raises(OptionError, match="option mode = 'drain'; expected"):
        read(broker, mode="drain")


def test_a_lite_topic_that_is_named_is_refused_though_it_has_no_queue_to_read(broker: Broker) -> None:
    broker.client.topics.create("small", type="LITE")
    broker.client.send("small", [popmq.Message("1", lite_topic="one")])
    with pytest.raises(popmq.errors.InvalidField, match="has type LITE"):
        parts(broker, topic="small")


@pytest.mark.parametrize("year", [1, 1960, 9999])
def test_times_that_the_broker_does_not_know_select_all_or_nothing(broker: Broker, twenty: int, year: int) -> None:
    for zone in (UTC, None):
        moment = datetime(year, 12 if year == 9999 else 1, 31 if year == 9999 else 1, tzinfo=zone)
        everything, nothing = (20, 0) if year < 1970 else (0, 20)
        assert len(pushed(broker, GreaterThan(("store_ts",), moment))) == everything
        assert len(pushed(broker, LessThan(("store_ts",), moment))) == nothing


def test_offsets_of_a_time_before_1970_are_the_first_messages(broker: Broker, twenty: int) -> None:
    assert len(read(broker, startingOffsets="1960-01-01T00:00:00Z")) == 20
    assert read(broker, endingOffsets="1960-01-01T00:00:00Z") == []
