"""What one micro-batch takes: triggers, limits, tasks, start positions."""

import json
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

import popmq
from tests.spark.conftest import TOPIC, Broker
from tests.spark.reading.microbatch import ids


def test_the_last_batch_of_available_now_is_acked_by_the_last_latest_offset(broker: Broker) -> None:
    sent = broker.send(25)
    query = broker.query(maxRowsPerTrigger=10)
    query.start(available_now=True)
    assert query.run() == 3
    assert sorted(ids(query.rows())) == sorted(sent)
    assert (broker.group().acked, broker.group().in_flight) == (25, 0)
    query.start(available_now=True)
    assert query.run() == 0
    assert (broker.group().acked, broker.group().in_flight) == (25, 0)


@pytest.mark.slow
def test_available_now_leaves_later_messages_to_the_next_run(broker: Broker) -> None:
    early = broker.send(25)
    query = broker.query(maxRowsPerTrigger=10)
    query.start(available_now=True)
    late = []
    while query.trigger():
        late += broker.send(7)
    assert sorted(ids(query.rows())) == sorted(early)
    assert broker.group().ready == len(late)
    query.start(available_now=True)
    query.run()
    assert sorted(ids(query.rows())) == sorted(early + late)


def test_available_now_takes_all_that_others_leave_it_though_they_went_beyond_its_end(broker: Broker) -> None:
    early = broker.send(40)
    query = broker.query(maxRowsPerTrigger=10)
    query.start(available_now=True)
    query.trigger()
    broker.send(40)
    queues = range(3)  # of four: what the others leave is below the end of queue 3
    others = broker.client.pop(TOPIC, "spark", 100, queues=queues)
    while query.trigger():
        pass
    taken = {delivery.message_id for delivery in others}
    assert len(query.rows()) > 10  # more than the batch before
    assert sorted(ids(query.rows())) == sorted(set(early) - taken)


def test_available_now_ends_though_another_group_gives_messages_back(broker: Broker) -> None:
    sent = broker.send(20)
    query = broker.query(maxRowsPerTrigger=5)
    query.start(available_now=True)
    broker.client.groups.create("other")
    while query.trigger():
        for delivery in broker.client.pop(TOPIC, "other", 5):
            broker.client.release(delivery, delay=0.0)
    assert sorted(ids(query.rows())) == sorted(sent)


def test_released_messages_are_read_in_a_run_of_available_now_too(broker: Broker) -> None:
    sent = broker.send(20)
    broker.client.groups.create("spark")
    for delivery in broker.client.pop(TOPIC, "spark", 8):
        broker.client.release(delivery, delay=0.0)
    query = broker.query(maxRowsPerTrigger=5)
    query.start(available_now=True)
    assert query.run() == 4
    assert sorted(ids(query.rows())) == sorted(sent)
    assert {row["delivery_attempt"] for row in query.rows()} == {1, 2}


def test_available_now_on_a_new_group_reads_what_is_there(broker: Broker) -> None:
    query = broker.query()
    query.start(available_now=True)
    assert query.run() == 0
    sent = broker.send(3)
    query.start(available_now=True)
    assert query.run() == 1
    assert sorted(ids(query.rows())) == sorted(sent)


def test_available_now_begins_a_topic_that_is_new_to_the_group_where_it_is_asked_to(broker: Broker) -> None:
    broker.client.groups.create("spark")
    broker.send(3)
    query = broker.query(startingOffsets="latest")
    query.start(available_now=True)
    assert query.run() == 0
    late = broker.send(2)
    query.start(available_now=True)
    query.run()
    assert sorted(ids(query.rows())) == sorted(late)


def test_available_now_does_not_wait_for_the_minimum(broker: Broker) -> None:
    broker.send(9)
    query = broker.query(minRowsPerTrigger=10)
    query.start(available_now=True)
    query.run()
    assert len(query.rows()) == 9


def test_trigger_once_ignores_the_row_limit_and_acks_at_the_next_run(broker: Broker) -> None:
    broker.send(50)
    query = broker.query(maxRowsPerTrigger=10)
    query.run_once()
    assert len(query.rows()) == 50
    assert broker.group().in_flight == 50
    query.start()
    assert not query.run_once()
    assert broker.group().in_flight == 0


def test_the_row_limit_holds_exactly_with_any_number_of_parts(broker: Broker) -> None:
    broker.send(60)
    query = broker.query(maxRowsPerTrigger=10, minPartitions=3)
    query.run()
    assert {len(rows) for rows in query.sink.values()} == {10}


def test_more_tasks_than_queues_share_the_messages(broker: Broker) -> None:
    sent = broker.send(90)
    query = broker.query(minPartitions=9)
    query.trigger()
    assert [len(query.read(part)) for part in query.parts()] == [10] * 9
    assert sorted(ids(query.rows())) == sorted(sent)


@pytest.mark.parametrize(
    ("messages", "options", "tasks"),
    [
        (100, {"maxRecordsPerPartition": 30}, 4),
        (100, {"maxRecordsPerPartition": 30, "maxPartitions": 3}, 3),
        (100, {"minPartitions": 7}, 7),
        (2, {"minPartitions": 7}, 2),
    ],
)
def test_tasks_follow_the_backlog_within_their_limits(
    broker: Broker, messages: int, options: dict[str, int], tasks: int
) -> None:
    broker.send(messages)
    query = broker.query(**options)
    query.trigger()
    assert len(query.parts()) == tasks
    assert len(query.rows()) == messages


