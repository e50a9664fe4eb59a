"""mode=lease over several topics, patterns and filters: one owner, one epoch for all, exact like a single topic."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

import popmq
from popmq_spark.lease.draining import Drain
from popmq_spark.options import OptionError
from popmq_spark.queue_ends import DataLoss
from tests.known import known
from tests.spark.conftest import TOPIC, Broker
from tests.spark.reading.microbatch import CRASH_POINTS, Crash, MicroBatches, ids

OTHERS = ("bills", "carts")


def send(broker: Broker, topic: str, count: int, tag: str = "", **properties: str) -> list[str]:
    messages = [popmq.Message(b"x", tag=tag, properties=properties) for _ in range(count)]
    return [receipt.message_id for receipt in broker.client.send(topic, messages)] if messages else []


@pytest.fixture(autouse=True)
def topics(broker: Broker) -> None:
    for topic in OTHERS:
        broker.client.topics.create(topic, queues=2)


def several(broker: Broker, *topics: str, **options: Any) -> MicroBatches:
    query = broker.query(topics=", ".join(topics or (TOPIC, *OTHERS)), **options)
    del query.options["topic"]
    return query


def acked(broker: Broker, topics: Sequence[str] = (TOPIC, *OTHERS)) -> dict[str, int]:
    return {topic: known(broker.client.broker.stats(topic, "spark").groups[0].acked) for topic in topics}


def test_several_topics_are_one_stream_in_which_each_gives_its_share(broker: Broker) -> None:
    sent = broker.send(60) + send(broker, "bills", 30) + send(broker, "carts", 10)
    query = several(broker, maxRowsPerTrigger=50, minPartitions=4)
    query.trigger()
    assert Counter(row["topic"] for row in query.sink[0]) == {TOPIC: 30, "bills": 15, "carts": 5}
    query.run()
    assert sorted(ids(query.rows())) == sorted(sent)
    assert acked(broker) == {TOPIC: 60, "bills": 30, "carts": 10}


@pytest.mark.slow
@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_crash_repeats_the_batch_of_all_topics_exactly(broker: Broker, point: str) -> None:
    sent = broker.send(20) + send(broker, "bills", 20)
    query = several(broker, maxRowsPerTrigger=15, minPartitions=3)
    query.trigger()
    with pytest.raises(Crash):
        query.trigger(crash=point)
    broker.let_leases_run_out()
    sent += send(broker, "carts", 10)
    query.start()
    query.run()
    assert sorted(ids(query.rows())) == sorted(sent)
    assert all(query.repeated[batch] == query.sink[batch] for batch in query.repeated)


def test_a_topic_that_comes_to_match_the_pattern_is_read_from_its_first_message(broker: Broker) -> None:
    query = broker.query(topicPattern="b.*", startingOffsets="latest")
    del query.options["topic"]
    assert query.run() == 0
    early = send(broker, "bills", 3)
    query.trigger()
    broker.client.topics.create("boxes", queues=1)
    late = send(broker, "boxes", 4)
    send(broker, "carts", 5)
    query.run()
    assert sorted(ids(query.rows())) == sorted(early + late)
    assert acked(broker, ("bills", "boxes")) == {"bills": 3, "boxes": 4}


def test_a_topic_of_a_pattern_that_comes_again_is_read_from_its_first_message(broker: Broker) -> None:
    broker.client.groups.create("spark", start="latest")
    query = broker.query(topicPattern=".*s")
    del query.options["topic"]
    query.trigger()
    sent = send(broker, "carts", 1)
    assert query.trigger()
    broker.client.topics.delete("bills")
    query.trigger()
    broker.client.topics.create("bills", queues=1)
    sent += send(broker, "bills", 3)
    query.trigger()
    assert sorted(ids(query.rows())) == sorted(sent)


def test_a_topic_of_a_pattern_may_be_deleted_while_the_query_waits(broker: Broker) -> None:
    query = broker.query(topicPattern=".*s", longPollTimeout="1s")
    del query.options["topic"]
    now = [0.0]
    reader = query.start()
    reader.clock = lambda: now[0]

    def sleep(seconds: float) -> None:
        now[0] += seconds
        if now[0] == seconds:
            broker.client.topics.delete("carts")
            send(broker, "bills", 3)

    reader.sleep = sleep
    query.trigger()
    assert len(query.rows()) == 3


def test_a_topic_that_comes_does_not_end_the_renewal_of_the_lease(broker: Broker) -> None:
    query = broker.query(topicPattern=".*s")
    del query.options["topic"]
    send(broker, "bills", 3)
    query.trigger()
    broker.client.topics.create("boxes", queues=1)
    send(broker, "boxes", 3)
    query.trigger()
    (owner,) = broker.client.owners.list("spark")
    assert query.parts()[0].generation == owner.generation  # type: ignore[attr-defined]


def test_dead_letters_are_streamed_with_their_origin_and_acked(broker: Broker) -> None:
    broker.client.groups.create("billing")
    (sent,) = broker.send(1)
    broker.client.reject(broker.client.pop(TOPIC, "billing"), reason="no such account")
    query = broker.query(topicPattern="%DLQ%.*", includeDeadLetter="true")
    del query.options["topic"]
    query.run()
    (row,) = query.rows()
    assert (row["message_id"], row["dead_letter"]["topic"], row["dead_letter"]["reason"]) == (
        sent,
        TOPIC,
        "no such account",
    )
    assert acked(broker, ["%DLQ%billing"]) == {"%DLQ%billing": 1}


@pytest.mark.parametrize(("name", "text"), [("tag", "a || b"), ("sql", "kind = 'x'")])
def test_messages_that_a_filter_passes_over_are_not_left(broker: Broker, name: str, text: str) -> None:
    wanted = [*send(broker, TOPIC, 5, "a", kind="x"), *send(broker, "bills", 5, "b", kind="x")]
    send(broker, TOPIC, 7, "c", kind="y")
    send(broker, "bills", 7)
    query = several(broker, **{name: text})
    query.start(available_now=True)
    query.run()
    assert sorted(ids(query.rows())) == sorted(wanted)
    assert {broker.client.broker.stats(topic, "spark").groups[0].ready for topic in (TOPIC, "bills")} == {0}


def test_a_batch_is_read_again_as_it_was_though_the_group_s_filter_has_changed(broker: Broker) -> None:
    send(broker, TOPIC, 4, "a")
    query = broker.query(tag="a")
    with pytest.raises(Crash):
        query.trigger(crash="rows stored")
    broker.client.groups.set_filter(TOPIC, "spark", tag="b")
    more = send(broker, TOPIC, 3, "b")
    query.start(tag="b")
    query.run()
    assert query.repeated[0] == query.sink[0]
    assert ids(row for batch, rows in query.sink.items() if batch for row in rows) == more


def test_a_filter_other_than_the_group_s_is_refused_by_the_broker(broker: Broker) -> None:
    send(broker, TOPIC, 4, "a")
    broker.query(tag="a").trigger()
    broker.send(1)
    with pytest.raises(popmq.errors.FilterConflict):
        broker.query(tag="b").trigger()


def test_available_now_ends_at_the_ends_of_the_topics_at_its_start(broker: Broker) -> None:
    early = broker.send(12) + send(broker, "bills", 9)
    query = broker.query(topicPattern=".*s", maxRowsPerTrigger=5)
    del query.options["topic"]
    query.start(available_now=True)
    query.trigger()
    broker.client.topics.create("boots", queues=1)
    while query.trigger():
        broker.send(2)
        late = send(broker, "boots", 2) + send(broker, "carts", 2)
    assert sorted(ids(query.rows())) == sorted(early)
    query.start(available_now=True)
    query.run()
    assert sum(acked(broker, (TOPIC, *OTHERS, "boots")).values()) == len(query.rows())
    assert set(late) < set(ids(query.rows()))


def test_progress_tells_the_backlog_in_all_and_by_topic(broker: Broker) -> None:
    broker.send(6)
    send(broker, "bills", 4)
    broker.clock.advance(2_000)
    query = several(broker, TOPIC, "bills", maxRowsPerTrigger=5)
    query.trigger()
    query.trigger()
    assert query.reader
    progress = query.reader.reportLatestOffset()
    assert progress is not None
    topics = progress["topics"]
    assert (progress["ready"], topics[TOPIC]["ready"] + topics["bills"]["ready"]) == (5, 5)
    assert {topic: row["oldestAgeMs"] for topic, row in topics.items()} == {TOPIC: 2_000, "bills": 2_000}
    assert progress["oldestAgeMs"] == 2_000


@pytest.mark.slow
def test_few_rows_of_several_topics_wait_for_more_and_then_no_longer(broker: Broker) -> None:
    query = several(broker, minRowsPerTrigger=6, maxTriggerDelay="60s", longPollTimeout="1s")
    now = [0.0]
    reader = query.start()
    reader.clock = lambda: now[0]
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    reader.sleep = sleep
    send(broker, "bills", 3)
    assert not query.trigger()
    assert sum(slept) == pytest.approx(1.0)
    send(broker, "carts", 3)
    assert query.trigger()
    send(broker, "carts", 1)
    assert not query.trigger()
    now[0] += 60
    assert query.trigger()


def test_a_topic_that_is_gone_before_its_batch_was_read_is_a_loss_or_passed_over(broker: Broker) -> None:
    sent = send(broker, "bills", 3)
    send(broker, "carts", 3)
    query = several(broker, "bills", "carts")
    with pytest.raises(Crash):
        query.trigger(crash="offsets written")
    broker.client.topics.delete("carts")
    query.start()
    with pytest.raises(DataLoss, match="'carts' was deleted"):
        query.trigger()
    query.start(failOnDataLoss="false", topics="bills")
    query.run()
    assert sorted(ids(query.rows())) == sorted(sent)


def test_a_topic_that_is_not_there_makes_no_group(broker: Broker) -> None:
    with pytest.raises(popmq.errors.TopicNotFound):
        several(broker, "nobody", "orders").trigger()
    assert broker.client.groups.list() == []


def test_a_drain_takes_one_topic(broker: Broker) -> None:
    session: Any = None
    with pytest.raises(OptionError, match="a drain empties one topic"):
        Drain(session, "n", {"endpoint": broker.endpoint, "topics": "a,b", "group": "g"})
