"""The reader on a real broker, called as Spark calls it: nothing is lost, nothing stored twice, everything acked."""

import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

import popmq
from popmq_spark.part import DataLoss, LeaseLoss
from tests.spark.conftest import TOPIC, Broker
from tests.spark.microbatch import CRASH_POINTS, Crash, ids


def heartbeats() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "popmq-heartbeat"}


def wait_for(condition: Callable[[], bool]) -> None:
    """For what a thread does in real time: looks again and again, up to 20 s."""
    pause = threading.Event()
    assert any(condition() or pause.wait(0.02) for _ in range(1000))


def test_every_message_is_stored_once_and_acked(broker: Broker) -> None:
    sent = broker.send(47)
    query = broker.query(maxRowsPerTrigger=20, minPartitions=3)
    assert query.run() == 3
    assert sorted(ids(query.rows())) == sorted(sent)
    assert broker.group().acked == 47
    assert broker.group().in_flight == 0


def test_nothing_is_acked_before_spark_has_committed_it(broker: Broker) -> None:
    broker.send(30)
    query = broker.query(maxRowsPerTrigger=10)
    for stored in (10, 20, 30):
        query.trigger()
        assert len(query.rows()) == stored
        assert broker.group().acked == stored - 10
    assert not query.trigger()
    assert broker.group().acked == 30


def test_a_trigger_without_anything_new_gives_back_the_offset_it_got(broker: Broker) -> None:
    reader = broker.query().start()
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadMaxRows(10)) is start


def test_two_initial_offsets_do_not_make_two_owners(broker: Broker) -> None:
    broker.send(5)
    query = broker.query()
    query.run()
    assert [owner.messages for owner in broker.client.owners("spark")] == [0]


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


def test_available_now_leaves_what_arrives_later_to_the_next_run(broker: Broker) -> None:
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


def test_available_now_on_a_new_group_reads_what_is_there(broker: Broker) -> None:
    query = broker.query()
    query.start(available_now=True)
    assert query.run() == 0
    sent = broker.send(3)
    query.start(available_now=True)
    assert query.run() == 1
    assert sorted(ids(query.rows())) == sorted(sent)


def test_once_reads_everything_whatever_the_row_limit_says_and_acks_at_the_next_run(broker: Broker) -> None:
    broker.send(50)
    query = broker.query(maxRowsPerTrigger=10)
    query.run_once()
    assert len(query.rows()) == 50
    assert broker.group().in_flight == 50
    query.start()
    assert not query.run_once()
    assert broker.group().in_flight == 0


def test_a_read_that_is_repeated_gives_the_same_rows_in_the_same_order(broker: Broker) -> None:
    broker.send(40)
    query = broker.query(minPartitions=4)
    query.trigger()
    for part in query.parts():
        once = query.read(part)
        broker.send(3)
        assert query.read(part) == once
    assert sorted(ids(query.rows())) == sorted(ids(row for part in query.parts() for row in query.read(part)))


def test_eight_reads_of_one_task_at_once_agree(broker: Broker) -> None:
    broker.send(100)
    query = broker.query()
    with pytest.raises(Crash):
        query.trigger(crash="offsets written")
    (part,) = query.parts()
    with ThreadPoolExecutor(8) as pool:
        reads = list(pool.map(query.read, [part] * 8))
    assert len(reads[0]) == 100
    assert all(read == reads[0] for read in reads)


def test_a_read_is_repeatable_after_the_lease_ran_out(broker: Broker) -> None:
    broker.send(40)
    query = broker.query(minPartitions=2)
    query.trigger()
    before = [query.read(part) for part in query.parts()]
    broker.let_leases_run_out()
    assert [query.read(part) for part in query.parts()] == before
    assert {row["delivery_attempt"] for rows in before for row in rows} == {1}


