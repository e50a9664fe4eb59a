"""What waits, by key: messages as packed numbers in arrays, and the ring of keys that may go.

    place   queue [10 bits] · offset, less that of the index [38] · size in units of 256 bytes, rounded up [16]
            of a retry entry the number of its row stands for the offset
    node    a waiting message: its place [8 bytes], its position in the log [8], and the next node of its key [4]
    slot    a key, a label or a root: some 40 bytes in arrays, beside its entry in the table of slots

    root ─ ring ─▶ acme ─▶ bolt ─▶ cove          without labels
    root ─ ring ─▶ acme ─▶ bolt                  with labels: turns go by label, then by key
                    └ ring ─▶ acme/eu ─▶ acme/us

A PRIORITY topic has a root for each queue, other topics have one. Retry entries of a key are a list of their own, which
takes turns with its messages.

A slot is in the ring of its parent while it may go. Nodes and slots are numbers, 0 is none. No object for each key or
message: a key with one message takes some 190 bytes, each further message 20 (tests/engine/delivery/fair).
"""

from array import array
from collections.abc import Callable
from itertools import repeat

from popmq_server.embedded.invariants.broken import broken

#: Bits of a place.
SIZE_BITS, OFFSET_BITS = 16, 38
OFFSET_END = 1 << OFFSET_BITS
SIZE_MASK, OFFSET_MASK = (1 << SIZE_BITS) - 1, OFFSET_END - 1
QUEUE_SHIFT = SIZE_BITS + OFFSET_BITS
#: Bytes of a unit of size, in bits.
UNIT_BITS = 8
#: States of a slot: it has nothing that may go; it is in the ring; it waits for a lease to end, or for its rate.
OUT, IN, FULL, LATER = 0, 1, 2, 3
#: Kinds of slots; a free one.
KEY, LABEL, ROOT, FREE = 0, 1, 2, 3
#: The number of a slot in the table also has its root.
_ROOT_SHIFT = 60


def place_of(queue: int, offset: int, size: int) -> int:
    """A place; `offset` is less than OFFSET_END."""
    units = min((size + (1 << UNIT_BITS) - 1) >> UNIT_BITS, SIZE_MASK)
    return queue << QUEUE_SHIFT | offset << SIZE_BITS | units


def queue_of(place: int) -> int:
    """The queue of a place."""
    return place >> QUEUE_SHIFT


def offset_of(place: int) -> int:
    """The offset of a place, less that of the index."""
    return place >> SIZE_BITS & OFFSET_MASK


def units_of(place: int) -> int:
    """The size of a place, in units."""
    return place & SIZE_MASK


