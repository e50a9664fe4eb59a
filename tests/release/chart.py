"""The Helm chart of deploy/helm, as files."""

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deploy" / "helm" / "popmq"
HELM = shutil.which("helm", path=str(ROOT / "build" / "helm")) or shutil.which("helm") or ""
SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
#: A gateway needs them.
GATEWAY = {
    "engine": "rocketmq",
    "gateway": {"namesrv": ["one:9876", "two:9876"], "handleSecretName": "handles"},
}


def values() -> dict[str, Any]:
    """The values of the chart; new ones, which may be changed."""
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


def merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """As Helm merges values of a user into those of the chart."""
    whole = dict(base)
    for name, value in changes.items():
        old = whole.get(name)
        whole[name] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return whole


def faults(changes: dict[str, Any]) -> list[str]:
    """What the schema says about the chart's values with these changes."""
    found = jsonschema.Draft7Validator(SCHEMA).iter_errors(merged(values(), changes))
    return [each.message for each in found]


#: Values that the chart has to refuse, and a word of the reason.
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"persistance": {"size": "3Gi"}}, "persistance"),
    ({"engine": "kafka"}, "kafka"),
    ({"replicas": 3}, "replicas"),
    ({"settings": {"max_sise": "1GiB"}}, "max_sise"),
    ({"settings": {"max_size": "lots"}}, "lots"),
    ({"settings": {"journal": True}}, "True"),
    ({"settings": {"connections_per_address": 0}}, "0"),
    ({"settings": {"data": "/elsewhere"}}, "data"),
    ({"settings": {"workers": 2}}, ""),
    (merged(GATEWAY, {"settings": {"journal": "on"}}), ""),
    ({"persistence": {"size": "20G"}}, "20G"),
    ({"listen": "127.0.0.1"}, "127.0.0.1"),
    ({"gateway": {"namesrv": ["one"]}}, "one"),
    ({"gateway": {"namesrv": ["one:9876", "one:9876"]}}, "one:9876"),
    ({"gateway": {"brokerTls": {"certificate": True}}}, ""),
    ({"tls": {"secretName": "tls", "clientCa": {"required": True}}}, ""),
    ({"tls": {"clientCa": {"secretName": "ca"}}}, ""),
    ({"tls": {"secretName": "tls", "clientCa": {"secretName": "ca"}}}, ""),
    ({"networkPolicy": {"metricsNamespaceLabels": {"a": 1}}}, "1"),
    ({"accessKeys": {"secretName": "Not A Name"}}, "Not A Name"),
]


SECURED = {
    "accessKeys": {"secretName": "keys"},
    "tls": {"secretName": "pair", "clientCa": {"secretName": "clients", "required": True}},
}
SECURED_GATEWAY = merged(
    merged(GATEWAY, SECURED),
    {
        "gateway": {
            "brokerKeySecretName": "user",
            "brokerTls": {"mode": "verify", "secretName": "brokers", "certificate": True},
        },
        "settings": {"workers": 4, "log_level": "debug"},
    },
)
#: Values of several kinds of installations.
GOOD = {
    "default": dict[str, Any](),
    "secured": SECURED,
    "gateway": GATEWAY,
    "secured gateway": SECURED_GATEWAY,
    "small": {"persistence": {"size": "512Mi"}, "networkPolicy": {"enabled": False}},
    "own": {
        "settings": {"max_size": "3GiB", "journal": "on", "http_origins": ["https://shop.example", "https://a&b<c>"]},
        "listen": "::",
        "resources": {"requests": {"cpu": "4"}},
        "podLabels": {"team": "shop"},
        "podAnnotations": {"note": "x"},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "only", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "imagePullSecrets": [{"name": "registry"}],
        "metrics": {"podMonitor": True, "annotations": False},
        "networkPolicy": {
            "clients": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "keda"}}}],
        },
    },
}