def test_a_lease_that_runs_out_in_the_middle_of_a_read_repeats_nothing(broker: Broker) -> None:
    sent = broker.send(60)
    query = broker.query(minPartitions=2)
    with pytest.raises(Crash):
        query.trigger(crash="offsets written")
    query.offsets[-1] = query.offsets[-1].replace('"chunkRows": 2000', '"chunkRows": 7')
    reader = query.start()
    rows: list[str] = []
    for part in query.parts():
        for batch in reader.read(part):
            rows += batch.to_pydict()["message_id"]
            broker.let_leases_run_out()
    assert sorted(rows) == sorted(sent)
    assert sorted(ids(row for part in query.parts() for row in query.read(part))) == sorted(sent)


def test_a_read_is_repeatable_after_a_restart_of_the_broker(broker: Broker) -> None:
    broker.send(40)
    query = broker.query(minPartitions=2)
    query.trigger()
    before = [query.read(part) for part in query.parts()]
    broker.restart()
    assert [query.read(part) for part in query.parts()] == before


def test_a_query_goes_on_through_restarts_of_the_broker(broker: Broker) -> None:
    sent = broker.send(30)
    query = broker.query(maxRowsPerTrigger=10)
    while query.trigger():
        broker.restart()
    assert sorted(ids(query.rows())) == sorted(sent)
    assert broker.group().in_flight == 0


@pytest.mark.parametrize("lapsed", [False, True], ids=["at once", "after the lease"])
@pytest.mark.parametrize("point", CRASH_POINTS)
def test_a_crash_of_the_driver_loses_nothing_and_repeats_nothing(broker: Broker, point: str, lapsed: bool) -> None:
    sent = broker.send(50)
    query = broker.query(maxRowsPerTrigger=20, minPartitions=2)
    query.trigger()
    with pytest.raises(Crash):
        query.trigger(crash=point)
    if lapsed:
        broker.let_leases_run_out()
    sent += broker.send(10)
    query.start()
    query.run()
    assert sorted(ids(query.rows())) == sorted(sent)
    assert all(query.repeated[batch] == query.sink[batch] for batch in query.repeated)
    assert broker.group().in_flight == 0


def test_a_crash_in_every_batch_at_every_point_loses_nothing(broker: Broker) -> None:
    sent = broker.send(10)
    query = broker.query(maxRowsPerTrigger=15, minPartitions=2)
    for point in CRASH_POINTS * 2:
        sent += broker.send(12)
        with pytest.raises(Crash):
            query.trigger(crash=point)
        query.start()
    query.run()
    assert sorted(ids(query.rows())) == sorted(sent)
    assert broker.group().acked == len(sent)


def test_a_restart_with_other_options_repeats_the_old_plan(broker: Broker) -> None:
    sent = broker.send(200)
    query = broker.query(maxRowsPerTrigger=120, minPartitions=2)
    with pytest.raises(Crash):
        query.trigger(crash="rows stored")
    query.start(maxRowsPerTrigger=40, minPartitions=4)
    assert len(query.parts(0)) == 2
    query.trigger()
    assert query.repeated[0] == query.sink[0]
    assert len(query.sink[0]) == 120
    query.run()
    assert [len(rows) for rows in query.sink.values()] == [120, 40, 40]
    assert sorted(ids(query.rows())) == sorted(sent)


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


def test_the_byte_limit_cuts_a_batch(broker: Broker) -> None:
    broker.send(40, size=200_000)
    query = broker.query(maxBytesPerTrigger="1m")
    query.trigger()
    assert 1 <= len(query.rows()) <= 15
    query.run()
    assert len(query.rows()) == 40


def test_a_task_of_an_older_driver_is_fenced(broker: Broker) -> None:
    broker.send(10)
    query = broker.query()
    query.trigger()
    (old,) = query.parts()
    query.start()
    (new,) = query.parts()
    with pytest.raises(popmq.errors.Fenced):
        query.read(old)
    assert len(query.read(new)) == 10


