"""Large requests of callers without a key: they are refused while they arrive, and nothing of them is kept."""

import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from harness.attacks import GREETING, head
from popmq_http2.frames import DATA, END_HEADERS, HEAD, HEAD_BYTES, HEADERS, U32, frame
from popmq_http2.hpack import Decoder
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.embedded_broker import EmbeddedBroker
from tests.wire.access.signing import SignedStubs, signed, write_keys
from tests.wire.stubs import CALL_S

MIB = 1 << 20


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    keys = tmp_path / "keys.toml"
    write_keys(keys, {"root": ["*"]})
    with EmbeddedBroker(tmp_path / "data", sync="none", access_keys=keys) as broker:
        yield broker


def outcome(endpoint: str, path: str, headers: list[tuple[str, str]]) -> dict[bytes, bytes]:
    """The trailers of a call that sends the first 96 KiB of a message of 20 MiB."""
    host, _, port = endpoint.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=CALL_S) as sock, sock.makefile("rb") as answers:
        block = head(path.encode(), *((name.encode(), value.encode()) for name, value in headers))
        sock.sendall(GREETING + frame(HEADERS, END_HEADERS, 1, block))
        sock.sendall(frame(DATA, 0, 1, b"\0" + U32.pack(20 * MIB)) + frame(DATA, 0, 1, bytes(16 << 10)) * 6)
        decoder = Decoder()
        while True:
            high, low, kind, _, _ = HEAD.unpack(answers.read(HEAD_BYTES))
            payload = answers.read(high << 8 | low)
            if kind == HEADERS:
                return dict(decoder.decode(payload, 1 << 16))


@pytest.mark.mechanism("H.31")
@pytest.mark.parametrize(
    "path", ["/popmq.v1.Broker/Send", "/popmq.v1.Admin/Backup", "/apache.rocketmq.v2.MessagingService/SendMessage"]
)
@pytest.mark.parametrize("headers", [[], signed("root", "another secret"), signed("nobody")])
def test_a_large_request_without_a_key_is_refused_before_it_has_arrived(
    broker: EmbeddedBroker, path: str, headers: list[tuple[str, str]]
) -> None:
    found = outcome(broker.endpoint, path, headers)
    assert found[b"grpc-status"] == b"%d" % grpc.StatusCode.UNAUTHENTICATED.value[0]
    assert b"grpc-status-details-bin" in found


def test_a_large_request_with_a_key_is_counted_as_one_call(broker: EmbeddedBroker) -> None:
    with SignedStubs(broker.endpoint, "root") as client:
        client.create_topic()
        large = pb.SendRequest(topic="orders", messages=[pb.Message(body=bytes(3 * MIB)) for _ in range(5)])
        assert len(client.broker.Send(large, timeout=CALL_S).results) in (0, 5)
        listed = client.admin.ListAccessKeys(pb.ListAccessKeysRequest(), timeout=CALL_S)
        assert listed.access_keys[0].calls == 3
