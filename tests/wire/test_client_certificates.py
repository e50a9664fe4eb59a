"""Client certificates: whose names stand for which access key, on both transports, and while files are replaced."""

import socket
import ssl
from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509

import popmq
from harness.broker_process import own_port
from popmq_http2.frames import PREFACE
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.errors import StartError
from popmq_server.protocols.access import known_keys
from popmq_server.protocols.access.certificate import DEVELOPMENT_CERT
from popmq_server.settings import SettingError, load
from tests.wire.access.authority import Authority, Made
from tests.wire.access.signing import secret_of, signed
from tests.wire.stubs import CALL_S, read_refusal

KEYS = f"""
[by-name]
certificates = ["shop.example"]
allow = ["admin"]
[by-mail]
certificates = ["clerk@shop.example", "10.0.0.7"]
allow = ["admin"]
[by-uri]
certificates = ["spiffe://shop/billing", "old.example"]
allow = ["send:orders"]
[signer]
secret = "{secret_of("signer")}"
allow = ["receive"]
"""


AUTHORITY, STRANGER = Authority("the test's authority"), Authority("somebody's authority")
SHOP = AUTHORITY.client("shop.example")


NO_KEY = "the certificate of this client has the names of no access key"
SEVERAL = "the certificate of this client has the names of several access keys: by-name, by-uri"


class Secured:
    """A broker that asks for certificates."""

    def __init__(self, folder: Path, transport: str, required: bool) -> None:
        self.ca, self.keys, self.data = folder / "ca.pem", folder / "keys.toml", folder / "data"
        self.ca.write_bytes(AUTHORITY.pem)
        self.keys.touch(0o600)
        self.keys.write_text(KEYS)
        self.broker = EmbeddedBroker(
            self.data,
            sync="none",
            transport=transport,
            tls_port=own_port(),
            tls_client_ca=self.ca,
            tls_client_required=required,
            access_keys=self.keys,
        )

    def call(self, shown: Made | None, method: str = "ListAccessKeys", metadata: Any = (), **fields: Any) -> Any:
        """The answer to one call over a new connection."""
        root = (self.data / DEVELOPMENT_CERT).read_bytes()
        credentials = grpc.ssl_channel_credentials(root, *(reversed(shown) if shown else ()))
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.secure_channel(self.broker.tls_endpoint, credentials, options=options) as channel:
            kinds: tuple[Any, Any] = getattr(pb, f"{method}Request"), getattr(pb, f"{method}Response")
            call: Any = channel.unary_unary(
                f"/popmq.v1.Admin/{method}", kinds[0].SerializeToString, kinds[1].FromString
            )
            return call(kinds[0](**fields), timeout=CALL_S, metadata=metadata)

    def caller(self, shown: Made | None, metadata: Any = ()) -> str:
        """The name of the key that a certificate belongs to, or why the call failed."""
        try:
            return str(self.call(shown, metadata=metadata).caller)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNAVAILABLE:
                return "no connection"
            return read_refusal(error).info.message


@pytest.fixture(params=["python", "grpcio"])
def required(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Secured]:
    monkeypatch.setattr(known_keys, "LOOK_EVERY_S", 0.0)
    secured = Secured(tmp_path, request.param, required=True)
    with secured.broker:
        yield secured


@pytest.fixture
def optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Secured]:
    monkeypatch.setattr(known_keys, "LOOK_EVERY_S", 0.0)
    secured = Secured(tmp_path, "python", required=False)
    with secured.broker:
        yield secured


@pytest.mark.parametrize(
    ("shown", "key"),
    [
        (SHOP, "by-name"),
        (AUTHORITY.client("", x509.DNSName("shop.example")), "by-name"),
        (AUTHORITY.client("x", x509.UniformResourceIdentifier("spiffe://shop/billing")), "by-uri"),
        (AUTHORITY.client("x", x509.DNSName("y"), x509.DNSName("old.example")), "by-uri"),
        (AUTHORITY.client("shop.example.org"), NO_KEY),
        (AUTHORITY.client("shop.example", x509.DNSName("old.example")), "by-uri"),
        (AUTHORITY.client("shop.example", x509.UniformResourceIdentifier("urn:x")), NO_KEY),
        (AUTHORITY.client("", x509.DNSName("shop.example"), x509.DNSName("old.example")), SEVERAL),
        (AUTHORITY.client("x", x509.RFC822Name("clerk@shop.example"), x509.DNSName("y")), NO_KEY),
        (AUTHORITY.client("x", x509.RFC822Name("clerk@shop.example")), NO_KEY),
        (AUTHORITY.client("shop.example", x509.RFC822Name("clerk@shop.example")), "by-name"),
        (AUTHORITY.client("x", x509.IPAddress(ip_address("10.0.0.7"))), NO_KEY),
        (STRANGER.client("shop.example"), "no connection"),
        (AUTHORITY.client("shop.example", days=-1), "no connection"),
        (None, "no connection"),
    ],
    ids=[
        *("common name", "DNS", "URI", "second of three", "unknown"),
        *("DNS before common name", "URI before common name", "of two keys"),
        *("mail and DNS", "mail", "mail and common name", "address", "stranger", "expired", "none"),
    ],
)
def test_a_name_in_the_certificate_stands_for_a_key(required: Secured, shown: Made | None, key: str) -> None:
    assert required.caller(shown) == key


def test_a_certificate_has_the_rights_of_its_key_and_no_others(required: Secured) -> None:
    assert required.call(SHOP, "ListLeases") == pb.ListLeasesResponse()
    sender = AUTHORITY.client("old.example")
    with pytest.raises(grpc.RpcError) as error:
        required.call(sender, "ListLeases")
    assert read_refusal(error.value).code == "PERMISSION_DENIED"


