"""FairIndex: the messages of one group in one topic that wait by fair key, and how far its queues have been read.

    poff ────────────── scanned ─────────── end of the queue
         waits, or taken         not read yet: the next piece of reading.py. If that is much, its end is read first

It is a cache of the store, in memory only: see the package. It holds at most MESSAGES_MAX messages of at most KEYS_MAX
keys and labels, some 80 MiB. The backlog is read until nine tenths of these are used, and goes on as messages are
taken. The last tenth is for what is sent meanwhile, so that a key which comes then has its turns.
"""

import heapq
from collections import defaultdict

from popmq_server.embedded.rules.delivery.fair import keys as fair_keys
from popmq_server.embedded.rules.delivery.fair import waiting
from popmq_server.embedded.rules.delivery.fair.limits import Limits
from popmq_server.embedded.rules.delivery.fair.waiting import FULL, LATER, OFFSET_END, WaitingKeys, place_of
from popmq_server.embedded.rules.topics import readers
from popmq_server.embedded.state.state import State
from popmq_server.embedded.state.tx import Tx
from popmq_server.values.filters.filter import Filter
from popmq_server.values.ids import GroupTopic, Taken
from popmq_server.values.records import FairKeys, Group, Topic

#: Messages that wait in memory (40 MiB), and their keys and labels (36 MiB); one part in so many is for what is sent.
MESSAGES_MAX, KEYS_MAX, FRESH_PART = 2_000_000, 200_000, 10
#: Why a message is passed without a lease: names of counters in Stat.
DROPPED, FILTERED = "dropped", "filtered"
_SLOT_BITS = 32


