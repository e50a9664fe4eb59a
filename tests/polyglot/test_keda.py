"""Code of KEDA and Kubernetes in Go: the stub of KEDA's external scaler calls a broker, the parsers of its metrics-api
scaler read the metrics, and the types of both read the manifests.
"""

import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from harness.broker_process import ROOT, BrokerProcess, own_port
from popmq_proto.v1 import popmq_pb2 as pb
from tests.interop.builds import build_once, digest
from tests.polyglot.conftest import BUILDS_ALL, tool
from tests.release.chart import CHART, GOOD, HELM
from tests.wire.stubs import Stubs

pytestmark = [pytest.mark.polyglot, pytest.mark.timeout(1800)]  # the first run fetches and compiles

FOLDER = Path(__file__).parent / "keda"
BUILT = ROOT / "build" / "keda"
MANIFEST = ROOT / "deploy" / "kubernetes" / "keda-metrics.yaml"

Probe = Callable[..., "subprocess.Popen[str]"]


def built(name: str, package: str) -> Path:
    """A program of the folder; built by `make polyglot` only, since Kubernetes and KEDA take minutes."""
    go, program = tool("go"), BUILT / name / "program"
    sources = sorted(path for path in FOLDER.rglob("*") if path.is_file())
    made_from = program.parent / "made-from"
    if not BUILDS_ALL and not (made_from.exists() and made_from.read_text() == digest(*sources)):
        pytest.skip(f"{name} is not built: make polyglot")
    program.parent.mkdir(parents=True, exist_ok=True)
    build_once(program.parent, sources, [go, "build", "-o", str(program), package], FOLDER)
    return program


@pytest.fixture(scope="module")
def probe() -> Probe:
    program = built("probe", ".")

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


# ── Manifests ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def strict() -> Path:
    return built("strict", "./strict")


def read(strict: Path, text: str) -> tuple[list[str], str]:
    """The kinds of the objects that Kubernetes and KEDA read in a text, and what they complain of."""
    done = subprocess.run([strict], input=text, capture_output=True, text=True, timeout=60, check=False)
    assert bool(done.returncode) == bool(done.stderr)
    return done.stdout.split(), done.stderr


@pytest.mark.parametrize("path", sorted(MANIFEST.parent.glob("*.yaml")), ids=lambda path: path.name)
def test_kubernetes_and_keda_know_each_field_of_a_manifest(strict: Path, path: Path) -> None:
    text = path.read_text()
    assert read(strict, text) == ([each["kind"] for each in yaml.safe_load_all(text) if each], "")
    assert 'unknown field "spec.more"' in read(strict, text.replace("\nspec:\n", "\nspec:\n  more: 1\n"))[1]


@pytest.mark.skipif(not HELM, reason="no Helm here: make helm-test builds one")
@pytest.mark.parametrize("name", sorted(GOOD))
def test_kubernetes_knows_each_field_that_the_chart_makes(strict: Path, name: str, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(GOOD[name]))
    command = [HELM, "template", "shop", str(CHART), "--values", str(tmp_path / "values.yaml")]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    text = "\n---\n".join(part for part in text.split("\n---\n") if "kind: PodMonitor" not in part)
    found, complaints = read(strict, text)
    assert complaints == ""
    assert {"ConfigMap", "Service", "PodDisruptionBudget"} <= {*found}
