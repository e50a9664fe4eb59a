"""deploy/: the files of gateways name settings, paths and ports that a gateway has; two of them behind a balancer."""

import asyncio
import re
import shlex
import shutil
import subprocess
import urllib.request
from pathlib import Path

import grpc
import pytest

from harness.broker_process import own_port
from harness.gateway_process import GatewayProcess
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import SystemClock
from popmq_server.cluster.access import credentials
from popmq_server.cluster.promises import WEAKER
from popmq_server.options import HTTP_PORT, METRICS_PORT, PORT, TLS_PORT, Options
from popmq_server.process.running import EXIT_CONFIG
from popmq_server.settings import BY_VARIABLE, load
from tests.cluster.gateway import GROUP, TOPIC, created
from tests.remoting.fake.broker import FakeBroker
from tests.remoting.fake.cluster import FakeCluster
from tests.wire.stubs import CALL_S, Stubs, codes, handles

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT = DEPLOY / "systemd" / "popmq-gateway.service"
BROKER_UNIT = DEPLOY / "systemd" / "popmq.service"
MANIFEST = DEPLOY / "kubernetes" / "popmq-gateway.yaml"
COMPOSE = DEPLOY / "compose" / "gateways.yaml"
BALANCER = DEPLOY / "compose" / "haproxy.cfg"


def unit(path: Path) -> dict[str, str]:
    return dict(re.findall(r"^(\w+)=(.*)$", path.read_text(), re.MULTILINE))


def test_the_unit_starts_a_gateway_with_the_rights_of_the_brokers_unit(tmp_path: Path) -> None:
    ours, broker = unit(UNIT), unit(BROKER_UNIT)
    assert shlex.split(ours["ExecStart"])[1:] == ["serve", "--config", "/etc/popmq/gateway.toml"]
    other = {"Description", "ExecStart", "TimeoutStartSec"}
    assert {name: value for name, value in ours.items() if name not in other} == {
        name: value for name, value in broker.items() if name not in other and not name.startswith("StateDirectory")
    }
    assert str(EXIT_CONFIG) in ours["RestartPreventExitStatus"]


def test_the_page_has_the_weaker_promises_of_the_engine_and_a_file_that_is_understood(tmp_path: Path) -> None:
    page = (DEPLOY.parent / "docs" / "cluster.md").read_text()
    table = page.partition("| promise | on a cluster |")[2].partition("\n\n")[0]
    assert dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE)) == WEAKER
    (key, gateway) = re.findall(r"^```toml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "gateway.toml").write_text(gateway)
    assert load(["--config", str(tmp_path / "gateway.toml")], {}).options.workers == 4
    (tmp_path / "key.toml").write_text(key)
    (tmp_path / "key.toml").chmod(0o600)
    assert credentials(tmp_path / "key.toml").access_key == "gateway"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/popmq/bin/popmq", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def manifest_options(tmp_path: Path, *, complete: bool) -> Options:
    """The settings of the manifest; `complete`: with those that an operator may add."""
    found = re.search(r"popmq\.toml: \|\n((?:    .*\n)+)", MANIFEST.read_text())
    assert found
    text = re.sub(r"^    ", "", found[1], flags=re.MULTILINE)
    (tmp_path / "popmq.toml").write_text(re.sub(r"^# ", "", text, flags=re.MULTILINE) if complete else text)
    return load(["--config", str(tmp_path / "popmq.toml")], {"POPMQ_DATA": ""}).options


def test_the_settings_of_the_manifest_are_understood_and_name_what_the_pod_mounts(tmp_path: Path) -> None:
    options = manifest_options(tmp_path, complete=False)
    assert (options.engine, options.host, options.workers) == ("rocketmq", ("0.0.0.0",), 2)
    assert '- {name: POPMQ_DATA, value: ""}' in MANIFEST.read_text(), "the image names a data folder"
    options = manifest_options(tmp_path, complete=True)
    text = MANIFEST.read_text()
    mounts = {path: name for name, path in re.findall(r"name: ([\w-]+), mountPath: ([^,}]+)", text)}
    secrets = dict(re.findall(r"name: ([\w-]+), secret: {secretName: ([\w-]+),[^}]*defaultMode: 0400}", text))
    created = dict(re.findall(r"kubectl create secret (?:generic|tls) ([\w-]+) (.*)", text))
    files = (options.handle_secret, options.access_keys, options.broker_key, options.tls_cert, options.tls_key)
    for path in files:
        assert path
        command = created[secrets[mounts[str(path.parent)]]]
        assert path.name in ("tls.crt", "tls.key") or f"--from-file={path.name}" in command


def test_the_manifest_probes_the_paths_and_ports_that_are_served() -> None:
    text = MANIFEST.read_text()
    ports = {name: int(port) for name, port in re.findall(r"name: ([\w-]+), containerPort: (\d+)", text)}
    assert ports == {"grpc": PORT, "grpc-tls": TLS_PORT, "http": HTTP_PORT, "metrics": METRICS_PORT}
    probes = dict(re.findall(r"(\w+)Probe:\n\s+httpGet: \{path: (/\w+), port: metrics\}", text))
    assert probes == {"liveness": "/healthz", "readiness": "/readyz"}
    assert "kind: PodDisruptionBudget" in text
    assert int(re.findall(r"replicas: (\d+)", text)[0]) > int(re.findall(r"minAvailable: (\d+)", text)[0])


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="no kubectl here")
def test_kubectl_reads_the_manifest(tmp_path: Path) -> None:
    shutil.copy(MANIFEST, tmp_path)
    (tmp_path / "kustomization.yaml").write_text(f"resources: [{MANIFEST.name}]\n")
    done = subprocess.run(["kubectl", "kustomize", tmp_path], capture_output=True, text=True, timeout=60)
    kinds = re.findall(r"^kind: (\w+)$", done.stdout, re.MULTILINE)
    assert sorted(kinds) == ["ConfigMap", "Deployment", "NetworkPolicy", "PodDisruptionBudget", "Service"], done.stderr


