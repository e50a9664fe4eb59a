"""The judge of the many acks finds what is delivered after its ack, and what is lost."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_verify.load.stubs import Stubs
from tests.jepsen import bulk

MESSAGES = bulk.PRODUCERS * bulk.BATCH


@pytest.fixture
def shared(tmp_path: Path) -> bulk.Shared:
    return bulk.Shared(tmp_path, MESSAGES)


@pytest.fixture
def stubs(tmp_path: Path, shared: bulk.Shared, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubs]:
    """A broker with a batch of each producer. A consumer that waits for more gives up at once."""
    monkeypatch.setattr(bulk, "LOST_AFTER_S", 0.0)
    monkeypatch.setattr(bulk, "WAIT_MS", 0)
    with EmbeddedBroker(tmp_path / "data", sync="none") as broker, Stubs(broker.endpoint) as stubs:
        bulk.prepare(stubs, keep_ms=0)
        for number in range(bulk.PRODUCERS):
            bulk.produce(stubs, shared, number)
        yield stubs


def test_every_message_is_acked_once_and_nothing_is_found(stubs: Stubs, shared: bulk.Shared) -> None:
    assert bulk.consume(stubs, shared, 0) == []
    assert shared.sums() == (MESSAGES, MESSAGES)
    assert shared.states()[bulk.ACKED] == MESSAGES
    assert bulk.missing(shared.states()) == []


def test_a_message_that_comes_after_the_ok_to_its_ack_is_found(stubs: Stubs, shared: bulk.Shared) -> None:
    shared[7] = bulk.ACKED
    assert bulk.consume(stubs, shared, 0) == ["message 7 was delivered after the OK to its ack"]


def test_a_message_that_never_comes_is_counted_as_lost(stubs: Stubs, shared: bulk.Shared) -> None:
    taken = stubs.broker.Pop(pb.PopRequest(topic=bulk.TOPIC, group=bulk.GROUP, max_messages=3))
    assert len(taken.deliveries) == 3
    assert bulk.consume(stubs, shared, 0) == []
    assert bulk.missing(shared.states()) == ["3 messages are lost"]
