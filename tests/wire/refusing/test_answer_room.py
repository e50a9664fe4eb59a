"""Clients that ask for many messages and read nothing: what the broker keeps for them, and that nobody else notices."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from harness.attacks import GREETING, head
from popmq_http2.frames import (
    DATA,
    END_HEADERS,
    END_STREAM,
    HEAD,
    HEAD_BYTES,
    HEADERS,
    INITIAL_WINDOW_SIZE,
    U32,
    frame,
    settings,
)
from popmq_http2.hpack import Decoder
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.protocols import answer_room
from tests.wire.rocketmq.v2 import V2
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs

BODY = bytes(10_000)
#: What a connection, an address and all clients may have asked for and not taken, in these tests.
CONNECTION, ADDRESS, ALL = 110_000, 250_000, 400_000
#: Of each stream: refusals fit into it, messages do not.
WINDOW = 1_000


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_room, "CONNECTION_BYTES", CONNECTION)
    monkeypatch.setattr(answer_room, "ADDRESS_BYTES", ADDRESS)
    monkeypatch.setattr(answer_room, "ALL_BYTES", ALL)


@pytest.fixture
def full(small: None, shop: Stubs) -> Stubs:
    """A topic with 20 messages of 10 KB."""
    shop.broker.Send(pb.SendRequest(topic=TOPIC, messages=[pb.Message(body=BODY, keys=["k"])] * 20), timeout=CALL_S)
    return shop


class Deaf:
    """A connection that reads statuses and no messages. `ended`: the trailers of the calls that have ended."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        host, _, port = broker.endpoint.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=CALL_S)
        self._answers = self._socket.makefile("rb")
        self._socket.sendall(GREETING + settings({INITIAL_WINDOW_SIZE: WINDOW}))
        self._decoder = Decoder()
        self._next = 1
        self.ended: dict[int, dict[bytes, bytes]] = {}

    def ask(self, path: str, message: bytes, *headers: tuple[bytes, bytes]) -> None:
        block = head(path.encode(), *headers)
        whole = frame(DATA, END_STREAM, self._next, b"\0" + U32.pack(len(message)) + message)
        self._socket.sendall(frame(HEADERS, END_HEADERS, self._next, block) + whole)
        self._next += 2

    def until(self, count: int) -> list[dict[bytes, bytes]]:
        """Waits until so many calls have ended."""
        while len(self.ended) < count:
            high, low, kind, flags, stream_id = HEAD.unpack(self._answers.read(HEAD_BYTES))
            payload = self._answers.read(high << 8 | low)
            found = dict(self._decoder.decode(payload, 1 << 16)) if kind == HEADERS else {}
            if kind == HEADERS and flags & END_STREAM:
                self.ended[stream_id] = found
        return list(self.ended.values())

    def close(self) -> None:
        self._answers.close()
        self._socket.close()


@pytest.fixture
def deaf(broker: EmbeddedBroker) -> Iterator[Callable[[], Deaf]]:
    made: list[Deaf] = []

    def make() -> Deaf:
        made.append(Deaf(broker))
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
    assert third.until(1)[0][b"grpc-status"] == b"8", "an address may have 250 KB, and has 200"
    assert b"this address" in third.ended[1][b"grpc-message"]
    first.close()
    for _ in range(10):
        assert len(full.broker.Pull(NATIVE["Broker/Pull"], timeout=CALL_S).deliveries) == 5


def pull_request(v2: V2) -> Any:
    from popmq_proto.rocketmq import definition_pb2 as v2pb
    from popmq_proto.rocketmq import service_pb2 as rpc
    from tests.wire.rocketmq.v2 import resource

    queue = v2pb.MessageQueue(topic=resource(TOPIC), id=0)
    return rpc.PullMessageRequest(group=resource(GROUP), message_queue=queue, offset=0, batch_size=5)
