"""What a soak knows of its load; it is kept between the parts of a soak."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Group:
    """The acked numbers of one group: all below `below`, and those in `above`."""

    below: int = 0
    above: set[int] = field(default_factory=set)
    last: dict[str, int] = field(default_factory=dict)  # of each message group

    def ack(self, number: int) -> None:
        self.above.add(number)
        while self.below in self.above:
            self.above.remove(self.below)
            self.below += 1

    def has(self, number: int) -> bool:
        return number < self.below or number in self.above


@dataclass
class History:
    """Numbers sent by topic, acked numbers by topic and group, findings, samples; how long it ran, in parts."""

    seconds: float = 0.0
    parts: int = 1
    sent: Counter[str] = field(default_factory=Counter)
    groups: dict[str, dict[str, Group]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(Group)))
    findings: Counter[str] = field(default_factory=Counter)
    rows: list[dict[str, float]] = field(default_factory=list)

    def missing(self) -> int:
        """Messages, times groups, that were sent and not acked."""
        return sum(
            self.sent[topic] - group.below - len(group.above)
            for topic, groups in self.groups.items()
            for group in groups.values()
        )

    def save(self, path: Path) -> None:
        groups = {
            topic: {name: [group.below, sorted(group.above), group.last] for name, group in groups.items()}
            for topic, groups in self.groups.items()
        }
        noted = {
            "seconds": self.seconds,
            "parts": self.parts,
            "sent": self.sent,
            "findings": self.findings,
            "rows": self.rows,
        }
        path.write_text(json.dumps(noted | {"groups": groups}))

    @staticmethod
    def load(path: Path) -> History:
        noted: dict[str, Any] = json.loads(path.read_text())
        history = History(noted["seconds"], noted["parts"] + 1, Counter(noted["sent"]), rows=noted["rows"])
        history.findings.update(noted["findings"])
        for topic, groups in noted["groups"].items():
            for name, (below, above, last) in groups.items():
                history.groups[topic][name] = Group(below, set(above), last)
        return history
