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

import itertools
from collections import deque
from collections.abc import Callable, Sequence

from popmq_server.embedded.rules.delivery.fair.limits import AFTER_A_LEASE, NOW
from popmq_server.embedded.rules.delivery.fair.waiting import (
    FREE,
    FULL,
    KEY,
    LABEL,
    LATER,
    OUT,
    SIZE_MASK,
    WaitingKeys,
)

#: Slots that one plan visits at most (some 5 ms); the next one goes on where it stopped.
VISITS_MAX = 10_000
#: Keys in a row whose next message is in a queue with the group's limit of leases, after which a plan ends.
HELD_UP_MAX = 64
#: Units of a place that one turn is worth: 64 KiB.
TURN_BITS = 8
TURN_UNITS = 1 << TURN_BITS
#: What a plan says of a place.
FITS, HELD_UP, ENDS = 0, 1, 2


class Taken:
    """What a plan takes, in the order of turns: of each message its place, its node, and the slot of its key.

    `retries`: which of them are retry entries. In columns, since a batch has hundreds.
    """

    __slots__ = ("nodes", "places", "retries", "slots")

    def __init__(self) -> None:
        self.places = list[int]()
        self.nodes = list[int]()
        self.slots = list[int]()
        self.retries = set[int]()

    def __len__(self) -> int:
        return len(self.places)

    def add(self, slot: int, node: int, place: int, retry: bool) -> None:
        """Adds one message."""
        if retry:
            self.retries.add(len(self.places))
        self.places.append(place)
        self.nodes.append(node)
        self.slots.append(slot)


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

    `accepts_all`: as `accepts`, whether several messages fit; False counts none of them.
    `accepts`: whether a place, of a message or a retry entry, fits the plan: FITS, HELD_UP (its queue has the group's
    limit of leases), or ENDS (the plan has no bytes left). `may_go`: of a number and the taken messages of its key, as
    Limits.may_go; None: no key has a limit.
    """

    def __init__(
        self,
        keys: WaitingKeys,
        accepts: Callable[[int, bool], int],
        accepts_all: Callable[[list[int]], bool],
        may_go: Callable[[int, int], int] | None,
    ) -> None:
        self._keys, self._accepts, self._accepts_all, self._may_go = keys, accepts, accepts_all, may_go
        self._rings: dict[int, _Ring] = {}
        self._taken: dict[int, _Key] = {}
        #: Keys of which only `_lap` has taken messages, by slot: the last one, and how many if there are several.
        self._plain: dict[int, int] = {}
        self._times: dict[int, int] = {}
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

    def take(self, root: int, most: int) -> Taken:
        """Takes up to `most` messages of a root, one of each slot in turn. Fewer: no more may go, or the plan ends."""
        found = Taken()
        self._fill(root, most, found)
        return found

    def _fill(self, parent: int, most: int, found: Taken) -> None:
        """Takes messages of a ring until there are `most` of them."""
        keys, debts = self._keys, self._debts
        ring = self._rings.get(parent)
        if ring is None:
            ring = self._rings[parent] = _Ring(keys.first[parent])
        after, kept, owed, kinds = keys.after, ring.kept, keys.debt, keys.kind
        of_keys = self._may_go is None and (kinds[parent] == LABEL or not keys.labels)
        while len(found) < most and not self._stopped:
            if of_keys and most - len(found) > 1 and self._lap(ring, most, found):
                continue
            if slot := ring.unvisited:
                ring.unvisited, ring.linked = after[slot], True
            elif kept:
                slot, ring.linked = kept.popleft(), False
                if not kept and self._take_alone(slot, ring, most, found):
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
            elif self._of_key(slot, ring, found) if kinds[slot] == KEY else self._of_label(slot, ring, found):
                self._note_debt(slot, found)

    def _note_debt(self, slot: int, found: Taken) -> None:
        """A large message, the last one, is more than one turn of a key, and of its label."""
        if large := (found.places[-1] & SIZE_MASK) - 1 >> TURN_BITS:
            self._debts[slot] = large

    def _lap(self, ring: _Ring, most: int, found: Taken) -> bool:
        """Takes a message of each next slot of a ring of keys in one go, as long as they are what most are: without
        debts and retry entries, their next message small. All of them fit the plan, or none is taken. No key has a
        limit.
        """
        most = min(most - len(found), VISITS_MAX - self._visits - 1)
        nodes, unvisited = self._unvisited(ring.unvisited, most) if ring.unvisited else (self._visited(ring, most), 0)
        if not nodes or not self._take_all([*nodes], [*nodes.values()], found):
            return False
        if not ring.unvisited:
            for slot in nodes:
                ring.kept.popleft()
                self._times[slot] = self._times.get(slot, 1) + 1
        ring.unvisited = unvisited
        self._plain.update(nodes)
        following = self._keys.next
        for slot, node in nodes.items():
            (ring.kept if following[node] else self._left).append(slot)
        return True

    def _take_all(self, slots: list[int], nodes: list[int], found: Taken) -> bool:
        """Takes messages in one go, if all of them fit the plan."""
        places = list(map(self._keys.place.__getitem__, nodes))
        if not self._accepts_all(places):
            return False
        found.places += places
        found.nodes += nodes
        found.slots += slots
        self._visits += len(nodes)
        self._held_up = 0
        return True

    def _unvisited(self, slot: int, most: int) -> tuple[dict[int, int], int]:
        """The slots of a lap that the plan has not visited, from one on, each with its first node; the next slot."""
        keys, nodes = self._keys, dict[int, int]()
        first, after, owed, retries, place_at = keys.first, keys.after, keys.debt, keys.retry_first, keys.place
        while slot and len(nodes) < most:
            node = first[slot]
            if owed[slot] or retries[slot] or place_at[node] & SIZE_MASK > TURN_UNITS:
                break
            nodes[slot] = node
            slot = after[slot]
        return nodes, slot

    def _visited(self, ring: _Ring, most: int) -> dict[int, int]:
        """The slots of a lap that were in one before, each with its next node."""
        following, place_at, plain, nodes = self._keys.next, self._keys.place, self._plain, dict[int, int]()
        for slot in itertools.islice(ring.kept, most if len(ring.kept) > 1 else 0):
            node = following[plain[slot]] if slot in plain else 0
            if not node or place_at[node] & SIZE_MASK > TURN_UNITS:
                break
            nodes[slot] = node
        return nodes

    def _take_alone(self, slot: int, ring: _Ring, most: int, found: Taken) -> bool:
        """Takes messages of the one slot that is left in a ring, which has been visited before, perhaps in vain.

        It leaves to `_fill` whatever is not plain: limits, debts, retry entries, large messages, what does not fit.
        """
        keys = self._keys
        if self._may_go is not None or slot in self._debts:
            return False
        if keys.kind[slot] == LABEL:
            before = len(found)
            self._fill(slot, most, found)
            if len(found) == before:
                return False
            self._leave_or_stay(slot, ring)
            self._note_debt(slot, found)
            return True
        if (key := self._key(slot)).retry:
            return False
        place_at, following, node, nodes = keys.place, keys.next, key.message, list[int]()
        most = min(most - len(found), VISITS_MAX - self._visits - 1)
        while node and len(nodes) < most and place_at[node] & SIZE_MASK <= TURN_UNITS:
            nodes.append(node)
            node = following[node]
        if not nodes or not self._take_all([slot] * len(nodes), nodes, found):
            return False
        self._taken[slot] = key
        key.last_message, key.message = nodes[-1], node
        key.taken += len(nodes)
        key.retry_turn = 1
        (ring.kept if node else self._left).append(slot)
        return True

    def _key(self, slot: int) -> _Key:
        """What the plan has taken of a key."""
        key = self._taken.get(slot)
        if key is None:
            key = _Key(self._keys, slot)
            if node := self._plain.pop(slot, 0):
                key.last_message, key.message, key.retry_turn = node, self._keys.next[node], 1
                key.taken = self._times.pop(slot, 1)
                self._taken[slot] = key
        return key

    def _of_label(self, slot: int, ring: _Ring, found: Taken) -> bool:
        """Takes the next message of a label; False: none of its keys may go."""
        before = len(found)
        self._fill(slot, before + 1, found)
        if len(found) == before and self._stopped:
            ring.put_back(slot)
        else:
            self._leave_or_stay(slot, ring)
        return len(found) > before

    def _leave_or_stay(self, label: int, ring: _Ring) -> None:
        """A label that took leaves its ring when it has nothing left."""
        (self._left if self._rings[label].empty else ring.kept).append(label)

    def _of_key(self, slot: int, ring: _Ring, found: Taken) -> bool:
        """Takes the next message of a key; False: it is at a limit, or its message does not fit."""
        keys, key = self._keys, self._key(slot)
        number = keys.number[slot]
        if self._may_go is not None and (verdict := self._may_go(number, key.taken - key.gone)) != NOW:
            self._limited.append((slot, ring, verdict))
            return False
        retry = bool(key.retry) and bool(key.retry_turn or not key.message)
        node = key.retry if retry else key.message
        place = keys.place[node]
        if accepted := self._accepts(place, retry):
            self._refused(slot, ring, accepted)
            return False
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
        found.add(slot, node, place, retry)
        return True

    def _refused(self, slot: int, ring: _Ring, how: int) -> None:
        """A key keeps its turn: at once if the plan ends, else after the others."""
        if how == ENDS:
            self._stopped = True
            ring.put_back(slot)
            return
        self._held_up += 1
        self._stopped = self._stopped or self._held_up >= HELD_UP_MAX
        ring.kept.append(slot)

    def give_back(self, gone: Sequence[int]) -> None:
        """The slots of taken messages that are not delivered: these count for no limit, and the plan may go on."""
        for slot in gone:
            self._key(slot).gone += 1
        self._stopped, self._held_up = self._visits >= VISITS_MAX, 0
        again = set(gone)
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
        keys.take_plain(self._plain, self._times)
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
