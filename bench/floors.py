"""What must hold on 2 cores with 1 KiB messages and fsync on; anything under it fails the bench."""

from __future__ import annotations

from dataclasses import dataclass

MESSAGES_PER_S = 60_000
BACKLOG_RATIO = 1.3
LATE_P99_MS = 50.0
READY_MS = 500.0
FIFO_RATIO = 0.5
DELAY_P99_MS = 100.0
RECALL_P99_MS = 10.0
STORM_P99_MS = 100.0
IDLE_PERCENT = 2.0


@dataclass
class Floor:
    """A figure beside its bound."""

    name: str
    measured: float
    bound: float
    unit: str
    at_most: bool = True

    @property
    def holds(self) -> bool:
        return self.measured <= self.bound if self.at_most else self.measured >= self.bound

    @property
    def verdict(self) -> str:
        return "PASS" if self.holds else "FAIL"


def rate(name: str, messages_per_s: float) -> Floor:
    return Floor(name, messages_per_s, MESSAGES_PER_S, "messages/s", at_most=False)
