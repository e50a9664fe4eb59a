"""What a query says at its start about an engine that lacks what it needs."""

from collections.abc import Iterator

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from popmq_server.clock import FakeClock
from popmq_spark.lease.draining import Drain
from popmq_spark.options import OptionError
from popmq_spark.source import PopMQDataSource
from tests.spark.conftest import TOPIC
from tests.spark.reading.microbatch import MicroBatches
from tests.wire.served import Served

ROW = StructType([StructField("body", BinaryType())])


@pytest.fixture
def stub() -> Iterator[Served]:
    """A broker whose engine has neither owners nor stages."""
    with Served(FakeClock()) as stub:
        yield stub


def test_a_query_by_leases_is_refused_before_it_reads_anything(stub: Served) -> None:
    query = MicroBatches(endpoint=stub.endpoint, topic=TOPIC, group="spark", longPollTimeout="0s")
    with pytest.raises(OptionError, match=r"mode=lease needs owners.*the engine stub lacks.*mode=offsets"):
        query.trigger()
    with pytest.raises(OptionError, match=r"mode=offsets"):
        query.start(available_now=True)
    query.stop()
    assert query.offsets == []


def test_a_drain_is_refused_before_it_leases_anything(stub: Served) -> None:
    options = {"endpoint": stub.endpoint, "topic": TOPIC, "group": "spark"}
    drain = Drain(None, "nightly", options)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"a drain needs owners.*mode=offsets"):
        drain.__enter__()


def test_an_exactly_once_sink_is_refused_in_the_driver(stub: Served) -> None:
    options = {"endpoint": stub.endpoint, "topic": TOPIC, "delivery": "exactly-once"}
    with pytest.raises(OptionError, match=r"exactly-once needs stages.*message_id"):
        PopMQDataSource(options).streamWriter(ROW, False)
    with pytest.raises(OptionError, match=r"exactly-once needs stages.*message_id"):
        PopMQDataSource(options | {"txnAppId": "job", "txnVersion": "1"}).writer(ROW, False)


def test_what_needs_neither_is_not_asked_about(stub: Served) -> None:
    options = {"endpoint": "127.0.0.1:1", "topic": TOPIC}
    assert PopMQDataSource(options).streamWriter(ROW, False) is not None
    assert PopMQDataSource(options).writer(ROW, False) is not None
