"""deploy/: units and manifests name settings, paths, ports and exit codes that the broker has."""

import re
import shlex
import shutil
import socket
import subprocess
from pathlib import Path

import pytest

from harness.broker_process import BrokerProcess
from popmq_server.options import HTTP_PORT, METRICS_PORT, PORT, TLS_PORT
from popmq_server.process.running import EXIT_CONFIG
from popmq_server.process.supervision import Supervisor
from popmq_server.settings import BY_VARIABLE, load

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "systemd" / "popmq.service"
MANIFEST = DEPLOY / "kubernetes" / "popmq.yaml"
COMPOSE = DEPLOY / "compose" / "compose.yaml"
DOCKERFILE = ROOT / "Dockerfile"
PODS = [*(DEPLOY / "kubernetes").glob("popmq*.yaml"), DEPLOY / "helm" / "popmq" / "templates" / "_helpers.tpl"]


def unit(name: str) -> str:
    (found,) = re.findall(rf"^{name}=(.*)$", UNIT.read_text(), re.MULTILINE)
    return str(found)


@pytest.mark.parametrize("path", [COMPOSE, MANIFEST, DOCKERFILE], ids=lambda path: path.name)
def test_every_variable_is_a_setting(path: Path) -> None:
    assert set(re.findall(r"\bPOPMQ_[A-Z_]+", path.read_text())) <= BY_VARIABLE.keys()


def test_the_unit_starts_a_command_that_is_understood(tmp_path: Path) -> None:
    program, command, *flags = shlex.split(unit("ExecStart"))
    assert (Path(program).name, command) == ("popmq", "serve")
    flags[flags.index("/etc/popmq/popmq.toml")] = str(tmp_path / "popmq.toml")
    (tmp_path / "popmq.toml").touch()
    assert str(load(flags, {}).options.data) == "/var/lib/popmq"
    assert unit("ExecReload") == "/bin/kill -HUP $MAINPID"


def test_the_unit_does_not_restart_what_only_a_person_can_mend() -> None:
    assert unit("RestartPreventExitStatus").split() == ["2", str(EXIT_CONFIG)]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/popmq/bin/popmq", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_file_of_the_manifest_is_understood(tmp_path: Path) -> None:
    found = re.search(r"popmq\.toml: \|\n((?:    .*\n)+)", MANIFEST.read_text())
    assert found
    (tmp_path / "popmq.toml").write_text(re.sub(r"^    ", "", found[1], flags=re.MULTILINE))
    options = load(["--config", str(tmp_path / "popmq.toml")], {}).options
    assert (str(options.data), options.host, options.metrics_host) == ("/data", ("0.0.0.0",), ("0.0.0.0",))
    claimed = re.search(r"storage: (\d+)Gi", MANIFEST.read_text())
    assert claimed
    assert options.max_size < int(claimed[1]) << 30, "the store is full before its volume is"


def test_the_settings_for_keys_and_tls_name_what_the_pod_mounts(tmp_path: Path) -> None:
    text = MANIFEST.read_text()
    settings = re.findall(r"^    # (\w+ = .*)$", text, re.MULTILINE)
    (tmp_path / "popmq.toml").write_text("\n".join(settings))
    options = load(["--config", str(tmp_path / "popmq.toml")], {}).options
    assert (options.tls_only, options.access_keys is not None) == (True, True)
    mounts = dict(re.findall(r"name: ([\w-]+), mountPath: ([^,}]+)", text))
    secrets = dict(
        re.findall(r"name: ([\w-]+), secret: {secretName: ([\w-]+), optional: true, defaultMode: 0400}", text)
    )
    created = dict(re.findall(r"kubectl create secret (?:generic|tls) ([\w-]+) (.*)", text))
    files = {"keys.toml": "access-keys", "tls.crt": "tls", "tls.key": "tls"}
    for path in (options.access_keys, options.tls_cert, options.tls_key):
        assert path
        volume = files[path.name]
        assert str(path.parent) == mounts[volume]
        assert secrets[volume] in created
    assert "--from-file=keys.toml" in created["popmq-access-keys"]


def test_the_network_policy_opens_clients_ports_to_the_namespace_and_the_metrics_to_a_label() -> None:
    (policy,) = (part for part in MANIFEST.read_text().split("\n---\n") if "kind: NetworkPolicy" in part)
    assert "app.kubernetes.io/name: popmq" in policy.partition("podSelector:")[2].partition("ingress:")[0]
    inside, outside = (
        ([int(port) for port in re.findall(r"port: (\d+)", rule)], rule) for rule in policy.split("    - from:")[1:]
    )
    assert inside[0] == [PORT, TLS_PORT, HTTP_PORT, METRICS_PORT]
    assert "podSelector: {}" in inside[1]
    assert outside[0] == [METRICS_PORT]
    assert 'namespaceSelector:\n            matchLabels: {popmq-metrics: "true"}' in outside[1]
    assert "popmq-metrics=true" in (ROOT / "docs" / "deployment.md").read_text()


