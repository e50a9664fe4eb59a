"""`--workers N`: several processes serve one port; one that dies is started again, and harms no other."""

import os
import re
import select
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from harness.broker_process import BrokerError, own_port
from harness.gateway_process import GatewayProcess
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.options import TRANSPORT
from popmq_server.process.running import EXIT_CONFIG
from tests.wire.access.signing import write_keys
from tests.wire.stubs import CALL_S, Stubs
from tests.wire.workers.program import BROKEN, SERVE

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.skipif(TRANSPORT == "grpcio", reason="grpcio opens its ports itself: --workers refuses it"),
]

WORKERS = 2


class Gateway(GatewayProcess):
    """With two workers, and a metrics port."""

    def __init__(self, folder: Path, *flags: str) -> None:
        secret = folder / "handles"
        secret.write_text("the secret of the gateways")
        secret.chmod(0o600)
        self.metrics_port = own_port()
        given = ("--workers", f"{WORKERS}", "--handle-secret", str(secret), "--metrics-port", f"{self.metrics_port}")
        super().__init__(folder / "gateway.log", "127.0.0.1:1", *given, *flags, program=SERVE)

    def worker_pid(self, number: int, started: int = 1) -> int:
        """The process of a worker, once it serves; `started`: the how manieth of its number."""
        line = f"worker {number} serves: process "
        while len(pids := re.findall(f"{line}([0-9]+)", self.log.read_text())) < started:
            self.wait_log(line)
        return int(pids[started - 1])

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}{path}", timeout=CALL_S) as answer:
                return answer.status, answer.read().decode().strip()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode().strip()

    def number(self, series: str) -> float:
        """The value of one series of a scrape; -1 if it has none."""
        found = re.search(rf"^{re.escape(series)} (\S+)$", self.get("/metrics")[1], re.MULTILINE)
        return float(found[1]) if found else -1.0


def ask(gateway: Gateway) -> None:
    """A call over a connection of its own."""
    stubs = Stubs(gateway.endpoint)
    with stubs.channel:
        stubs.admin.ListTopics(pb.ListTopicsRequest(), timeout=CALL_S)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    with Gateway(tmp_path) as started:
        for number in range(1, WORKERS + 1):
            started.worker_pid(number)
        yield started


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.smoke
def test_each_worker_serves_the_port_and_a_scrape_adds_their_counts_up(gateway: Gateway) -> None:
    """A stopped process accepts nothing, so the other one does."""
    for stopped in range(1, WORKERS + 1):
        os.kill(gateway.worker_pid(stopped), signal.SIGSTOP)
        try:
            for _ in range(3):
                ask(gateway)
        finally:
            os.kill(gateway.worker_pid(stopped), signal.SIGCONT)
    assert gateway.number('popmq_calls_total{code="OK",method="ListTopics"}') == 6
    assert gateway.number('popmq_call_seconds_count{method="ListTopics"}') == 6
    assert gateway.number("popmq_waiters") == 0
    for number in range(1, WORKERS + 1):
        assert gateway.number(f'popmq_worker_up{{worker="{number}"}}') == 1
        assert gateway.number(f'process_resident_memory_bytes{{worker="{number}"}}') > 1 << 20
    assert gateway.get("/healthz") == gateway.get("/readyz") == (200, "ok")
    text = gateway.get("/metrics")[1]
    assert len(re.findall("^popmq_build_info", text, re.MULTILINE)) == 1


def test_a_worker_that_dies_is_started_again_and_no_count_falls(gateway: Gateway, tmp_path: Path) -> None:
    for _ in range(4):
        ask(gateway)
    assert gateway.number('popmq_calls_total{code="OK",method="ListTopics"}') == 4
    (tmp_path / BROKEN).touch()
    os.kill(gateway.worker_pid(1), signal.SIGKILL)
    gateway.wait_log("worker 1 has ended with code -9, and starts again after 0.5 s")
    gateway.wait_log("worker 1 has ended with code 78, and starts again after 1 s")
    ask(gateway)
    good, said = gateway.get("/healthz")
    assert good == 200
    assert re.fullmatch("worker 1 (starts|has ended with code 78, and starts again after [0-9]+ s)", said)
    assert gateway.get("/readyz") == (200, "ok")
    assert gateway.number('popmq_worker_up{worker="1"}') == 0
    assert gateway.number('popmq_calls_total{code="OK",method="ListTopics"}') == 5
    (tmp_path / BROKEN).unlink()
    assert gateway.worker_pid(1, started=2) != gateway.worker_pid(1)
    assert gateway.get("/healthz") == (200, "ok")
    assert gateway.number('popmq_worker_restarts_total{worker="1"}') >= 2
    assert gateway.number('popmq_calls_total{code="OK",method="ListTopics"}') == 5


