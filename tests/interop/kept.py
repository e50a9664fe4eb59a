"""Outcomes that are kept in files, and tables of them.

reference.json   {"version", "outcomes": {scenario: {client: …}}} of RocketMQ's broker with its proxy inside (LOCAL)
cluster.json     {"version", "outcomes": {door: {scenario: {client: …}}}} of both doors to a cluster

An outcome is what the scenario returned, {"failed": last line of its traceback}, or, in cluster.json, {"skipped": why}.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.interop.running import Result
from tests.interop.scenarios import SCENARIOS
from tests.interop.servers import GATEWAY, PROXY

REFERENCE = Path(__file__).parent / "reference.json"
CLUSTER = Path(__file__).parent / "cluster.json"
#: By client and scenario.
Results = Mapping[tuple[str, str], Result]
Outcome = dict[str, Any]


def keep_reference(version: str, results: Results) -> None:
    """The outcomes that came, over those that were kept before; a scenario that did not run is not told."""
    kept: dict[str, Any] = json.loads(REFERENCE.read_text()) if REFERENCE.exists() else {"outcomes": {}}
    for (client, name), result in results.items():
        if result.skipped:
            kept["outcomes"].get(name, {}).pop(client, None)
        else:
            kept["outcomes"].setdefault(name, {})[client] = _outcome(result)
    kept["version"] = version
    _write(REFERENCE, kept)


def keep_cluster(version: str, door: str, results: Results) -> None:
    """The outcomes that came, over those that were kept before."""
    kept: dict[str, Any] = json.loads(CLUSTER.read_text()) if CLUSTER.exists() else {"outcomes": {}}
    for (client, name), result in results.items():
        kept["outcomes"].setdefault(door, {}).setdefault(name, {})[client] = _outcome(result)
    kept["version"] = version
    _write(CLUSTER, kept)


def _write(file: Path, kept: dict[str, Any]) -> None:
    file.write_text(json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def _outcome(result: Result) -> Outcome:
    if result.skipped:
        return {"skipped": result.skipped}
    return {"failed": last_line(result.failed)} if result.outcome is None else result.outcome


def last_line(trace: str) -> str:
    """The error of a traceback."""
    return trace.strip().splitlines()[-1] if trace else ""


def cluster(door: str) -> dict[str, dict[str, Outcome]]:
    """By scenario and client, as kept."""
    kept: dict[str, dict[str, Outcome]] = json.loads(CLUSTER.read_text())["outcomes"].get(door, {})
    return kept


def word(client: str, name: str, outcome: Outcome) -> str:
    """Of an outcome as kept: ok, differs, failed, or – where nothing ran."""
    if outcome.keys() == {"skipped"}:
        return "–"
    if outcome.keys() == {"failed"}:
        return "failed"
    return "ok" if outcome == SCENARIOS[name].expected(client) else "differs"


def table(words: Mapping[tuple[str, str], str]) -> str:
    """Rows are scenarios, columns are clients."""
    clients = list(dict.fromkeys(client for client, _ in words))
    names = list(dict.fromkeys(name for _, name in words))
    width = max(map(len, names), default=0)
    lines = [" " * width + "".join(f"  {client:8}" for client in clients)]
    lines += [f"{name:{width}}" + "".join(f"  {words.get((c, name), ''):8}" for c in clients) for name in names]
    return "\n".join(line.rstrip() for line in lines)


def both_doors() -> str:
    """The kept outcomes as a table of Markdown: each cell is the proxy's word, then the gateway's."""
    proxy, gateway = cluster(PROXY), cluster(GATEWAY)
    clients = sorted({client for each in gateway.values() for client in each})
    heads = " | ".join(client.capitalize() for client in clients)
    lines = [f"| scenario | {heads} |", "|---" * (len(clients) + 1) + "|"]
    for name in SCENARIOS:
        cells = [f"{_told(proxy, client, name)} · {_told(gateway, client, name)}" for client in clients]
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def _told(door: Mapping[str, Mapping[str, Outcome]], client: str, name: str) -> str:
    outcome = door.get(name, {}).get(client)
    return word(client, name, outcome) if outcome is not None else "not run"
