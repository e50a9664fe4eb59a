"""What the whole campaign counted: measured.json, and the section of docs/cluster.md that is made of it.

make chaos-cluster                             each test replaces its rows, and writes the section
POPMQ_RECORD=1 pytest tests/crash/cluster      the same, of short forms
python -m tests.crash.cluster.parts.kept       writes the section again
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from harness.broker_process import ROOT
from tests.crash.cluster.parts.promises import Row, promises

KEPT = Path(__file__).parents[1] / "measured.json"
PAGE = ROOT / "docs" / "cluster.md"
BEGIN, END = "<!-- written by make chaos-cluster -->\n", "<!-- end of what make chaos-cluster wrote -->\n"


def kept() -> list[Row]:
    """The rows of the last whole campaign."""
    return [Row(**each) for each in json.loads(KEPT.read_text())] if KEPT.exists() else []


def keep(row: Row) -> None:
    """Replaces the row of this fault and these doors, and the section."""
    rows = {(each.fault, each.doors): each for each in kept()} | {(row.fault, row.doors): row}
    KEPT.write_text(json.dumps([asdict(each) for each in rows.values()], indent=1, ensure_ascii=False) + "\n")
    write()


def write() -> None:
    """Writes the section of the page."""
    PAGE.write_text(written(PAGE.read_text(), kept()))


def written(page: str, rows: list[Row]) -> str:
    """The page with the section of these rows."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{section(rows)}{END}{after}"


def section(rows: list[Row]) -> str:
    """The tables."""
    return f"\n{promises(rows)}\n\n{faults(rows)}\n\n"


def faults(rows: list[Row]) -> str:
    """A row for each fault and kind of doors."""
    lines = ["| fault | clients call | what was counted | form | took | load |", "|---|---|---|---|--:|--:|"]
    lines += [
        f"| {row.fault} | {row.doors} | {row.text} | {row.form} | {row.seconds} s | {row.load:.0f} |"
        for row in sorted(rows, key=lambda row: (row.fault, row.doors))
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    write()