def test_without_a_worker_it_is_neither_healthy_nor_ready(gateway: Gateway, tmp_path: Path) -> None:
    (tmp_path / BROKEN).touch()
    for number in range(1, WORKERS + 1):
        os.kill(gateway.worker_pid(number), signal.SIGKILL)
    for number in range(1, WORKERS + 1):
        gateway.wait_log(f"worker {number} has ended with code 78")
    for path in ("/healthz", "/readyz"):
        code, said = gateway.get(path)
        assert code == 503
        assert re.fullmatch("worker 1 (starts|has ended .*); worker 2 (starts|has ended .*)", said)


def test_a_worker_that_hangs_is_named_by_healthz(gateway: Gateway) -> None:
    os.kill(gateway.worker_pid(2), signal.SIGSTOP)
    try:
        assert gateway.get("/healthz") == (503, "worker 2: has not answered for 6 s")
        assert gateway.get("/readyz") == (200, "ok")
    finally:
        os.kill(gateway.worker_pid(2), signal.SIGCONT)


def test_sigterm_drains_and_ends_all_workers(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path).start()
    pids = [gateway.worker_pid(number) for number in range(1, WORKERS + 1)]
    stubs = [Stubs(gateway.endpoint) for _ in range(4)]
    for each in stubs:
        each.admin.ListTopics(pb.ListTopicsRequest(), timeout=CALL_S)
    assert gateway.stop() == 0
    assert not any(map(is_alive, pids))
    with pytest.raises(grpc.RpcError):
        ask(gateway)


def test_workers_end_when_the_process_that_supervises_them_is_killed(tmp_path: Path) -> None:
    gateway = Gateway(tmp_path).start()
    opened = [os.pidfd_open(gateway.worker_pid(number)) for number in range(1, WORKERS + 1)]
    gateway.kill()
    for number in range(1, WORKERS + 1):
        gateway.wait_log(f"[worker {number}]: the process that supervises this worker has ended")
    for ended in opened:
        assert select.select([ended], [], [], CALL_S)[0], "a worker goes on without its supervisor"
        os.close(ended)


def test_sighup_reaches_all_workers(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    write_keys(keys, {"root": ["*"]})
    with Gateway(tmp_path, "--access-keys", str(keys)) as gateway:
        for number in range(1, WORKERS + 1):
            gateway.worker_pid(number)
        write_keys(keys, {"root": ["*"], "clerk": ["admin"]})
        os.kill(gateway.pid, signal.SIGHUP)
        gateway.wait_log("reload: the 2 workers read their files again")
        for number in range(1, WORKERS + 1):
            line = gateway.wait_log(f"popmq.reload [worker {number}]: reload: ")
            assert f"the access keys of {keys} were replaced: added clerk" in line


def test_a_start_that_fails_says_why_once(tmp_path: Path) -> None:
    (tmp_path / BROKEN).touch()
    gateway = Gateway(tmp_path)
    with pytest.raises(BrokerError):
        gateway.start()
    assert gateway.exit_code == EXIT_CONFIG
    assert gateway.log.read_text().count("popmq: this cluster is broken: name another") == 1


def test_a_port_that_is_taken_ends_the_start(tmp_path: Path, gateway: Gateway) -> None:
    other = Gateway(tmp_path)
    other.port = gateway.port
    with pytest.raises(BrokerError):
        other.start()
    assert other.exit_code == EXIT_CONFIG
    assert f"port {other.port} on 127.0.0.1 cannot be opened: it is in use" in other.log.read_text()
