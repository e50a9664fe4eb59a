"""FairPick: chooses the messages of a pop by turns of fair keys, by reading only, as Pick does (pick.py).

    reading.py ──▶ index ── Round ──▶ places, in the order of their turns
                                        │ sorted by queue and offset: neighbours are read together
                                        ▼
                       cq, log, rq ──▶ rows, runs, chunks, fair_keys      apply: passes, and removes them from the index

Each place is compared with the store: what is passed already, or is no retry entry any more, is left out; so is a
message whose ttl is over. The rows come in the order of turns, so a consumer that handles them one after another serves
the keys in turn.
"""

import itertools

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.rules.delivery import invalidated
from popmq_server.embedded.rules.delivery.fair import index as indexes
from popmq_server.embedded.rules.delivery.fair import waiting
from popmq_server.embedded.rules.delivery.fair.index import FairIndex
from popmq_server.embedded.rules.delivery.fair.keys import stored_hash
from popmq_server.embedded.rules.delivery.fair.reading import AHEAD_OF_POP, read_ahead
from popmq_server.embedded.rules.delivery.fair.round import ENDS, FITS, HELD_UP, Round, Taken
from popmq_server.embedded.rules.delivery.fair.waiting import OFFSET_MASK, QUEUE_SHIFT, SIZE_BITS, SIZE_MASK, UNIT_BITS
from popmq_server.embedded.rules.delivery.pick import RETRIES_MAX, Bounds, Pick
from popmq_server.embedded.rules.delivery.retry import RetryEntry
from popmq_server.embedded.rules.topics import readers
from popmq_server.embedded.rules.topics.log import entries_at
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.checkpoint import Run
from popmq_server.embedded.store.keys import RQ_KEY, RQ_VALUE
from popmq_server.values.records import RETRY_QUEUE, Group, Topic
from popmq_server.values.turns import Turns

#: More bytes than any plan takes: the round has limited them.
_ANY_BYTES = 1 << 62
_NO_TURNS = Turns()


