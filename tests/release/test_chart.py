"""deploy/helm: every value of the chart is one that the broker knows, and wrong ones are refused; without Helm."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

import popmq
from popmq_server.options import HTTP_PORT, METRICS_PORT, PORT, TLS_PORT
from popmq_server.settings import load
from popmq_server.settings.table import BY_NAME
from tests.release.chart import CHART, GATEWAY, SCHEMA, WRONG, faults, merged, values

SETTINGS: dict[str, Any] = SCHEMA["properties"]["settings"]["properties"]
TEMPLATES = sorted(path for path in CHART.rglob("*") if path.suffix in (".tpl", ".yaml"))
#: Settings that the chart has no place for: the image has no console.
LEFT_OUT = {"console_port", "console_host"}
#: Settings whose defaults are the ports of the services and of the probes.
FIXED = {"port": PORT, "tls_port": TLS_PORT, "http_port": HTTP_PORT, "metrics_port": METRICS_PORT}


def written() -> set[str]:
    """The settings that the template of popmq.toml writes by itself."""
    text = (CHART / "templates" / "_helpers.tpl").read_text()
    template = text.partition('{{- define "popmq.toml" -}}')[2].partition("{{- define")[0]
    return set(re.findall(r"^(\w+) = ", template, re.MULTILINE))


def test_each_setting_of_the_broker_has_one_place_in_the_chart() -> None:
    assert written() | SETTINGS.keys() | LEFT_OUT | FIXED.keys() == BY_NAME.keys()
    assert written() & SETTINGS.keys() == {"max_size"}, "which follows from the volume, if it is not set"
    assert not (written() | SETTINGS.keys()) & (LEFT_OUT | FIXED.keys())


def test_settings_of_one_engine_are_refused_for_the_other() -> None:
    (switch,) = (each for each in SCHEMA["allOf"] if "else" in each)
    of_rocketmq, of_embedded = (
        {name for name, rule in switch[branch]["properties"]["settings"]["properties"].items() if rule is False}
        for branch in ("then", "else")
    )
    assert of_rocketmq == {name for name in SETTINGS if BY_NAME[name].engines == ("embedded",)}
    assert of_embedded == {name for name in SETTINGS if BY_NAME[name].engines == ("rocketmq",)}


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_what_the_schema_allows_the_broker_reads(name: str, tmp_path: Path) -> None:
    """And each choice that the broker has."""
    rule, setting = SETTINGS[name], BY_NAME[name]
    choices = rule.get("enum") or [
        {"integer": 2, "array": ["https://a.example"]}.get(rule["type"], "3GiB" if name == "max_size" else "c")
    ]
    for choice in choices:
        jsonschema.validate({name: choice}, SCHEMA["properties"]["settings"])
        (tmp_path / "popmq.toml").write_text(f"{name} = {json.dumps(choice)}")
        other = ["--engine", "rocketmq", "--namesrv", "a:1", "--handle-secret", "x"]
        flags = other if setting.engines == ("rocketmq",) else []
        options = load(["--config", str(tmp_path / "popmq.toml"), *flags], {}).options
        assert getattr(options, name) is not None
    if setting.metavar.startswith("{"):
        assert {f"{each}" for each in choices} == set(setting.metavar.strip("{}").split(","))
    if rule.get("type") == "integer":
        with pytest.raises(Exception, match=f"{rule['maximum'] + 1}"):
            setting.read(f"{rule['maximum'] + 1}")


def test_values_and_their_schema_have_the_same_names() -> None:
    def names(rule: dict[str, Any], path: str = "") -> Iterator[str]:
        for name, each in rule.get("properties", {}).items():
            yield from names(each, f"{path}.{name}") if each.get("properties") else (f"{path}.{name}",)

    def given(value: dict[str, Any], path: str = "") -> Iterator[str]:
        for name, each in value.items():
            inner = isinstance(each, dict) and each and name != "metricsNamespaceLabels"
            yield from given(each, f"{path}.{name}") if inner else (f"{path}.{name}",)

    own = {name for name in names(SCHEMA) if not name.startswith((".settings.", ".global"))}
    assert {name for name in given(values()) if not name.startswith(".settings.")} == own


def test_the_values_of_the_chart_are_allowed_and_those_of_a_gateway() -> None:
    assert faults({}) == []
    assert faults(GATEWAY) == []
    keyed = {"accessKeys": {"secretName": "k"}, "tls": {"secretName": "t", "clientCa": {"secretName": "c"}}}
    assert faults(keyed) == []
    assert faults(merged(GATEWAY, {"settings": {"workers": 4, "cluster": "c"}})) == []


@pytest.mark.parametrize(("changes", "why"), WRONG, ids=lambda given: str(given)[:60])
def test_wrong_values_are_refused(changes: dict[str, Any], why: str) -> None:
    found = faults(changes)
    assert found
    assert why in " ".join(found)


def test_the_chart_has_the_version_of_the_release() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (popmq.__version__, popmq.__version__)


def test_templates_use_only_values_that_there_are() -> None:
    """Helm renders a value with a typing error as nothing."""
    whole = values()
    for path in TEMPLATES:
        for dotted in re.findall(r"\.Values\.([\w.]+)", path.read_text()):
            found: Any = whole
            for name in dotted.split("."):
                assert name in found, f"{path.name}: .Values.{dotted}"
                found = found[name]


def test_ports_and_paths_are_those_that_are_served() -> None:
    text = (CHART / "templates" / "_helpers.tpl").read_text()
    ports = {name: int(port) for name, port in re.findall(r"name: ([\w-]+), containerPort: (\d+)", text)}
    assert ports == {"grpc": PORT, "grpc-tls": TLS_PORT, "http": HTTP_PORT, "metrics": METRICS_PORT}
    service = (CHART / "templates" / "service.yaml").read_text()
    assert {
        name: int(port) for name, port in re.findall(r"name: ([\w-]+), port: (\d+), targetPort: \1", service)
    } == ports
    assert dict(re.findall(r"(\w+)Probe:\n\s+httpGet: \{path: (/\w+), port: metrics\}", text)) == {
        "liveness": "/healthz",
        "readiness": "/readyz",
    }
