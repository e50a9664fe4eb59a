"""FairPick: chooses the messages of a pop by turns of fair keys, by reading only, as Pick does (pick.py).

    reading.py ──▶ index ── Round ──▶ places, in the order of their turns
                                        │ sorted by queue and offset: neighbours are read together
                                        ▼
                       cq, log, rq ──▶ rows, runs, chunks, fair_keys      apply: passes, and removes them from the index

Each place is compared with the store: what is passed already, or is no retry entry any more, is left out; so is a
message whose ttl is over. The rows come in the order of turns, so a consumer that handles them one after another serves
the keys in turn.
"""

import bisect
import functools
import operator
from collections import Counter
from itertools import repeat

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
from popmq_server.embedded.store.checkpoint import SPAN_MAX, Run
from popmq_server.embedded.store.keys import RQ_KEY, RQ_VALUE
from popmq_server.values.records import RETRY_QUEUE, Group, Topic
from popmq_server.values.turns import Turns

_BIT = (1).__lshift__
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
        self._reads_on = False  # none of the keys that were read may go
        self._leases_left: dict[int, int] = {}
        self._chosen = 0  # places
        self._order: list[int] = []  # the turn of each member
        self._numbers: list[int] = []  # the key of each member
        self._passed: list[tuple[int, list[Run]]] = []

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
        enough = index.may_go and index.keys.messages >= count
        self.behind = read_ahead(tx, self._where, self.topic, index, count, backlog=not enough)
        index.let_go(tx.now_ms)
        limits = index.limits
        turns = tx.state.turns.get(self._where, _NO_TURNS)
        bands = turns.visits(self.topic, range(self.topic.queues)) if self.topic.type == "PRIORITY" else (0,)
        self._round = round_ = Round(index.keys, self._accepts, self._accepts_all, self._may_go if limits.any else None)
        for band in bands:
            root = index.keys.roots.get(band, 0)
            while self.room > 0 and root and not self.cut and (chosen := round_.take(root, self.room)):
                if gone := self._take_places(index, chosen):
                    self._give_back(round_, chosen, gone)
                self.served = [*{*self.served, band}]
        self._reads_on = enough and self.behind and not self._chosen
        if self.served and self.topic.type == "PRIORITY":
            self.turns = turns.after(self.topic, bands, self.served, retried=False, gave_way=None)
        if limits.of_leases:
            self.fair_keys = tuple(map(stored_hash, self._numbers))
        keyed = not limits.of_leases or len(self._numbers) == len(self.rows)
        if len(self._order) != len(self.rows) or not keyed:
            broken("fair_turn_of_each_message", turns=len(self._order), keys=len(self._numbers), rows=len(self.rows))
        self.rows = [self.rows[at] for at in sorted(range(len(self._order)), key=self._order.__getitem__)]

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

    def _accepts_all(self, places: list[int]) -> bool:
        """Whether the plan has bytes and leases for the messages at all of these places; counts them then (Round)."""
        size = sum([place & SIZE_MASK for place in places]) << UNIT_BITS
        if size > self.bytes_left:
            return False
        counts, left = Counter([place >> QUEUE_SHIFT for place in places]), self._leases_left
        after = {queue: left.get(queue, self.allowed(queue)) - count for queue, count in counts.items()}
        if min(after.values()) < 0:
            return False
        left.update(after)
        self.bytes_left -= size
        self._first = False
        return True

    # ── From places to rows ──────────────────────────────────────────────────────────────────────────────────────

    def _take_places(self, index: FairIndex, chosen: Taken) -> list[int]:
        """Takes the messages of places: those of queues by queue and offset, then those of the retry topic.

        Returns which are without a message to deliver: passed meanwhile, gone, damaged, or with a ttl that is over.
        """
        turn, before, at_place = self._chosen, len(self._order), chosen.places.__getitem__
        self._chosen += len(chosen)
        messages = [at for at in range(len(chosen)) if at not in chosen.retries]
        messages.sort(key=at_place)
        places, begin = list(map(at_place, messages)), 0
        while begin < len(places):
            queue = places[begin] >> QUEUE_SHIFT
            end = bisect.bisect_left(places, queue + 1 << QUEUE_SHIFT, begin)
            offsets = [index.base[queue] + (place >> SIZE_BITS & OFFSET_MASK) for place in places[begin:end]]
            self._take_of_queue(queue, index, chosen, offsets, messages[begin:end], turn)
            begin = end
        for at in sorted(chosen.retries):
            rseq = index.retries_base + waiting.offset_of(chosen.places[at])
            self._take_retry_entry(rseq, turn + at, index.keys.number[chosen.slots[at]])
        if len(self._order) - before == len(chosen):
            return []
        came = {*self._order[before:]}
        return [at for at in range(len(chosen)) if turn + at not in came]

    def _give_back(self, round_: Round, chosen: Taken, gone: list[int]) -> None:
        """Frees the bytes and leases that the plan has counted for places without a message."""
        for at in gone:
            place = chosen.places[at]
            self._leases_left[RETRY_QUEUE if at in chosen.retries else place >> QUEUE_SHIFT] += 1
            self.bytes_left += (place & SIZE_MASK) << UNIT_BITS
        self.full, self._first = False, not self.rows
        round_.give_back([chosen.slots[at] for at in gone])

    def _take(self, position: int, size: int, read: tuple[int, bytes], queue: int, offset: int, attempt: int) -> None:
        super()._take(position, size, read, queue, offset, attempt)
        self.bytes_left += size  # _accepts has counted them

    def _take_of_queue(
        self, queue: int, index: FairIndex, chosen: Taken, offsets: list[int], ats: list[int], turn: int
    ) -> None:
        """Takes messages of one queue: those at `ats` of the chosen, in the order of their offsets."""
        if offsets[-1] >= (end := self.tx.state.queue_max.get((self.topic.topic_id, queue), 0)):
            broken("fair_place_in_its_queue", topic=self.topic.topic_id, queue=queue, offset=offsets[-1], end=end)
        where, before, runs = (*self._where, queue), len(self.rows), _runs(queue, offsets)
        passed = any(readers.passed_of(self.tx.state, where, run.first, run.every) for run in runs)
        positions = [index.keys.position[chosen.nodes[at]] for at in ats]
        if self._may_expire or passed or not self._take_all(queue, offsets, positions):
            runs = self._take_some(queue, offsets)
            if len(self.rows) - before < len(offsets):  # some are passed, gone or damaged, or wait
                named = dict(zip(offsets, ats, strict=True))
                ats = [named[row[3]] for row in self.rows[before:]]
        else:
            self._passed.append((queue, runs))
        self._order += [turn + at for at in ats]
        if index.limits.of_leases:
            self._numbers += [index.keys.number[chosen.slots[at]] for at in ats]
        self.runs += runs

    def _take_all(self, queue: int, offsets: list[int], positions: list[int]) -> bool:
        """Takes messages at these positions, if each can be read."""
        before = len(self.rows)
        found = self.log.sound_at(self.topic.topic_id, positions)
        if len(found.data) < len(offsets):
            return False
        for index, chunk in found.chunks:
            if not self.chunks or self.chunks[-1][1] != chunk:
                self.chunks.append((before + index, chunk))
        members = range(before, before + len(offsets))
        self.rows += zip(found.data, found.stored_ms, repeat(queue), offsets, repeat(1), members)
        return True

    def _take_some(self, queue: int, offsets: list[int]) -> list[Run]:
        """Takes those messages that are not passed, can be read, and whose ttl is not over; counts the others."""
        offsets = [offsets[at] for at in readers.not_passed(self.tx.state, (*self._where, queue), offsets)]
        units = entries_at(self.tx.kv, self.topic.topic_id, queue, offsets)
        self.dropped += len(offsets) - len(units)
        self.skipped += len(offsets) - len(units)
        before = len(self.rows)
        for offset, position, size in units:
            read = self.log.fetch(self.topic.topic_id, position, size)
            if read is None:
                self._skip(queue, offset, position, size)
            elif not self._may_expire or not self.has_ended(read, Run(queue, offset, 1, 0, position, size)):
                self._take(position, size, read, queue, offset, 1)
            elif self.blocked:  # it stays, and what is behind it: it does not become a dead letter now
                offsets = offsets[: bisect.bisect_left(offsets, offset)]
                break
        self._passed.append((queue, _runs(queue, offsets)))
        return _runs(queue, [row[3] for row in self.rows[before:]])

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
        for queue, runs in self._passed:
            alike = [(run.first, run.length) for run in runs if not run.bits]
            readers.pass_over(
                self.tx, (*self._where, queue), alike, [(run.first, run.bits) for run in runs if run.bits]
            )
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
        if self._reads_on:  # for the next plan: what enters a ring before `apply` is lost
            read_ahead(self.tx, self._where, self.topic, self._index, AHEAD_OF_POP)
        if self.blocked:  # the round has left behind what could not become a dead letter
            readers.drop_index(self.tx, self._where)


def _runs(queue: int, offsets: list[int]) -> list[Run]:
    """Runs of these offsets, which ascend: one for each SPAN_MAX, sparse unless they are neighbours."""
    found, begin = list[Run](), 0
    while begin < len(offsets):
        first = offsets[begin]
        end = bisect.bisect_left(offsets, first + SPAN_MAX, begin)
        if offsets[end - 1] - first == end - begin - 1:
            found.append(Run(queue, first, end - begin, 1))
        else:
            shifts = [offset - first for offset in offsets[begin:end]]
            found.append(Run(queue, first, end - begin, 1, bits=functools.reduce(operator.or_, map(_BIT, shifts))))
        begin = end
    return found
