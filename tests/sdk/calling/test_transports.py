"""What carries the calls: PopMQ's own HTTP/2 in Python, or grpcio. Programs see no difference."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import popmq
from harness.broker_process import own_port
from popmq import errors
from popmq.testing import Broker
from popmq_server.embedded_broker import EmbeddedBroker
from tests.sdk.conftest import GROUP, TOPIC

BOTH = pytest.mark.parametrize("transport", ["python", "grpcio"])
ONCE = popmq.Retry(tries=1)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    """A broker with both ports."""
    with EmbeddedBroker(tmp_path_factory.mktemp("broker"), sync="none", tls_port=own_port()) as broker:
        yield broker


@pytest.mark.promise("ack")
@pytest.mark.slow
@BOTH
def test_messages_errors_and_streams_are_the_same_on_both_transports(
    popmq_broker: Broker, tmp_path: Path, transport: str
) -> None:
    client = popmq_broker.client(transport=transport)
    client.topics.create(TOPIC)
    client.groups.create(GROUP)
    large = os.urandom(3 << 20)
    client.send(TOPIC, [b"small", large])
    popped = client.pop(TOPIC, GROUP, max_bytes=16 << 20)
    assert sorted(delivery.body for delivery in popped) == sorted([b"small", large])
    client.ack(popped)
    with pytest.raises(errors.HandleLapsed):
        client.ack(popped[0])
    with pytest.raises(errors.TopicNotFound, match="nothing") as missing:
        client.send("nothing", "x")
    assert missing.value.action


@pytest.mark.slow
@BOTH
def test_tls_and_its_errors_are_the_same_on_both_transports(secured: EmbeddedBroker, transport: str) -> None:
    options = {"transport": transport, "retry": ONCE}
    with popmq.Client(secured.tls_endpoint, tls_ca=secured.certificate, **options) as client:  # type: ignore[arg-type]
        assert client.topics.list() == []
    wrong = {
        "connect with TLS": (secured.tls_endpoint, {}),
        "trust the broker's certificate": (secured.tls_endpoint, {"tls": True}),
        "without TLS": (secured.endpoint, {"tls_ca": secured.certificate}),
    }
    for cure, (endpoint, tls) in wrong.items():
        with popmq.Client(endpoint, **options, **tls) as client:  # type: ignore[arg-type]
            with pytest.raises(errors.Unavailable) as refused:
                client.topics.list()
            assert cure in (refused.value.action or ""), refused.value


@pytest.mark.slow
@BOTH
def test_a_broker_that_goes_and_comes_under_load_loses_nothing(popmq_broker: Broker, transport: str) -> None:
    client = popmq_broker.client(transport=transport, retry=popmq.Retry(first=0.001, longest=0.01))
    client.topics.create(TOPIC)
    client.groups.create(GROUP)
    stop, sent = threading.Event(), [0] * 8

    def send(number: int) -> None:
        while not stop.is_set():
            client.send(TOPIC, f"{number} {sent[number]}")
            sent[number] += 1

    threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        before = list(sent)
        while any(now < then + 3 for now, then in zip(sent, before, strict=True)):
            pass
        popmq_broker.stop()
        popmq_broker.start()
    stop.set()
    for thread in threads:
        thread.join()
    got = [delivery.text() for delivery in acked(client)]
    assert len(got) == len(set(got))
    assert set(got) == {f"{number} {index}" for number in range(8) for index in range(sent[number])}


def acked(client: popmq.Client) -> Iterator[popmq.Delivery]:
    while popped := client.pop(TOPIC, GROUP, max_messages=4096):
        yield from popped
        client.ack(popped)


def test_an_unknown_transport_and_an_invalid_endpoint_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(errors.InvalidField, match="auto, python, grpcio"):
        popmq.Client(transport="http3")  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidField, match="host:port"):
        popmq.Client("nothing:at:all", transport="python")
    monkeypatch.setenv("POPMQ_CLIENT_TRANSPORT", "carrier pigeon")
    with pytest.raises(errors.InvalidField, match="carrier pigeon"):
        popmq.AsyncClient()


@pytest.mark.parametrize("kind", [popmq.Client, popmq.AsyncClient])
def test_the_transport_grpcio_without_its_library_says_what_to_install(
    kind: type[popmq.Client | popmq.AsyncClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "popmq._transport.fork", raising=False)  # as if no test had used grpcio
    monkeypatch.delattr("popmq._transport.fork", raising=False)
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(errors.MissingLibrary, match=r'pip install "popmq\[grpcio\]"'):
        kind(transport="grpcio")


def test_a_tls_ca_without_a_certificate_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    client = popmq.Client(tls_ca=tmp_path / "ca.pem", transport="python", retry=ONCE)
    with pytest.raises(errors.InvalidField, match="holds no certificate"):
        client.topics.list()


@pytest.mark.slow
def test_calls_go_over_the_python_transport_unless_asked_and_load_neither_grpc_nor_asyncio(
    popmq_broker: Broker,
) -> None:
    program = (
        f"import sys, popmq; popmq.Client({popmq_broker.endpoint!r}).topics.list()\n"
        "print([name for name in ('grpc', 'asyncio', 'ssl') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("[]\n", "")
