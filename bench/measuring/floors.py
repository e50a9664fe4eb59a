"""The bounds that figures must keep on 2 cores with 1 KiB messages and fsync on; else the bench fails."""

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
#: What an operation may cost beside 1,000,000 leases, as a multiple of what it costs beside 1,000: acks read what was
#: popped long ago from the store, trees have one more level, and a piece of a removal looks at up to 2,000 leases. Work
#: that grows with them would be hundreds.
RESTING_RATIO = 3.0
#: The longest time for which one commit batch, or one piece of periodic work, may occupy the writer.
GROUP_MS = 20.0
RESTING_START_S = 3.0
#: With fewer leases, the memory that every start takes would distort the memory of a lease.
LEASE_BYTES, LEASE_BYTES_FROM = 300.0, 100_000


@dataclass
class Floor:
    """A figure and its bound."""

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
