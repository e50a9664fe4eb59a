"""Round: the turns of one plan. It only reads, so a Peek, or a Pop that is refused, changes nothing; `apply` takes.

    ring of the index      bolt ─▶ cove ─▶ dime             the plan     visited: bolt (one message taken, more left)
    after the plan         cove ─▶ dime ─▶ bolt                                   acme (empty, or at a limit: leaves)

Deficit round robin: a turn is worth a message of up to 64 KiB. A larger one leaves a debt of a turn for each further
64 KiB, which its key, and its label, pay before they take again. So of n keys that may go each waits for at most n - 1
others, and for their debts, whatever number of messages they have.

A slot leaves the ring when it has nothing left or is at a limit. It comes back at the end when it gets a message, when
a lease of it ends, or at the time its rate permits (index.py).
"""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from popmq_server.embedded.rules.delivery.fair import waiting
from popmq_server.embedded.rules.delivery.fair.limits import AFTER_A_LEASE, NOW
from popmq_server.embedded.rules.delivery.fair.waiting import FREE, FULL, KEY, LATER, OUT, WaitingKeys

#: Slots that one plan visits at most (some 5 ms); the next one goes on where it stopped.
VISITS_MAX = 10_000
#: Keys in a row whose next message is in a queue with the group's limit of leases, after which a plan ends.
HELD_UP_MAX = 64
#: Units of a place that one turn is worth: 64 KiB.
TURN_BITS = 8


class Taken(NamedTuple):
    """A message that a plan takes. `number`: of its key."""

    place: int
    number: int
    retry: bool


class _Ring:
    """A ring as a plan goes round: first the slots that it has not visited, then those that it has visited and kept."""

    __slots__ = ("_from_kept", "kept", "unvisited")

    def __init__(self, first: int) -> None:
        self.unvisited = first
        self.kept = deque[int]()
        self._from_kept = False

    def next(self, keys: WaitingKeys) -> int:
        slot = self.unvisited
        self._from_kept = not slot
        if slot:
            self.unvisited = keys.after[slot]
            return slot
        return self.kept.popleft() if self.kept else 0

    def put_back(self, slot: int) -> None:
        """Makes the slot that was returned last the next one again."""
        if self._from_kept:
            self.kept.appendleft(slot)
        else:
            self.unvisited = slot

    @property
    def empty(self) -> bool:
        return not self.unvisited and not self.kept


class _Key:
    """What a plan has taken of a key: its next nodes, and the number of its taken ones."""

    __slots__ = ("message", "retry", "retry_turn", "taken")

    def __init__(self, keys: WaitingKeys, slot: int) -> None:
        self.message, self.retry = keys.first[slot], keys.retry_first[slot]
        self.retry_turn = bool(keys.retry_turn[slot])
        self.taken = 0

    @property
    def takes_retry(self) -> bool:
        """Whether its next message is one of the retry topic."""
        return bool(self.retry) and (self.retry_turn or not self.message)


class Round:
    """The turns of one plan.

    `may_lease`: whether the group may lease one more message of a place's queue, or of the retry topic. `fits`: whether
    a place fits the plan, asked last. `may_go`: of a number and the taken messages of its key, as Limits.may_go.
    `limited`: whether any key has a limit.
    """

    def __init__(
        self,
        keys: WaitingKeys,
        fits: Callable[[int], bool],
        may_lease: Callable[[int, bool], bool],
        may_go: Callable[[int, int], int],
        limited: bool,
    ) -> None:
        self._keys = keys
        self._fits, self._may_lease, self._may_go, self._limited = fits, may_lease, may_go, limited
        self._rings: dict[int, _Ring] = {}
        self._taken: dict[int, _Key] = {}
        self._debts: dict[int, int] = {}
        #: Slots that left: keys at their limit of leases; (time, key) of those whose rate permits one later.
        self._full: list[int] = []
        self.later: list[tuple[int, int]] = []
        self._left: list[int] = []
        self._visits = self._held_up = 0
        self._stopped = False

    @property
    def unfinished(self) -> bool:
        """Whether the plan ended although further keys may have a message."""
        return self._visits >= VISITS_MAX

    def take(self, parent: int) -> Taken | None:
        """Takes the next message of a ring; None: no key may go, or the plan ends."""
        keys, ring = self._keys, self._rings.get(parent)
        if ring is None:
            ring = self._rings[parent] = _Ring(keys.first[parent])
        while not self._stopped and (slot := ring.next(keys)):
            self._visits += 1
            if debt := self._debts.get(slot, keys.debt[slot]):
                self._debts[slot] = debt - 1
                ring.kept.append(slot)
                self._stopped = self._visits >= VISITS_MAX
                continue
            taken = self._of_key(slot, ring) if keys.kind[slot] == KEY else self._of_label(slot, ring)
            if taken is not None:
                if owed := (waiting.units_of(taken.place) - 1) >> TURN_BITS:
                    self._debts[slot] = owed
                return taken
        return None

    def _of_label(self, slot: int, ring: _Ring) -> Taken | None:
        taken = self.take(slot)
        if taken is None and self._stopped:
            ring.put_back(slot)
        elif self._rings[slot].empty:
            self._left.append(slot)
        else:
            ring.kept.append(slot)
        return taken

    def _of_key(self, slot: int, ring: _Ring) -> Taken | None:
        keys, key = self._keys, self._taken.get(slot)
        if key is None:
            key = _Key(keys, slot)
        if self._limited and (verdict := self._may_go(keys.number[slot], key.taken)) != NOW:
            if verdict == AFTER_A_LEASE:
                self._full.append(slot)
            else:
                self.later.append((verdict, slot))
            self._stopped = self._visits >= VISITS_MAX
            return None
        retry = key.takes_retry
        place = keys.place[key.retry if retry else key.message]
        if not self._may_lease(place, retry):
            self._held_up += 1
            self._stopped = self._held_up >= HELD_UP_MAX or self._visits >= VISITS_MAX
            ring.kept.append(slot)
            return None
        if not self._fits(place):
            self._stopped = True
            ring.put_back(slot)
            return None
        self._held_up = 0
        self._taken[slot] = key
        key.taken += 1
        if retry:
            key.retry = keys.next[key.retry]
        else:
            key.message = keys.next[key.message]
        key.retry_turn = not retry
        if key.message or key.retry:
            ring.kept.append(slot)
        else:
            self._left.append(slot)
        return Taken(place, keys.number[slot], retry)

    def apply(self, count: Callable[[int, int], None]) -> None:
        """Removes what was taken from the keys. `count`: called with each number and its taken messages."""
        keys = self._keys
        for slot, key in self._taken.items():
            keys.take_up_to(slot, key.message, key.retry, key.taken)
            keys.retry_turn[slot] = key.retry_turn
            if self._limited:
                count(keys.number[slot], key.taken)
        for slot, debt in self._debts.items():
            keys.debt[slot] = debt
        for parent, ring in self._rings.items():
            keys.set_ring(parent, ring.unvisited, list(ring.kept))
        for slot in self._full:
            keys.state[slot] = FULL
        for _, slot in self.later:
            keys.state[slot] = LATER
        for slot in self._left:
            keys.state[slot] = OUT
        for slot in self._left:
            if keys.kind[slot] != FREE:  # a label leaves with its last key
                keys.drop(slot)