def test_an_older_driver_is_fenced_too(broker: Broker) -> None:
    broker.send(10)
    query = broker.query(maxRowsPerTrigger=5)
    query.trigger()
    twin = broker.query(maxRowsPerTrigger=5)
    twin.offsets, twin.commits = list(query.offsets), list(query.commits)
    twin.trigger()
    with pytest.raises(popmq.errors.Fenced):
        query.trigger()


def test_an_epoch_that_was_acked_is_not_read_as_if_it_were_empty(broker: Broker) -> None:
    broker.send(20)
    query = broker.query(maxRowsPerTrigger=10)
    query.run()
    query.start()
    (part,) = query.parts(0)
    with pytest.raises(DataLoss, match="epoch 1 of group spark was acked before"):
        query.read(part)
    query.start(failOnDataLoss="false")
    (part,) = query.parts(0)
    assert query.read(part) == []


def test_a_checkpoint_that_lost_its_end_goes_on_with_an_unused_epoch(broker: Broker) -> None:
    broker.send(20)
    query = broker.query(maxRowsPerTrigger=10)
    query.run()
    late = broker.send(5)
    query.offsets, query.commits = query.offsets[:1], query.commits[:1]
    query.start()
    del query.sink[1]
    query.run()
    assert sorted(ids(query.sink[1])) == sorted(late)


def test_a_task_that_found_nothing_stays_empty(broker: Broker) -> None:
    broker.send(10)
    query = broker.query()
    with pytest.raises(Crash):
        query.trigger(crash="offsets written")
    others = broker.client.pop(TOPIC, "spark", 100)
    assert len(others) == 10
    (part,) = query.parts()
    assert query.read(part) == []
    broker.send(10)
    assert query.read(part) == []
    broker.client.ack(others)
    query.run()
    assert [len(rows) for rows in query.sink.values()] == [0, 10]


@pytest.mark.parametrize("strict", [True, False])
def test_what_others_popped_after_the_lease_is_missing_or_an_error(broker: Broker, strict: bool) -> None:
    broker.send(10)
    query = broker.query(failOnLeaseLoss=strict)
    with pytest.raises(Crash):
        query.trigger(crash="all rows read")
    broker.let_leases_run_out()
    stolen = broker.client.pop(TOPIC, "spark", 4)
    assert len(stolen) == 4
    query.start()
    (part,) = query.parts()
    if strict:
        with pytest.raises(LeaseLoss, match="4 messages of epoch 1 went to other consumers"):
            query.read(part)
    else:
        assert len(query.read(part)) == 6


def test_an_exclusive_owner_is_not_robbed(broker: Broker) -> None:
    broker.send(10)
    query = broker.query(exclusiveOwner="true", failOnLeaseLoss="true")
    with pytest.raises(Crash):
        query.trigger(crash="all rows read")
    broker.let_leases_run_out()
    assert broker.client.pop(TOPIC, "spark", 10) == []
    query.start()
    query.run()
    assert len(query.rows()) == 10


def test_exclusive_owner_on_a_group_that_is_not_exclusive_is_refused(broker: Broker) -> None:
    broker.client.create_group("spark")
    broker.send(1)
    with pytest.raises(ValueError, match="exclusiveOwner = 'true', but the group spark"):
        broker.query(exclusiveOwner="true").trigger()


def test_messages_of_a_query_that_never_comes_back_return_to_the_group(broker: Broker) -> None:
    broker.send(10)
    query = broker.query()
    with pytest.raises(Crash):
        query.trigger(crash="rows stored")
    query.stop()
    assert broker.client.pop(TOPIC, "spark", 100) == []
    broker.let_leases_run_out()
    assert len(broker.client.pop(TOPIC, "spark", 100)) == 10


def test_stop_neither_acks_nor_releases(broker: Broker) -> None:
    broker.send(10)
    query = broker.query()
    query.trigger()
    query.stop()
    assert (broker.group().in_flight, broker.group().acked) == (10, 0)


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


def test_available_now_does_not_wait_for_the_minimum(broker: Broker) -> None:
    broker.send(9)
    query = broker.query(minRowsPerTrigger=10)
    query.start(available_now=True)
    query.run()
    assert len(query.rows()) == 9


