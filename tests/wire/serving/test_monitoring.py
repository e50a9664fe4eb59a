"""deploy/monitoring, docs/alerts.md: rules and panels name metrics and labels of a real scrape, and are understood."""

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from harness.broker_process import ROOT, own_port
from popmq_proto.rocketmq import definition_pb2
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting import RemotingError
from popmq_server.embedded_broker import EmbeddedBroker
from scripts.dashboard import FILE, dashboard
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs

FOLDER = ROOT / "deploy" / "monitoring"
RULES = FOLDER / "alerts.yml"
PAGE = ROOT / "docs" / "alerts.md"
NAME = re.compile(r"\b(?:popmq|process)_\w+")
#: Labels of the scraper, and of histograms.
OTHERS = {"job", "instance", "le"}


def alerts() -> dict[str, dict[str, str]]:
    """Name → its keys, of rules that are written one key to a line."""
    found: dict[str, dict[str, str]] = {}
    for block in RULES.read_text().split("- alert: ")[1:]:
        name, *lines = block.splitlines()
        found[name] = dict(line.strip().partition(": ")[::2] for line in lines if ": " in line)
    return found


def queries() -> Iterator[str]:
    """Every PromQL of the rules and the panels."""
    yield from (alert["expr"] for alert in alerts().values())
    found = json.loads(FILE.read_text())
    yield from (target["expr"] for panel in found["panels"] for target in panel.get("targets", ()))
    yield from (one["query"] for one in found["templating"]["list"] if one["type"] == "query")


@pytest.fixture(scope="module")
def scrape(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of a broker with a group that has read a topic."""
    port = own_port()
    folder = tmp_path_factory.mktemp("scraped")
    with (
        EmbeddedBroker(folder / "data", sync="none", metrics_port=port) as broker,
        Stubs(broker.endpoint) as stubs,
    ):
        stubs.create_topic()
        stubs.create_group()
        stubs.send(b"a")
        stubs.pop()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=CALL_S) as answer:
            text: str = answer.read().decode()
    return text


def series(scrape: str) -> set[str]:
    """The names that a query may use, whether or not they have a sample yet."""
    kinds = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
    families = [(family.name, family.type) for family in text_string_to_metric_families(scrape)]
    return {name + end for name, kind in (*families, *of_gateways()) for end in kinds.get(kind, ("",))}


def of_gateways() -> list[tuple[str, str]]:
    """Name and type of what gateways show; tests/cluster/test_metrics.py compares the page with one."""
    page = (ROOT / "docs" / "metrics.md").read_text().partition("## Gateways")[2]
    rows = re.findall(r"^\| `(popmq_\w+)` \| (\w+) \|", page, re.MULTILINE)
    return [(name.removesuffix("_total"), kind) for name, kind in rows]


def test_every_metric_of_a_rule_or_a_panel_exists_in_a_scrape(scrape: str) -> None:
    known, used = series(scrape), {name for query in queries() for name in NAME.findall(query)}
    assert len(used) > 20
    assert used - known == set()


def test_every_label_of_a_rule_or_a_panel_exists_on_the_page_of_metrics() -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    rows = re.findall(r"^\| `((?:popmq|process)_\w+)` \| \w+ \| ([\w, ]*) ?\|", page, re.MULTILINE)
    labels = {name: set(given.replace(",", " ").split()) for name, given in rows}
    for query in queries():
        for name, selector in re.findall(r"((?:popmq|process)_\w+)\{([^}]*)\}", query):
            known = labels.get(name) or labels.get(re.sub(r"_(bucket|sum|count)$", "", name)) or set()
            assert set(re.findall(r"(\w+)=", selector)) <= known | OTHERS, query


def test_every_code_of_a_rule_is_a_code_of_a_contract() -> None:
    known = {
        *pb.Code.keys(),
        *definition_pb2.Code.keys(),
        *(error.__name__ for error in RemotingError.__subclasses__()),
    }
    named = [
        code for query in queries() for codes in re.findall(r'code=~?"([^"]*)"', query) for code in codes.split("|")
    ]
    assert named
    assert set(named) <= known


def test_every_alert_has_a_summary_a_severity_and_its_section_of_the_page() -> None:
    sections = re.findall(r"^## (\w+)$", PAGE.read_text(), re.MULTILINE)
    assert sections == list(alerts())
    for name, alert in alerts().items():
        assert alert["runbook"] == f"docs/alerts.md#{name.lower()}"
        assert alert["labels"] in ("{severity: critical}", "{severity: warning}")
        assert alert["summary"]
        section = PAGE.read_text().partition(f"## {name}\n")[2].partition("\n## ")[0]
        severity = alert["labels"].partition(": ")[2][:-1].capitalize()
        assert section.strip().startswith(f"{severity}. "), name
        assert "**Look**" in section, name
        assert "**Do**" in section, name


def test_every_alert_is_shown_to_fire() -> None:
    """`promtool test rules` runs these; here it is only seen that none was forgotten."""
    assert set(re.findall(r"alertname: (\w+)\n        exp_alerts", (FOLDER / "alerts.test.yml").read_text())) == {
        *alerts()
    }


def test_every_counter_that_begins_at_0_in_the_test_of_the_rules_does_so_in_a_broker(scrape: str) -> None:
    """Prometheus sees no increase in a series that appears with its first count."""
    found = re.findall(r"- series: '(\w+_total)\{(.*)\}'\n        values: '0", (FOLDER / "alerts.test.yml").read_text())
    assert len(found) > 5
    shown = [sample for family in text_string_to_metric_families(scrape) for sample in family.samples]
    for name, given in found:
        labels = dict(re.findall(r'(\w+)="(\w+)"', given)) | {"group": GROUP, "topic": TOPIC}
        zeros = [one for one in shown if one.name == name and one.labels.items() <= labels.items()]
        assert [one.value for one in zeros] == [0.0], (name, given)


def test_every_method_shows_that_it_had_no_bug_yet(scrape: str) -> None:
    samples = [sample for family in text_string_to_metric_families(scrape) for sample in family.samples]
    calls = [one.labels for one in samples if one.name == "popmq_calls_total"]
    quiet = {one["method"] for one in calls if one["code"] in ("INTERNAL", "INTERNAL_SERVER_ERROR")}
    assert {one["method"] for one in calls} == quiet
    native = {method.name for service in pb.DESCRIPTOR.services_by_name.values() for method in service.methods}
    assert native <= quiet
    assert any("SendMessage" in method for method in quiet)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (Prometheus) is not installed")
@pytest.mark.parametrize(
    "words", [("check", "rules", "alerts.yml"), ("test", "rules", "alerts.test.yml")], ids=" ".join
)
def test_promtool_understands_the_rules_and_sees_them_fire(words: tuple[str, ...]) -> None:
    done = subprocess.run(["promtool", *words], cwd=FOLDER, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_is_the_one_that_its_script_makes() -> None:
    assert FILE.read_text() == dashboard(), "run python scripts/dashboard.py"


def test_panels_have_their_own_numbers_and_places() -> None:
    panels = json.loads(FILE.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) == 23


def test_compose_mounts_only_files_that_exist() -> None:
    compose = ROOT / "deploy" / "compose" / "compose.yaml"
    mounted = re.findall(r"- (\.\.?/[^:]+):", compose.read_text())
    assert len(mounted) == 5
    assert [path for path in mounted if not Path(compose.parent / path).exists()] == []
