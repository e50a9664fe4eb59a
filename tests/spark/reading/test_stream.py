"""The reader on a real broker, called as Spark calls it: nothing is lost, nothing stored twice, everything acked."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.spark.conftest import Broker
from tests.spark.reading.microbatch import CRASH_POINTS, Crash, ids


def test_every_message_is_stored_once_and_acked(broker: Broker) -> None:
    sent = broker.send(47)
    query = broker.query(maxRowsPerTrigger=20, minPartitions=3)
    assert query.run() == 3
    assert sorted(ids(query.rows())) == sorted(sent)
    assert broker.group().acked == 47
    assert broker.group().in_flight == 0


def test_a_batch_is_acked_after_spark_has_committed_it(broker: Broker) -> None:
    broker.send(30)
    query = broker.query(maxRowsPerTrigger=10)
    for stored in (10, 20, 30):
        query.trigger()
        assert len(query.rows()) == stored
        assert broker.group().acked == stored - 10
    assert not query.trigger()
    assert broker.group().acked == 30


def test_two_initial_offsets_do_not_make_two_owners(broker: Broker) -> None:
    broker.send(5)
    query = broker.query()
    query.run()
    assert [owner.messages for owner in broker.client.owners.list("spark")] == [0]


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


@pytest.mark.parametrize("after", ["let_leases_run_out", "restart"])
def test_a_read_is_repeatable_after_the_lease_ran_out_and_after_a_restart_of_the_broker(
    broker: Broker, after: str
) -> None:
    broker.send(40)
    query = broker.query(minPartitions=2)
    query.trigger()
    before = [query.read(part) for part in query.parts()]
    getattr(broker, after)()
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


@pytest.mark.slow
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


@pytest.mark.slow
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


def test_commit_acks_too_but_finds_it_done(broker: Broker) -> None:
    broker.send(10)
    query = broker.query()
    query.trigger()
    reader = query.start()
    reader.commit(json.loads(query.offsets[-1]))
    assert broker.group().acked == 10
