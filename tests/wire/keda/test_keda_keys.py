"""Access keys of KEDA: it sends no header of PopMQ, but values of the consumer's environment, and certificates."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from harness.broker_process import own_port
from popmq_http2.server.call import Call
from popmq_server.clock import FakeClock
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.protocols.access import known_keys, open_streams
from popmq_server.protocols.access.certificate import DEVELOPMENT_CERT
from popmq_server.protocols.keda import proof, service
from tests.wire.access.authority import Authority
from tests.wire.access.signing import SignedStubs, secret_of
from tests.wire.keda.scaler import Keda, trigger
from tests.wire.parked import Parked
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Refusal, Stubs, read_refusal

#: What KEDA sends of a trigger with accessKey, and secretFromEnv: POPMQ_SECRET.
READER = {"accessKey": "reader", "secretFromEnv": secret_of("reader")}
AUTHORITY = Authority("the test's authority")
TABLES = {
    "root": 'allow = ["*"]',
    "reader": f'allow = ["receive:{TOPIC}/{GROUP}"]\ncertificates = ["keda.example"]',
    "sender": f'allow = ["send:{TOPIC}"]',
}


class Keyed:
    """A broker with access keys."""

    def __init__(self, folder: Path, clock: FakeClock, transport: str) -> None:
        self.folder, self.file, ca = folder, folder / "keys.toml", folder / "ca.pem"
        ca.write_bytes(AUTHORITY.pem)
        self.write(TABLES)
        self.broker = EmbeddedBroker(
            folder / "data",
            clock=clock,
            sync="none",
            transport=transport,
            tls_port=own_port(),
            tls_client_ca=ca,
            tls_client_required=transport == "grpcio",
            access_keys=self.file,
        )

    def write(self, tables: dict[str, str]) -> None:
        draft = self.file.with_suffix(".new")
        draft.touch(0o600)
        draft.write_text("".join(f'[{name}]\nsecret = "{secret_of(name)}"\n{rest}\n' for name, rest in tables.items()))
        draft.replace(self.file)

    def secured(self) -> Any:
        """A channel that shows the certificate of KEDA."""
        root, shown = (self.folder / "data" / DEVELOPMENT_CERT).read_bytes(), AUTHORITY.client("keda.example")
        return grpc.secure_channel(self.broker.tls_endpoint, grpc.ssl_channel_credentials(root, shown.key, shown.chain))


@pytest.fixture(params=["python", "grpcio"])
def keyed(
    tmp_path: Path, clock: FakeClock, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Keyed]:
    monkeypatch.setattr(known_keys, "LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(open_streams, "LOOK_S", 0.01)
    monkeypatch.setattr(service, "LOOK_S", 0.01)
    keyed = Keyed(tmp_path, clock, request.param)
    with keyed.broker, SignedStubs(keyed.broker.endpoint, "root") as root:
        root.create_topic(queues=1)
        root.create_group()
        root.send(b"a")
        yield keyed


@pytest.fixture
def keda(keyed: Keyed) -> Iterator[Keda]:
    with Stubs(keyed.broker.endpoint) as stubs:
        yield Keda(stubs.channel)


def refused(keda: Keda, **metadata: str) -> Refusal:
    with pytest.raises(grpc.RpcError) as error:
        keda.stub.IsActive(trigger(**metadata), timeout=CALL_S)
    return read_refusal(error.value)


def test_a_trigger_calls_with_the_key_of_the_consumer(keda: Keda) -> None:
    assert keda.is_active(**READER)
    assert keda.is_active(accessKeyFromEnv="reader", secretFromEnv=secret_of("reader"))
    assert keda.metric(**READER) == 1
    assert keda.spec(**READER).targetSize == 10
    watch = keda.watch(**READER)
    assert watch.next() is True
    watch.close()


@pytest.mark.parametrize(
    ("metadata", "code", "why"),
    [
        ({}, "UNAUTHENTICATED", "this call has none"),
        ({"accessKey": "reader"}, "UNAUTHENTICATED", "secretFromEnv has no value"),
        ({"accessKey": "reader", "secretFromEnv": "guess"}, "UNAUTHENTICATED", "its secret is wrong"),
        ({"accessKey": "nobody", "secretFromEnv": "guess"}, "UNAUTHENTICATED", "its secret is wrong"),
        (
            {"accessKey": "sender", "secretFromEnv": secret_of("sender")},
            "PERMISSION_DENIED",
            f'add "receive:{TOPIC}/{GROUP}"',
        ),
    ],
)
def test_without_a_key_that_may_receive_keda_learns_nothing(
    keda: Keda, metadata: dict[str, str], code: str, why: str
) -> None:
    found = refused(keda, **metadata)
    assert (found.code, why in found.info.message) == (code, True)
    with pytest.raises(grpc.RpcError) as error:
        keda.first(trigger(**metadata), timeout=CALL_S)
    assert read_refusal(error.value) == found


def test_a_certificate_of_keda_is_its_key(keyed: Keyed) -> None:
    with keyed.secured() as channel:
        assert Keda(channel).is_active()
        with pytest.raises(grpc.RpcError) as error:
            Keda(channel).is_active(topic="elsewhere")
        assert read_refusal(error.value).code == "PERMISSION_DENIED"


@pytest.mark.parametrize("keyed", ["python"], indirect=True)  # a context of grpcio cannot be told another address
def test_a_secret_in_clear_is_taken_over_tls_or_from_this_machine_only(
    keyed: Keyed, keda: Keda, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Call, "peer", lambda _: "ipv4:10.1.2.3:40000")
    found = refused(keda, **READER)
    assert (found.code, "set enableTLS" in found.info.message) == ("UNAUTHENTICATED", True)
    with keyed.secured() as channel:
        assert Keda(channel).is_active(**READER)


@pytest.mark.parametrize(
    ("peer", "tls", "private"),
    [
        ("ipv4:127.0.0.1:40000", b"", True),
        ("ipv6:[::1]:40000", b"", True),
        ("ipv6:%5B::1%5D:40000", b"insecure", True),
        ("ipv6:[::ffff:127.0.0.1]:40000", b"", True),
        ("ipv6:[::ffff:10.1.2.3]:40000", b"", False),
        ("unix:", b"", True),
        ("ipv4:10.1.2.3:40000", b"", False),
        ("ipv6:%5Bfd00::1%5D:40000", b"insecure", False),
        ("ipv4:10.1.2.3:40000", b"ssl", True),
    ],
)
def test_both_transports_tell_who_else_could_read_a_secret(peer: str, tls: bytes, private: bool) -> None:
    context: Any = SimpleNamespace(peer=lambda: peer, auth_context=lambda: {"transport_security_type": [tls]})
    assert proof.is_private(context) is private


def test_a_stream_ends_with_the_key_of_its_trigger(keyed: Keyed, keda: Keda, parked: Parked) -> None:
    watch = keda.watch(**READER, activation="5")
    assert watch.next() is False
    keyed.write({name: rest for name, rest in TABLES.items() if name != "reader"})
    with pytest.raises(grpc.RpcError) as error:
        watch.next()
    assert read_refusal(error.value).code == "UNAUTHENTICATED"
