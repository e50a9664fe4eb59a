"""The promises of a cluster beside what the campaign counted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

GATEWAYS = "gateways"


@dataclass(frozen=True)
class Row:
    """One fault, and what was counted. `doors`: what clients called. `load`: of the machine, in waiting processes.

    `form`: whole or short.
    """

    fault: str
    doors: str
    counts: dict[str, float]
    text: str
    seconds: int
    load: float
    form: str = "whole"
    day: str = field(default_factory=lambda: datetime.now(UTC).strftime("%Y-%m-%d"))


class Promise(NamedTuple):
    """What the two engines promise, and what was counted. `counted` makes it of the rows; "" if there are none."""

    promise: str
    embedded: str
    cluster: str
    counted: Callable[[Sequence[Row]], str]


def promises(rows: list[Row]) -> str:
    """The table."""
    own = [row for row in rows if row.doors == GATEWAYS]
    lines = ["| promise | embedded | cluster | counted |", "|---|---|---|---|"]
    lines += [
        f"| {each.promise} | {each.embedded} | {each.cluster} | {each.counted(own) or 'not counted yet'} |"
        for each in PROMISES
    ]
    return "\n".join(lines)


def summed(rows: Sequence[Row], name: str) -> int:
    """A count of all rows that have it."""
    return int(sum(row.counts.get(name, 0) for row in rows))


def of(rows: Sequence[Row], *words: str) -> list[Row]:
    """The rows whose fault has one of these words."""
    return [row for row in rows if any(word in row.fault for word in words)]


_OF_GATEWAYS = ("a gateway", "gateways are", "secret")


def _sends(rows: Sequence[Row]) -> str:
    return f"{summed(rows, 'lost')} of {summed(rows, 'sent'):,} OK sends lost, in all rows below" if rows else ""


def _overlaps(rows: Sequence[Row]) -> str:
    by_gateways, by_brokers = of(rows, *_OF_GATEWAYS), of(rows, "a master")
    if not by_gateways or not by_brokers:
        return ""
    return (
        f"overlapping leases: {summed(by_gateways, 'overlaps')} of {summed(by_gateways, 'delivered'):,} deliveries "
        f"while gateways die, {summed(by_brokers, 'overlaps')} of {summed(by_brokers, 'delivered'):,} while masters die"
    )


def _acks(rows: Sequence[Row]) -> str:
    by_gateways, killed, elected = (
        of(rows, *_OF_GATEWAYS),
        of(rows, "a master is killed"),
        of(rows, "its replica is elected"),
    )
    plain = [row for row in killed if row not in elected]
    told = [
        f"{summed(found, 'after_ack')} of {summed(found, 'acked'):,} acks came again while {what}"
        for found, what in (
            (by_gateways, "gateways die"),
            (plain, "a master is killed and restarted"),
            (elected, "a replica becomes the master"),
        )
        if found
    ]
    return "; ".join(told)


def _order(rows: Sequence[Row]) -> str:
    found = [row for row in rows if "FIFO" in row.fault]
    return f"{summed(found, 'out_of_order')} of {summed(found, 'sent'):,} out of order" if found else ""


def _again(rows: Sequence[Row]) -> str:
    found = of(rows, "a pop and its answer")
    return (
        f"at most {found[0].counts['longest_after_the_lease_s']:g} s after a lease of a dead gateway" if found else ""
    )


def _transactions(rows: Sequence[Row]) -> str:
    found = of(rows, "transactions end twice")
    if not found:
        return ""
    counts = found[0].counts
    return (
        f"{counts['transactions']:,.0f} transactions, {counts['ends']:,.0f} ends: {counts['lost']:.0f} lost, "
        f"{counts['duplicates']:.0f} delivered twice, {counts['of_rolled_back']:.0f} that were rolled back"
    )


def _renewals(rows: Sequence[Row]) -> str:
    found = of(rows, "a renewal and its answer")
    return (
        f"{found[0].counts['twice_at_once']:.0f} of {found[0].counts['kills']:.0f} delivered twice at once"
        if found
        else ""
    )


def _repeated(rows: Sequence[Row]) -> str:
    found = of(rows, "a send and its answer")
    return f"{found[0].counts['stored_twice']:.0f} of {found[0].counts['sent']:.0f} that were repeated" if found else ""


PROMISES = (
    Promise("OK of a Send", "on disk", "as the brokers flush and replicate", _sends),
    Promise("a repeated Send", "stored once", "stored again, with the same message id", _repeated),
    Promise("one consumer at a time within a lease", "yes", "yes while brokers live", _overlaps),
    Promise("OK of an Ack is final", "yes", "after the death of a master its last acks come again", _acks),
    Promise("a renewal whose answer is lost", "is repeated", "ends the delivery, which comes again", _renewals),
    Promise("delivered again after a lease", "within 0.1 s", "within 6 s", _again),
    Promise("order in a message group", "of the message group", "of its queue, which never changes", _order),
    Promise("transaction", "once, or never", "once, or never, but for milliseconds", _transactions),
)
