"""Mechanisms of the reference that no other test names, seen over the wire. Ids are those of mechanisms.md."""

import threading
from pathlib import Path
from typing import Any

import grpc
import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.embedded_broker import EmbeddedBroker
from tests.wire.gate import Gate
from tests.wire.parked import Parked
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, bodies, handles


@pytest.mark.mechanism("S4.15", "S4.19")
def test_a_wait_that_was_woken_without_a_message_ends_at_its_own_deadline(
    stubs: Stubs, clock: FakeClock, parked: Parked
) -> None:
    """A call that parks again has only the rest of its time."""
    stubs.create_topic(queues=1)
    stubs.create_group()
    call = stubs.pop_later(wait_ms=60_000)
    parked.wait_for(1)
    clock.advance(40_000)
    stubs.admin.UpdateTopic(pb.UpdateTopicRequest(topic=pb.Topic(name=TOPIC, queues=2)), timeout=CALL_S)
    parked.wait_for(2)
    clock.advance(19_999)
    assert not call.done()
    clock.advance(1)
    assert bodies(call.result()) == []


@pytest.mark.mechanism("S4.02", "D.41")
def test_a_parked_call_asks_the_writer_for_nothing_until_it_is_woken(shop: Stubs, parked: Parked, gate: Gate) -> None:
    """One look before it parks, one when a message came; none for other groups, topics and refusals."""
    shop.create_topic("other", queues=1)
    shop.create_group("audit")
    call = shop.pop_later()
    parked.wait_for(1)
    gate.groups.clear()
    shop.send(b"elsewhere", topic="other")
    assert bodies(shop.pop(topic="other", group="audit")) == [b"elsewhere"]
    assert shop.ack("nonsense") == ["INVALID_HANDLE"]
    assert [type(command).__name__ for group in gate.groups for command in group] == ["Send", "Pop", "Ack"]
    shop.send(b"here")
    assert bodies(call.result()) == [b"here"]
    looks = [command for group in gate.groups for command in group if getattr(command, "group", "") == GROUP]
    assert [type(command).__name__ for command in looks] == ["Ack", "Pop"]


@pytest.mark.mechanism("D.25")
def test_clients_that_come_and_go_move_no_message(shop: Stubs, clock: FakeClock) -> None:
    """No client owns a queue of a popped topic, so a rebalance repeats and withholds no message."""
    shop.admin.UpdateTopic(pb.UpdateTopicRequest(topic=pb.Topic(name=TOPIC, queues=4)), timeout=CALL_S)
    shop.admin.UpdateGroup(pb.UpdateGroupRequest(group=pb.Group(name=GROUP, share_number=1)), timeout=CALL_S)
    for number in range(10):
        shop.send(str(number).encode())
    taken: list[bytes] = []
    for number in range(10):
        for client in range(number + 1):
            beat = pb.HeartbeatRequest(
                client_id=f"c{client}", group=GROUP, topics=[TOPIC], goodbye=client % 3 == number % 3
            )
            shop.broker.Heartbeat(beat, timeout=CALL_S)
        taken += bodies(shop.pop(max_messages=1, client_id=f"c{max(0, number - 1)}"))  # one that stays
        clock.advance(1_000)
    assert sorted(taken) == sorted(str(number).encode() for number in range(10))
    assert bodies(shop.pop()) == []


@pytest.mark.mechanism("D.75")
@pytest.mark.slow
def test_a_hundred_topics_cost_no_thread_and_no_file(stubs: Stubs, folder: Path) -> None:
    """A topic, its queues and a group that reads it are keys in the one store."""
    stubs.create_group()
    threads, files = threading.active_count(), sorted(path.name for path in folder.iterdir())
    for number in range(100):
        stubs.create_topic(f"t{number}", queues=16)
        stubs.send(b"x", topic=f"t{number}")
    assert sum(len(bodies(stubs.pop(f"t{number}"))) for number in range(100)) == 100
    assert sorted(path.name for path in folder.iterdir()) == files
    assert threading.active_count() < threads + 20, "those of the transport come and go"


@pytest.mark.promise("statistics")
@pytest.mark.mechanism("S1.05")
def test_a_handle_can_be_acked_by_any_client_on_any_connection(broker: EmbeddedBroker, shop: Stubs) -> None:
    """A handle is text; any client that has it and names the group may ack, on any channel."""
    shop.send(b"a", b"b")
    first, second = handles(shop.pop(client_id="one"))
    assert first != second
    assert first.isascii()
    with grpc.insecure_channel(broker.endpoint) as channel:
        ack: Any = channel.unary_unary("/popmq.v1.Broker/Ack")
        answer = ack(pb.AckRequest(group=GROUP, handles=[second]).SerializeToString(), timeout=CALL_S)
        assert pb.AckResponse.FromString(answer) == pb.AckResponse()
        assert shop.stats().acked == 1
        answer = ack(pb.AckRequest(group=GROUP, handles=[first]).SerializeToString(), timeout=CALL_S)
    assert pb.AckResponse.FromString(answer) == pb.AckResponse()
    assert (shop.stats().acked, shop.stats().in_flight) == (2, 0)