def test_an_empty_range_has_no_tasks(broker: Broker) -> None:
    broker.send(10)
    query = broker.query()
    query.trigger()
    end = json.loads(query.offsets[-1])
    assert query.start().partitions(end, end) == []


@pytest.mark.slow
def test_the_byte_limit_cuts_a_batch(broker: Broker) -> None:
    broker.send(40, size=200_000)
    query = broker.query(maxBytesPerTrigger="1m")
    query.trigger()
    assert 1 <= len(query.rows()) <= 15
    query.run()
    assert len(query.rows()) == 40


def test_a_batch_below_the_minimum_waits_until_the_delay_is_over(broker: Broker) -> None:
    now = [0.0]
    query = broker.query(minRowsPerTrigger=10, maxTriggerDelay="30s")
    query.clock = lambda: now[0]
    broker.send(9)
    assert not query.trigger()
    now[0] = 29.9
    assert not query.trigger()
    now[0] = 30.0
    assert query.trigger()
    broker.send(10)
    assert query.trigger()
    broker.send(5)
    assert not query.trigger()
    assert [len(rows) for rows in query.sink.values()] == [9, 10]


def test_a_new_group_can_start_at_the_end(broker: Broker) -> None:
    broker.send(10)
    query = broker.query(startingOffsets="latest")
    assert not query.trigger()
    late = broker.send(5)
    query.run()
    assert sorted(ids(query.rows())) == sorted(late)


def test_a_new_group_can_start_at_a_time(broker: Broker) -> None:
    broker.send(10)
    broker.clock.advance(1_000)
    since = broker.clock.now_ms()
    late = broker.send(5)
    query = broker.query(startingOffsets=str(since))
    query.run()
    assert sorted(ids(query.rows())) == sorted(late)


def test_a_group_that_was_moved_to_offsets_starts_there(broker: Broker) -> None:
    broker.send(40)
    broker.client.groups.create("spark")
    broker.client.offsets.reset(TOPIC, "spark", {0: 7, 1: 10})
    query = broker.query()
    query.run()
    firsts = {queue: min(row["queue_offset"] for row in query.rows() if row["queue_id"] == queue) for queue in (0, 2)}
    assert firsts == {0: 7, 2: 0}
    assert {row["queue_id"] for row in query.rows()} == {0, 2, 3}


def test_the_progress_tells_what_the_group_has_to_do(broker: Broker) -> None:
    broker.send(25)
    query = broker.query(maxRowsPerTrigger=10)
    query.trigger()
    query.trigger()
    assert query.reader
    progress = query.reader.reportLatestOffset()
    assert progress is not None
    assert (progress["ready"], progress["inFlight"]) == (15, 0)


def test_an_idle_trigger_asks_once_and_waits_at_the_broker_until_there_are_enough_rows(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: SimpleQueue[tuple[int, float]] = SimpleQueue()
    ask = popmq.Client.wait_available

    def wait_available(
        client: popmq.Client, topic: str, group: str, min_ready: int, wait: float, *more: Any, **filter: Any
    ) -> popmq.Availability:
        asked.put((min_ready, wait))
        return ask(client, topic, group, min_ready, wait, *more, **filter)

    monkeypatch.setattr(popmq.Client, "wait_available", wait_available)
    query = broker.query(longPollTimeout="30s", minRowsPerTrigger=5)
    with ThreadPoolExecutor(1) as driver:
        trigger = driver.submit(query.trigger)
        assert asked.get(timeout=20) == (5, 30.0)
        broker.send(5)
        assert trigger.result(timeout=20)
    assert asked.empty()
    assert len(query.rows()) == 5


def test_a_trigger_without_anything_new_returns_the_offset_it_got(broker: Broker) -> None:
    reader = broker.query().start()
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMaxRows(10)) is start


# ── Batches that are not read ────────────────────────────────────────────────────────────────────────────────────────


def test_available_now_ends_when_a_batch_reads_none_of_its_rows(
    broker: Broker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.send(10)
    query = broker.query()
    query.start(available_now=True)
    with monkeypatch.context() as patch:
        patch.setattr(query, "parts", lambda batch: [])
        assert [query.trigger(), query.trigger()] == [True, False]
    assert "epoch 1 of group spark read none of its 10 messages" in caplog.text
    query.start(available_now=True)
    query.run()
    assert len(query.rows()) == 10


def test_available_now_goes_on_after_a_batch_that_reads_some_of_its_rows(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.send(10)
    query = broker.query(minPartitions=2)
    query.start(available_now=True)
    with monkeypatch.context() as patch:
        parts = query.parts
        patch.setattr(query, "parts", lambda batch: parts(batch)[:1])
        query.trigger()
    query.run()
    assert len(query.rows()) == 10


def test_a_query_that_does_not_end_waits_before_it_plans_unread_messages_again(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.send(10)
    query = broker.query(longPollTimeout="7s")
    slept: list[float] = []
    query.start().sleep = slept.append
    with monkeypatch.context() as patch:
        patch.setattr(query, "parts", lambda batch: [])
        assert [query.trigger() for _ in range(3)] == [True, True, True]
    assert slept == [7.0, 7.0]
    query.trigger()
    assert len(query.rows()) == 10


def test_large_bodies_fill_a_batch_up_to_its_bytes(broker: Broker) -> None:
    for _ in range(12):
        broker.client.send(TOPIC, b"x" * (1 << 20))
    query = broker.query(maxBytesPerTrigger="64m")
    query.run_once()
    assert len(query.sink[0]) == 12