class WaitingKeys:
    """Keys with their waiting messages, and their rings. A plan reads the arrays (round.py) and then changes them."""

    def __init__(self) -> None:
        self.place, self.position = array("Q", (0,)), array("Q", (0,))
        self.next = array("I", (0,))
        self.number = array("Q", (0,))
        self.parent = array("I", (0,))
        #: The next slot in the ring.
        self.after = array("I", (0,))
        #: Nodes of a key; of a label or root the slots of its ring.
        self.first = array("I", (0,))
        self.last = array("I", (0,))
        self.retry_first = array("I", (0,))
        self.retry_last = array("I", (0,))
        #: Waiting messages of a key; keys of a label.
        self.count = array("I", (0,))
        #: Turns that a slot still owes for large messages.
        self.debt = array("H", (0,))
        self.state = array("B", (0,))
        self.kind = array("B", (0,))
        #: Whether the retry entries of a key have the next turn.
        self.retry_turn = array("B", (0,))
        lists = self.first, self.last, self.retry_first, self.retry_last
        small = self.count, self.debt, self.state, self.kind, self.retry_turn
        self._of_slots = (self.number, self.parent, self.after, *lists, *small)
        self.roots: dict[int, int] = {}
        #: Messages and retry entries that wait; slots of labels.
        self.messages = self.labels = 0
        self._slots: dict[int, int] = {}
        self._free_node = self._free_slot = 0

    @property
    def keys(self) -> int:
        """The number of keys and labels."""
        return len(self._slots)

    def root(self, band: int) -> int:
        """The root of a queue of a PRIORITY topic, or the one of all queues."""
        if band not in self.roots:
            self.roots[band] = self._new_slot(band, 0, ROOT)
        return self.roots[band]

    def slot(self, number: int, band: int = 0) -> int:
        """The slot of a key or label; 0: it has none."""
        return self._slots.get(number | band << _ROOT_SHIFT, 0)

    def slots(self, number: int) -> list[int]:
        """The slots of a key under all roots."""
        return [slot for band in self.roots if (slot := self.slot(number, band))]

    def add(
        self, band: int, number: int, label: int | None, place: int, position: int = 0, *, retry: bool = False
    ) -> None:
        """Adds a message at the end of its key. `position`: in the log."""
        slot = self._slots.get(number | band << _ROOT_SHIFT) or self._new_key(band, number, label)
        (node,) = self._new_nodes([place], [position])
        first, last = (self.retry_first, self.retry_last) if retry else (self.first, self.last)
        if first[slot]:
            self.next[last[slot]] = node
        else:
            first[slot] = node
        last[slot] = node
        self.count[slot] += 1
        if not self.state[slot]:
            self.enter(slot)

    def extend(
        self,
        band: int,
        numbers: list[int],
        places: list[int],
        positions: list[int],
        labels: Callable[[int], int | None],
    ) -> None:
        """Adds messages, as `add` of each would. `labels`: the number of the label of the n-th; None: no labels."""
        first, last, after, count, state = self.first, self.last, self.next, self.count, self.state
        nodes = self._new_nodes(places, positions)
        slots = map(self._slots.get, [number | band << _ROOT_SHIFT for number in numbers] if band else numbers)
        for index, (node, slot) in enumerate(zip(nodes, slots, strict=True)):
            if slot is None:  # also of those that this loop has not made: `map` looks when it is asked
                slot = self._new_key(band, numbers[index], labels(index))
            if before := last[slot]:
                after[before] = node
            else:
                first[slot] = node
            last[slot] = node
            count[slot] += 1
            if not state[slot]:
                self.enter(slot)

    def enter(self, slot: int) -> None:
        """Puts a slot at the end of its ring, and its label at the end of that of the root."""
        self.state[slot] = IN
        parent = self.parent[slot]
        self.after[slot] = 0
        if self.first[parent]:
            self.after[self.last[parent]] = slot
        else:
            self.first[parent] = slot
        self.last[parent] = slot
        if self.kind[parent] == LABEL and self.state[parent] != IN:
            self.enter(parent)

    def set_ring(self, parent: int, unvisited: int, kept: list[int]) -> None:
        """Makes a ring of the slots that a plan did not visit, from `unvisited` on, and then of those that it kept."""
        last = self.last[parent] if unvisited else 0
        first = unvisited
        for slot in kept:
            if last:
                self.after[last] = slot
            else:
                first = slot
            last = slot
        if last:
            self.after[last] = 0
        self.first[parent], self.last[parent] = first, last

    def take_up_to(self, slot: int, message: int, retry: int, taken: int) -> None:
        """Removes the nodes of a key up to these two, which are the last that are taken (0: none), `taken` in all."""
        if message:
            self._free(self.first, self.last, slot, message)
        if retry:
            self._free(self.retry_first, self.retry_last, slot, retry)
        if taken > self.count[slot]:
            broken("fair_key_waiting_counted", slot=slot, waiting=self.count[slot], taken=taken)
        if taken > self.messages:
            broken("fair_messages_counted", waiting=self.messages, taken=taken)
        self.count[slot] -= taken
        self.messages -= taken

    def take_plain(self, taken: dict[int, int], times: dict[int, int]) -> None:
        """Removes the nodes of keys without retry entries up to these, by slot. `times`: how many, if not one."""
        first, last, following, count, turn = self.first, self.last, self.next, self.count, self.retry_turn
        free, messages = self._free_node, self.messages - len(taken)
        for slot, node in taken.items():
            if not count[slot]:
                broken("fair_key_waiting_counted", slot=slot, waiting=0, taken=1)
            left = following[node]
            following[node], free, first[slot] = free, first[slot], left
            if not left:
                last[slot] = 0
            count[slot] -= 1
            turn[slot] = 1
        for slot, number in times.items():
            if number - 1 > count[slot]:
                broken("fair_key_waiting_counted", slot=slot, waiting=count[slot] + 1, taken=number)
            count[slot] -= number - 1
            messages -= number - 1
        if messages < 0:
            broken("fair_messages_counted", waiting=self.messages, taken=self.messages - messages)
        self._free_node = free
        self.messages = messages

    def _free(self, first: "array[int]", last: "array[int]", slot: int, stop: int) -> None:
        """Frees the nodes of a list up to `stop`."""
        begin, left = first[slot], self.next[stop]
        self.next[stop], self._free_node = self._free_node, begin
        first[slot] = left
        if not left:
            last[slot] = 0

    def drop(self, slot: int) -> None:
        """Removes a slot that is in no ring: a key without messages, and then its label if that has no key."""
        while self.kind[slot] != ROOT and not self.count[slot]:
            parent = self.parent[slot]
            band = self._band(slot)
            if self._slots.pop(self.number[slot] | band << _ROOT_SHIFT, 0) != slot:
                broken("fair_key_has_its_slot", slot=slot)
            self.labels -= self.kind[slot] == LABEL
            self.after[slot], self._free_slot, self.kind[slot] = self._free_slot, slot, FREE
            if self.kind[parent] != LABEL:
                return
            if not self.count[parent]:
                broken("fair_label_counted", slot=parent)
            self.count[parent] -= 1
            if self.state[parent] == IN:
                return
            slot = parent

    def _band(self, slot: int) -> int:
        while self.kind[slot] != ROOT:
            slot = self.parent[slot]
        return self.number[slot]

    def _new_key(self, band: int, number: int, label: int | None) -> int:
        parent = self.root(band)
        if label is not None:
            above = self._slots.get(label | band << _ROOT_SHIFT)
            parent = above or self._named(band, label, parent, LABEL)
            self.count[parent] += 1
        return self._named(band, number, parent, KEY)

    def _named(self, band: int, number: int, parent: int, kind: int) -> int:
        slot = self._new_slot(number, parent, kind)
        self._slots[number | band << _ROOT_SHIFT] = slot
        self.labels += kind == LABEL
        return slot

    def _new_slot(self, number: int, parent: int, kind: int) -> int:
        """A slot. One that was used has no nodes and no keys any more, so only its other fields are set."""
        slot = self._free_slot
        if not slot:
            for numbers in self._of_slots:
                numbers.append(0)
            slot = len(self.number) - 1
        else:
            self._free_slot = self.after[slot]
            self.after[slot] = self.debt[slot] = self.state[slot] = self.retry_turn[slot] = 0
        self.number[slot], self.parent[slot], self.kind[slot] = number, parent, kind
        return slot

    def _new_nodes(self, places: list[int], positions: list[int]) -> list[int]:
        """A node for each place: first those that were used."""
        place_at, position_at, following, nodes = self.place, self.position, self.next, list[int]()
        free = self._free_node
        while free and len(nodes) < len(places):
            nodes.append(free)
            free = following[free]
        self._free_node = free
        for node, place, position in zip(nodes, places, positions, strict=False):
            place_at[node], position_at[node], following[node] = place, position, 0
        used, begin = len(nodes), len(place_at)
        place_at.extend(places[used:])
        position_at.extend(positions[used:])
        following.extend(repeat(0, len(places) - used))
        self.messages += len(places)
        return [*nodes, *range(begin, len(place_at))]
