"""What a client may cost the HTTP port, who may call it, and how it ends."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from harness.broker_process import own_port
from popmq_http2 import Limits
from popmq_server.clock import FakeClock
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.errors import StartError
from popmq_server.options import Unnamed
from popmq_server.process import serving
from popmq_server.protocols import server
from popmq_server.protocols.connect import http1
from tests.wire.access.signing import KEYS, secret_of, signed, write_keys
from tests.wire.connect.conftest import ORIGIN, Answered, Http
from tests.wire.stubs import CALL_S, GROUP, TOPIC

LIST = "/popmq.v1.Admin/ListTopics?encoding=json&message={}"


@contextlib.contextmanager
def connected(url: str) -> Iterator[socket.socket]:
    address = urlsplit(url)
    with socket.create_connection((str(address.hostname), address.port or 0), timeout=CALL_S) as one:
        yield one


def until_closed(one: socket.socket) -> bytes:
    """Everything that comes until the broker ends the connection."""
    found = b""
    try:
        while part := one.recv(65_536):
            found += part
    except ConnectionResetError:
        pass
    return found


def called(broker: EmbeddedBroker, method: str = "Admin/ListTopics", **headers: str) -> Answered:
    """A call on a connection of its own."""
    with Http(broker.http_url) as one:
        return one.call(method, {"topic": {"name": "new"}} if method == "Admin/CreateTopic" else {}, **headers)


def basic(name: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{secret}".encode()).decode()


# ── What a client may cost ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"HTTP/1.1 505"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(400), b"HTTP/1.1 400"),
        (b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"a" * 40_000 + b"\r\n\r\n", b"HTTP/1.1 431"),
        (b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\n", b"HTTP/1.1 400"),
        (b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: gzip\r\n\r\n", b"HTTP/1.1 501"),
        (b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999999\r\n\r\n", b"HTTP/1.1 429"),
        (b"GET / HTTP/1.1\r\n\r\n", b"HTTP/1.1 400"),
    ],
)
def test_what_is_not_a_request_is_told_why_and_ends_its_connection_only(
    served: EmbeddedBroker, http_: Http, raw: bytes, status: bytes
) -> None:
    with connected(served.http_url) as one:
        one.sendall(raw)
        answer = until_closed(one)
    assert answer.startswith(status)
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["message"]
    assert http_.call("Admin/ListTopics").status == 200


def test_what_follows_a_head_and_is_no_request_is_told_so(served: EmbeddedBroker) -> None:
    with connected(served.http_url) as one:
        one.sendall(b"HEAD / HTTP/1.1\r\nhost: localhost\r\n\r\nGET /\x0c HTTP/1.1\r\n\r\n")
        answers = until_closed(one)
    assert answers.count(b"HTTP/1.1 ") == 2
    assert b"invalid_argument" in answers


def test_a_bug_ends_its_connection_and_no_other(
    served: EmbeddedBroker, http_: Http, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patched, connected(served.http_url) as one:
        patched.setattr(http1.Http1, "_write", lambda *_: 1 / 0)
        one.sendall(f"GET {LIST} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        assert until_closed(one) == b""
    assert "the HTTP port failed" in caplog.text
    assert http_.call("Admin/ListTopics").status == 200


def test_a_refused_head_has_no_body(served: EmbeddedBroker) -> None:
    for head in (b"HEAD / HTTP/2.0\r\nhost: localhost\r\n\r\n", b"HEAD / HTTP/1.1\r\nhost: evil.example\r\n\r\n"):
        with connected(served.http_url) as one:
            one.sendall(head + b"GET")
            one.shutdown(socket.SHUT_WR)
            assert until_closed(one).endswith(b"\r\n\r\n")


@pytest.mark.parametrize("target", [LIST, "/", "/popmq.v1.Broker/Send"])
def test_the_answer_to_head_has_no_body_and_the_connection_goes_on(served: EmbeddedBroker, target: str) -> None:
    with connected(served.http_url) as one:
        one.sendall(f"HEAD {target} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        one.sendall(f"GET {LIST} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
        first, _, second = until_closed(one).partition(b"\r\n\r\n")
    assert first.startswith((b"HTTP/1.1 404", b"HTTP/1.1 405"))
    assert second.startswith(b"HTTP/1.1 200")


def test_a_body_in_pieces_without_an_end_is_refused_at_its_limit(served: EmbeddedBroker) -> None:
    piece = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
    with connected(served.http_url) as one:
        one.sendall(b"POST /popmq.v1.Broker/Send HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
        try:
            for _ in range(40):
                one.sendall(piece)
        except ConnectionError:
            pass  # it was answered meanwhile
        assert b"resource_exhausted" in until_closed(one)


def test_requests_that_fill_the_memory_end_that_of_the_largest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "Limits", lambda **named: Limits(requests_bytes=1 << 20, **named))
    head = b"POST /popmq.v1.Broker/Send HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
    with (
        EmbeddedBroker(tmp_path / "data", sync="none", http_port=own_port()) as broker,
        connected(broker.http_url) as large,
        connected(broker.http_url) as small,
    ):
        large.sendall(head % 2_000_000 + b"x" * 900_000)
        small.sendall(head % 400_000 + b"x" * 300_000)
        assert b"resource_exhausted" in until_closed(large)
        small.sendall(b"x" * 100_000)
        assert small.recv(65_536).startswith(b"HTTP/1.1 415"), "the smaller one was read to its end"


def test_slow_and_silent_clients_are_ended_and_a_waiting_call_is_not(
    served: EmbeddedBroker, http_: Http, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1, "LOOK_S", 0.05)
    monkeypatch.setattr(http1, "IDLE_S", 0.1)
    http_.call("Admin/CreateTopic", {"topic": {"name": TOPIC}})
    http_.call("Admin/CreateGroup", {"group": {"name": GROUP}})
    with connected(served.http_url) as silent, connected(served.http_url) as slow, connected(served.http_url) as waits:
        body = json.dumps({"topic": TOPIC, "group": GROUP, "waitMs": 60_000}).encode()
        kind = b"host: localhost\r\ncontent-type: application/json\r\n"
        waits.sendall(b"POST /popmq.v1.Broker/Pop HTTP/1.1\r\n%bcontent-length: %d\r\n\r\n" % (kind, len(body)) + body)
        slow.sendall(b"POST /popmq.v1.Broker/Pop HTTP/1.1\r\n%bcontent-length: 500\r\n\r\n{" % kind)
        assert b"HTTP/1.1 408" in until_closed(slow)
        assert until_closed(silent) == b""
        with Http(served.http_url) as other:
            other.call("Broker/Send", {"topic": TOPIC, "messages": [{"body": "aGk="}]})
        assert waits.recv(65_536).startswith(b"HTTP/1.1 200")


def test_an_address_has_so_many_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "Limits", lambda **named: Limits(**{**named, "connections_per_address": 2}))
    with (
        EmbeddedBroker(tmp_path / "data", sync="none", http_port=own_port()) as broker,
        connected(broker.http_url),
        connected(broker.http_url) as second,
        connected(broker.http_url) as third,
    ):
        assert b"resource_exhausted" in until_closed(third)
        second.sendall(f"GET {LIST} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        assert second.recv(65_536).startswith(b"HTTP/1.1 200")


# ── Who may call ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def keyed(tmp_path: Path, clock: FakeClock) -> Iterator[EmbeddedBroker]:
    write_keys(tmp_path / "keys.toml", KEYS)
    with EmbeddedBroker(
        tmp_path / "data", clock=clock, sync="none", http_port=own_port(), access_keys=tmp_path / "keys.toml"
    ) as broker:
        yield broker


def test_a_call_needs_a_key_and_its_rights_as_over_grpc(keyed: EmbeddedBroker) -> None:
    assert called(keyed).status == 401
    for proof in (dict(signed("root")), {"authorization": basic("root", secret_of("root"))}):
        named = {name.replace("-", "_"): value for name, value in proof.items()}
        assert called(keyed, **named).status == 200
    denied = called(keyed, "Admin/CreateTopic", authorization=basic("reader", secret_of("reader")))
    assert (denied.status, denied.json["code"]) == (403, "permission_denied")


def test_a_secret_in_clear_is_taken_from_this_machine_by_ipv6_too(tmp_path: Path) -> None:
    write_keys(tmp_path / "keys.toml", KEYS)
    with EmbeddedBroker(
        tmp_path / "data", host="::1", sync="none", http_port=own_port(), access_keys=tmp_path / "keys.toml"
    ) as broker:
        assert called(broker, authorization=basic("root", secret_of("root"))).status == 200


@pytest.mark.parametrize(
    "text", ["Basic", "Basic !!!", basic("root", "wrong"), basic("nobody", "x"), "Basic cm9vdA==", "Bearer x"]
)
def test_a_wrong_secret_is_refused_before_the_body_is_read(keyed: EmbeddedBroker, text: str) -> None:
    with connected(keyed.http_url) as one:
        head = f"POST /popmq.v1.Broker/Send HTTP/1.1\r\nhost: localhost\r\nauthorization: {text}\r\n"
        one.sendall(head.encode() + b"content-length: 1000000\r\n\r\n")
        answer = until_closed(one)
    assert answer.startswith(b"HTTP/1.1 401")
    assert b"unauthenticated" in answer


@pytest.mark.parametrize(("secret", "size", "status"), [("wrong", 5_000_000, 401), ("", 30_000_000, 429)])
def test_a_client_that_sends_all_before_it_reads_learns_why_it_was_refused(
    keyed: EmbeddedBroker, secret: str, size: int, status: int
) -> None:
    head = {"content_type": "application/json", "authorization": basic("root", secret or secret_of("root"))}
    with Http(keyed.http_url) as one:
        answer = one.asked("POST", "/popmq.v1.Broker/Send", b"x" * size, **head)
    assert (answer.status, bool(answer.json["message"])) == (status, True)


def test_a_secret_in_clear_is_not_taken_from_another_machine(
    keyed: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http1, "address_of", lambda _: "10.0.0.7")
    answer = called(keyed, authorization=basic("root", secret_of("root")))
    assert answer.status == 401
    assert "in clear" in answer.json["message"]
    named = {name.replace("-", "_"): value for name, value in signed("root")}
    assert called(keyed, **named).status == 200


def test_web_pages_of_named_origins_may_call_and_others_are_told_who_names_them(http_: Http) -> None:
    path = "/popmq.v1.Broker/Send"
    allowed = http_.asked("OPTIONS", path, origin=ORIGIN, access_control_request_method="POST")
    assert allowed.status == 204
    assert allowed.headers["access-control-allow-origin"] == ORIGIN
    assert "content-type" in allowed.headers["access-control-allow-headers"]
    assert http_.call("Admin/ListTopics", origin=ORIGIN).headers["access-control-allow-origin"] == ORIGIN
    refused = http_.asked("OPTIONS", path, origin="https://evil.example", access_control_request_method="POST")
    assert (refused.status, "access-control-allow-origin" in refused.headers) == (403, False)
    assert "--http-origins" in refused.json["message"]


def test_an_origin_of_any_bytes_is_answered(tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data", sync="none", http_port=own_port(), http_origins=["*"]) as broker:
        answer = called(broker, origin="https://caf\xe9.example")
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "https://caf\xe9.example")


def test_a_page_that_gives_its_name_this_machines_address_cannot_call(served: EmbeddedBroker) -> None:
    for host, status in {"localhost": 200, "127.0.0.1:8083": 200, "[::1]": 200, "evil.example": 421}.items():
        with connected(served.http_url) as one:
            one.sendall(f"GET {LIST} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n".encode())
            assert until_closed(one).startswith(f"HTTP/1.1 {status}".encode()), host


# ── Start and end ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_with_tls_only_the_port_has_tls(tmp_path: Path) -> None:
    port = own_port()
    with EmbeddedBroker(tmp_path / "data", sync="none", tls_port=own_port(), tls_only=True, http_port=port) as broker:
        assert broker.certificate
        trusted = ssl.create_default_context(cafile=str(broker.certificate))
        with urllib.request.urlopen(f"https://localhost:{port}{LIST}", context=trusted, timeout=CALL_S) as answer:
            assert json.loads(answer.read()) == {}
        with connected(f"http://127.0.0.1:{port}") as plain:
            plain.sendall(f"GET {LIST} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
            assert b"HTTP/1.1" not in until_closed(plain)


def test_a_port_that_was_named_must_be_free_and_the_default_one_need_not(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(StartError, match="--http-port"):
            EmbeddedBroker(tmp_path / "data", sync="none", http_port=port).start()
        with EmbeddedBroker(tmp_path / "data", sync="none", http_port=Unnamed(port)) as broker:
            assert broker.endpoint


def test_a_stop_answers_the_calls_that_wait_and_takes_no_others(served: EmbeddedBroker, http_: Http) -> None:
    http_.call("Admin/CreateTopic", {"topic": {"name": TOPIC}})
    http_.call("Admin/CreateGroup", {"group": {"name": GROUP}})
    with connected(served.http_url) as waits, connected(served.http_url) as idle:
        body = json.dumps({"topic": TOPIC, "group": GROUP, "waitMs": 60_000}).encode()
        kind = b"host: localhost\r\ncontent-type: application/json\r\n"
        waits.sendall(b"POST /popmq.v1.Broker/Pop HTTP/1.1\r\n%bcontent-length: %d\r\n\r\n" % (kind, len(body)) + body)
        while http_.call("Admin/GetStats", {"topic": TOPIC, "group": GROUP}).json["groups"][0].get("waiters", 0) == 0:
            os.sched_yield()
        served.stop()
        assert until_closed(waits).startswith(b"HTTP/1.1 200")
        assert until_closed(idle) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", urlsplit(served.http_url).port or 0), timeout=CALL_S)


def test_a_stop_does_not_wait_for_an_idle_client_of_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads nothing between its calls, so it does not answer the end of TLS."""
    monkeypatch.setattr(serving, "DRAIN_S", 3_600.0)
    port = own_port()
    broker = EmbeddedBroker(tmp_path / "data", sync="none", tls_port=own_port(), tls_only=True, http_port=port).start()
    trusted = ssl.create_default_context(cafile=str(broker.certificate))
    with contextlib.closing(http.client.HTTPSConnection("localhost", port, timeout=CALL_S, context=trusted)) as idle:
        idle.request("GET", LIST)
        assert idle.getresponse().read() == b"{}"
        broker.stop()


def test_a_call_over_http_is_audited_and_counted_as_any_other(
    served: EmbeddedBroker, http_: Http, caplog: pytest.LogCaptureFixture
) -> None:
    http_.call("Admin/CreateTopic", {"topic": {"name": TOPIC}}, x_request_id="from-curl")
    (line,) = [record for record in caplog.records if record.name == "popmq.audit"]
    fields: Any = line.__dict__["fields"]
    assert fields["code"] == "OK"
    assert fields["peer"].startswith("ipv4:127.0.0.1:")
