"""The TLS port: what serves where, whose certificate a new connection gets, and what a start refuses."""

import logging
import re
import shutil
import socket
import ssl
import stat
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

import popmq
from harness.broker_process import BrokerProcess, own_port
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_proto.v1 import popmq_pb2_grpc as rpc
from popmq_server.clock import FakeClock
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.errors import StartError
from popmq_server.protocols.access import certificate
from popmq_server.protocols.access.certificate import (
    DEVELOPMENT_CERT,
    DEVELOPMENT_KEY,
    Certificate,
    CertificatePair,
    development,
)
from tests.wire.stubs import CALL_S, Stubs

YEAR_MS = 365 * 86_400_000


@pytest.fixture
def tls_port() -> int:
    return own_port()


@pytest.fixture
def broker(folder: Path, clock: FakeClock, tls_port: int) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(folder, clock=clock, sync="none", tls_port=tls_port) as broker:
        yield broker


def topics(endpoint: str, ca: Path) -> list[str]:
    """The names of all topics, over TLS, for a client that trusts only `ca`."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(endpoint, grpc.ssl_channel_credentials(ca.read_bytes()), options=options) as channel:
        answer: pb.ListTopicsResponse = rpc.AdminStub(channel).ListTopics(pb.ListTopicsRequest(), timeout=CALL_S)
        return [topic.name for topic in answer.topics]


def shown(port: int) -> tuple[str, str | None]:
    """(the certificate that a new connection is shown, the protocol that was agreed on), with nothing verified."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection(("127.0.0.1", port), timeout=CALL_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        raw = secure.getpeercert(binary_form=True)
        assert raw is not None
        return ssl.DER_cert_to_PEM_cert(raw), secure.selected_alpn_protocol()


def made(folder: Path) -> CertificatePair:
    """Another certificate for this machine."""
    folder.mkdir(exist_ok=True)
    return development(folder, ("127.0.0.1",), FakeClock()).pair


def short() -> CertificatePair:
    """A certificate whose key is too short for OpenSSL."""
    key = rsa.generate_private_key(65537, 1024)
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    now, name = datetime.now(UTC), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "short")])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1)
        .not_valid_before(now)
        .not_valid_after(now + timedelta(days=9))
        .sign(key, hashes.SHA256())
    )
    return CertificatePair(made.public_bytes(pem), key.private_bytes(pem, form, serialization.NoEncryption()))


def put(pair: CertificatePair, cert: Path, key: Path) -> None:
    """Replaces both files, as tools that renew certificates do."""
    for path, content in ((cert, pair.chain), (key, pair.key)):
        draft = path.with_suffix(".new")
        draft.write_bytes(content)
        draft.replace(path)


