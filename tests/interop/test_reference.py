"""The page about differences lists each of them: what was kept of other servers against what is expected of PopMQ."""

import json
import re

from tests.interop.kept import REFERENCE, both_doors, cluster, word
from tests.interop.record import BEGIN, END, PAGE
from tests.interop.scenarios import SCENARIOS
from tests.interop.servers import GATEWAY, PROXY


def _differing() -> set[str]:
    outcomes = json.loads(REFERENCE.read_text())["outcomes"]
    return {
        name
        for name, clients in outcomes.items()
        for client, outcome in clients.items()
        if outcome != SCENARIOS[name].expected(client)
    }


def _listed(heading: str) -> set[str]:
    """The names in the first column of the table under a heading."""
    section = PAGE.read_text().partition(f"{heading}\n")[2].partition("\n#")[0]
    first_cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)}


def test_every_difference_of_outcome_is_argued_and_no_other() -> None:
    assert _listed("## Measured differences") == _differing()


def _words(door: str) -> dict[tuple[str, str], str]:
    """By scenario and client."""
    return {
        (name, client): word(client, name, outcome)
        for name, clients in cluster(door).items()
        for client, outcome in clients.items()
    }


def test_what_passes_at_rocketmqs_proxy_passes_at_a_gateway() -> None:
    gateway = _words(GATEWAY)
    passed = [key for key, told in _words(PROXY).items() if told == "ok"]
    assert len(passed) > 100
    assert [key for key in passed if gateway[key] != "ok"] == []


def test_the_page_has_the_outcomes_at_both_doors() -> None:
    assert PAGE.read_text().partition(BEGIN)[2].partition(END)[0] == both_doors()


def test_every_difference_at_a_gateway_is_argued_and_no_other() -> None:
    differing = {name for (name, _), told in _words(GATEWAY).items() if told not in ("ok", "–")}
    assert _listed("### What differs there") == differing
