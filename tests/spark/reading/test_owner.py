"""Who may read, and until when: heartbeats, leases that run out, fences, what others took."""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import popmq
from popmq_spark.lease.part import LeaseLoss
from popmq_spark.queue_ends import DataLoss
from tests.known import known
from tests.spark.conftest import TOPIC, Broker
from tests.spark.reading.microbatch import Crash, ids


def heartbeats() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "popmq-heartbeat"}


def wait_for(condition: Callable[[], bool]) -> None:
    """For what a thread does in real time: looks again and again, up to 20 s."""
    pause = threading.Event()
    assert any(condition() or pause.wait(0.02) for _ in range(1000))


@pytest.mark.slow
def test_the_lease_is_renewed_while_a_batch_takes_long(broker: Broker) -> None:
    broker.send(10)
    query = broker.query(invisibleTime="1s")
    query.trigger()
    for _ in range(5):
        broker.clock.advance(900)
        wait_for(lambda: broker.client.owners.list("spark")[0].lease_until_ms == broker.clock.now_ms() + 1000)
    assert broker.client.pop(TOPIC, "spark", 10) == []


def test_an_owner_that_was_taken_over_is_no_longer_renewed_by_its_old_driver(broker: Broker) -> None:
    broker.send(10)
    query, others = broker.query(invisibleTime="1s"), heartbeats()
    query.trigger()
    (heartbeat,) = heartbeats() - others
    (owner,) = broker.client.owners.list("spark")
    broker.client.owners.attach("spark", owner.owner)
    wait_for(lambda: not heartbeat.is_alive())


@pytest.mark.slow
def test_stop_ends_the_heartbeat(broker: Broker) -> None:
    query, others = broker.query(invisibleTime="1s"), heartbeats()
    query.trigger()
    (heartbeat,) = heartbeats() - others
    query.stop()
    wait_for(lambda: not heartbeat.is_alive())


def test_stop_neither_acks_nor_releases(broker: Broker) -> None:
    broker.send(10)
    query = broker.query()
    query.trigger()
    query.stop()
    assert (broker.group().in_flight, broker.group().acked) == (10, 0)


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


def test_an_older_copy_of_a_checkpoint_fails_before_anything_is_popped(broker: Broker) -> None:
    broker.send(30)
    query = broker.query(maxRowsPerTrigger=10)
    query.run()
    broker.send(5)
    query.offsets, query.commits = query.offsets[:1], query.commits[:1]
    for _ in range(2):
        query.start()
        with pytest.raises(DataLoss, match=r"ends with micro-batch 1 of group spark.*2 more, up to 3.*failOnDataLoss"):
            query.trigger()
    assert (broker.group().ready, broker.group().in_flight) == (5, 0)


def test_an_older_copy_of_a_checkpoint_goes_on_without_the_lost_batches_on_request(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.send(20)
    query = broker.query(maxRowsPerTrigger=10)
    query.run()
    query.offsets, query.commits = query.offsets[:1], query.commits[:1]
    query.start(failOnDataLoss="false")
    del query.sink[1]
    assert [query.trigger(), query.trigger()] == [False, False]
    late = broker.send(5)
    query.run()
    assert sorted(ids(query.sink[1])) == sorted(late)
    assert [record.message for record in caplog.records if "1 more, up to 2, are acked" in record.message] != []
    assert caplog.text.count("are acked") == 1, "told once, not at each trigger"


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
def test_messages_popped_by_others_after_the_lease_are_missing_or_an_error(broker: Broker, strict: bool) -> None:
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
    broker.client.groups.create("spark")
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
    calls = type(broker.client.owners)
    pop_sealed = calls.pop_sealed
    monkeypatch.setattr(calls, "pop_sealed", lambda *args, **named: replace(pop_sealed(*args, **named), **change))
    with pytest.raises(DataLoss, match=complaint):
        broker.query().trigger()
    if "torn_lost" in change:
        broker.query(group="tolerant", failOnDataLoss="false").trigger()
        assert broker.group("tolerant").in_flight == 10


def test_two_queries_in_one_group_share_the_messages(broker: Broker) -> None:
    sent = broker.send(60)
    queries = [broker.query(maxRowsPerTrigger=10, minPartitions=2) for _ in range(2)]
    while sum(query.trigger() for query in queries):
        assert known(broker.group().in_flight) <= 20
    assert sorted(ids(row for query in queries for row in query.rows())) == sorted(sent)
    assert broker.group().in_flight == 0


@pytest.mark.slow
def test_a_broker_that_stays_away_ends_the_query_with_a_clear_error(broker: Broker) -> None:
    broker.send(10)
    query = broker.query(brokerUnavailableTimeout="1s")
    query.trigger()
    broker.stop()
    with pytest.raises(popmq.errors.Unavailable):
        query.trigger()
    broker.start()
    query.start(brokerUnavailableTimeout="120s")
    query.run()
    assert broker.group().in_flight == 0


def test_an_ack_that_fails_for_now_is_repeated_by_the_next_trigger(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.send(10)
    query = broker.query()
    query.trigger()
    reader = query.start()

    def busy(*given: Any) -> None:
        raise popmq.errors.Busy("too many requests are waiting")

    with monkeypatch.context() as patch:
        patch.setattr(type(broker.client.owners), "ack_up_to", busy)
        reader.commit(json.loads(query.offsets[-1]))
    assert broker.group().acked == 0
    assert not query.trigger()
    assert broker.group().acked == 10


@pytest.mark.parametrize(
    ("mode", "space", "call"),
    [("lease", "owners", "ack_up_to"), ("lease", "", "wait_available"), ("offsets", "offsets", "query")],
)
def test_a_broker_that_restarts_during_a_trigger_is_waited_for(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, mode: str, space: str, call: str
) -> None:
    sent = broker.send(10)
    query = broker.query(mode=mode)
    query.trigger()
    sent += broker.send(10)
    calls = type(getattr(broker.client, space) if space else broker.client)
    original = getattr(calls, call)
    starting = threading.Thread(target=broker.start)

    def during(*given: Any, **named: Any) -> Any:
        monkeypatch.undo()
        broker.stop()
        starting.start()
        return original(*given, **named)

    monkeypatch.setattr(calls, call, during)
    assert query.trigger()
    starting.join()
    assert sorted(ids(query.rows())) == sorted(sent)


def test_a_topic_that_is_not_there_is_named(broker: Broker) -> None:
    with pytest.raises(popmq.errors.TopicNotFound, match="nowhere"):
        broker.query(topic="nowhere").trigger()
