"""KEDA's own code in Go against a broker: the stub of its external scaler, the parsers of its metrics-api scaler."""

import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from harness.broker_process import ROOT, BrokerProcess, own_port
from popmq_proto.v1 import popmq_pb2 as pb
from tests.interop.builds import build_once
from tests.polyglot.conftest import tool
from tests.wire.stubs import Stubs

pytestmark = [pytest.mark.polyglot, pytest.mark.timeout(1800)]  # the first run fetches and compiles

FOLDER = Path(__file__).parent / "keda"
BUILT = ROOT / "build" / "keda"
MANIFEST = ROOT / "deploy" / "kubernetes" / "keda-metrics.yaml"

Probe = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(scope="module")
def probe() -> Probe:
    go, program = tool("go"), BUILT / "keda-probe"
    BUILT.mkdir(parents=True, exist_ok=True)
    sources = [FOLDER / name for name in ("main.go", "go.mod", "go.sum")]
    build_once(BUILT, sources, [go, "build", "-o", str(program), "."], FOLDER)

    def started(*arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return started


def test_keda_gets_specs_values_and_pushes(probe: Probe, broker: BrokerProcess) -> None:
    with Stubs(broker.endpoint) as stubs:
        stubs.create_topic("orders")
        stubs.create_group("billing")
        with probe("push", broker.endpoint, "topic=orders", "group=billing", "target=2.5") as keda:
            assert keda.stdout
            said = [keda.stdout.readline().strip() for _ in range(4)]
            assert said == [
                "spec popmq-messages 3 2.5",
                "value popmq-messages 0 0",
                "specs Unimplemented",
                "active false",
            ]
            stubs.send(b"a", topic="orders")
            assert keda.stdout.readline().strip() == "active true"
        assert keda.returncode == 0


def test_kedas_parsers_find_the_values_of_the_manifest(probe: Probe, tmp_path: Path) -> None:
    port = own_port()
    with (
        BrokerProcess(tmp_path / "data", "--metrics-port", str(port)) as broker,
        Stubs(broker.endpoint) as stubs,
    ):
        for group in ("audit", "billing"):
            stubs.create_group(group)
        stubs.create_topic("orders", queues=1)
        stubs.send(b"a", b"b", b"c", topic="orders")
        stubs.pop("orders", "audit", max_messages=3)
        first, _ = stubs.pop("orders", "billing", max_messages=2).deliveries
        stubs.change(first.handle, "billing", release=pb.Release(delay_ms=0))
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            page = answer.read().decode()
        (scaled,) = (each for each in yaml.safe_load_all(MANIFEST.read_text()) if each["kind"] == "ScaledObject")
        for each in scaled["spec"]["triggers"]:
            found, failed = probe("metrics", each["metadata"]["valueLocation"]).communicate(page)
            assert (found.strip(), failed) == ("1", ""), each["name"]
        _, failed = probe("metrics", 'popmq_group_ready{group="nobody",topic="orders"}').communicate(page)
        assert "not found" in failed