def test_a_certificate_stands_for_its_key_while_a_large_request_arrives(required: Secured) -> None:
    with pytest.raises(grpc.RpcError) as error:
        required.call(SHOP, "CreateTopic", topic=pb.Topic(name="x" * 200_000))
    assert read_refusal(error.value).code == "INVALID_FIELD"


def test_a_signature_decides_before_the_certificate(required: Secured) -> None:
    assert required.caller(SHOP, signed("signer")) == "signer"
    assert "its secret is wrong" in required.caller(SHOP, signed("signer", "another secret"))


def test_a_client_without_a_certificate_may_sign(optional: Secured) -> None:
    assert optional.caller(None, signed("signer")) == "signer"
    assert optional.caller(SHOP) == "by-name"
    assert "this call has none" in optional.caller(None)
    assert optional.caller(STRANGER.client("shop.example")) == "no connection"


def test_a_replaced_authority_counts_from_the_next_connection(required: Secured) -> None:
    other = STRANGER.client("shop.example")
    assert (required.caller(SHOP), required.caller(other)) == ("by-name", "no connection")
    required.ca.write_bytes(STRANGER.pem)
    assert required.broker.serving.reload() == [
        f"the list of client authorities beside the certificate {required.data / DEVELOPMENT_CERT} was replaced"
    ]
    assert (required.caller(SHOP), required.caller(other)) == ("no connection", "by-name")


def test_a_session_of_a_replaced_authority_is_not_resumed(required: Secured, tmp_path: Path) -> None:
    """With TLS 1.2 the client of a resumed session shows no certificate."""
    context = ssl.create_default_context(cadata=(required.data / DEVELOPMENT_CERT).read_text())
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    for name, content in SHOP._asdict().items():
        (tmp_path / name).write_bytes(content)
    context.load_cert_chain(tmp_path / "chain", tmp_path / "key")

    def connected(session: ssl.SSLSession | None = None) -> ssl.SSLSession | None:
        host, _, port = required.broker.tls_endpoint.rpartition(":")
        with (
            socket.create_connection((host, int(port)), timeout=CALL_S) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=session) as secure,
        ):
            secure.sendall(PREFACE)
            assert secure.recv(1)
            return secure.session

    session = connected()
    assert session is not None
    required.ca.write_bytes(STRANGER.pem)
    with pytest.raises(OSError, match=r"alert|reset|closed|EOF"):
        connected(session)


@pytest.fixture(params=["python", "grpcio"])
def connect(required: Secured, request: pytest.FixtureRequest) -> Callable[..., popmq.Client]:
    """Makes a client of this transport; Made = what it shows."""

    def make(shown: Made | None) -> popmq.Client:
        paths = {"tls_ca": required.data / DEVELOPMENT_CERT}
        for name, content in {"client_cert": shown.chain, "client_key": shown.key}.items() if shown else ():
            paths[name] = required.data.parent / name
            paths[name].write_bytes(content)
        options: Any = {"transport": request.param, "retry": popmq.Retry(tries=1), **paths}
        return popmq.Client(required.broker.tls_endpoint, **options)

    return make


def test_a_removed_name_ends_the_rights_of_connections_that_are_open(
    required: Secured, connect: Callable[..., popmq.Client]
) -> None:
    with connect(SHOP) as client:
        assert client.access_keys.list().caller == "by-name"
        required.keys.write_text(KEYS.replace("shop.example", "another.example"))
        with pytest.raises(popmq.errors.Unauthenticated, match="no access key"):
            client.access_keys.list()


def test_a_client_learns_what_is_wrong_with_what_it_shows(connect: Callable[..., popmq.Client]) -> None:
    for shown in (None, STRANGER.client("shop.example")):
        with connect(shown) as client, pytest.raises(popmq.errors.Unavailable) as refused:
            client.access_keys.list()
        assert "one of an authority of the broker" in (refused.value.action or ""), refused.value
    mismatch = Made(SHOP.chain, STRANGER.client("x").key)
    refusal = pytest.raises(popmq.errors.InvalidField, match="not a certificate and its key")
    with connect(mismatch) as client, refusal:
        client.access_keys.list()


def test_the_sdk_wants_both_files(tmp_path: Path) -> None:
    with pytest.raises(popmq.errors.InvalidField, match="client_key is missing"):
        popmq.Client("localhost:1", client_cert=tmp_path / "cert")


@pytest.mark.parametrize("content", [b"", b"no certificate"])
def test_a_file_that_holds_no_authority_is_a_start_error(tmp_path: Path, content: bytes) -> None:
    secured = Secured(tmp_path, "python", required=True)
    secured.ca.write_bytes(content)
    with pytest.raises(StartError, match=r"holds no certificate of an authority \(--tls-client-ca\)"), secured.broker:
        pass


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("--tls-client-required", "name that file"),
        ("--tls-client-ca ca.pem", "name --access-keys, or --tls-client-required"),
        ("--tls-client-ca ca.pem --access-keys k --tls-port 0", "serves no TLS"),
        ("--tls-client-ca ca.pem --access-keys k --transport grpcio", "only with --tls-client-required"),
    ],
)
def test_settings_that_would_not_do_what_they_say_are_refused(flags: str, why: str) -> None:
    with pytest.raises(SettingError, match=why):
        load(flags.split(), {})


def test_a_name_in_two_keys_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.touch(0o600)
    path.write_text(KEYS.replace("old.example", "shop.example"))
    with pytest.raises(StartError, match=r"'shop\.example' is listed under several keys"):
        known_keys.Keys(path)
