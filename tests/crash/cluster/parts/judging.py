"""Compares what the clients of a load were answered.

lost            sent with an OK, and never delivered
after an ack    delivered, although its ack had been answered OK before
overlaps        delivered while the lease of an earlier delivery ran, which was neither acked nor given back
backwards       a later delivery with an attempt that is not higher
out of order    first delivered behind a later message of its message group
refused acks    acks within the lease that were not OK at last
silence         the longest time in which no client of a kind had an answer
"""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from itertools import pairwise

from tests.crash.cluster.parts.load import Answered, Histories, Refusal

#: Of a delivery that comes while another's lease ends: clocks of client and broker differ by a round trip.
SLACK_S = 0.5


@dataclass(frozen=True)
class Judged:
    """Counts; see above. `acks_per_s`: while there was load."""

    sent: int
    unknown: int
    delivered: int
    acked: int
    lost: list[str]
    after_ack: list[str]
    overlaps: list[str]
    backwards: list[str]
    out_of_order: list[str]
    refused_acks: list[Refusal]
    failed: dict[str, int]
    longest_s: float
    silent_s: dict[str, float]
    acks_per_s: float

    def counts(self) -> dict[str, float]:
        """For a record of the campaign."""
        lists: dict[str, Sized] = {
            "lost": self.lost,
            "after_ack": self.after_ack,
            "overlaps": self.overlaps,
            "backwards": self.backwards,
            "out_of_order": self.out_of_order,
            "refused_acks": self.refused_acks,
        }
        counts: dict[str, float] = {"sent": self.sent, "delivered": self.delivered, "acked": self.acked}
        counts |= {name: len(each) for name, each in lists.items()}
        counts |= {f"failed_{kind}s": count for kind, count in self.failed.items()}
        counts |= {f"silence_{kind}_s": round(seconds, 2) for kind, seconds in self.silent_s.items()}
        return counts | {"acks_per_s": round(self.acks_per_s), "longest_call_s": round(self.longest_s, 2)}

    def row(self) -> str:
        """For a table."""
        silent = ", ".join(f"{kind} {seconds:.1f} s" for kind, seconds in self.silent_s.items())
        failed = ", ".join(f"{count:,} {kind}s" for kind, count in self.failed.items())
        order = f", out of order {len(self.out_of_order)}" if self.out_of_order else ""
        return (
            f"{self.sent:,} sent, {self.delivered:,} delivered, {self.acked:,} acked; lost {len(self.lost)}, "
            f"after an OK ack {len(self.after_ack)}, overlaps {len(self.overlaps)}, "
            f"attempts backwards {len(self.backwards)}{order}, refused acks {len(self.refused_acks)}; "
            f"failed: {failed or 'none'}; longest silence: {silent}"
        )


def judged(histories: Histories) -> Judged:
    """Compares what was answered."""
    after, overlaps, backwards = list[str](), list[str](), list[str]()
    for name, found in histories.seen.items():
        acked_s = histories.acked.get(name, float("inf"))
        for earlier, later in pairwise(sorted(found)):
            if later.at_s + SLACK_S < min(earlier.until_s, acked_s):
                overlaps.append(name)
            if later.attempt <= earlier.attempt:
                backwards.append(name)
        after += [name for seen in found if seen.at_s > acked_s]
    acks = histories.answers["ack"]
    return Judged(
        len(histories.sent),
        len(histories.unknown),
        sum(map(len, histories.seen.values())),
        len(histories.acked),
        sorted(histories.sent.keys() - histories.seen.keys()),
        after,
        overlaps,
        backwards,
        [name for group, names in histories.groups.items() if group for name in out_of_order(histories, names)],
        histories.of("ack"),
        {kind: len(calls) for kind in ("send", "pop", "ack") if (calls := histories.of(kind))},
        max((each.took_s for each in histories.failed), default=0.0),
        {kind: max_gap(histories.answers[kind]) for kind in ("send", "pop", "ack")},
        len(acks) / max(1.0, acks[-1].at_s - acks[0].at_s) if acks else 0.0,
    )


def out_of_order(histories: Histories, names: Sequence[str]) -> list[str]:
    """Messages of a message group that first came behind one that was sent after them."""
    firsts = [(min(seen.number for seen in histories.seen[name]), name) for name in names if histories.seen.get(name)]
    return [name for (number, name), (following, _) in pairwise(firsts) if number > following]


def max_gap(answers: Sequence[Answered]) -> float:
    """The longest time between two answers."""
    ordered = sorted(each.at_s for each in answers)
    return max((later - earlier for earlier, later in pairwise(ordered)), default=0.0)


def p99_s(answers: Sequence[Answered], queues: Sequence[int], between: tuple[float, float]) -> float:
    """The 99th percentile of the time that answers about these queues took, of those within two times."""
    took = sorted(each.took_s for each in answers if each.queue in queues and between[0] <= each.at_s <= between[1])
    return took[int(0.99 * (len(took) - 1))] if took else 0.0