def test_commands_that_publish_a_port_publish_it_on_the_loopback() -> None:
    for path in (DOCKERFILE, COMPOSE):
        published = re.findall(r"(?:-p |- \")(\S*\d+:\d+)", path.read_text())
        assert published
        assert [one for one in published if not one.startswith("127.0.0.1:")] == []


def test_the_manifest_probes_the_paths_and_ports_that_are_served() -> None:
    text = MANIFEST.read_text()
    ports = {name: int(port) for name, port in re.findall(r"name: ([\w-]+), containerPort: (\d+)", text)}
    assert ports == {"grpc": PORT, "grpc-tls": TLS_PORT, "http": HTTP_PORT, "metrics": METRICS_PORT}
    probes = dict(re.findall(r"(\w+)Probe:\n\s+httpGet: \{path: (/\w+), port: metrics\}", text))
    assert probes == {"liveness": "/healthz", "readiness": "/readyz"}
    assert f'prometheus.io/port: "{METRICS_PORT}"' in text


@pytest.mark.parametrize("pod", PODS, ids=lambda path: path.name)
def test_the_file_of_a_pod_decides_what_its_image_names_too(pod: Path) -> None:
    """A variable takes precedence over the file: with that of the image the host `::` of the chart had no effect."""
    named = set(re.findall(r"\b(POPMQ_\w+)=", DOCKERFILE.read_text()))
    assert "POPMQ_HOST" in named
    assert named <= set(re.findall(r"- \{name: (\w+), value: \"\"\}", pod.read_text()))


def test_one_broker_has_one_store() -> None:
    text = MANIFEST.read_text()
    assert re.findall(r"replicas: (\d+)", text) == ["1"]
    assert "kind: PodDisruptionBudget" in text


def test_the_image_runs_as_a_user_and_starts_no_python_for_its_health() -> None:
    text = DOCKERFILE.read_text()
    (user,) = re.findall(r"^USER (\d+):\d+$", text, re.MULTILINE)
    assert int(user) > 0
    assert f"runAsUser: {user}" in MANIFEST.read_text()
    (probe,) = re.findall(r"^HEALTHCHECK .* CMD (.*)$", text, re.MULTILINE)
    assert "/readyz" in probe
    assert "python" not in probe
    assert f"POPMQ_METRICS_PORT:-{METRICS_PORT}" in probe


# ── sd_notify ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def systemd(tmp_path: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listening.bind(str(tmp_path / "notify"))
    listening.settimeout(10)
    return listening


def heard(systemd: socket.socket) -> str:
    return systemd.recv(4096).decode()


def test_states_are_datagrams_and_nothing_without_a_supervisor(systemd: socket.socket, tmp_path: Path) -> None:
    Supervisor({}).say("READY=1")
    Supervisor({"NOTIFY_SOCKET": str(tmp_path / "gone")}).say("READY=1")
    Supervisor({"NOTIFY_SOCKET": str(tmp_path / "notify")}).say("READY=1", "STATUS=x")
    assert heard(systemd) == "READY=1\nSTATUS=x"
    systemd.close()


@pytest.mark.skipif(not Path("/proc").exists(), reason="abstract sockets exist on Linux only")
def test_an_abstract_socket_is_understood() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("")  # the system chooses an abstract name
        listening.settimeout(10)
        Supervisor({"NOTIFY_SOCKET": f"@{listening.getsockname()[1:].decode()}"}).say("READY=1")
        assert heard(listening) == "READY=1"


def test_the_watchdog_is_fed_twice_in_its_time_and_only_if_it_watches_this_process(tmp_path: Path) -> None:
    watched = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "120000000"}
    assert Supervisor(watched).every_s == 60
    assert Supervisor(watched | {"WATCHDOG_PID": "1"}).every_s == 0
    assert Supervisor({"WATCHDOG_USEC": "120000000"}).every_s == 0


async def test_only_a_broker_that_answers_feeds_the_watchdog(systemd: socket.socket, tmp_path: Path) -> None:
    supervisor = Supervisor({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "2"})
    answers = [False, True, False]

    async def alive() -> bool:
        if not answers:
            supervisor.every_s = 0  # ends the watch
            return False
        return answers.pop(0)

    await supervisor.watch(alive)
    assert heard(systemd) == "WATCHDOG=1"
    systemd.setblocking(False)
    with pytest.raises(BlockingIOError):
        systemd.recv(1)
    systemd.close()


@pytest.mark.slow
@pytest.mark.process
def test_the_broker_reports_ready_its_life_and_its_stop(systemd: socket.socket, tmp_path: Path) -> None:
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "120000000"}
    with BrokerProcess(tmp_path / "data", environment=environment) as broker:
        assert [heard(systemd), heard(systemd)] == ["READY=1", "WATCHDOG=1"]
        assert broker.stop() == 0
        assert heard(systemd) == "STOPPING=1"
    systemd.close()