def test_a_new_group_can_start_at_the_end(broker: Broker) -> None:
    broker.send(10)
    query = broker.query(startingOffsets="latest")
    assert not query.trigger()
    late = broker.send(5)
    query.run()
    assert sorted(ids(query.rows())) == sorted(late)


def test_a_topic_that_is_not_there_is_named(broker: Broker) -> None:
    with pytest.raises(popmq.errors.TopicNotFound, match="nowhere"):
        broker.query(topic="nowhere").trigger()


def test_the_progress_tells_what_the_group_has_to_do(broker: Broker) -> None:
    broker.send(25)
    query = broker.query(maxRowsPerTrigger=10)
    query.trigger()
    query.trigger()
    assert query.reader
    progress = query.reader.reportLatestOffset()
    assert progress is not None
    assert (progress["ready"], progress["inFlight"]) == (15, 0)


def test_commit_acks_too_but_finds_it_done(broker: Broker) -> None:
    broker.send(10)
    query = broker.query()
    query.trigger()
    reader = query.start()
    reader.commit(json.loads(query.offsets[-1]))
    assert broker.group().acked == 10


def test_two_queries_in_one_group_share_the_messages(broker: Broker) -> None:
    sent = broker.send(60)
    queries = [broker.query(maxRowsPerTrigger=10, minPartitions=2) for _ in range(2)]
    while sum(query.trigger() for query in queries):
        assert broker.group().in_flight <= 20
    assert sorted(ids(row for query in queries for row in query.rows())) == sorted(sent)
    assert broker.group().in_flight == 0


def test_the_lease_is_renewed_while_a_batch_takes_long(broker: Broker) -> None:
    broker.send(10)
    query = broker.query(invisibleTime="1s")
    query.trigger()
    for _ in range(5):
        broker.clock.advance(900)
        wait_for(lambda: broker.client.owners("spark")[0].lease_until_ms == broker.clock.now_ms() + 1000)
    assert broker.client.pop(TOPIC, "spark", 10) == []


def test_an_owner_that_was_taken_over_is_no_longer_renewed_by_its_old_driver(broker: Broker) -> None:
    broker.send(10)
    query, others = broker.query(invisibleTime="1s"), heartbeats()
    query.trigger()
    (heartbeat,) = heartbeats() - others
    (owner,) = broker.client.owners("spark")
    broker.client.attach_owner("spark", owner.owner)
    wait_for(lambda: not heartbeat.is_alive())


def test_stop_ends_the_heartbeat(broker: Broker) -> None:
    query, others = broker.query(invisibleTime="1s"), heartbeats()
    query.trigger()
    (heartbeat,) = heartbeats() - others
    query.stop()
    wait_for(lambda: not heartbeat.is_alive())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"torn_lost": 2, "count": 12}, "2 messages of epoch 1 are gone"),
        ({"count": 11}, "10 of 11 messages arrived in epoch 1"),
    ],
)
def test_messages_that_are_gone_are_an_error_unless_that_is_wanted(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any], complaint: str
) -> None:
    broker.send(10)
    pop_sealed = popmq.Client.pop_sealed
    monkeypatch.setattr(
        popmq.Client, "pop_sealed", lambda *args, **named: replace(pop_sealed(*args, **named), **change)
    )
    with pytest.raises(DataLoss, match=complaint):
        broker.query().trigger()
    if "torn_lost" in change:
        broker.query(group="tolerant", failOnDataLoss="false").trigger()
        assert broker.group("tolerant").in_flight == 10


def test_a_broker_that_stays_away_ends_the_query_with_a_clear_error(broker: Broker) -> None:
    broker.send(10)
    query = broker.query(brokerUnavailableTimeout="1s")
    query.trigger()
    broker.stop()
    with pytest.raises(popmq.errors.Unavailable):
        query.trigger()
    broker.start()
    query.run()
    assert broker.group().in_flight == 0