def test_compose_starts_gateways_with_settings_that_exist_on_the_loopback() -> None:
    text = COMPOSE.read_text()
    assert set(re.findall(r"\bPOPMQ_[A-Z_]+", text)) <= BY_VARIABLE.keys()
    pairs = re.findall(r'^    (POPMQ_\w+): "?([^"\n]*)"?$', text, re.MULTILINE)
    environ = {name: "a:9876" if value.startswith("${") else value for name, value in pairs}
    options = load([], environ).options
    assert (options.engine, options.namesrv, options.workers) == ("rocketmq", ("a:9876",), 2)
    published = re.findall(r"- \"(\S*\d+:\d+)", text)
    assert published
    assert all(one.startswith("127.0.0.1:") for one in published)
    servers = dict(re.findall(r"^    server (\S+) (\S+)$", BALANCER.read_text(), re.MULTILINE))
    assert servers == {
        name: f"{name}:{PORT}" for name in re.findall(r"^  (gateway-\d): \*gateway$", text, re.MULTILINE)
    }
    assert f"check port {METRICS_PORT}" in BALANCER.read_text()


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(shutil.which("haproxy") is None, reason="no HAProxy here")
async def test_behind_the_balancer_a_gateway_acks_what_one_that_was_killed_delivered(tmp_path: Path) -> None:
    """With the balancer's file as it is, but for names of machines."""
    secret = tmp_path / "handles"
    secret.write_text("the secret of the gateways")
    secret.chmod(0o600)
    fake = FakeCluster()
    fake.brokers["a"] = FakeBroker("a", now_ms=SystemClock().wall_ms)
    front, metrics = own_port(), [own_port(), own_port()]
    async with fake:
        created(fake)
        (servers,) = fake.settings().name_servers
        gateways = [
            GatewayProcess(
                tmp_path / f"gateway-{number}.log",
                servers,
                *("--metrics-port", f"{port}", "--handle-secret", str(secret)),
            )
            for number, port in enumerate(metrics, 1)
        ]
        text = BALANCER.read_text().replace("bind :8081", f"bind 127.0.0.1:{front}")
        text = text.replace(f"check port {METRICS_PORT}", "check").replace("inter 2s", "inter 200ms")
        for number, (gateway, port) in enumerate(zip(gateways, metrics, strict=True), 1):
            name = f"gateway-{number}"
            text = text.replace(f"server {name} {name}:{PORT}", f"server {name} {gateway.endpoint} port {port}")
        (tmp_path / "haproxy.cfg").write_text(text)
        balancer = None
        try:
            for gateway in gateways:
                await asyncio.to_thread(gateway.start)
            balancer = await asyncio.create_subprocess_exec("haproxy", "-db", "-f", tmp_path / "haproxy.cfg")
            await asyncio.to_thread(survives, f"127.0.0.1:{front}", gateways, metrics)
        finally:
            for gateway in gateways:
                await asyncio.to_thread(gateway.kill)
            if balancer is not None:
                balancer.kill()
                await balancer.wait()


def survives(endpoint: str, gateways: list[GatewayProcess], metrics: list[int]) -> None:
    """Pops, kills the gateway that delivered, and acks over the balancer."""
    stubs = Stubs(endpoint)
    with stubs.channel:
        grpc.channel_ready_future(stubs.channel).result(CALL_S)
        assert stubs.send(b"1", topic=TOPIC)[0].message_id == "1"
        popped = stubs.pop(group=GROUP, topic=TOPIC)
        served = [pops(port) for port in metrics]
        assert sorted(served) == [0, 1], "one connection goes to one gateway"
        gateways[served.index(1)].kill()
        request = pb.AckRequest(group=GROUP, handles=handles(popped))
        answer = stubs.broker.Ack(request, timeout=CALL_S, wait_for_ready=True)
        assert codes(answer.results) in ([], [""])


def pops(port: int) -> int:
    """The Pops that a gateway has answered."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=CALL_S) as answer:
        found = re.search(r'^popmq_calls_total{code="OK",method="Pop"} (\d+)', answer.read().decode(), re.MULTILINE)
    return int(found[1]) if found else 0
