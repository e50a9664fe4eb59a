"""deploy/helm, rendered by Helm: what it makes of values is what the broker and Kubernetes expect."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from popmq_server.options import Options
from popmq_server.settings import load
from tests.release.chart import CHART, GATEWAY, GOOD, HELM, SECURED, SECURED_GATEWAY, WRONG, merged

ROOT = Path(__file__).parents[2]
pytestmark = [
    pytest.mark.helm,
    pytest.mark.skipif(not HELM, reason="no Helm here: make helm-test builds one"),
]
KUBERNETES = ROOT / "deploy" / "kubernetes"


def helm(*flags: str, folder: Path, changes: dict[str, Any], chart: Path = CHART) -> subprocess.CompletedProcess[str]:
    (folder / "values.yaml").write_text(yaml.safe_dump(changes))
    command = [HELM, *flags, str(chart), "--values", str(folder / "values.yaml")]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def rendered(folder: Path, changes: dict[str, Any], release: str = "shop") -> dict[str, dict[str, Any]]:
    """The objects by kind; the second service as MetricsService, the pod of `helm test` as Pod."""
    done = helm("template", release, folder=folder, changes=changes)
    assert done.returncode == 0, done.stderr
    objects: dict[str, dict[str, Any]] = {}
    for each in yaml.safe_load_all(done.stdout):
        kind = "MetricsService" if each["metadata"]["name"].endswith("-metrics") else each["kind"]
        assert kind not in objects
        objects[kind] = each
    return objects


def pod_of(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = (objects.get("StatefulSet") or objects["Deployment"])["spec"]["template"]
    return found


def options_of(folder: Path, objects: dict[str, dict[str, Any]]) -> Options:
    (folder / "popmq.toml").write_text(objects["ConfigMap"]["data"]["popmq.toml"])
    return load(["--config", str(folder / "popmq.toml")], {}).options


@pytest.fixture(params=sorted(GOOD))
def good(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(GOOD[request.param])


def test_helm_finds_nothing_to_complain_about(good: dict[str, Any], tmp_path: Path) -> None:
    done = helm("lint", "--strict", folder=tmp_path, changes=good)
    assert (done.returncode, "0 chart(s) failed" in done.stdout) == (0, True), done.stdout


def test_the_broker_understands_its_settings_and_each_file_of_them_is_mounted(
    good: dict[str, Any], tmp_path: Path
) -> None:
    objects = rendered(tmp_path, good)
    options = options_of(tmp_path, objects)
    spec = pod_of(objects)["spec"]
    (container,) = spec["containers"]
    mounts = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    secrets = {each["name"]: each["secret"] for each in spec["volumes"] if "secret" in each}
    paths = {name: value for name, value in options._asdict().items() if isinstance(value, Path) and name != "data"}
    for path in paths.values():
        assert mounts[str(path.parent)] in secrets
    assert {mounts[str(path.parent)] for path in paths.values()} == secrets.keys(), "none is mounted for nothing"
    assert all(each["defaultMode"] == 0o400 for each in secrets.values())
    assert options.host == options.metrics_host
    assert (
        good.get("settings", {}).items()
        <= {
            name: [*value] if isinstance(value, tuple) else value
            for name, value in (options._asdict() | {"max_size": good.get("settings", {}).get("max_size")}).items()
        }.items()
    )


def test_secrets_are_those_that_the_values_name(tmp_path: Path) -> None:
    objects = rendered(tmp_path, SECURED_GATEWAY)
    volumes = pod_of(objects)["spec"]["volumes"]
    named = {each["name"]: each["secret"]["secretName"] for each in volumes if "secret" in each}
    assert named == {
        "access-keys": "keys",
        "tls": "pair",
        "client-ca": "clients",
        "handles": "handles",
        "broker-key": "user",
        "broker-tls": "brokers",
    }
    options = options_of(tmp_path, objects)
    assert (options.tls_only, options.tls_client_required, options.workers) == (True, True, 4)
    assert (options.namesrv, options.broker_tls) == (("one:9876", "two:9876"), "verify")


@pytest.mark.parametrize(
    ("size", "max_size", "store"),
    [
        ("20Gi", None, 18432 << 20),
        ("512Mi", None, 460 << 20),
        ("2Ti", None, 1887436 << 20),
        ("20Gi", "19GiB", 19 << 30),
    ],
)
def test_the_store_is_full_before_its_volume_is(size: str, max_size: str | None, store: int, tmp_path: Path) -> None:
    settings = {"max_size": max_size} if max_size else {}
    objects = rendered(tmp_path, {"persistence": {"size": size}, "settings": settings})
    assert options_of(tmp_path, objects).max_size == store
    (claim,) = objects["StatefulSet"]["spec"]["volumeClaimTemplates"]
    assert claim["spec"]["resources"] == {"requests": {"storage": size}}


@pytest.mark.parametrize(("changes", "why"), WRONG, ids=lambda given: str(given)[:60])
def test_helm_refuses_what_the_schema_does(changes: dict[str, Any], why: str, tmp_path: Path) -> None:
    done = helm("template", "x", folder=tmp_path, changes=changes)
    assert (done.returncode, done.stdout) == (1, "")
    assert "values don't meet the specifications" in done.stderr


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"settings": {"max_size": "20GiB"}}, "has to be less than persistence.size 20Gi"),
        ({"engine": "rocketmq"}, "gateway.namesrv is empty"),
        ({"engine": "rocketmq", "gateway": {"namesrv": ["a:1"]}}, "gateway.handleSecretName is empty"),
        (
            {"engine": "rocketmq", "gateway": {"namesrv": ["a:1"], "replicas": 1}, "settings": {"workers": 2}},
            "gateway.handleSecretName is empty",
        ),
        (
            {"engine": "rocketmq", "gateway": {"namesrv": ["a:1"], "replicas": 1}, "accessKeys": {"secretName": "k"}},
            "gateway.handleSecretName is empty",
        ),
    ],
)
def test_what_no_schema_can_compare_is_refused_with_what_to_do(
    changes: dict[str, Any], why: str, tmp_path: Path
) -> None:
    done = helm("template", "x", folder=tmp_path, changes=changes)
    assert (done.returncode, why in done.stderr) == (1, True), done.stderr


def plain(value: Any) -> Any:
    """A part of a manifest without what each installation names for itself."""
    if isinstance(value, dict):
        own = {"matchLabels", "image", "configMap", "secretName"}
        return {key: plain(each) for key, each in value.items() if key not in own}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value


def without_optional(spec: dict[str, Any]) -> dict[str, Any]:
    """A pod without the Secrets that a manifest mounts if they are there."""
    optional = {each["name"] for each in spec["volumes"] if each.get("secret", {}).get("optional")}
    spec["volumes"] = [each for each in spec["volumes"] if each["name"] not in optional]
    for each in spec["containers"]:
        each["volumeMounts"] = [mount for mount in each["volumeMounts"] if mount["name"] not in optional]
    return spec


def of_manifest(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for each in yaml.safe_load_all((KUBERNETES / name).read_text()):
        yield each["kind"], each


@pytest.mark.parametrize(("name", "changes"), [("popmq.yaml", {}), ("popmq-gateway.yaml", GATEWAY)])
def test_the_chart_makes_the_pod_of_the_manifest(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    """Two ways to install the same."""
    made, manifest = rendered(tmp_path, changes), dict(of_manifest(name))
    kind = "StatefulSet" if not changes else "Deployment"
    ours, theirs = (without_optional(each[kind]["spec"]["template"]["spec"]) for each in (made, manifest))
    assert plain(ours) == plain(theirs)
    annotations = pod_of(made)["metadata"]["annotations"]
    assert manifest[kind]["spec"]["template"]["metadata"]["annotations"].items() <= annotations.items()
    assert plain(made["NetworkPolicy"]["spec"]) == plain(manifest["NetworkPolicy"]["spec"])
    if kind == "StatefulSet":
        assert made[kind]["spec"]["replicas"] == manifest[kind]["spec"]["replicas"] == 1
        claims = (each[kind]["spec"]["volumeClaimTemplates"] for each in (made, manifest))
        assert plain(next(claims)) == plain(next(claims))


def test_every_object_selects_the_pods_of_its_release(good: dict[str, Any], tmp_path: Path) -> None:
    objects = rendered(tmp_path, good)
    labels = pod_of(objects)["metadata"]["labels"]
    assert labels["app.kubernetes.io/instance"] == "shop"
    workload = objects.get("StatefulSet") or objects["Deployment"]
    selectors = [workload["spec"]["selector"]["matchLabels"], objects["Service"]["spec"]["selector"]]
    selectors += [objects["MetricsService"]["spec"]["selector"]]
    selectors += [objects["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"]]
    if "NetworkPolicy" in objects:
        selectors.append(objects["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"])
    assert all(each.items() <= labels.items() and len(each) == 2 for each in selectors)
    ports = {each["name"] for each in pod_of(objects)["spec"]["containers"][0]["ports"]}
    assert {each["targetPort"] for each in objects["Service"]["spec"]["ports"]} <= ports


def test_a_port_that_is_closed_is_in_no_service(tmp_path: Path) -> None:
    def ports(changes: dict[str, Any]) -> list[str]:
        return [each["name"] for each in rendered(tmp_path, changes)["Service"]["spec"]["ports"]]

    assert ports({}) == ["grpc", "grpc-tls", "http"]
    assert ports(SECURED) == ["grpc-tls", "http"]
    assert ports(GATEWAY) == ["grpc", "http"]
    assert ports(merged(SECURED, {"tls": {"only": False}})) == ["grpc", "grpc-tls", "http"]


def test_keda_is_let_in_by_the_values_of_the_page(tmp_path: Path) -> None:
    policy = rendered(tmp_path, GOOD["own"])["NetworkPolicy"]["spec"]["ingress"]
    (rule,) = (each for each in policy if "keda" in str(each))
    assert [each["port"] for each in rule["ports"]] == [8081, 8082, 8083]


def test_changed_settings_restart_the_pod(tmp_path: Path) -> None:
    sums = {
        pod_of(rendered(tmp_path, {"settings": {"log_level": level}}))["metadata"]["annotations"]["checksum/config"]
        for level in ("info", "debug")
    }
    assert len(sums) == 2


def test_the_notes_say_where_the_broker_is_and_what_is_open(tmp_path: Path) -> None:
    """`helm template` does not show them, so a copy of the chart has them as a manifest."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    notes = (chart / "templates" / "NOTES.txt").read_text()
    (chart / "templates" / "_notes.tpl").write_text(f'{{{{ define "notes" }}}}{notes}{{{{ end }}}}')
    (chart / "templates" / "notes.yaml").write_text('notes: {{ include "notes" . | toJson }}\n')

    def told(changes: dict[str, Any]) -> str:
        flags = ("template", "shop", "--namespace", "mq", "--show-only", "templates/notes.yaml")
        done = helm(*flags, folder=tmp_path, changes=changes, chart=chart)
        assert done.returncode == 0, done.stderr
        return str(yaml.safe_load(done.stdout)["notes"])

    first = told({})
    assert "shop-popmq.mq.svc:8081" in first
    assert "may fill 18432MiB" in first
    assert "There are no access keys" in first
    secured = told(SECURED)
    assert "https://shop-popmq.mq.svc:8083" in secured
    assert not re.search(r"no access keys|no TLS", secured)
    assert "2 gateways in front of the RocketMQ cluster of one:9876, two:9876" in told(GATEWAY)
