"""The order in which Spark calls a reader, and what a batch does in which the source has nothing new: both modes."""

from collections.abc import Callable

import pytest

from tests.spark.conftest import TOPIC, Broker
from tests.spark.reading.microbatch import CRASH_POINTS, Crash, MicroBatches, ids

Make = Callable[..., MicroBatches]


@pytest.fixture(params=["lease", "offsets"])
def query(broker: Broker, request: pytest.FixtureRequest) -> Make:
    """A query in one of the modes, with a group."""
    return lambda **options: broker.query(mode=request.param, **options)


def test_two_batches_an_idle_trigger_and_a_restart_make_the_calls_of_spark(broker: Broker, query: Make) -> None:
    broker.send(20)
    stream = query(maxRowsPerTrigger=10)
    assert [stream.trigger() for _ in range(3)] == [True, True, False]
    stream.start()
    assert not stream.trigger()
    assert stream.calls == [
        "getDefaultReadLimit o=[] c=[]",
        "initialOffset o=[] c=[]",
        "latestOffset o=[] c=[]",
        "reportLatestOffset o=[] c=[]",
        "initialOffset o=[0] c=[]",
        "partitions o=[0] c=[]",
        "latestOffset o=[0] c=[0]",
        "reportLatestOffset o=[0] c=[0]",
        "commit o=[0, 1] c=[0]",
        "partitions o=[0, 1] c=[0]",
        "latestOffset o=[0, 1] c=[0, 1]",
        "reportLatestOffset o=[0, 1] c=[0, 1]",
        "getDefaultReadLimit o=[0, 1] c=[0, 1]",
        "latestOffset o=[0, 1] c=[0, 1]",
        "reportLatestOffset o=[0, 1] c=[0, 1]",
    ]


def test_a_batch_that_was_not_committed_is_repeated_before_latest_offset_is_asked(broker: Broker, query: Make) -> None:
    broker.send(10)
    stream = query()
    with pytest.raises(Crash):
        stream.trigger(crash="rows stored")
    stream.calls.clear()
    stream.start(available_now=True)
    assert stream.run() == 1
    assert stream.calls == [
        "prepareForTriggerAvailableNow o=[0] c=[]",
        "getDefaultReadLimit o=[0] c=[]",
        "initialOffset o=[0] c=[]",
        "partitions o=[0] c=[]",
        "latestOffset o=[0] c=[0]",
        "reportLatestOffset o=[0] c=[0]",
    ]


def test_trigger_once_asks_nothing_after_its_batch(broker: Broker, query: Make) -> None:
    broker.send(10)
    stream = query()
    stream.run_once()
    assert stream.calls[-1] == "partitions o=[0] c=[]"


def test_a_batch_without_data_is_committed_but_has_no_tasks(broker: Broker, query: Make) -> None:
    sent = broker.send(10)
    stream = query()
    stream.trigger()
    stream.calls.clear()
    assert stream.trigger(evicts=True)
    assert stream.calls == [
        "latestOffset o=[0] c=[0]",
        "reportLatestOffset o=[0] c=[0]",
        "commit o=[0, 1] c=[0]",
    ]
    assert stream.sink[1] == []
    assert done(broker) == 10
    sent += broker.send(5)
    assert stream.run() == 1
    assert sorted(ids(stream.rows())) == sorted(sent)


@pytest.mark.parametrize("crash", [point for point in CRASH_POINTS if point != "first rows read"])
def test_a_driver_that_dies_in_a_batch_without_data_repeats_it_and_goes_on(
    broker: Broker, query: Make, crash: str
) -> None:
    sent = broker.send(10)
    stream = query()
    stream.trigger()
    with pytest.raises(Crash):
        stream.trigger(crash=crash, evicts=True)
    sent += broker.send(5)
    stream.start()
    stream.run()
    assert sorted(ids(stream.rows())) == sorted(sent)
    assert done(broker) == 15


def done(broker: Broker) -> int:
    """Messages that the group has acked, or whose offsets it has committed."""
    group = broker.group()
    assert group.in_flight == 0
    return sum(row.max_offset for row in broker.client.offsets.query(TOPIC)) - group.ready
