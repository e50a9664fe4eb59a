"""Replays the histories of a real broker against the next-state relation of relation.py.

    python -m tests.spec.replay FOLDER       the *.jsonl of `popmq_verify.campaign`; exit code 1 if one does not fit

A history is taken apart into the story of each message for each group. A story fits if its events can be put into an
order that the relation allows: an answered call happened between its call and its answer, an unanswered one at any
time after its call or never, leases expire and delays end by themselves, and at the end the message is done or dead.
Of leases and delays the broker told the times (popped_ms, visible_ms), to the millisecond; only acks and refusals have
times of clients, so deadlines have a margin.

    events of one message:   Pop n1   (Ack n1 ?)      Pop n2   Ack n2
    rows:             ready ─▶ leased ─▶ retry (Expire) ─▶ leased ─▶ done       the unanswered ack never arrived
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_verify.judging.facts import Delivery, Facts, Touch
from popmq_verify.load.client import FIFO_TOPIC, MAX_ATTEMPTS, TOPICS
from popmq_verify.load.history import Operation, read
from tests.spec.relation import (
    ABSENT,
    Row,
    acked,
    can_expire,
    can_pop,
    can_wake,
    expired,
    extended,
    lives,
    moved,
    popped,
    rejected,
    released,
    ticked,
    uncounted,
    woken,
)

#: How far the clocks of broker and clients may be apart, and how late a lease may end while the broker answers.
CLOCKS_MS, LATE_MS = 50.0, 1000.0
#: The shortest lease that a client of the campaign asks for: an unanswered Pop has no other trace.
SHORTEST_LEASE_MS = 1000.0
NEVER_MS = float("inf")
#: The specification has no message groups: what stands behind a message that failed comes back uncounted.
SPECIFIED = tuple(topic for topic in TOPICS if topic != FIFO_TOPIC)


class Event(NamedTuple):
    """One call about one message: it happened between `from_ms` and `to_ms` of the broker's clock.

    `certain`: it was answered; any other one may never have happened. `length_ms`: of the lease, or the delay.
    """

    kind: str  # pop, again, ack, extend, release, snooze, reject, lapsed
    handle: str
    from_ms: float
    to_ms: float
    certain: bool = True
    length_ms: float = 0
    attempt: int = 0
    dead: bool = False


class Place(NamedTuple):
    """How far a replay has come: the row, the time, the deadline, and how many hidden pops are used up."""

    row: Row
    now_ms: float
    due_ms: float
    hidden: int


class Replay:
    """The replay of one message for one group.

    `hidden`: when unanswered pops that may have taken it were called, and when their callers went away. `at_rest`: at
    the end the message must be done or dead. `facts`: tell how long the broker answered nobody, as while it was dead.
    """

    def __init__(
        self,
        max_attempts: int,
        sent_ms: float,
        events: list[Event],
        hidden: list[tuple[float, float]],
        at_rest: bool,
        facts: Facts,
    ) -> None:
        self._max_attempts, self._sent_ms, self._at_rest, self._facts = max_attempts, sent_ms, at_rest, facts
        self._events = sorted(events, key=lambda event: (event.from_ms, event.to_ms))
        self._hidden = hidden
        self._seen: set[tuple[Place, frozenset[int]]] = set()

    def fits(self) -> bool:
        """Whether an order of the events exists."""
        start = Place(moved(ABSENT, "ready", 0), self._sent_ms, NEVER_MS, 0)
        return self._search(start, frozenset(range(len(self._events))))

    def _search(self, place: Place, left: frozenset[int]) -> bool:
        """Whether the events that are left can follow."""
        if (place, left) in self._seen:
            return False
        self._seen.add((place, left))
        certain = [self._events[number] for number in left if self._events[number].certain]
        if not certain and self._ends_well(place):
            return True
        last_ms = min((event.to_ms for event in certain), default=NEVER_MS)
        for number in sorted(left):
            event = self._events[number]
            if event.from_ms > last_ms:
                break
            if any(self._search(next_place, left - {number}) for next_place in self._after(place, event)):
                return True
        return any(self._search(next_place, left) for next_place in self._hidden_pops(place, last_ms))

    def _ends_well(self, place: Place) -> bool:
        """Done or dead, or an expiry away from it."""
        return not self._at_rest or any(one.row.at in ("done", "dead") for one in self._by_itself(place, NEVER_MS))

    # ── Steps ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _by_itself(self, place: Place, now_ms: float) -> Iterator[Place]:
        """The places that a lease or a delay may lead to until a time without a call: this one, and those after it."""
        row = ticked(place.row, now_ms + CLOCKS_MS - place.now_ms)
        yield place
        if can_expire(row):
            yield place._replace(row=expired(row, self._max_attempts), due_ms=NEVER_MS)
        elif can_wake(row):
            yield place._replace(row=woken(row), due_ms=NEVER_MS)

    def _after(self, place: Place, event: Event) -> Iterator[Place]:
        """The places after an event; none if the relation does not allow it."""
        now_ms = max(place.now_ms, event.from_ms)
        for one in self._by_itself(place, event.to_ms if event.kind == "lapsed" else now_ms):
            row = self._does(one, event, now_ms)
            if row is None:
                continue
            if row is one.row:
                yield one._replace(row=ticked(row, now_ms - one.now_ms), now_ms=now_ms)
            else:
                yield Place(row, now_ms, now_ms + row.left if row.left else NEVER_MS, one.hidden)

    def _does(self, place: Place, event: Event, now_ms: float) -> Row | None:
        """The row after an event, the same one if it changes nothing; None if it cannot happen here."""
        row = place.row
        if event.kind == "pop":
            after = popped(row, event.handle, event.length_ms)
            return after if can_pop(row) and after.attempts == event.attempt <= self._max_attempts else None
        if event.kind == "lapsed":
            return None if lives(row, event.handle) else row
        if not lives(row, event.handle) or self._is_late(place, now_ms):
            return None
        if event.kind == "again":
            return row
        if event.kind == "extend":
            return extended(row, event.length_ms)
        after = self._ended(row, event)
        told_otherwise = event.certain and event.kind != "ack" and event.dead != (after.at == "dead")
        return None if told_otherwise else after

    def _ended(self, row: Row, event: Event) -> Row:
        """The row after an event that ends a delivery."""
        if event.kind == "ack":
            return acked(row)
        if event.kind == "reject":
            return rejected(row)
        if event.kind == "snooze":
            return uncounted(row, event.length_ms)
        return released(row, event.length_ms, self._max_attempts)

    def _is_late(self, place: Place, now_ms: float) -> bool:
        """Whether a live broker would have ended the lease long before."""
        if now_ms - place.due_ms <= LATE_MS:
            return False
        now_ns = int(now_ms * 1e6) - self._facts.history.wall_minus_monotonic_ns
        return now_ms - place.due_ms > LATE_MS + self._facts.silent_ms(place.due_ms, now_ns)

    def _hidden_pops(self, place: Place, until_ms: float) -> Iterator[Place]:
        """The places after a Pop whose answer nobody saw: it takes the message for a lease, and counts."""
        for number in range(place.hidden, len(self._hidden)):
            called_ms, gone_ms = self._hidden[number]
            now_ms = max(place.now_ms, called_ms)
            if called_ms > until_ms:
                return
            if gone_ms + CLOCKS_MS < now_ms:
                continue
            for one in self._by_itself(place, gone_ms):
                if can_pop(one.row) and one.row.attempts < self._max_attempts:
                    row = popped(one.row, f"hidden {number}", SHORTEST_LEASE_MS)
                    yield Place(row, now_ms, NEVER_MS, number + 1)


# ── Stories from histories ───────────────────────────────────────────────────────────────────────────────────────────


class Stories:
    """The stories of a history: for each group and message its events."""

    def __init__(
        self, facts: Facts, max_attempts: Mapping[str, int] = MAX_ATTEMPTS, topics: Sequence[str] = SPECIFIED
    ) -> None:
        self._facts, self._max_attempts, self._topics = facts, max_attempts, topics
        self._again: dict[str, list[Operation]] = {}
        self._unanswered: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for pop in facts.history.of("pop"):
            if pop.told.get("replay"):
                for row in pop.told["rows"]:
                    self._again.setdefault(row[1], []).append(pop)
            if pop.how == "unknown":
                times = self._ms(pop.called_ns), self._ms(pop.returned_ns)
                self._unanswered.setdefault((pop.asked["group"], pop.asked["topic"]), []).append(times)

    def problems(self, at_rest: bool = True) -> list[str]:
        """A sentence for each story that the relation does not allow, and for each oddity found while joining."""
        found = [sentence for _, sentence in self._facts.oddities]
        for group in self._max_attempts:
            for message_id, sent in self._facts.sent.items():
                if sent.topic not in self._topics:
                    continue
                chain = self._facts.chains.get((group, message_id), [])
                found += [f"{message_id}: delivered from another place" for one in chain if self._strays(one)]
                hidden = self._unanswered.get((group, sent.topic), [])
                events = [event for delivery in chain for event in self._events(delivery)]
                rests = at_rest and sent.position is not None  # the Send of any other one may never have arrived
                sent_ms = self._ms(sent.called_ns) - CLOCKS_MS
                replay = Replay(self._max_attempts[group], sent_ms, events, hidden, rests, self._facts)
                if not replay.fits():
                    found.append(f"{message_id} of {group}: no order of its {len(events)} events is allowed")
        unsent = {delivery.message_id for delivery in self._facts.by_handle.values()} - self._facts.sent.keys()
        return found + [f"{message_id}: delivered, and never sent" for message_id in sorted(unsent)]

    def _strays(self, delivery: Delivery) -> bool:
        """Whether a message came from another place than the one that its Send was answered."""
        position = self._facts.sent[delivery.message_id].position
        return position is not None and position != delivery.position

    def _events(self, delivery: Delivery) -> Iterator[Event]:
        """What happened to one delivery."""
        at_ms, lease_ms = delivery.popped_ms, delivery.until_ms - delivery.popped_ms
        yield Event("pop", delivery.handle, at_ms, at_ms, True, lease_ms, delivery.attempt)
        for pop in self._again.get(delivery.handle, ()):
            yield Event("again", delivery.handle, max(at_ms, self._ms(pop.called_ns)), self._ms(pop.returned_ns) + 1)
        for touch in delivery.touches:
            if touch.possible or touch.code == pb.HANDLE_LAPSED:
                yield self._touched(delivery, touch)

    def _touched(self, delivery: Delivery, touch: Touch) -> Event:
        """An ack or a change; of a change the answer tells when it happened."""
        from_ms = max(delivery.popped_ms, self._ms(touch.operation.called_ns) - CLOCKS_MS)
        # After a power cut the broker's clock is moved on by hours: it may be ahead of those of its clients.
        answered_ms = max(from_ms, self._ms(touch.operation.returned_ns) + CLOCKS_MS)
        to_ms = answered_ms if touch.code is not None else NEVER_MS
        kind = "snooze" if touch.uncounted else touch.kind
        if touch.code == pb.HANDLE_LAPSED:
            return Event("lapsed", delivery.handle, from_ms, to_ms)
        if touch.done and touch.kind in ("extend", "release") and not touch.dead:
            from_ms = to_ms = touch.visible_ms - touch.asked_ms
        return Event(kind, delivery.handle, from_ms, to_ms, touch.done, touch.asked_ms, dead=touch.dead)

    def _ms(self, monotonic_ns: int) -> float:
        return self._facts.history.wall_ms(monotonic_ns)


def main(folder: str) -> int:
    """Replays a folder of histories, and prints what does not fit; the exit code."""
    facts = Facts(read(Path(folder)))
    problems = Stories(facts).problems()
    print("\n".join([f"replay: {len(facts.sent):,} messages, {len(facts.by_handle):,} deliveries", *problems[:40]]))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
