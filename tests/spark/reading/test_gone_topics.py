"""mode=offsets: topics that are gone, that the options no longer name, and how often an idle query tells and asks."""

import json
import logging
import re
from dataclasses import replace
from typing import Any

import pytest

import popmq
from popmq_spark.offsets import offsets_stream
from popmq_spark.options import OptionError, Topics
from popmq_spark.queue_ends import DataLoss, topics_of
from popmq_spark.source import PopMQDataSource
from tests.spark.conftest import TOPIC, Broker
from tests.spark.reading.microbatch import Crash, MicroBatches, ids

WARNINGS = logging.getLogger("popmq_spark").name


def offsets(broker: Broker, topics: str = f"{TOPIC}, bills", **options: Any) -> MicroBatches:
    """A query without a group over two topics."""
    if "bills" not in [topic.name for topic in broker.client.topics.list()]:
        broker.client.topics.create("bills", queues=2)
        broker.client.send("bills", ["1", "2"])
        broker.send(4)
    made = broker.query(mode="offsets", topics=topics, **options)
    for name in ("topic", "group"):
        del made.options[name]
    return made


def pattern(broker: Broker, **options: Any) -> MicroBatches:
    made = offsets(broker, topicPattern="orders|bills", **options)
    del made.options["topics"]
    return made


@pytest.mark.parametrize("ending", [{}, {"endingOffsets": '{"bills": {"0": 100, "1": 100}}'}], ids=["", "with an end"])
def test_a_topic_of_a_pattern_that_was_read_to_its_end_may_be_deleted(broker: Broker, ending: dict[str, str]) -> None:
    query = pattern(broker, **ending)
    query.run()
    broker.client.topics.delete("bills")
    broker.send(3)
    query.run()
    assert len(query.rows()) == 9


