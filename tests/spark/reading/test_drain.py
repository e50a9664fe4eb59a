"""A drain: a batch read that leases, and acks at the end of its block."""

from contextlib import suppress
from typing import Any

import pytest

from popmq_spark.lease.draining import Drain, DrainReader
from popmq_spark.lease.part import LeaseLoss
from popmq_spark.options import OptionError
from popmq_spark.queue_ends import DataLoss
from popmq_spark.source import PopMQDataSource
from tests.spark.conftest import TOPIC, Broker
from tests.spark.reading.microbatch import Row, ids


def drain(broker: Broker, name: str = "nightly", **options: Any) -> Drain:
    """A drain whose DataFrame nobody asks for: its reader is made by hand."""
    session: Any = None
    return Drain(session, name, {"endpoint": broker.endpoint, "topic": TOPIC, "group": "spark"} | options)


def act(drain: Drain) -> list[Row]:
    """One action: a reader of its own, and its tasks."""
    source = PopMQDataSource({name.lower(): value for name, value in drain.options.items()})
    reader = source.reader(source.schema())
    assert isinstance(reader, DrainReader)
    return [row for part in reader.partitions() for rows in reader.read(part) for row in rows.to_pylist()]


def broken(made: Drain) -> list[Row]:
    """The rows of a drain whose block fails after its action."""
    rows: list[Row] = []
    with suppress(OSError), made:
        rows += act(made)
        raise OSError("the table's disk is full")
    return rows


@pytest.mark.slow
def test_every_action_sees_the_same_rows_and_the_end_of_the_block_acks_them(broker: Broker) -> None:
    sent = broker.send(30)
    with drain(broker) as nightly:
        rows = act(nightly)
        late = broker.send(4)
        assert act(nightly) == rows
        assert broker.group().acked == 0
    assert sorted(ids(rows)) == sorted(sent)
    assert (broker.group().acked, broker.group().in_flight) == (30, 0)
    with drain(broker) as nightly:
        assert nightly.epoch == 2
        assert sorted(ids(act(nightly))) == sorted(late)


def test_a_block_that_fails_acks_nothing_and_is_repeated_under_its_epoch(broker: Broker) -> None:
    broker.send(30)
    first = drain(broker, maxRowsPerTrigger=20, minPartitions=3)
    rows = broken(first)
    assert broker.group().acked == 0
    broker.let_leases_run_out()
    broker.send(5)
    with drain(broker, maxRowsPerTrigger=20, minPartitions=3) as nightly:
        assert nightly.epoch == first.epoch == 1
        assert act(nightly) == rows
    assert (len(rows), broker.group().acked) == (20, 20)


def test_other_limits_are_another_drain_so_that_nothing_is_acked_unread(broker: Broker) -> None:
    sent = broker.send(30)
    broken(drain(broker, minPartitions=8))
    with drain(broker, minPartitions=1) as nightly:
        assert act(nightly) == []
    assert broker.group().acked == 0
    broker.let_leases_run_out()
    with drain(broker, minPartitions=1) as nightly:
        assert sorted(ids(act(nightly))) == sorted(sent)
    assert broker.group().acked == 30


def test_a_drain_has_the_options_of_a_leased_read(broker: Broker) -> None:
    with pytest.raises(OptionError, match="a name"):
        drain(broker, group="")
    with pytest.raises(OptionError, match=r"'maxrowpertrigger' \(did you mean maxRowsPerTrigger\?\)"):
        drain(broker, maxRowPerTrigger=3)


def test_a_drain_without_its_block_or_its_leases_is_refused_with_what_to_write(broker: Broker) -> None:
    with pytest.raises(OptionError, match="has its rows in its block: with popmq_spark"):
        act(drain(broker))
    with pytest.raises(OptionError, match="leases its messages: leave out mode"):
        drain(broker, mode="offsets")
    assert broker.client.groups.list() == []


def test_a_drain_whose_lease_is_lost_in_its_block_raises_at_its_end(broker: Broker) -> None:
    broker.send(10)
    nightly = drain(broker, failOnLeaseLoss="true")
    nightly.__enter__()
    assert len(act(nightly)) == 10
    broker.let_leases_run_out()
    assert len(broker.client.pop(TOPIC, "spark", 3)) == 3
    with pytest.raises(LeaseLoss, match="3 messages of epoch 1 went to other consumers"):
        nightly.__exit__(None, None, None)


@pytest.mark.parametrize("strict", ["true", "false"])
def test_rows_of_a_drain_after_its_block_are_an_error_that_says_where_to_use_them(broker: Broker, strict: str) -> None:
    broker.send(3)
    with drain(broker, failOnDataLoss=strict) as nightly:
        assert len(act(nightly)) == 3
    with pytest.raises(DataLoss, match=r"drain 1 of group spark were acked.*inside of the block"):
        act(nightly)


def test_a_drain_keeps_its_owner_over_releases(broker: Broker) -> None:
    broker.send(1)
    with drain(broker, tag="a") as nightly:
        assert nightly._owner.name == "3e17c292ed11523ebb528b01201d7b7c"
