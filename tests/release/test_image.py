"""The container image, built and run by a real engine: `make image-test`."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import popmq
from harness.container_engine import Engine, Unavailable, engine

pytestmark = [pytest.mark.image, pytest.mark.timeout(2400)]

ROOT = Path(__file__).parents[2]
#: As deploy/compose runs it.
HARDENED = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges:true")
PORTS = ("-p", "127.0.0.1::8081", "-p", "127.0.0.1::8082")


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """An engine with the image popmq:latest, built of this clone."""
    folder = tmp_path_factory.mktemp("engine")
    try:
        with engine(folder) as found:
            for image in re.findall(r"^FROM (\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE):
                found.need(image, folder)
            subprocess.run(["make", "image"], cwd=ROOT, env=found.environment, check=True)
            yield found
    except Unavailable as why:
        pytest.skip(str(why))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def volume(docker: Engine) -> Iterator[str]:
    name = docker.run("volume", "create").strip()
    yield name
    docker.run("volume", "rm", "--force", name, check=False)


@pytest.fixture
def start(docker: Engine, volume: str) -> Iterator[object]:
    """Starts a container on the volume; returns its id once its health check has passed."""
    started: list[str] = []

    def start(*flags: str) -> str:
        since = docker.run("info", "--format", "{{.SystemTime}}").strip()
        name = docker.run("run", "-d", "-v", f"{volume}:/data", *HARDENED, *PORTS, *flags, "popmq:latest").strip()
        started.append(name)
        command = ["docker", "events", "--since", since, "--filter", f"container={name}", "--format", "{{.Status}}"]
        with subprocess.Popen(command, env=docker.environment, stdout=subprocess.PIPE, text=True) as events:
            assert events.stdout is not None
            told = next(line for line in events.stdout if line.startswith(("health_status", "die")))
            events.kill()
        assert told.strip() == "health_status: healthy", docker.run("logs", name)
        return name

    yield start
    for name in started:
        docker.run("rm", "--force", name, check=False)


def client_of(docker: Engine, container: str) -> popmq.Client:
    return popmq.Client(docker.run("port", container, "8081").split()[0])


def test_a_container_serves_as_a_user_and_its_messages_are_in_the_volume(docker: Engine, start: object) -> None:
    assert callable(start)
    first = start()
    with client_of(docker, first) as client:
        client.topics.create("orders")
        client.groups.create("billing")
        client.send("orders", "one")
    assert docker.run("exec", first, "id", "-u").strip() == "10001"
    docker.run("stop", first)
    assert docker.run("inspect", "--format", "{{.State.ExitCode}}", first).strip() == "0"
    second = start()
    with client_of(docker, second) as client:
        assert [each.text() for each in client.pop("orders", "billing", wait=20)] == ["one"]


def test_a_container_serves_tls_and_logs_one_object_in_each_line(docker: Engine, start: object) -> None:
    """Both streams are one log there. The Python of the image is newer than that of most tests."""
    assert callable(start)
    name = start("-e", "POPMQ_LOG_FORMAT=json")
    lines = [json.loads(line)["message"] for line in docker.run("logs", name).splitlines()]
    assert any(line.startswith("TLS on 0.0.0.0:8082") for line in lines), lines
    docker.run("kill", "--signal", "HUP", name)
    docker.run("stop", name)
    lines = [json.loads(line)["message"] for line in docker.run("logs", name).splitlines()]
    assert "reload: nothing changed" in lines
