"""apache.rocketmq.v2: message groups of FIFO topics, whose messages come in order until one of them is settled."""

from __future__ import annotations

import pytest

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.v1 import popmq_pb2 as native
from popmq_server.clock import FakeClock
from tests.wire.rocketmq.v2 import V2, acked, changed, dead_letter, message, resource
from tests.wire.stubs import GROUP, Stubs

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


def test_a_message_group_goes_on_when_its_head_is_given_up(stubs: Stubs, v2: V2) -> None:
    fifo(stubs)
    ordered(v2, b"1", b"2", b"3")
    (head,) = v2.receive("ordered", auto_renew=True, batch_size=1).messages
    assert not v2.receive("ordered").messages
    assert dead_letter(v2, head, topic=resource("ordered")) == "OK"
    assert [found.body for found in v2.receive("ordered").messages] == [b"2", b"3"]


@pytest.mark.slow
def test_a_message_group_waits_for_a_client_that_tries_its_head_for_long(
    stubs: Stubs, v2: V2, clock: FakeClock
) -> None:
    fifo(stubs)
    ordered(v2, b"1", b"2")
    batch = v2.receive("ordered", auto_renew=True).messages
    for _ in range(60):
        clock.advance(30 * SECOND)
        v2.call("Heartbeat", client_type=pb.PUSH_CONSUMER, group=resource(GROUP))
    with V2(v2.endpoint, client_id="other") as other:
        assert not other.receive("ordered").messages
        assert [acked(v2, found, topic="ordered") for found in batch] == ["OK", "OK"]


def test_a_head_that_was_nacked_comes_first_again(stubs: Stubs, v2: V2, clock: FakeClock) -> None:
    fifo(stubs)
    ordered(v2, b"1", b"2", b"3")
    (head,) = v2.receive("ordered", batch_size=1).messages
    changed(v2, head, 5 * SECOND, topic=resource("ordered"))
    assert not v2.receive("ordered").messages
    clock.advance(5 * SECOND)
    found = v2.receive("ordered").messages
    assert [(one.body, one.system_properties.delivery_attempt) for one in found] == [(b"1", 2), (b"2", 1), (b"3", 1)]


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
