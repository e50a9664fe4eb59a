"""The events of one message in one group, from the stored records.

    hist rows of its place     ended leases: popped, renewed, and how it ended           ┐
    CheckPoints that hold it   current leases                                            ├─▶ events, oldest first
    its dead letter, if any    dead, redriven                                            ┘

A row of a batch and the row of a member that left it alone are of the same lease; the member's own takes precedence.
"""

from collections.abc import Iterable
from typing import NamedTuple

from popmq_server.contract.commands.inspection import LifeEvent
from popmq_server.embedded.rules.delivery import lease_history
from popmq_server.embedded.rules.delivery.deadletter import Origin
from popmq_server.embedded.rules.operate.holders import HeldMessage
from popmq_server.embedded.rules.topics.index import Spot
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.checkpoint import BACKOFF, Lease
from popmq_server.embedded.store.history_rows import HistoryRow


class TracedDeadLetter(NamedTuple):
    """A dead letter of a message: its place, its origin, and when it was redriven (0: it was not)."""

    topic_id: int
    spot: Spot
    origin: Origin
    gone_ms: int


def events_of(
    tx: Tx,
    offset: int,
    stored_ms: int,
    rows: Iterable[HistoryRow],
    held: Iterable[HeldMessage],
    dead_letters: Iterable[TracedDeadLetter],
) -> list[LifeEvent]:
    """The events of a message in one group, oldest first; events without a time come last."""
    found = [LifeEvent(stored_ms, "sent")] if stored_ms else []
    by_lease: dict[int, list[HistoryRow]] = {}
    for row in rows:
        by_lease.setdefault(row.ck_id, []).append(row)
    for alike in by_lease.values():
        found += _of_lease(alike, offset)
    for one in held:
        found += _of_living(tx, one, by_lease.get(one.ck.ck_id, []))
    for dead_letter in dead_letters:
        found += _of_dead_letter(dead_letter, found)
    return sorted(found, key=lambda event: event.time_ms or tx.now_ms)


def _of_lease(rows: list[HistoryRow], offset: int) -> list[LifeEvent]:
    """The events of a lease that ended for the message."""
    own = next((row for row in rows if row.sub), None)
    batch = next((row for row in rows if not row.sub), None)
    found = _popped_row(own or rows[0])
    if batch is not None:
        done = bool(batch.done >> offset - batch.first & 1)
        if done and own is None:
            found.append(LifeEvent(batch.ended_ms, "acked", batch.client))
        elif batch.how == lease_history.EXPIRED and not done:
            found.append(LifeEvent(batch.ended_ms, "expired", batch.client))
        elif own is None and batch.how != lease_history.ACKED:
            found.append(_ended(batch))
    if own is not None:
        if own.how == lease_history.REJECTED:
            found.append(LifeEvent(own.ended_ms, "rejected", own.client, reason=own.reason))
        found.append(_ended(own))
    return found


def _popped_row(row: HistoryRow) -> list[LifeEvent]:
    if not row.popped_ms:
        return []
    return _popped(row.popped_ms, row.client, row.due_ms, row.attempt, row.renewals, row.renewed_ms)


def _popped(popped_ms: int, client: str, due_ms: int, attempt: int, renewals: int, renewed_ms: int) -> list[LifeEvent]:
    """The pop and the last renewal; a renewed lease keeps only its last deadline."""
    if not renewals:
        return [LifeEvent(popped_ms, "popped", client, due_ms, attempt)]
    times = f"renewed {renewals} times" if renewals > 1 else ""
    renewed = LifeEvent(renewed_ms, "renewed", client, due_ms, attempt, times)
    return [LifeEvent(popped_ms, "popped", client, 0, attempt), renewed]


def _ended(row: HistoryRow) -> LifeEvent:
    if lease_history.is_discard(row):
        return LifeEvent(row.ended_ms, "discarded")
    what = "dead" if row.how == lease_history.REJECTED else lease_history.HOW_NAMES[row.how]
    return LifeEvent(row.ended_ms, what, row.client, row.back_ms, row.attempt, row.reason)


def _of_living(tx: Tx, held: HeldMessage, rows: list[HistoryRow]) -> list[LifeEvent]:
    """The events of a current lease; none for a member that left it (to backoff, for example): it has its own row."""
    ck = held.ck
    if ck.kind == BACKOFF or any(row.sub for row in rows):
        return []
    part = part_of(tx, held)
    lease = part or tx.state.leases.get((ck.ck_id, 0)) or Lease(0, 0)
    until_ms = tx.state.due_ms_of(ck, lease)
    found = _popped(ck.popped_ms, ck.client, until_ms, held.run.attempts, lease.renewals, lease.renewed_ms)
    if part is None and not lease.torn & held.bit:
        found.append(LifeEvent(0, "acked", ck.client, reason="its time is known when its batch is done"))
    return found


def part_of(tx: Tx, held: HeldMessage) -> Lease | None:
    """The part of a lease under which a member is undone; None when it is done or has left."""
    ck_id, member = held.ck.ck_id, held.bit.bit_length() - 1
    for sub in (0, member + 1):
        part = tx.state.leases.get((ck_id, sub))
        if part is not None and part.undone & held.bit:
            return part
    return None


def _of_dead_letter(dead_letter: TracedDeadLetter, known: list[LifeEvent]) -> list[LifeEvent]:
    """The events of a dead letter that no row has any more: retention drops rows with the chunk of the message."""
    origin, found = dead_letter.origin, list[LifeEvent]()
    if not any(event.what == "dead" and event.time_ms == origin.dead_ms for event in known):
        found.append(LifeEvent(origin.dead_ms, "dead", origin.last_client, 0, origin.attempts, origin.reason))
    if dead_letter.gone_ms and not any(
        event.what in ("redriven", "discarded") and event.time_ms == dead_letter.gone_ms for event in known
    ):
        found.append(LifeEvent(dead_letter.gone_ms, "redriven", reason="or discarded: its history is gone"))
    return found
