"""/healthz and /readyz beside /metrics: what they answer during the start, a stop, and a hang."""

import asyncio
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.broker_process import own_port
from popmq_server.embedded.loop import broker as engine
from popmq_server.embedded.writer.writer import Writer
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.errors import StartError, unavailable
from popmq_server.monitoring import port as monitoring
from popmq_server.monitoring.port import MonitoringPort, ProbeAnswer
from popmq_server.options import HOST
from popmq_server.ports import opened
from popmq_server.process import serving
from tests.wire.stubs import CALL_S

Answer = tuple[int, str]


def get(port: int, path: str) -> Answer:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=CALL_S) as answer:
            return answer.status, answer.read().decode().strip()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode().strip()


@pytest.fixture
def port() -> int:
    return own_port()


@pytest.fixture
def broker(folder: Path, port: int) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(folder, sync="none", metrics_port=port) as broker:
        yield broker


def test_a_serving_broker_is_healthy_and_ready(broker: EmbeddedBroker, port: int) -> None:
    assert get(port, "/healthz") == get(port, "/readyz") == (200, "ok")
    assert get(port, "/metrics")[0] == 200


def test_another_path_is_not_found_and_names_those_that_exist(broker: EmbeddedBroker, port: int) -> None:
    assert get(port, "/health") == (404, "there are /metrics, /healthz, /readyz")


def test_a_start_that_reads_the_store_is_healthy_and_not_ready(
    folder: Path, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, seen = Writer.start, list[Answer]()

    def probe(self: Writer[Any]) -> None:
        seen.extend((get(port, "/healthz"), get(port, "/readyz")))
        start(self)

    monkeypatch.setattr(Writer, "start", probe)
    with EmbeddedBroker(folder, sync="none", metrics_port=port):
        pass
    assert seen == [(200, "starting"), (503, "starting")]


def test_a_stopping_broker_is_not_ready(folder: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    close, seen = engine.EmbeddedEngine.close_waits, list[Answer]()

    def probe(self: engine.EmbeddedEngine) -> None:
        seen.append(get(port, "/readyz"))
        close(self)

    monkeypatch.setattr(engine.EmbeddedEngine, "close_waits", probe)
    with EmbeddedBroker(folder, sync="none", metrics_port=port):
        pass
    assert set(seen) == {(503, "stopping")}


@pytest.mark.slow
def test_a_blocked_event_loop_is_not_healthy(
    broker: EmbeddedBroker, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "ANSWER_S", 0.05)
    blocked, go_on = threading.Event(), threading.Event()

    def block() -> None:
        blocked.set()
        go_on.wait(CALL_S)

    broker._loop.call_soon_threadsafe(block)
    blocked.wait(CALL_S)
    try:
        assert get(port, "/healthz") == (503, "the event loop has not answered for 0.05 s")
    finally:
        go_on.set()


@pytest.mark.slow
def test_a_writer_that_hangs_is_healthy_and_not_ready(
    broker: EmbeddedBroker, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Writer, "submit", lambda *_: None)
    assert get(port, "/healthz") == (200, "ok")
    monkeypatch.setattr(serving, "ANSWER_S", 0.05)
    assert get(port, "/readyz") == (503, "the writer has not answered for 0.05 s")


def test_a_scrape_of_a_writer_that_hangs_lacks_its_numbers_only(
    broker: EmbeddedBroker, port: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert "popmq_engine_answers 1.0" in get(port, "/metrics")[1]
    monkeypatch.setattr(Writer, "submit", lambda *_: None)
    monkeypatch.setattr(serving, "ANSWER_S", 0.05)
    without_engine(get(port, "/metrics"))
    assert "Traceback" not in capfd.readouterr().err


def test_a_scrape_of_a_broker_that_stops_lacks_the_numbers_of_the_engine_only(
    broker: EmbeddedBroker, port: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def stopping(*_: object) -> None:
        raise unavailable("the broker is stopping")

    monkeypatch.setattr(engine.EmbeddedEngine, "ask", stopping)
    without_engine(get(port, "/metrics"))

    def closed(question: Coroutine[object, object, object], _: object) -> None:
        raise RuntimeError("Event loop is closed")

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", closed)
    without_engine(get(port, "/metrics"))
    assert "Traceback" not in capfd.readouterr().err


def without_engine(scrape: Answer) -> None:
    assert scrape[0] == 200
    assert "popmq_engine_answers 0.0" in scrape[1]
    assert "popmq_calls_total{" in scrape[1]
    assert "popmq_store_used_bytes" not in scrape[1]


def test_a_failed_commit_is_not_healthy(broker: EmbeddedBroker, port: int) -> None:
    """The process ends soon after; until then no orchestrator takes it for a healthy one."""
    done = threading.Event()

    def fail() -> None:
        broker.serving.life.failed.set_result(OSError("a sick disk"))
        done.set()

    broker._loop.call_soon_threadsafe(fail)
    done.wait(CALL_S)
    assert get(port, "/healthz") == (503, "a commit failed; the process ends")


@pytest.mark.parametrize("host", ["192.0.2.1", "not a host"])
def test_a_host_that_is_not_here_is_a_start_error_with_the_cure(folder: Path, port: int, host: str) -> None:
    broker = EmbeddedBroker(folder, sync="none", metrics_port=port, metrics_host=host)
    with pytest.raises(StartError, match="--metrics-host"):
        broker.start()


def test_probes_are_answered_beside_connections_that_send_nothing(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    monkeypatch.setattr(monitoring, "CONNECTIONS_MAX", 2)
    served = MonitoringPort(opened([HOST], port)[0], lambda *_: [], {"/healthz": lambda: ProbeAnswer(True, "ok")})
    try:
        idle = [socket.create_connection((HOST, port), timeout=CALL_S) for _ in range(6)]
        assert get(port, "/healthz") == (200, "ok")
        assert [one.recv(1) for one in idle[:4]] == [b""] * 4, "the oldest are closed"
        for one in idle:
            one.close()
    finally:
        served.close()


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz"])
def test_a_head_gets_the_answer_without_its_body(broker: EmbeddedBroker, port: int, path: str) -> None:
    asked = urllib.request.Request(f"http://{HOST}:{port}{path}", method="HEAD")
    with urllib.request.urlopen(asked, timeout=CALL_S) as answer:
        assert (answer.status, answer.read()) == (200, b"")
        assert int(answer.headers["Content-Length"]) > 0


@pytest.mark.parametrize("transport", ["python", "grpcio"])
def test_a_broker_on_all_addresses_serves_both_families(folder: Path, port: int, transport: str) -> None:
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with EmbeddedBroker(
        folder, sync="none", host="::", metrics_host="::", metrics_port=port, transport=transport
    ) as broker:
        for host in ("127.0.0.1", "::1"):
            for opened in (port, int(broker.endpoint.rpartition(":")[2])):
                socket.create_connection((host, opened), timeout=CALL_S).close()