def test_a_pair_of_others_under_the_development_names_is_used_and_never_replaced(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(certificate, "_COMMON_NAME", "shop.example.org")
        pair = made(folder)
    later = FakeClock()
    later.advance(11 * YEAR_MS)
    assert development(folder, ("127.0.0.1",), later).pair == pair
    assert {path.name for path in folder.iterdir()} == {DEVELOPMENT_CERT, DEVELOPMENT_KEY}


def test_a_certificate_that_ends_within_a_week_is_in_the_log(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    made(folder)
    clock = FakeClock()
    clock.advance(10 * YEAR_MS - 8 * 86_400_000)
    served = development(folder, ("127.0.0.1",), clock)
    assert caplog.text == ""
    clock.advance(2 * 86_400_000)
    served.warn()
    assert "is valid for 144 more hours" in caplog.text


def test_a_development_certificate_that_is_no_longer_valid_is_made_again_with_the_same_key(folder: Path) -> None:
    pair, later = made(folder), FakeClock()
    later.advance(11 * YEAR_MS)
    again = development(folder, ("127.0.0.1",), later)
    assert again.pair.key == pair.key
    assert again.left_s() > 0


def test_a_key_without_a_certificate_is_not_replaced(folder: Path) -> None:
    pair = made(folder)
    (folder / DEVELOPMENT_CERT).unlink()
    assert made(folder).key == pair.key
    (folder / DEVELOPMENT_CERT).unlink()
    (folder / DEVELOPMENT_KEY).write_text("of somebody")
    with pytest.raises(StartError, match=DEVELOPMENT_KEY):
        made(folder)
    assert (folder / DEVELOPMENT_KEY).read_text() == "of somebody"


@pytest.mark.slow
def test_both_ports_serve_the_same_broker(broker: EmbeddedBroker, stubs: Stubs) -> None:
    stubs.create_topic("orders")
    assert broker.certificate is not None
    assert topics(broker.tls_endpoint, broker.certificate) == ["orders"]
    name = f"localhost:{broker.tls_endpoint.rpartition(':')[2]}"
    assert topics(name, broker.certificate) == ["orders"], "the machine's names are in the certificate"


def test_h2_is_agreed_on_for_clients_that_insist(broker: EmbeddedBroker, tls_port: int) -> None:
    assert shown(tls_port)[1] == "h2"


def test_a_client_that_trusts_another_certificate_cannot_connect(broker: EmbeddedBroker, tmp_path: Path) -> None:
    made(tmp_path / "other")
    with pytest.raises(grpc.RpcError) as error:
        topics(broker.tls_endpoint, tmp_path / "other" / DEVELOPMENT_CERT)
    assert error.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.slow
@pytest.mark.parametrize("comment", ["# Größe\n", "Főtanúsítvány\n"])
def test_files_of_authorities_may_have_names_in_any_letters(
    folder: Path, tmp_path: Path, tls_port: int, comment: str
) -> None:
    """As that of certifi has."""
    pair = made(tmp_path / "given")
    cert, key = (tmp_path / "given" / name for name in (DEVELOPMENT_CERT, DEVELOPMENT_KEY))
    (ca := tmp_path / "ca.pem").write_bytes(comment.encode() + pair.chain)
    with (
        EmbeddedBroker(folder, sync="none", tls_port=tls_port, tls_cert=cert, tls_key=key, tls_client_ca=ca) as broker,
        popmq.Client(broker.tls_endpoint, tls_ca=ca) as client,
    ):
        assert client.topics.list() == []


def test_the_development_certificate_is_made_once_and_is_for_its_owners_eyes(folder: Path, tls_port: int) -> None:
    kept = []
    for _ in range(2):
        with EmbeddedBroker(folder, clock=FakeClock(), sync="none", tls_port=tls_port):
            kept.append(shown(tls_port)[0])
    assert kept[0] == kept[1] == (folder / DEVELOPMENT_CERT).read_text()
    modes = [stat.S_IMODE((folder / name).stat().st_mode) for name in (DEVELOPMENT_CERT, DEVELOPMENT_KEY)]
    assert modes == [0o600, 0o600]


def test_a_broker_without_a_tls_port_makes_no_certificate(stubs: Stubs, folder: Path) -> None:
    plain = EmbeddedBroker(folder.with_name("plain"), clock=FakeClock(), sync="none")
    with plain:
        assert plain.certificate is None
    assert not (folder.with_name("plain") / DEVELOPMENT_CERT).exists()


def test_an_outdated_development_certificate_is_replaced(tmp_path: Path) -> None:
    clock = FakeClock()
    first = development(tmp_path, ("127.0.0.1",), clock).pair
    clock.advance(9 * YEAR_MS)
    assert development(tmp_path, ("127.0.0.1",), clock).pair == first
    clock.advance(2 * YEAR_MS)
    assert development(tmp_path, ("127.0.0.1",), clock).pair != first


@pytest.mark.parametrize("lost", [DEVELOPMENT_CERT, DEVELOPMENT_KEY])
def test_half_a_development_certificate_is_replaced(tmp_path: Path, lost: str) -> None:
    first = development(tmp_path, ("127.0.0.1",), FakeClock()).pair
    (tmp_path / lost).unlink()
    assert development(tmp_path, ("127.0.0.1",), FakeClock()).pair != first


def test_the_address_that_it_listens_on_is_in_the_certificate(tmp_path: Path) -> None:
    for host, entry in (
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8::7", "2001:db8::7"),
        ("queue.example", "queue.example"),
    ):
        folder = tmp_path / entry.replace(":", "-")
        folder.mkdir()
        development(folder, (host,), FakeClock())
        assert entry in names_in(folder / DEVELOPMENT_CERT)
    folder = tmp_path / "any"
    folder.mkdir()
    development(folder, ("0.0.0.0",), FakeClock())
    assert "0.0.0.0" not in names_in(folder / DEVELOPMENT_CERT)
    assert {"localhost", "127.0.0.1", "::1"} <= names_in(folder / DEVELOPMENT_CERT)


def test_a_certificate_of_an_earlier_start_that_lacks_a_host_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    development(tmp_path, ("127.0.0.1",), FakeClock())
    development(tmp_path, ("0.0.0.0", "::1", "localhost"), FakeClock())
    assert caplog.messages == []
    development(tmp_path, ("127.0.0.1", "192.0.2.7", "2001:db8::7"), FakeClock())
    assert caplog.messages[0].startswith(f"the development certificate {tmp_path / DEVELOPMENT_CERT} does not name ")
    assert "does not name 192.0.2.7, 2001:db8::7: remove it" in caplog.messages[0]


def names_in(cert: Path) -> set[str]:
    found = x509.load_pem_x509_certificate(cert.read_bytes())
    (names,) = (each.value for each in found.extensions if isinstance(each.value, x509.SubjectAlternativeName))
    return {str(name.value) for name in names}


@pytest.mark.slow
def test_a_replaced_certificate_counts_from_the_next_connection_and_ends_none(
    broker: EmbeddedBroker, folder: Path, tls_port: int, tmp_path: Path
) -> None:
    assert broker.certificate is not None
    credentials = grpc.ssl_channel_credentials(broker.certificate.read_bytes())
    with grpc.secure_channel(broker.tls_endpoint, credentials) as channel:
        admin = rpc.AdminStub(channel)
        admin.ListTopics(pb.ListTopicsRequest(), timeout=CALL_S)
        put(made(tmp_path / "new"), folder / DEVELOPMENT_CERT, folder / DEVELOPMENT_KEY)
        assert shown(tls_port)[0] == (tmp_path / "new" / DEVELOPMENT_CERT).read_text()
        admin.ListTopics(pb.ListTopicsRequest(), timeout=CALL_S)


def test_the_time_that_is_left_of_the_certificate_is_gauged_and_follows_a_replacement(
    folder: Path, tmp_path: Path, tls_port: int
) -> None:
    clock, port = FakeClock(), own_port()

    def left_s() -> float:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=CALL_S) as answer:
            (value,) = re.findall(r"^popmq_certificate_expires_seconds (.*)$", answer.read().decode(), re.MULTILINE)
        return float(value)

    with EmbeddedBroker(folder, clock=clock, sync="none", tls_port=tls_port, metrics_port=port):
        clock.step_wall(10 * YEAR_MS + 60_000)
        assert left_s() == -60
        (tmp_path / "new").mkdir()
        later = development(tmp_path / "new", ("127.0.0.1",), FakeClock(clock.wall_ms())).pair
        put(later, folder / DEVELOPMENT_CERT, folder / DEVELOPMENT_KEY)
        assert left_s() == 10 * YEAR_MS / 1000


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["no certificate", "another's key", "gone", "a key that OpenSSL refuses"])
def test_a_broken_replacement_keeps_the_old_certificate_and_is_logged_once(
    broker: EmbeddedBroker, folder: Path, tls_port: int, tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    before, _ = shown(tls_port)
    if broken == "no certificate":
        (folder / DEVELOPMENT_CERT).write_text("tomorrow")
    elif broken == "another's key":
        (folder / DEVELOPMENT_KEY).write_bytes(made(tmp_path / "other").key)
    elif broken == "a key that OpenSSL refuses":
        put(short(), folder / DEVELOPMENT_CERT, folder / DEVELOPMENT_KEY)
    else:
        (folder / DEVELOPMENT_KEY).unlink()
    with caplog.at_level(logging.INFO, "popmq.tls"):
        assert [shown(tls_port)[0] for _ in range(3)] == [before] * 3
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "the old one stays" in caplog.text
    assert "PRIVATE" not in caplog.text
    put(made(tmp_path / "good"), folder / DEVELOPMENT_CERT, folder / DEVELOPMENT_KEY)
    assert shown(tls_port)[0] != before, "and a good one counts again"


def test_a_given_certificate_is_served_and_the_data_folder_keeps_none(
    folder: Path, tmp_path: Path, tls_port: int
) -> None:
    made(tmp_path / "given")
    cert, key = (tmp_path / "given" / name for name in (DEVELOPMENT_CERT, DEVELOPMENT_KEY))
    with EmbeddedBroker(folder, sync="none", tls_port=tls_port, tls_cert=cert, tls_key=key) as broker:
        assert broker.certificate == cert
        assert shown(tls_port)[0] == cert.read_text()
    assert not (folder / DEVELOPMENT_CERT).exists()


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["missing", "no certificate", "another's key", "a key with a password"])
def test_a_start_with_a_bad_certificate_says_the_cure(folder: Path, tmp_path: Path, tls_port: int, wrong: str) -> None:
    made(tmp_path / "given")
    cert, key = (tmp_path / "given" / name for name in (DEVELOPMENT_CERT, DEVELOPMENT_KEY))
    if wrong == "missing":
        cert.unlink()
    elif wrong == "no certificate":
        cert.write_text("tomorrow")
    elif wrong == "another's key":
        key.write_bytes(made(tmp_path / "other").key)
    else:
        key.write_text("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMAA=\n-----END ENCRYPTED PRIVATE KEY-----\n")
    broken = EmbeddedBroker(folder, sync="none", tls_port=tls_port, tls_cert=cert, tls_key=key)
    with pytest.raises(StartError, match=f"{cert} .*--tls-cert"):
        broken.start()
    with EmbeddedBroker(folder, sync="none"):
        pass  # nothing was left open


