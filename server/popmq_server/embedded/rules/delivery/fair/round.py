"""Round: the turns of one plan. It only reads, so a Peek, or a Pop that is refused, changes nothing; `apply` takes.

    ring of the index      bolt ─▶ cove ─▶ dime             the plan     visited: bolt (one message taken, more left)
    after the plan         cove ─▶ dime ─▶ bolt                                   acme (empty, or at a limit: leaves)

Deficit round robin: a turn is worth a message of up to 64 KiB. A larger one leaves a debt of a turn for each further
64 KiB, which its key, and its label, pay before they take again. So of n keys that may go each waits for at most n - 1
others, and for their debts, whatever number of messages they have.

A place that turns out to be no message to deliver, as one whose ttl is over, is given back: it counts for no limit, and
its key may go again.

A slot leaves the ring when it has nothing left or is at a limit. It comes back at the end when it gets a message, when
a lease of it ends, or at the time its rate permits (index.py).
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from popmq_server.embedded.rules.delivery.fair.limits import AFTER_A_LEASE, NOW
from popmq_server.embedded.rules.delivery.fair.waiting import FREE, FULL, KEY, LATER, OUT, SIZE_MASK, WaitingKeys

#: Slots that one plan visits at most (some 5 ms); the next one goes on where it stopped.
VISITS_MAX = 10_000
#: Keys in a row whose next message is in a queue with the group's limit of leases, after which a plan ends.
HELD_UP_MAX = 64
#: Units of a place that one turn is worth: 64 KiB.
TURN_BITS = 8
#: What a plan says of a place.
FITS, HELD_UP, ENDS = 0, 1, 2


class Taken(NamedTuple):
    """A message that a plan takes. `number`, `slot`: of its key."""

    place: int
    number: int
    retry: bool
    slot: int


class _Ring:
    """A ring as a plan goes round: first the slots that it has not visited, then those that it has visited and kept."""

    __slots__ = ("kept", "linked", "unvisited")

    def __init__(self, first: int) -> None:
        self.unvisited = first
        self.kept = deque[int]()
        self.linked = True  # whether the last slot was one that it had not visited

    def put_back(self, slot: int) -> None:
        """Makes the last slot the next one again."""
        if self.linked:
            self.unvisited = slot
        else:
            self.kept.appendleft(slot)

    @property
    def empty(self) -> bool:
        return not self.unvisited and not self.kept


class _Key:
    """What a plan has taken of a key: its next nodes, the last taken ones (0: none), and their number.

    `gone`: those that were given back.
    """

    __slots__ = ("gone", "last_message", "last_retry", "message", "retry", "retry_turn", "taken")

    def __init__(self, keys: WaitingKeys, slot: int) -> None:
        self.message, self.retry = keys.first[slot], keys.retry_first[slot]
        self.retry_turn = keys.retry_turn[slot]
        self.last_message = self.last_retry = self.taken = self.gone = 0


class Round:
    """The turns of one plan.

    `accepts`: whether a place, of a message or a retry entry, fits the plan: FITS, HELD_UP (its queue has the group's
    limit of leases), or ENDS (the plan has no bytes left). `may_go`: of a number and the taken messages of its key, as
    Limits.may_go; None: no key has a limit.
    """

    def __init__(
        self,
        keys: WaitingKeys,
        accepts: Callable[[int, bool], int],
        may_go: Callable[[int, int], int] | None,
    ) -> None:
        self._keys, self._accepts, self._may_go = keys, accepts, may_go
        self._rings: dict[int, _Ring] = {}
        self._taken: dict[int, _Key] = {}
        self._debts: dict[int, int] = {}
        #: Keys that left at a limit, each with its ring, and when it may go: AFTER_A_LEASE, or at a time.
        self._limited: list[tuple[int, _Ring, int]] = []
        self._left: list[int] = []
        self._visits = self._held_up = 0
        self._stopped = False

    @property
    def unfinished(self) -> bool:
        """Whether the plan ended although further keys may have a message."""
        return self._visits >= VISITS_MAX

    @property
    def later(self) -> list[tuple[int, int]]:
        """(time, slot) of the keys whose rate permits a message later."""
        return [(when, slot) for slot, _, when in self._limited if when != AFTER_A_LEASE]

    def take(self, parent: int, most: int) -> list[Taken]:
        """Takes up to `most` messages of a ring, one of each slot in turn. Fewer: no more may go, or the plan ends."""
        keys, debts, found = self._keys, self._debts, list[Taken]()
        ring = self._rings.get(parent)
        if ring is None:
            ring = self._rings[parent] = _Ring(keys.first[parent])
        after, kept, owed, kinds = keys.after, ring.kept, keys.debt, keys.kind
        while len(found) < most and not self._stopped:
            if slot := ring.unvisited:
                ring.unvisited, ring.linked = after[slot], True
            elif kept:
                slot, ring.linked = kept.popleft(), False
                if not kept and kinds[slot] == KEY and self._take_alone(slot, ring, most, found):
                    continue
            else:
                break
            self._visits += 1
            if self._visits >= VISITS_MAX:
                self._stopped = True
            debt = debts.get(slot, 0) if debts and slot in debts else owed[slot]
            if debt:
                debts[slot] = debt - 1
                kept.append(slot)
                continue
            taken = self._of_key(slot, ring) if kinds[slot] == KEY else self._of_label(slot, ring)
            if taken is not None:
                found.append(taken)
                if large := (taken.place & SIZE_MASK) - 1 >> TURN_BITS:
                    debts[slot] = large
        return found

    def _take_alone(self, slot: int, ring: _Ring, most: int, found: list[Taken]) -> bool:
        """Takes messages of the one key that is left in a ring, which has been visited before; False: it took none.

        It leaves to `take` whatever is not plain: limits, debts, retry entries, large messages, and what does not fit.
        """
        key, keys = self._taken.get(slot), self._keys
        if key is None or key.retry or self._may_go is not None or slot in self._debts:
            return False
        before, place_at, after, accepts = key.taken, keys.place, keys.next, self._accepts
        number, most = keys.number[slot], min(most, len(found) + VISITS_MAX - self._visits - 1)
        while (node := key.message) and len(found) < most:
            place = place_at[node]
            if (place & SIZE_MASK) - 1 >> TURN_BITS or accepts(place, False):
                break
            found.append(Taken(place, number, False, slot))
            key.last_message, key.message = node, after[node]
            key.taken += 1
        if key.taken == before:
            return False
        self._visits += key.taken - before
        self._held_up, key.retry_turn = 0, 1
        if key.message:
            ring.kept.append(slot)
        else:
            self._left.append(slot)
        return True

    def _of_label(self, slot: int, ring: _Ring) -> Taken | None:
        taken = self.take(slot, 1)
        if not taken and self._stopped:
            ring.put_back(slot)
        elif self._rings[slot].empty:
            self._left.append(slot)
        else:
            ring.kept.append(slot)
        return taken[0] if taken else None

    def _of_key(self, slot: int, ring: _Ring) -> Taken | None:
        """The next message of a key; None if it is at a limit, or its message does not fit."""
        keys, key = self._keys, self._taken.get(slot)
        if key is None:
            key = _Key(keys, slot)
        number = keys.number[slot]
        if self._may_go is not None and (verdict := self._may_go(number, key.taken - key.gone)) != NOW:
            self._limited.append((slot, ring, verdict))
            return None
        retry = bool(key.retry) and bool(key.retry_turn or not key.message)
        node = key.retry if retry else key.message
        place = keys.place[node]
        if accepted := self._accepts(place, retry):
            self._refused(slot, ring, accepted)
            return None
        self._held_up = 0
        self._taken[slot] = key
        key.taken += 1
        if retry:
            key.last_retry, key.retry = node, keys.next[node]
        else:
            key.last_message, key.message = node, keys.next[node]
        key.retry_turn = not retry
        if key.message or key.retry:
            ring.kept.append(slot)
        else:
            self._left.append(slot)
        return Taken(place, number, retry, slot)

    def _refused(self, slot: int, ring: _Ring, how: int) -> None:
        """A key keeps its turn: at once if the plan ends, else after the others."""
        if how == ENDS:
            self._stopped = True
            ring.put_back(slot)
            return
        self._held_up += 1
        self._stopped = self._stopped or self._held_up >= HELD_UP_MAX
        ring.kept.append(slot)

    def give_back(self, gone: Sequence[Taken]) -> None:
        """Taken places that are not delivered: they count for no limit, and the plan may go on."""
        for taken in gone:
            self._taken[taken.slot].gone += 1
        self._stopped, self._held_up = self._visits >= VISITS_MAX, 0
        again = {taken.slot for taken in gone}
        limited, self._limited = self._limited, []
        for slot, ring, when in limited:
            if slot not in again:
                self._limited.append((slot, ring, when))
                continue
            ring.kept.append(slot)
            parent = self._keys.parent[slot]
            if parent in self._left:  # a label that left with it
                self._left.remove(parent)
                self._rings[self._keys.parent[parent]].kept.append(parent)

    def apply(self, count: Callable[[int, int], None]) -> None:
        """Removes what was taken from the keys. `count`: called with each number and its delivered messages."""
        keys = self._keys
        for slot, key in self._taken.items():
            keys.take_up_to(slot, key.last_message, key.last_retry, key.taken)
            keys.retry_turn[slot] = key.retry_turn
            if self._may_go is not None:
                count(keys.number[slot], key.taken - key.gone)
        for slot, debt in self._debts.items():
            keys.debt[slot] = debt
        for parent, ring in self._rings.items():
            keys.set_ring(parent, ring.unvisited, list(ring.kept))
        for slot, _, when in self._limited:
            keys.state[slot] = FULL if when == AFTER_A_LEASE else LATER
        for slot in self._left:
            keys.state[slot] = OUT
        for slot in self._left:
            if keys.kind[slot] != FREE:  # a label leaves with its last key
                keys.drop(slot)
