"""docs/integrations/kubernetes.md: its commands, values and triggers are understood by those that read them."""

import itertools
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from popmq_cli.commands import popmq as command_line
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.protocols.keda import trigger
from tests.release.chart import CHART, faults

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "integrations" / "kubernetes.md").read_text()
#: Blocks of YAML, in the order of the page.
SCALED, POLICY, TRIGGERS = (yaml.safe_load(each) for each in re.findall(r"^```yaml\n(.*?)^```", PAGE, re.S | re.M))


def set_flags(line: str) -> dict[str, Any]:
    """The values of a command of Helm, as --set means them."""
    changes: dict[str, Any] = {}
    words = shlex.split(line, comments=True)
    for path, text in (word.split("=", 1) for flag, word in itertools.pairwise(words) if flag == "--set"):
        *parents, name = path.split(".")
        place = changes
        for parent in parents:
            place = place.setdefault(parent, {})
        place[name] = text[1:-1].split(",") if text.startswith("{") else text
    return changes


def test_the_commands_of_helm_name_the_chart_and_values_that_it_has() -> None:
    lines = [line for line in PAGE.replace("\\\n", " ").splitlines() if line.startswith("helm install")]
    assert len(lines) == 4
    for line in lines:
        assert "deploy/helm/popmq" in shlex.split(line, comments=True)
        assert faults(set_flags(line)) == []
    assert all(each in PAGE for each in ("persistence.size", "accessKeys.secretName", "tls.secretName"))


def test_the_values_of_the_page_are_in_the_table_as_in_the_chart() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    table = PAGE.partition("| value | what it does |")[2].partition("\n\n")[0]
    for cell in re.findall(r"^\| (.*?) \|", table, re.M)[1:]:
        for dotted in re.findall(r"`([\w.]+)`", cell):
            place: Any = values
            for name in dotted.split("."):
                place = place[name]
    assert faults(POLICY) == []


def test_the_trigger_of_the_page_is_that_of_the_manifest() -> None:
    manifest = (ROOT / "deploy" / "kubernetes" / "keda-push.yaml").read_text()
    (served,) = (each for each in yaml.safe_load_all(manifest) if each)
    assert served == SCALED
    metrics = (ROOT / "deploy" / "kubernetes" / "keda-metrics.yaml").read_text()
    (scaled,) = (each for each in yaml.safe_load_all(metrics) if each["kind"] == "ScaledObject")
    (first,) = TRIGGERS["triggers"]
    assert first == {key: value for key, value in scaled["spec"]["triggers"][0].items() if key != "name"}


def test_the_table_of_keys_has_all_keys_and_their_defaults() -> None:
    table = PAGE.partition("| key | default | meaning |")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:4]] for line in table.splitlines()[2:]]
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(named) == sorted(trigger.KEYS)
    defaults = {row[0].strip("`"): row[1] for row in rows}
    read = trigger.read({"topic": "orders", "group": "billing"})
    shown = {
        "target": f"{read.target:g}",
        "activation": f"{read.activation:g}",
        "inFlight": f"{read.in_flight}".lower(),
    }
    assert {name: defaults[name] for name in shown} == shown


@pytest.mark.parametrize("command", re.findall(r"`(popmq group .*?)`", PAGE))
def test_the_command_for_a_group_without_a_sample_gives_it_one(command: str, tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data", sync="none") as broker:

        def popmq(*words: str) -> str:
            done = CliRunner().invoke(command_line, ["--endpoint", broker.endpoint, *words])
            assert done.exit_code == 0, done.output
            return done.output

        popmq("topic", "create", "orders")
        popmq("group", "create", "billing")
        assert "billing\torders" not in popmq("stats")
        popmq(*shlex.split(command)[1:])
        assert "billing\torders" in popmq("stats")
