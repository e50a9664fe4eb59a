"""Clients that ask for many messages and read nothing: what the broker keeps for them, and that nobody else notices."""

import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.errors import Refused
from popmq_server.logs import CALL
from popmq_server.protocols import answer_room
from popmq_server.protocols.access.admission import IN_FLIGHT
from tests.wire.refusing.deaf import Deaf
from tests.wire.rocketmq.v2 import V2
from tests.wire.served import ServedCluster
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, bodies

BODY = bytes(10_000)
#: What a connection and all clients may have asked for and not taken, in these tests.
CONNECTION, ALL = 110_000, 496_000


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_room, "CONNECTION_BYTES", CONNECTION)
    monkeypatch.setattr(answer_room, "ALL_BYTES", ALL)


@pytest.fixture
def full(small: None, shop: Stubs) -> Stubs:
    """A topic with 20 messages of 10 KB."""
    shop.broker.Send(pb.SendRequest(topic=TOPIC, messages=[pb.Message(body=BODY, keys=["k"])] * 20), timeout=CALL_S)
    return shop


@pytest.fixture
def deaf(broker: EmbeddedBroker) -> Iterator[Callable[..., Deaf]]:
    made: list[Deaf] = []

    def make(*where: Any) -> Deaf:
        made.append(Deaf(broker.endpoint, *where))
        return made[-1]

    yield make
    for client in made:
        client.close()


NATIVE: dict[str, Any] = {
    "Broker/Pop": pb.PopRequest(topic=TOPIC, group=GROUP, max_messages=5, max_bytes=16 << 20),
    "Broker/Pull": pb.PullRequest(topic=TOPIC, max_messages=5, max_bytes=16 << 20),
    "Admin/Browse": pb.BrowseRequest(topic=TOPIC, max_messages=5),
    "Admin/LookUp": pb.LookUpRequest(topic=TOPIC, key="k", max_messages=5),
}


@pytest.mark.parametrize("name", NATIVE)
def test_a_connection_that_reads_nothing_gets_no_more_answers_than_it_has_room_for(
    full: Stubs, deaf: Callable[[], Deaf], name: str
) -> None:
    client = deaf()
    for _ in range(4):
        client.ask(f"/popmq.v1.{name}", NATIVE[name].SerializeToString())
    refused = client.until(2)
    assert {each[b"grpc-status"] for each in refused} == {b"8"}, "of 200 KB it may have 110"
    assert all(b"were not taken yet" in each[b"grpc-message"] for each in refused)


@pytest.mark.promise("uncounted")
def test_messages_of_a_pop_that_has_no_room_go_to_others_and_no_attempt_counts(
    full: Stubs, deaf: Callable[[], Deaf]
) -> None:
    client = deaf()
    for _ in range(4):
        client.ask("/popmq.v1.Broker/Pop", NATIVE["Broker/Pop"].SerializeToString())
    client.until(2)
    got = [*full.pop(max_messages=32, wait_ms=1_000).deliveries]
    assert len(got) == 10
    assert {each.attempt for each in got} == {1}


@pytest.mark.parametrize("name", NATIVE)
def test_a_gateway_keeps_no_more_for_a_connection_that_reads_nothing(
    gateway: ServedCluster, clock: FakeClock, name: str
) -> None:
    with Stubs(gateway.endpoint) as stubs:
        stubs.create_topic(queues=2)
        stubs.create_group()
        for _ in range(20):
            stubs.broker.Send(pb.SendRequest(topic=TOPIC, messages=[pb.Message(body=BODY, keys=["k"])]), timeout=CALL_S)
        client = Deaf(gateway.endpoint)
        for _ in range(5):
            client.ask(f"/popmq.v1.{name}", NATIVE[name].SerializeToString())
        assert {each[b"grpc-status"] for each in client.until(1)} == {b"8"}
        client.close()
        while not bodies(stubs.pop(max_messages=32)):  # what had no room is for others, once it was given back
            clock.advance(1_000)