class FairPick(Pick):
    """A plan by turns of fair keys."""

    by_key = True

    def __init__(self, tx: Tx, group: Group, topic: Topic, bounds: Bounds) -> None:
        super().__init__(tx, group, topic, bounds)
        self._where = (group.group_id, topic.topic_id)
        self._index: FairIndex | None = None
        self._round: Round | None = None
        self._first = True  # no message was taken yet
        self._leases_left: dict[int, int] = {}
        self._chosen = 0  # places
        self._order: list[int] = []  # the turn of each member
        self._numbers: list[int] = []  # the key of each member
        self._passed: list[tuple[int, list[tuple[int, int]]]] = []

    @property
    def unfinished(self) -> bool:
        """Whether messages are not read yet, or the round ended before it had seen each key."""
        return super().unfinished or self.behind or (self._round is not None and self._round.unfinished)

    def take_by_turns(self) -> None:
        """Takes messages in turn, until the plan is full or no key may go."""
        tx, index = self.tx, indexes.index_of(self.tx, self.group, self.topic, self.wanted)
        if index.outgrown(tx.state, self.topic):
            readers.drop_index(tx, self._where)
            index = indexes.index_of(tx, self.group, self.topic, self.wanted)
        self._index = index
        count = max(AHEAD_OF_POP, 2 * self.messages_max)
        self.behind = read_ahead(tx, self._where, self.topic, index, count)
        index.let_go(tx.now_ms)
        limits = index.limits
        turns = tx.state.turns.get(self._where, _NO_TURNS)
        bands = turns.visits(self.topic, range(self.topic.queues)) if self.topic.type == "PRIORITY" else (0,)
        self._round = round_ = Round(index.keys, self._accepts, self._may_go if limits.any else None)
        for band in bands:
            root = index.keys.roots.get(band, 0)
            while self.room > 0 and root and not self.cut and (chosen := round_.take(root, self.room)):
                if gone := self._take_places(index, chosen):
                    self._give_back(round_, gone)
                self.served = [*{*self.served, band}]
        if self.served and self.topic.type == "PRIORITY":
            self.turns = turns.after(self.topic, bands, self.served, retried=False, gave_way=None)
        if limits.of_leases:
            self.fair_keys = tuple(map(stored_hash, self._numbers))
        if not len(self._order) == len(self._numbers) == len(self.rows):
            broken("fair_turn_of_each_message", turns=len(self._order), keys=len(self._numbers), rows=len(self.rows))
        by_turn = dict(zip(self._order, self.rows, strict=True))
        self.rows = [by_turn[turn] for turn in sorted(self._order)]

    def _may_go(self, number: int, taken: int) -> int:
        """Whether the limits of a key let one more message go, beside those that the plan has (Round)."""
        assert self._index
        return self._index.limits.may_go(self.tx.state, number, taken, self.tx.now_ms)

    def _accepts(self, place: int, retry: bool) -> int:
        """Whether the plan has bytes for a place, and the group may lease one more message of its queue (Round)."""
        queue = RETRY_QUEUE if retry else place >> QUEUE_SHIFT
        left = self._leases_left.get(queue)
        if left is None:
            left = self.allowed(queue) if not retry else min(self.allowed(queue), RETRIES_MAX)
        if left <= 0:
            return HELD_UP
        size = (place & SIZE_MASK) << UNIT_BITS
        if size > self.bytes_left and not self._first:
            self.full = True
            return ENDS
        self._leases_left[queue] = left - 1
        self.bytes_left -= size
        self._first = False
        return FITS

    # ── From places to rows ──────────────────────────────────────────────────────────────────────────────────────

    def _take_places(self, index: FairIndex, chosen: list[Taken]) -> list[Taken]:
        """Takes the messages of places: those of queues by queue and offset, then those of the retry topic.

        Returns the places without a message to deliver: passed meanwhile, gone, damaged, or with a ttl that is over.
        """
        turn, before = self._chosen, len(self._order)
        self._chosen += len(chosen)
        places = [(place, at, number) for at, (place, number, retry, _) in enumerate(chosen, turn) if not retry]
        places.sort()
        for queue, alike in itertools.groupby(places, key=lambda each: each[0] >> QUEUE_SHIFT):
            self._take_of_queue(queue, index.base[queue], list(alike))
        if len(places) < len(chosen):
            for at, (place, number, retry, _) in enumerate(chosen, turn):
                if retry:
                    self._take_retry_entry(index.retries_base + waiting.offset_of(place), at, number)
        if len(self._order) - before == len(chosen):
            return []
        came = {*self._order[before:]}
        return [taken for at, taken in enumerate(chosen, turn) if at not in came]

    def _give_back(self, round_: Round, gone: list[Taken]) -> None:
        """Frees the bytes and leases that the plan has counted for places without a message."""
        for place, _, retry, _ in gone:
            self._leases_left[RETRY_QUEUE if retry else place >> QUEUE_SHIFT] += 1
            self.bytes_left += (place & SIZE_MASK) << UNIT_BITS
        self.full, self._first = False, not self.rows
        round_.give_back(gone)

    def _take(self, position: int, size: int, read: tuple[int, bytes], queue: int, offset: int, attempt: int) -> None:
        super()._take(position, size, read, queue, offset, attempt)
        self.bytes_left += size  # _accepts has counted them

    def _take_of_queue(self, queue: int, base: int, places: list[tuple[int, int, int]]) -> None:
        """Takes messages of one queue, in the order of their offsets."""
        state, where = self.tx.state, (*self._where, queue)
        offsets = [base + (place >> SIZE_BITS & OFFSET_MASK) for place, _, _ in places]
        if offsets[-1] >= (end := state.queue_max.get((self.topic.topic_id, queue), 0)):
            broken("fair_place_in_its_queue", topic=self.topic.topic_id, queue=queue, offset=offsets[-1], end=end)
        if where in state.taken or offsets[0] < state.poff.get(where, 0):
            left = readers.not_passed(state, where, offsets)
            if len(left) < len(offsets):
                offsets, places = [offsets[at] for at in left], [places[at] for at in left]
        units = entries_at(self.tx.kv, self.topic.topic_id, queue, offsets)
        self.dropped += len(offsets) - len(units)
        self.skipped += len(offsets) - len(units)
        before = len(self.rows)
        stop = self._take_units_of(queue, units)
        passed = offsets if stop is None else [offset for offset in offsets if offset < stop]
        stretches = _stretches(passed)
        self._passed.append((queue, stretches))
        if len(self.rows) - before < len(offsets):  # some are gone or damaged
            named = dict(zip(offsets, places, strict=True))
            offsets = [row[3] for row in self.rows[before:]]
            places, stretches = [named[offset] for offset in offsets], _stretches(offsets)
        self._order += [at for _, at, _ in places]
        self._numbers += [number for _, _, number in places]
        self.runs += [Run(queue, first, count, 1) for first, count in stretches]

    def _take_units_of(self, queue: int, units: list[tuple[int, int, int]]) -> int | None:
        """Takes the messages of entries that can be read, and counts the others.

        Returns the offset of the first one that stays, since it does not become a dead letter now; None: all are dealt
        with.
        """
        done = 0
        while done < len(units):
            if not self._may_expire:
                done += self._take_sound_ones(queue, units[done:])
            if done < len(units):
                offset, position, size = units[done]
                done += 1
                read = self.log.fetch(self.topic.topic_id, position, size)
                if read is None:
                    self._skip(queue, offset, position, size)
                elif not self._may_expire or not self.has_ended(read, Run(queue, offset, 1, 0, position, size)):
                    self._take(position, size, read, queue, offset, 1)
                elif self.blocked:
                    return offset
        return None

    def _take_sound_ones(self, queue: int, units: list[tuple[int, int, int]]) -> int:
        """Takes readable messages in one go, up to the first that is not; returns how many."""
        before = len(self.rows)
        found = self.log.sound(self.topic.topic_id, units, _ANY_BYTES, True)
        for index, chunk in found.chunks:
            if not self.chunks or self.chunks[-1][1] != chunk:
                self.chunks.append((before + index, chunk))
        pairs = zip(units, found.data, found.stored_ms, strict=False)
        self.rows += [
            (data, stored_ms, queue, unit[0], 1, member) for member, (unit, data, stored_ms) in enumerate(pairs, before)
        ]
        return len(found.data)

    def _take_retry_entry(self, rseq: int, turn: int, number: int) -> None:
        """Takes one entry of the retry topic; leaves out one that is gone or void."""
        key = RQ_KEY.pack(*self._where, rseq)
        value = self.tx.kv.get("rq", key)
        if value is None:
            return
        entry = RetryEntry(key, *RQ_VALUE.unpack_from(value))
        if invalidated.has_entry(self.tx.state, self._where, rseq, entry.queue, entry.offset):
            return
        if self._take_retried(entry):
            self._order.append(turn)
            self._numbers.append(number)

    def apply(self) -> None:
        """Passes what was taken and what the group does not get, and removes it from the index."""
        if self._index is None or self._round is None:
            return
        for queue, stretches in self._passed:
            readers.pass_over(self.tx, (*self._where, queue), stretches)
        for (queue, why), stretches in self._index.passing.items():
            passed = readers.pass_over(self.tx, (*self._where, queue), stretches)
            if passed:
                readers.count(self.tx, self._where, **{why: passed})
        self._index.passing.clear()
        super().apply()
        self._index.note_later(self._round.later)
        limits, now_ms = self._index.limits, self.tx.now_ms
        self._round.apply(lambda number, taken: limits.count(number, taken, now_ms))
        self.look_ms = self._index.next_ms
        if self.blocked:  # the round has left behind what could not become a dead letter
            readers.drop_index(self.tx, self._where)


def _stretches(offsets: list[int]) -> list[tuple[int, int]]:
    """(first, number) of each stretch of consecutive offsets, which ascend."""
    if offsets and offsets[-1] - offsets[0] == len(offsets) - 1:
        return [(offsets[0], len(offsets))]
    found = list[tuple[int, int]]()
    first = count = 0
    for offset in offsets:
        if count and offset == first + count:
            count += 1
        else:
            if count:
                found.append((first, count))
            first, count = offset, 1
    if count:
        found.append((first, count))
    return found
