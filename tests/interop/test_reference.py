"""The page about differences lists each of them: what was kept of the reference against what is expected of PopMQ."""

import json
import re

from harness.broker_process import ROOT
from tests.interop.kept import REFERENCE
from tests.interop.scenarios import SCENARIOS

PAGE = ROOT / "docs" / "rocketmq.md"


def _differing() -> set[str]:
    outcomes = json.loads(REFERENCE.read_text())["outcomes"]
    return {
        name
        for name, clients in outcomes.items()
        for client, outcome in clients.items()
        if outcome != SCENARIOS[name].expected(client)
    }


def _listed() -> set[str]:
    section = PAGE.read_text().partition("## Measured differences")[2].partition("\n## ")[0]
    first_cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)}


def test_every_difference_of_outcome_is_argued_and_no_other() -> None:
    assert _listed() == _differing()