def test_a_topic_of_a_pattern_that_is_deleted_while_the_query_looks_is_as_one_that_was_deleted_before(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = pattern(broker)
    query.run()
    seen = topics_of(broker.client, Topics(pattern=re.compile("orders|bills")))
    broker.client.topics.delete("bills")
    monkeypatch.setattr(offsets_stream, "topics_of", lambda *given: seen)
    broker.send(3)
    query.run()
    assert len(query.rows()) == 9


def test_a_topic_of_a_pattern_that_had_more_messages_is_a_loss_when_it_is_deleted(broker: Broker) -> None:
    query = pattern(broker, maxRowsPerTrigger=3)
    query.trigger()
    broker.client.topics.delete("bills")
    with pytest.raises(DataLoss, match="the topic 'bills' is gone, perhaps with messages"):
        query.trigger()


def test_a_topic_that_the_options_no_longer_name_is_no_loss(broker: Broker) -> None:
    query = offsets(broker, maxRowsPerTrigger=3)
    query.trigger()
    query.start(topics=TOPIC)
    query.run()
    assert [row["topic"] for row in query.rows()].count(TOPIC) == 4


def test_a_named_topic_that_is_deleted_ends_the_query_or_is_passed_over(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    query = offsets(broker, maxRowsPerTrigger=3)
    query.trigger()
    broker.client.topics.delete("bills")
    with pytest.raises(popmq.errors.TopicNotFound):
        query.trigger()
    for available_now in (False, True):
        query.options["failOnDataLoss"] = "false"
        query.start(available_now=available_now)
        query.run()
        broker.send(2)
    assert [row["topic"] for row in query.rows()].count(TOPIC) == 6
    assert "the topic 'bills' is gone" in caplog.text


def test_a_topic_that_was_created_again_is_joined_and_stops_no_commit_of_others(broker: Broker) -> None:
    query = offsets(broker, failOnDataLoss="false")
    query.options["group"] = "lag"
    query.run()
    broker.client.topics.delete("bills")
    broker.client.topics.create("bills", queues=2)
    broker.client.send("bills", ["5", "6", "7"])
    broker.send(4)
    for _ in range(3):
        query.run()
    rows = {topic: broker.client.offsets.query(topic, "lag") for topic in (TOPIC, "bills")}
    assert {topic: sum(row.committed for row in found) for topic, found in rows.items()} == {TOPIC: 8, "bills": 3}


def test_a_topic_that_never_was_there_is_an_error_also_without_fail_on_data_loss(broker: Broker) -> None:
    with pytest.raises(popmq.errors.TopicNotFound, match="nowhere"):
        offsets(broker, f"{TOPIC}, nowhere", failOnDataLoss="false").trigger()


def test_a_loss_is_logged_once_while_the_query_is_idle(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    query = offsets(broker, failOnDataLoss="false")
    query.run()
    broker.client.topics.delete("bills")
    broker.client.topics.create("bills", queues=2)
    with caplog.at_level(logging.WARNING, WARNINGS):
        assert [query.trigger() for _ in range(5)] == [False] * 5
    (told,) = [row.getMessage() for row in caplog.records if "created again" in row.getMessage()]
    assert told.startswith("the topic 'bills' was deleted and created again (2")


@pytest.mark.parametrize("mode", ["lease", "offsets"])
def test_an_idle_query_over_many_topics_asks_less_often(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Twenty topics for ten seconds: 200 topics a second at most, not 400."""
    names = [f"t{number}" for number in range(20)]
    for name in names:
        broker.client.topics.create(name, queues=1)
    query = broker.query(mode=mode, topics=",".join(names), longPollTimeout="500ms")
    del query.options["topic"]
    if mode == "offsets":
        del query.options["group"]
    now = 0.0
    asked = 0

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    query.clock = lambda: now
    query.start().sleep = sleep
    query.trigger()
    now = 0.0
    for calls, call in ((popmq.Client, "wait_available"), (type(broker.client.offsets), "query")):
        original = getattr(calls, call)

        def counted(*given: Any, original: Any = original, **named: Any) -> Any:
            nonlocal asked
            asked += 1
            return original(*given, **named)

        monkeypatch.setattr(calls, call, counted)
    while now < 10.0:
        assert not query.trigger()
    assert 1_000 < asked <= 2_100


@pytest.mark.parametrize("mode", ["lease", "offsets"])
def test_an_idle_query_by_pattern_lists_the_topics_once_in_each_trigger(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    broker.client.topics.create("bills")
    query = broker.query(mode=mode, topicPattern="orders|bills", longPollTimeout="500ms")
    del query.options["topic"]
    now = [0.0]
    query.clock = lambda: now[0]
    query.start().sleep = lambda seconds: now.append(now.pop() + seconds)
    kind, listed = type(broker.client.topics), 0
    original = kind.list

    def counted(*given: Any, **named: Any) -> Any:
        nonlocal listed
        listed += 1
        return original(*given, **named)

    monkeypatch.setattr(kind, "list", counted)
    assert not query.trigger()
    assert (listed, now[0] >= 0.5) == (1, True)


# ── Another topic of the same name, longer than what was read ────────────────────────────────────────────────────────


def create_again(broker: Broker, messages: int) -> list[str]:
    broker.client.topics.delete(TOPIC)
    broker.clock.advance(1)
    broker.client.topics.create(TOPIC, queues=4)
    return broker.send(messages)


@pytest.fixture
def stream(broker: Broker) -> MicroBatches:
    """A query of offsets that has read the topic to its end."""
    stream = broker.query(mode="offsets", group="lag")
    broker.send(20)
    assert stream.run() == 1
    return stream


def test_a_longer_topic_of_the_same_name_is_a_data_loss_and_is_read_from_its_first_message_on_request(
    broker: Broker, stream: MicroBatches
) -> None:
    again = create_again(broker, 40)
    for _ in range(2):
        stream.start()
        with pytest.raises(DataLoss, match=r"deleted and created again .* set failOnDataLoss to false"):
            stream.trigger()
    stream.start(failOnDataLoss="false")
    stream.run()
    assert sorted(ids(stream.rows())[20:]) == sorted(again)
    stream.start(failOnDataLoss="true")
    assert stream.run() == 0
    assert sum(row.committed for row in broker.client.offsets.query(TOPIC, "lag")) == 40


def test_a_batch_that_is_read_again_never_has_messages_of_another_topic_of_the_same_name(
    broker: Broker, stream: MicroBatches
) -> None:
    broker.send(20)
    with pytest.raises(Crash):
        stream.trigger(crash="offsets written")
    create_again(broker, 80)
    stream.start()
    with pytest.raises(DataLoss, match="the topic 'orders' was deleted, or created again, before"):
        stream.trigger()


def test_a_batch_read_never_has_messages_of_another_topic_of_the_same_name(broker: Broker) -> None:
    broker.send(20)
    options = {"endpoint": broker.endpoint, "topic": TOPIC}
    source = PopMQDataSource(options)
    reader = source.reader(source.schema())
    (part,) = reader.partitions()
    create_again(broker, 40)
    with pytest.raises(DataLoss, match="deleted, or created again, before"):
        list(reader.read(part))


def test_a_checkpoint_of_a_preview_is_read_on_though_it_does_not_say_which_topic_it_is_of(
    broker: Broker, stream: MicroBatches
) -> None:
    stream.offsets = [
        json.dumps({k: v for k, v in json.loads(row).items() if k != "created"}) for row in stream.offsets
    ]
    late = broker.send(10)
    stream.start()
    stream.run()
    assert sorted(ids(stream.rows())[20:]) == sorted(late)
    create_again(broker, 60)
    with pytest.raises(DataLoss, match="created again"):
        stream.trigger()


# ── Other topics on the same checkpoint ──────────────────────────────────────────────────────────────────────────────

MODES = pytest.mark.parametrize("how", [{}, {"mode": "offsets", "group": ""}], ids=["lease", "offsets"])


def begun(broker: Broker, how: dict[str, str], **options: str) -> MicroBatches:
    """A query that has read the topic."""
    query = broker.query(**how | options)
    query.options = {name: value for name, value in query.options.items() if value}
    broker.send(5)
    assert query.run() == 1
    query.stop()
    return query


@MODES
def test_a_checkpoint_of_other_topics_is_refused_with_what_to_do(broker: Broker, how: dict[str, str]) -> None:
    broker.client.topics.create("copies")
    query = begun(broker, how)
    del query.options["topic"]
    for other in ({"topic": "copies"}, {"topics": "copies, copies"}, {"topicPattern": "cop.*"}):
        query.options = {name: value for name, value in query.options.items() if not name.startswith("topic")} | other
        query.start()
        with pytest.raises(OptionError, match=r"is of the topics 'orders', and the options name none.*new checkpoint"):
            query.trigger()
    query.options.pop("topicPattern")
    query.start(topics="copies, orders")
    assert query.run() == 0


@MODES
def test_a_topic_that_the_options_no_longer_name_is_reported_once(
    broker: Broker, how: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    broker.client.topics.create("copies")
    query = begun(broker, how, topic="", topics="orders, copies")
    query.options.pop("topics")
    query.start(topic="copies")
    assert [query.trigger(), query.trigger()] == [False, False]
    assert caplog.text.count("also of the topics 'orders', which the options no longer name") == 1


def failed_over(monkeypatch: pytest.MonkeyPatch, broker: Broker, ends: dict[int, int]) -> None:
    """Queues end where these do, as after a failover to a replica that did not have what follows."""
    calls_of = type(broker.client.offsets)
    query = calls_of.query

    def cut(calls: Any, *place: Any, **how: Any) -> list[popmq.QueueOffsets]:
        return [replace(row, max_offset=ends.get(row.queue, row.max_offset)) for row in query(calls, *place, **how)]

    monkeypatch.setattr(calls_of, "query", cut)


def test_a_queue_that_became_shorter_is_a_data_loss_or_is_read_on_from_its_end(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker.send(10)
    query = broker.query(mode="offsets")
    del query.options["group"]
    assert query.run() == 1
    (queue, end) = max((row.queue, row.max_offset) for row in broker.client.offsets.query(TOPIC) if row.max_offset)
    failed_over(monkeypatch, broker, {queue: end - 2})
    with pytest.raises(DataLoss, match=rf"ends at offset {end - 2}, but the query has read up to {end}.*failover"):
        query.trigger()
    query.start(failOnDataLoss="false")
    assert query.trigger(), "an empty batch: the new position is durable at once"
    assert not query.trigger()
    assert len(query.rows()) == 10
    assert caplog.text.count("has lost messages") == 1
    failed_over(monkeypatch, broker, {queue: end - 1})
    assert query.trigger(), "the message that has the next offset now is read, though a lost one had it before"
    assert len(query.rows()) == 11
