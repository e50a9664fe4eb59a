"""`popmq serve --engine rocketmq` as a process: it starts without its cluster, and goes on without it."""

import asyncio
import os
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from harness.broker_process import own_port
from harness.gateway_process import GatewayProcess
from popmq_server.clock import SystemClock
from popmq_server.process.running import EXIT_CONFIG
from tests.cluster.gateway import GROUP, TOPIC, created
from tests.remoting.fake.broker import FakeBroker
from tests.remoting.fake.cluster import FakeCluster
from tests.wire.access.signing import write_keys
from tests.wire.stubs import CALL_S, Stubs

POLLS = 12

pytestmark = [pytest.mark.slow, pytest.mark.process]


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=CALL_S) as answer:
            return answer.status, answer.read().decode().strip()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode().strip()


@pytest.mark.smoke
@pytest.mark.parametrize("workers", ["1", "2"])
async def test_a_gateway_listens_at_once_and_is_ready_when_its_cluster_is_there(tmp_path: Path, workers: str) -> None:
    fake, metrics = FakeCluster(), own_port()
    fake.name_servers[0].port = own_port()
    address = fake.name_servers[0].address
    secret = tmp_path / "handles"
    secret.write_text("the secret of the gateways")
    secret.chmod(0o600)
    given = ("--metrics-port", f"{metrics}", "--workers", workers, "--handle-secret", str(secret))
    gateway = GatewayProcess(tmp_path / "gateway.log", address, *given)
    gateway.spawn()
    try:
        waits = f"waiting for the name servers {address}: cannot connect to {address}: "
        line = await asyncio.to_thread(gateway.read_line)
        assert line.startswith(f"popmq: listening on {gateway.endpoint}, ")
        assert waits in line
        code, said = await asyncio.to_thread(get, metrics, "/healthz")
        assert (code, said) in ((200, "ok"), (200, "worker 2 starts"))
        code, said = await asyncio.to_thread(get, metrics, "/readyz")
        assert code == 503
        assert f"waiting for the name servers {address}: " in said
        async with fake:
            fake.create("t")
            while "ready on" not in line:
                line = await asyncio.to_thread(gateway.read_line)
            assert line == f"popmq: ready on {gateway.endpoint}"
            assert await asyncio.to_thread(get, metrics, "/readyz") == (200, "ok")
            secret.with_suffix(".new").write_text("another secret of the gateways")
            secret.with_suffix(".new").chmod(0o600)
            secret.with_suffix(".new").rename(secret)
            os.kill(gateway.pid, signal.SIGHUP)
            await asyncio.to_thread(gateway.wait_log, "handles are signed with the first secret of ")
        assert await asyncio.to_thread(gateway.stop) == 0
    finally:
        await asyncio.to_thread(gateway.kill)


async def test_a_gateway_with_access_keys_and_no_secret_does_not_start(tmp_path: Path) -> None:
    write_keys(tmp_path / "keys.toml", {"root": ["*"]})
    gateway = GatewayProcess(tmp_path / "gateway.log", "127.0.0.1:1", "--access-keys", str(tmp_path / "keys.toml"))
    gateway.spawn()
    assert await asyncio.to_thread(gateway.wait_dead) == EXIT_CONFIG
    assert "popmq: --access-keys needs --handle-secret FILE, the same at all gateways: " in gateway.log.read_text()


async def test_sigterm_answers_the_long_polls_of_all_workers(tmp_path: Path) -> None:
    metrics, secret = own_port(), tmp_path / "handles"
    secret.write_text("the secret of the gateways")
    secret.chmod(0o600)
    fake = FakeCluster()
    fake.brokers["a"] = FakeBroker("a", now_ms=SystemClock().wall_ms)
    async with fake:
        created(fake)
        (servers,) = fake.settings().name_servers
        given = ("--workers", "2", "--handle-secret", str(secret), "--metrics-port", f"{metrics}")
        gateway = GatewayProcess(tmp_path / "gateway.log", servers, *given)
        try:
            await asyncio.to_thread(gateway.start)
            await asyncio.to_thread(gateway.wait_log, "worker 2 serves")
            answers = await asyncio.to_thread(stopped_while_they_wait, gateway, metrics)
        finally:
            await asyncio.to_thread(gateway.kill)
    assert answers == [0] * POLLS


def stopped_while_they_wait(gateway: GatewayProcess, metrics: int) -> list[int]:
    """The number of messages in the answer to each long poll, of a connection of its own."""
    stubs = [Stubs(gateway.endpoint) for _ in range(POLLS)]
    calls = [each.pop_later(topic=TOPIC, group=GROUP) for each in stubs]
    while f"popmq_waiters {POLLS}.0" not in get(metrics, "/metrics")[1]:
        assert not any(call.done() for call in calls)
    assert gateway.stop() == 0
    answers = [len(call.result().deliveries) for call in calls]
    for each in stubs:
        each.channel.close()
    return answers