@pytest.mark.parametrize("name", ["ReceiveMessage", "PullMessage"])
def test_rocketmq_clients_that_read_nothing_are_bounded_too(
    full: Stubs, v2: V2, deaf: Callable[[], Deaf], name: str
) -> None:
    request: Any = v2.receive_request(batch_size=5)
    if name == "PullMessage":
        request = pull_request(v2)
    client = deaf()
    for _ in range(4):
        headers = [(key.encode(), value.encode()) for key, value in v2.headers]
        client.ask(f"/apache.rocketmq.v2.MessagingService/{name}", request.SerializeToString(), *headers)
    assert len(client.until(2)) == 2


def test_what_a_client_took_or_left_is_room_again(full: Stubs, deaf: Callable[[], Deaf]) -> None:
    pull = NATIVE["Broker/Pull"].SerializeToString()
    first, second = deaf(), deaf()
    for client in (first, second):
        for _ in range(3):
            client.ask("/popmq.v1.Broker/Pull", pull)
        client.until(1)
    third = deaf()
    third.ask("/popmq.v1.Broker/Pull", pull)
    assert third.until(1)[0][b"grpc-status"] == b"8", "an address alone may have half of all, 248 KB, and has 200"
    assert b"this address" in third.ended[1][b"grpc-message"]
    first.close()
    for _ in range(10):
        assert len(full.broker.Pull(NATIVE["Broker/Pull"], timeout=CALL_S).deliveries) == 5


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one address of their own until it is set up")
def test_addresses_that_take_nothing_leave_room_for_others(full: Stubs, deaf: Callable[..., Deaf]) -> None:
    pull = NATIVE["Broker/Pull"].SerializeToString()
    for address, answers in (("127.0.0.1", 4), ("127.0.0.2", 2)):
        for _ in range(answers // 2):
            client = deaf(address)
            for _ in range(3):
                client.ask("/popmq.v1.Broker/Pull", pull)
            client.until(1)
        further = deaf(address)
        further.ask("/popmq.v1.Broker/Pull", pull)
        assert b"this address" in further.until(1)[0][b"grpc-message"]
    reader = deaf("127.0.0.3", 1 << 20)
    reader.ask("/popmq.v1.Broker/Pull", pull)
    assert reader.until(1)[0][b"grpc-status"] == b"0"


class Calling:
    """A call of a connection, for a room without a broker; it is never over."""

    def __init__(self, address: str, port: int) -> None:
        self._peer = f"ipv4:{address}:{port}"

    def peer(self) -> str:
        return self._peer

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        pass


def taken(room: answer_room.AnswerRoom, address: str) -> int:
    """How many bytes connections of an address get, until it is refused."""
    for port in range(1, 100):
        token = CALL.set(Calling(address, port))
        try:
            room.hold(ALL // 32)
        except Refused:
            return (port - 1) * (ALL // 32)
        finally:
            CALL.reset(token)
    raise AssertionError("an address may have everything")


@pytest.mark.mechanism("H.37")
def test_each_address_may_have_half_of_what_the_others_leave() -> None:
    room = answer_room.AnswerRoom()
    found = [taken(room, f"10.0.0.{number}") for number in range(1, 5)]
    assert found == [ALL // 32 * units for units in (16, 8, 4, 2)]


def test_a_call_without_room_is_refused_before_it_reads_and_what_it_reads_counts_for_its_key() -> None:
    room, read = answer_room.AnswerRoom(), list[int]()
    call, key = CALL.set(Calling("10.0.0.1", 1)), IN_FLIGHT.set(SimpleNamespace(reads=read.append))  # type: ignore[arg-type]
    try:
        room.check()
        room.hold(CONNECTION)
        with pytest.raises(Refused):
            room.check()
    finally:
        CALL.reset(call)
        IN_FLIGHT.reset(key)
    assert read == [CONNECTION]


def pull_request(v2: V2) -> Any:
    from popmq_proto.rocketmq import definition_pb2 as v2pb
    from popmq_proto.rocketmq import service_pb2 as rpc
    from tests.wire.rocketmq.v2 import resource

    queue = v2pb.MessageQueue(topic=resource(TOPIC), id=0)
    return rpc.PullMessageRequest(group=resource(GROUP), message_queue=queue, offset=0, batch_size=5)