def test_a_spoiled_development_certificate_is_a_start_error_with_the_cure(folder: Path, tls_port: int) -> None:
    with EmbeddedBroker(folder, sync="none"):
        pass
    for name in (DEVELOPMENT_CERT, DEVELOPMENT_KEY):
        (folder / name).write_text("spoiled")
    with pytest.raises(StartError, match=f"remove {DEVELOPMENT_CERT} and {DEVELOPMENT_KEY}"):
        EmbeddedBroker(folder, sync="none", tls_port=tls_port).start()


def test_a_tls_port_in_use_is_a_start_error_that_names_the_flag(broker: EmbeddedBroker, tmp_path: Path) -> None:
    port = int(broker.tls_endpoint.rpartition(":")[2])
    with pytest.raises(StartError, match=f"TLS port {port} .*--tls-port 0"):
        EmbeddedBroker(tmp_path / "second", sync="none", tls_port=port).start()


def test_tls_only_leaves_the_plain_port_closed(folder: Path, tls_port: int) -> None:
    plain = own_port()
    with EmbeddedBroker(folder, port=plain, sync="none", tls_port=tls_port, tls_only=True) as broker:
        assert broker.endpoint == broker.tls_endpoint
        assert broker.certificate is not None
        assert topics(broker.endpoint, broker.certificate) == []
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", plain)) != 0


def test_a_pair_never_shows_its_key(tmp_path: Path) -> None:
    pair = made(tmp_path)
    assert "PRIVATE" not in f"{pair} {pair!r}"


def test_a_certificate_that_has_run_out_is_served_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    development(tmp_path, ("127.0.0.1",), clock)
    clock.advance(11 * YEAR_MS)
    Certificate(tmp_path / DEVELOPMENT_CERT, tmp_path / DEVELOPMENT_KEY, clock)
    assert "no longer valid" in caplog.text


@pytest.mark.slow
@pytest.mark.process
def test_the_program_says_what_serves_where(tmp_path: Path) -> None:
    tls_port, data = own_port(), tmp_path / "data"
    with BrokerProcess(data, "--tls-port", str(tls_port)) as process:
        assert [process.read_line() for _ in range(2)] == [
            f"popmq: TLS on 127.0.0.1:{tls_port}: {data / DEVELOPMENT_CERT}, made for development",
            "popmq: no access keys: every client that reaches a port may do everything",
        ]
        assert topics(f"127.0.0.1:{tls_port}", data / DEVELOPMENT_CERT) == []
        assert process.stop() == 0
    shutil.rmtree(data)
