"""apache.rocketmq.v2: message groups of FIFO topics, whose messages come in order until one of them is settled."""

import pytest

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.v1 import popmq_pb2 as native
from popmq_server.clock import FakeClock
from tests.wire.rocketmq.v2 import V2, changed, message, resource
from tests.wire.stubs import Stubs

SECOND = 1_000


def ordered(v2: V2, *bodies: bytes) -> None:
    v2.send(
        *(
            message(body, message_id=body.decode(), message_type=pb.FIFO, message_group="g", topic="ordered")
            for body in bodies
        )
    )


def fifo(stubs: Stubs) -> None:
    stubs.create_topic("ordered", type=native.FIFO)
    stubs.create_group()


@pytest.mark.slow
def test_a_release_releases_the_later_messages_of_its_message_group_and_ends_their_handles(
    stubs: Stubs, v2: V2
) -> None:
    """The reference answers OK to each: docs/rocketmq.md names the difference."""
    fifo(stubs)
    ordered(v2, b"1", b"2", b"3")
    batch = v2.receive("ordered").messages
    told = [changed(v2, found, 0, topic=resource("ordered")) for found in batch]
    assert told == ["OK", "INVALID_RECEIPT_HANDLE", "INVALID_RECEIPT_HANDLE"]
    found = v2.receive("ordered").messages
    assert [(one.body, one.system_properties.delivery_attempt) for one in found] == [(b"1", 2), (b"2", 1), (b"3", 1)]


@pytest.mark.slow
def test_messages_of_a_fifo_batch_with_a_changed_time_keep_their_handles_until_then(
    stubs: Stubs, v2: V2, clock: FakeClock
) -> None:
    fifo(stubs)
    ordered(v2, b"1", b"2", b"3")
    batch = v2.receive("ordered").messages
    assert {changed(v2, found, 5 * SECOND, topic=resource("ordered")) for found in batch} == {"OK"}
    assert not v2.receive("ordered").messages
    clock.advance(5 * SECOND)
    assert [found.body for found in v2.receive("ordered").messages] == [b"1", b"2", b"3"]
