"""A batch of mode=lease that comes from the checkpoint: the same messages, or an error, never other ones."""

import logging

import pytest

import popmq
from popmq_spark.lease.part import LeaseLoss
from popmq_spark.options import OptionError
from popmq_spark.queue_ends import DataLoss
from tests.spark.conftest import TOPIC, Broker
from tests.spark.reading.microbatch import Crash, MicroBatches, ids

WEEK = 7 * 24 * 3600.0


def stored_but_not_committed(broker: Broker, **options: str) -> MicroBatches:
    """A query whose driver died when the sink had stored its batch."""
    query = broker.query(maxRowsPerTrigger=10, **options)
    with pytest.raises(Crash):
        query.trigger(crash="rows stored")
    query.stop()
    return query


def drop_owner(broker: Broker) -> None:
    broker.let_leases_run_out()
    broker.let_leases_run_out(WEEK)
    assert broker.client.owners.list("spark") == []


def recreate(broker: Broker) -> list[str]:
    """Deletes the topic and creates it again, with 20 other messages."""
    broker.client.topics.delete(TOPIC)
    broker.client.topics.create(TOPIC, queues=4)
    return broker.send(20)


@pytest.mark.parametrize("lost", ["its owner was dropped", "its group was deleted"])
def test_a_batch_that_the_broker_no_longer_knows_ends_the_query_at_every_restart(broker: Broker, lost: str) -> None:
    broker.send(20)
    query = stored_but_not_committed(broker)
    if lost == "its owner was dropped":
        drop_owner(broker)
    else:
        broker.client.groups.delete("spark")
    for _ in range(2):
        query.start()
        with pytest.raises(DataLoss, match="no longer knows which messages of group spark are in epoch 1"):
            query.trigger()


def test_a_batch_that_the_broker_no_longer_knows_reads_as_empty_without_fail_on_data_loss(broker: Broker) -> None:
    sent = broker.send(20)
    query = stored_but_not_committed(broker)
    drop_owner(broker)
    query.start(failOnDataLoss="false")
    with pytest.raises(Crash):
        query.trigger(crash="rows stored")
    query.start()
    query.run()
    assert query.repeated[0] == [], "also when it is repeated twice"
    assert set(ids(query.rows())) == set(sent), "its messages are read again in later batches"


def test_a_batch_whose_topic_was_created_again_ends_the_query(broker: Broker) -> None:
    broker.send(20)
    query = stored_but_not_committed(broker)
    sent = recreate(broker)
    query.start()
    with pytest.raises(DataLoss, match="the topic 'orders' was deleted, or created again, before epoch 1 was read"):
        query.trigger()
    query.start(failOnDataLoss="false")
    query.run()
    assert query.repeated[0] == []
    assert sorted(ids(row for batch, rows in query.sink.items() if batch for row in rows)) == sorted(sent)


def test_a_query_goes_on_with_a_topic_that_was_created_again_between_two_batches(broker: Broker) -> None:
    broker.send(10)
    query = broker.query()
    query.run()
    sent = recreate(broker)
    query.run()
    assert sorted(ids(query.sink[1])) == sorted(sent)


@pytest.mark.parametrize("crash", ["rows stored", "commit written"])
def test_a_checkpoint_of_another_group_is_refused(broker: Broker, crash: str) -> None:
    sent = broker.send(20)
    query = broker.query(maxRowsPerTrigger=10)
    with pytest.raises(Crash):
        query.trigger(crash=crash)
    query.start(group="other")
    with pytest.raises(OptionError, match="belongs to the group spark, but the option group is 'other'"):
        query.trigger()
    query.start(group="spark")
    query.run()
    assert sorted(ids(query.rows())) == sorted(sent)


def test_a_checkpoint_of_a_preview_without_a_group_and_topic_ids_goes_on(broker: Broker) -> None:
    sent = broker.send(20)
    query = stored_but_not_committed(broker)
    query.offsets[-1] = query.offsets[-1].replace('"group": "spark", ', "").replace('"id": ', '"was": ')
    assert '"group"' not in query.offsets[-1]
    query.start()
    query.run()
    assert query.repeated[0] == query.sink[0]
    assert sorted(ids(query.rows())) == sorted(sent)


# ── Leases that are lost while a batch runs ──────────────────────────────────────────────────────────────────────────


def rob(broker: Broker) -> None:
    """Others pop three messages of the batch that runs, after its lease."""
    broker.let_leases_run_out()
    assert len(broker.client.pop(TOPIC, "spark", 3)) == 3


def test_a_lease_that_is_lost_while_a_batch_runs_fails_the_query_after_it_once(broker: Broker) -> None:
    broker.send(10)
    query = broker.query(failOnLeaseLoss="true")
    query.trigger()
    rob(broker)
    with pytest.raises(LeaseLoss, match="3 messages of epoch 1 went to other consumers of group spark"):
        query.trigger()
    query.start()
    assert not query.trigger()
    assert broker.group().acked == 7


def test_a_lease_that_is_lost_while_a_batch_runs_is_logged(broker: Broker, caplog: pytest.LogCaptureFixture) -> None:
    broker.send(10)
    query = broker.query()
    query.trigger()
    rob(broker)
    with caplog.at_level(logging.WARNING, "popmq_spark"):
        assert not query.trigger()
    assert "3 messages of epoch 1 went to other consumers of group spark" in caplog.text


# ── Options that the broker refuses ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("mode", ["lease", "offsets"])
def test_a_filter_that_is_corrected_after_an_error_goes_on_with_the_checkpoint(broker: Broker, mode: str) -> None:
    sent = broker.send(5)
    query = broker.query(mode=mode, sql="a >> 5")
    for available_now in (False, True):
        query.start(available_now=available_now and mode == "offsets")
        with pytest.raises(popmq.errors.InvalidFilter):
            query.trigger()
    assert query.offsets == []
    query.start(sql="a IS NULL")
    query.run()
    assert sorted(ids(query.rows())) == sorted(sent)


def test_a_filter_other_than_that_of_its_group_is_refused_before_it_is_in_the_checkpoint(broker: Broker) -> None:
    broker.client.groups.create("spark")
    broker.client.groups.set_filter(TOPIC, "spark", tag="x")
    (receipt, _) = broker.client.send(TOPIC, [popmq.Message("1", tag="x"), popmq.Message("2", tag="y")])
    query = broker.query(tag="y")
    with pytest.raises(popmq.errors.FilterConflict):
        query.trigger()
    assert query.offsets == []
    query.start(tag="x")
    query.run()
    assert ids(query.rows()) == [receipt.message_id]


def test_a_group_that_pulls_is_refused_before_it_is_in_the_checkpoint(broker: Broker) -> None:
    broker.client.groups.create("spark")
    broker.client.groups.set_consume_mode(TOPIC, "spark", "PULL")
    sent = broker.send(5)
    query = broker.query()
    with pytest.raises(OptionError, match="the group spark pulls the topic orders"):
        query.trigger()
    assert query.offsets == []
    query.start(group="other")
    query.run()
    assert sorted(ids(query.rows())) == sorted(sent)
