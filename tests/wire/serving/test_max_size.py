"""SetMaxSize: the limit of the data file of a running broker."""

import contextlib
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import popmq
from harness.broker_process import own_port
from popmq import errors
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.options import MAX_SIZE_MAX, MAX_SIZE_MIN
from tests.wire.stubs import CALL_S, Stubs, refusal

MIB = 1 << 20
SMALL = 32 * MIB


@pytest.fixture
def small(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "data", sync="none", max_size=SMALL, metrics_port=own_port()) as broker:
        yield broker


@pytest.fixture
def full(small: EmbeddedBroker) -> Iterator[popmq.Client]:
    """A client of a broker whose store takes no more sends."""
    with popmq.Client(small.endpoint, retry=popmq.Retry(tries=1)) as client:
        client.topics.create("orders")
        with contextlib.suppress(errors.StorageFull):
            while True:
                client.send("orders", popmq.Message(b"x" * 500_000))
        yield client


def scraped_limit(broker: EmbeddedBroker) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{broker._options.metrics_port}/metrics", timeout=CALL_S) as answer:
        lines = answer.read().decode().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("popmq_store_limit_bytes "))


@pytest.mark.slow
def test_sends_that_a_full_store_refuses_are_taken_as_soon_as_the_limit_is_raised(full: popmq.Client) -> None:
    store = full.broker.set_max_size(4 * SMALL)
    assert store.map_bytes == 4 * SMALL
    assert full.broker.stats().store.map_bytes == 4 * SMALL
    full.send("orders", popmq.Message(b"x" * 500_000))


@pytest.mark.slow
def test_the_refusal_of_a_full_store_names_the_command_that_raises_the_limit(full: popmq.Client) -> None:
    with pytest.raises(errors.StorageFull, match="popmq max-size"):
        full.send("orders", popmq.Message(b"x" * 500_000))


@pytest.mark.slow
def test_metrics_tell_the_limit_that_was_set(small: EmbeddedBroker, full: popmq.Client) -> None:
    assert scraped_limit(small) == SMALL
    full.broker.set_max_size(4 * SMALL)
    assert scraped_limit(small) == 4 * SMALL


@pytest.mark.slow
def test_a_limit_below_the_used_size_is_refused_with_both_figures(full: popmq.Client) -> None:
    with pytest.raises(errors.InvalidField, match=r"bytes in use, more than 16,777,216") as refused:
        full.broker.set_max_size(MAX_SIZE_MIN)
    assert refused.value.field == "map_bytes"
    assert full.broker.stats().store.map_bytes == SMALL


@pytest.mark.parametrize("size", [0, 1, MAX_SIZE_MIN - 1, MAX_SIZE_MAX + 1, 2**64 - 1])
def test_a_limit_out_of_range_is_refused(small: EmbeddedBroker, size: int) -> None:
    with Stubs(small.endpoint) as stubs:
        refused = refusal(stubs.admin.SetMaxSize, pb.SetMaxSizeRequest(map_bytes=size))
        assert (refused.info.code, refused.info.field) == (pb.INVALID_FIELD, "map_bytes")
        stats = stubs.admin.GetStats(pb.GetStatsRequest(), timeout=CALL_S)
        assert stats.store.map_bytes == SMALL
