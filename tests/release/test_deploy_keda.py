"""deploy/kubernetes/keda-*.yaml: what KEDA would read by them from a real broker."""

import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from harness.broker_process import own_port
from popmq_proto.keda import externalscaler_pb2 as pb
from popmq_proto.keda import externalscaler_pb2_grpc as rpc
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.options import METRICS_PORT, PORT, TLS_PORT
from popmq_server.protocols.keda import trigger
from tests.wire.stubs import CALL_S, Stubs, handles

KUBERNETES = Path(__file__).parents[2] / "deploy" / "kubernetes"
PUSH, METRICS = KUBERNETES / "keda-push.yaml", KUBERNETES / "keda-metrics.yaml"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path / "data", sync="none", metrics_port=own_port()) as broker:
        yield broker


@pytest.fixture
def stubs(broker: EmbeddedBroker) -> Iterator[Stubs]:
    """The broker has what the manifests name."""
    with Stubs(broker.endpoint) as stubs:
        stubs.create_topic("orders", queues=1)
        stubs.create_group("billing")
        yield stubs


def documents(path: Path) -> dict[str, Any]:
    return {each["kind"]: each for each in yaml.safe_load_all(path.read_text())}


def triggers(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = documents(path)["ScaledObject"]["spec"]["triggers"]
    return found


def as_keda_reads(body: str, location: str) -> float:
    """What KEDA's metrics-api scaler takes for `format: prometheus` (getValueFromPrometheusResponse): the first sample
    of the family that has each label of the selector. It compares labels for equality, whatever the operator is.
    """
    selector = re.fullmatch(r"(\w+)\{(.*)\}", location)
    assert selector, location
    wanted = dict(re.findall(r'(\w+)="([^"]*)"', selector[2]))
    for family in text_string_to_metric_families(body):
        for sample in family.samples:
            if sample.name == selector[1] and wanted.items() <= sample.labels.items():
                return sample.value
    raise LookupError(f"value {location} not found")


def scraped(broker: EmbeddedBroker) -> str:
    url = f"http://127.0.0.1:{broker._options.metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=CALL_S) as answer:
        return str(answer.read().decode())


def read(broker: EmbeddedBroker) -> dict[str, float]:
    """The values of the triggers, by their names."""
    body = scraped(broker)
    return {each["name"]: as_keda_reads(body, each["metadata"]["valueLocation"]) for each in triggers(METRICS)}


def test_the_metrics_manifest_reads_the_work_of_one_group(broker: EmbeddedBroker, stubs: Stubs) -> None:
    stubs.create_group("audit")
    stubs.create_topic("returns", queues=1)
    for topic in ("orders", "returns"):
        stubs.send(b"a", b"b", b"c", b"d", topic=topic)
    for group in ("audit", "billing"):
        stubs.pop("returns", group, max_messages=1)
    first, second = handles(stubs.pop("orders", "billing", max_messages=2))
    assert read(broker) == {"ready": 2, "retry": 0, "leased": 2}
    stubs.change(first, "billing", release={"delay_ms": 0})
    stubs.ack(second, group="billing")
    assert read(broker) == {"ready": 2, "retry": 1, "leased": 0}


def test_until_the_group_has_read_the_topic_keda_finds_no_value(broker: EmbeddedBroker, stubs: Stubs) -> None:
    """The page says so, and what to do."""
    stubs.send(b"a", topic="orders")
    with pytest.raises(LookupError, match="popmq_group_ready"):
        read(broker)
    page = (KUBERNETES.parents[1] / "docs" / "integrations" / "kubernetes.md").read_text()
    assert "popmq group update billing --filter" in page


def test_the_formula_of_the_metrics_manifest_adds_its_triggers() -> None:
    scaled = documents(METRICS)["ScaledObject"]["spec"]
    assert scaled["advanced"]["scalingModifiers"]["formula"].split(" + ") == [
        each["name"] for each in triggers(METRICS)
    ]
    service = documents(METRICS)["Service"]
    assert service["spec"]["selector"] == {"app.kubernetes.io/name": "popmq"}
    for each in triggers(METRICS):
        assert (each["type"], each["metadata"]["format"]) == ("metrics-api", "prometheus")
        assert float(each["metadata"]["targetValue"]) > 0, "KEDA refuses a trigger without it"
        name = service["metadata"]["name"]
        assert each["metadata"]["url"] == f"http://{name}.default.svc.cluster.local:{METRICS_PORT}/metrics"


def test_the_push_manifest_is_a_trigger_that_the_broker_serves(broker: EmbeddedBroker, stubs: Stubs) -> None:
    (pushed,) = triggers(PUSH)
    assert pushed["type"] == "external-push"
    metadata = pushed["metadata"]
    assert metadata["scalerAddress"].endswith(f":{PORT}")
    with grpc.insecure_channel(broker.endpoint) as channel:
        stub: Any = rpc.ExternalScalerStub(channel)
        asked = pb.ScaledObjectRef(name="billing-worker", namespace="default", scalerMetadata=metadata)
        (spec,) = stub.GetMetricSpec(asked, timeout=CALL_S).metricSpecs
        assert spec.targetSize == int(metadata["target"])
        stream = stub.StreamIsActive(asked, timeout=CALL_S)
        assert next(stream).result is False
        stubs.send(b"a", topic="orders")
        assert next(stream).result is True
        stream.cancel()


def test_with_its_comments_removed_the_push_manifest_calls_with_a_key_over_tls() -> None:
    text = PUSH.read_text().partition("apiVersion")[2]
    text = "apiVersion" + re.sub(r"^( *)# (?=\w+:|- |  |---$)", r"\1", text, flags=re.MULTILINE)
    scaled, authority = yaml.load_all(text, Loader=yaml.SafeLoader)
    (pushed,) = scaled["spec"]["triggers"]
    metadata = pushed["metadata"]
    assert metadata["scalerAddress"].endswith(f":{TLS_PORT}"), "the later of two equal keys"
    assert {"enableTLS", "accessKey", "secretFromEnv"} <= metadata.keys()
    assert trigger.read(metadata).topics == ("orders",)
    assert pushed["authenticationRef"]["name"] == authority["metadata"]["name"]
    (parameter,) = authority["spec"]["secretTargetRef"]
    assert parameter["parameter"] == "caCert"