class FairIndex:
    """What waits by fair key for one group in one topic. `wanted`: the group's filter."""

    def __init__(self, where: GroupTopic, fair: FairKeys, topic: Topic, wanted: Filter) -> None:
        self.fair, self.wanted = fair, wanted
        self.keys, self.limits = WaitingKeys(), Limits(fair, where)
        #: The next offset to read of each queue; the one that a place counts from.
        self.scanned: dict[int, int] = {}
        self.base: dict[int, int] = {}
        #: Of queues whose end is read before `scanned` is there: the next offset to read at the end, and a bit for each
        #: message that was added from there, in blocks as those of `taken`.
        self.fresh_to: dict[int, int] = {}
        self.fresh: dict[int, Taken] = {}
        #: The queue of which a span was read last, in the backlog and at the ends.
        self.last_read = [-1, -1]
        #: The next retry entry to read, and the number that its place counts from; None: none was read yet.
        self.retries_from = self.retries_base = 0
        #: Whether a piece left retry entries unread.
        self.more_retries = False
        #: What the next Pop passes without a lease: by queue and reason, stretches of offsets.
        self.passing: defaultdict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
        self.read_keys = fair_keys.reader_of(fair)
        self._by_priority = topic.type == "PRIORITY"
        self._separator = fair.separator.encode()
        self._freed: list[int] = []
        self._later: list[int] = []

    @property
    def full(self) -> bool:
        """Whether no more of the backlog is read now."""
        return self._holds(MESSAGES_MAX - MESSAGES_MAX // FRESH_PART, KEYS_MAX - KEYS_MAX // FRESH_PART)

    @property
    def full_of_fresh(self) -> bool:
        """Whether nothing is read now, not even at the ends of the queues."""
        return self._holds(MESSAGES_MAX, KEYS_MAX)

    def _holds(self, messages: int, keys: int) -> bool:
        return self.keys.messages >= messages or self.keys.keys >= keys

    @property
    def may_go(self) -> bool:
        """Whether a key is in a ring."""
        return any(self.keys.first[root] for root in self.keys.roots.values())

    @property
    def has_begun(self) -> bool:
        """Whether any message was read."""
        return self.scanned != self.base

    def waiting_of(self, key: bytes, queue: int) -> int:
        """How many messages of a key wait, of those that take turns with the messages of a queue."""
        return self.keys.count[self.keys.slot(fair_keys.number_of(key), self.band_of(queue))]

    def reach(self, queue: int, offset: int) -> None:
        """Notes that a queue was read up to an offset; whether what was read at its end is behind that now."""
        self.scanned[queue] = offset
        if offset >= self.fresh_to.get(queue, offset + 1):
            del self.fresh_to[queue], self.fresh[queue]

    def band_of(self, queue: int) -> int:
        """The number of the root under which messages of a queue wait: keys take turns within a priority."""
        return queue if self._by_priority else 0

    def add(self, key: bytes, queue: int, offset: int, size: int, *, retry: bool = False) -> None:
        """Adds a message; `offset` is relative to that of the index."""
        place = place_of(queue, offset, size)
        self.keys.add(self.band_of(queue), fair_keys.number_of(key), self._label(key), place, retry=retry)

    def add_all(self, keys: list[bytes], queue: int, units: list[tuple[int, int, int]]) -> None:
        """Adds messages of a queue: the key of each, and its offset, position and size."""
        number_of, mask = fair_keys.number_of, waiting.SIZE_MASK
        head = (queue << waiting.OFFSET_BITS) - self.base[queue]
        places = [head + at << waiting.SIZE_BITS | min(size + 255 >> 8, mask) for at, _, size in units]
        positions = [position for _, position, _ in units]
        numbers = list(map(number_of, keys))
        self.keys.extend(self.band_of(queue), numbers, places, positions, lambda index: self._label(keys[index]))

    def _label(self, key: bytes) -> int | None:
        if not self._separator:
            return None
        return fair_keys.number_of_label(fair_keys.label_of(key, self._separator))

    def pass_later(self, queue: int, first: int, count: int, why: str) -> None:
        """Notes messages that the next Pop passes without a lease."""
        self.passing[queue, why].append((first, count))

    def free(self, key: bytes) -> bool:
        """Notes that a lease of a key has ended; returns whether the key waited for that."""
        full = [slot for slot in self.keys.slots(int.from_bytes(key)) if self.keys.state[slot] == FULL]
        self._freed += full
        return bool(full)

    def note_later(self, later: list[tuple[int, int]]) -> None:
        """Notes (ms, slot) of keys whose rate permits their next message then."""
        for at_ms, slot in later:
            heapq.heappush(self._later, at_ms << _SLOT_BITS | slot)

    def let_go(self, now_ms: int) -> None:
        """Puts keys back into the ring that waited for a lease that has ended, or for a time that has come."""
        for slot in self._freed:
            if self.keys.state[slot] == FULL:
                self.keys.enter(slot)
        self._freed.clear()
        while self._later and self._later[0] >> _SLOT_BITS <= now_ms:
            slot = heapq.heappop(self._later) & (1 << _SLOT_BITS) - 1
            if self.keys.state[slot] == LATER:
                self.keys.enter(slot)

    @property
    def next_ms(self) -> int:
        """When the rate of a key permits its next message; 0: no key waits for that."""
        return self._later[0] >> _SLOT_BITS if self._later else 0

    def outgrown(self, state: State, topic: Topic) -> bool:
        """Whether an offset no longer fits a place: the index is then made again."""
        ends = (state.queue_max.get((topic.topic_id, queue), 0) - first for queue, first in self.base.items())
        return max(ends, default=0) >= OFFSET_END or state.counters[""].rseq - self.retries_base >= OFFSET_END


def index_of(tx: Tx, group: Group, topic: Topic, wanted: Filter) -> FairIndex:
    """The index of a group in a topic; a new one if there is none, or settings have changed."""
    where, fair = (group.group_id, topic.topic_id), group.fair_keys or FairKeys()
    index = tx.state.fair_indexes.get(where)
    if not isinstance(index, FairIndex) or index.fair != fair or not index.wanted.same(wanted):
        index = FairIndex(where, fair, topic, wanted)
        readers.keep_index(tx, where, index)
    else:
        readers.forget_if_aborted(tx, where)
    return index


def of_group(state: State, where: GroupTopic) -> FairIndex | None:
    """The index of a group in a topic, if there is one."""
    index = state.fair_indexes.get(where)
    return index if isinstance(index, FairIndex) else None
