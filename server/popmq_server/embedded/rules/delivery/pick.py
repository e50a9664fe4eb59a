"""Pick: chooses the messages of a pop by reading only.

          index stage    log stage                                     apply
    cq ─────▶ tagged ─────▶ passes, has_ended ─▶ rows, runs, chunks ─────▶ moves poff, removes retry entries, counts
    rq ───────────────────▶ passes, has_ended ─▶                           skipped messages (pop.lease leases the rows)

A pick writes nothing before `apply`, so it can be dropped. It skips and counts unreadable messages, so that a damaged
record does not block a queue. It also skips messages that do not match the group's filter: they are counted, but get no
CheckPoint and no lease, and no later pop sees them. So are messages whose ttl is over: they are counted, or become dead
letters, as their group says. One pick skips a bounded number of all these; a Pop whose pick reached the bound and found
nothing runs again after the other waiting commands. A dead letter that finds no room in the store stops the pick.

Topics to which no message with a ttl was ever sent are read without a look at each message (Topic.expires).

See docs/decisions/0057-snooze-and-ttl.md.
"""

from collections.abc import Iterator
from itertools import repeat
from typing import NamedTuple

from popmq_server.contract.commands import Position
from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.rules.delivery import deadletter, invalidated, retry
from popmq_server.embedded.rules.delivery.retry import RetryEntry
from popmq_server.embedded.rules.topics import quarantine, readers
from popmq_server.embedded.rules.topics.log import (
    Log,
    entries,
    over_hole,
    tagged,
)
from popmq_server.embedded.state import marks
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.checkpoint import Run
from popmq_server.embedded.store.keys import RQ_VALUE, STAT_KEY, U64
from popmq_server.errors import Later, Refused
from popmq_server.values import fields
from popmq_server.values.filters.filter import EVERYTHING, Filter
from popmq_server.values.leased import LeasedRow
from popmq_server.values.records import (
    RETRY_QUEUE,
    Group,
    Stat,
    Topic,
)
from popmq_server.values.turns import Turns

#: Retry entries tied to the requesting owner that its pop skips at most.
OWN_ENTRIES_MAX = 10_000
#: Retry entries that one pop takes at most (12 ms), of FIFO topics waiting messages: each has a place of its own. The
#: next pop takes the next ones.
RETRIES_MAX = 1_000
#: Void retry entries that one pop skips at most (3 ms); the next pop continues after them.
VOIDS_MAX = 2_000
#: Unreadable messages and holes that one pop skips at most; the next pop continues after them.
SKIPS_MAX = 10_000
#: Entries of the consume queue that one pick with a filter scans (1 ms), messages that it reads and rejects (10 ms).
SCAN_UNITS_MAX = 16_000
REJECTIONS_MAX = 1_000


_NONE = Stat()


class Bounds(NamedTuple):
    """The limits of a pop.

    `upto`: nothing at or beyond this position. `owner_id`: no retry entries tied to this owner. `wanted`: the filter;
    messages that do not match are skipped for good.
    """

    messages_max: int
    bytes_max: int
    upto: Position | None = None
    owner_id: int = 0
    wanted: Filter = EVERYTHING


class Pick:
    """The messages that a pop will take, collected by reading only, so that the plan can be dropped."""

    #: Whether it takes turns by fair key: fair/fair_pick.py. If so: the hashed key of each member, where keys have a
    #: limit of leases; when a key that waits for its rate may go; whether messages are left to read ahead.
    by_key = False
    fair_keys: tuple[bytes, ...] = ()
    look_ms = 0
    behind = False

    def take_by_turns(self) -> None:
        """Takes messages by turns of fair keys."""
        raise NotImplementedError

    def __init__(self, tx: Tx, group: Group, topic: Topic, bounds: Bounds) -> None:
        self.tx = tx
        self.group = group
        self.topic = topic
        self.messages_max, self.bytes_left, self.upto, self.owner_id, self.wanted = bounds
        self.log = Log(tx.kv)
        self.rows: list[LeasedRow] = []
        self.runs: list[Run] = []
        self.chunks: list[tuple[int, int]] = []
        self.poff: dict[int, int] = {}
        self.retries: list[RetryEntry] = []
        self.dropped = 0
        self.damaged: list[tuple[int, int, int, int]] = []
        self.own = 0  # retry entries tied to the requesting owner, skipped
        self.voids_left = VOIDS_MAX
        self.skipped = 0  # unreadable messages, redriven dead letters and holes
        self.gone = 0  # redriven dead letters
        self._may_be_gone = deadletter.has_gone(tx, topic.topic_id)
        self.filtered = 0  # messages that do not match
        self.unwanted: list[RetryEntry] = []  # retry entries of messages that do not match, or were redriven
        self.units_left = SCAN_UNITS_MAX
        self.rejections_left = REJECTIONS_MAX
        self.full = False  # the next message exceeds the bytes
        self._may_expire = topic.expires or (topic.parent_id > 0 and tx.state.topics[topic.parent_id].expires)
        self.expired = 0  # messages whose ttl is over: dropped
        self.dying: list[Run] = []  # such messages that become dead letters
        self.blocked: Refused | None = None  # why the next one does not become a dead letter now
        self.in_flight_max: int | None = None  # leases of the group in each queue; None: no limit
        self.served: list[int] = []  # queues in which the position moves
        self.turns: Turns | None = None  # the turns after this plan
        #: Start offsets of a plan that is never applied: a Peek of a group without a position, or a later piece of one.
        self.begins: dict[int, int] = {}

    @property
    def room(self) -> int:
        """How many more messages fit by number; none when the bytes are used up."""
        return 0 if self.full else self.messages_max - len(self.rows)

    def allowed(self, queue: int) -> int:
        """How many more messages of a queue, or of the retry topic, may be leased."""
        if self.in_flight_max is None:
            return self.room
        key = (self.group.group_id, self.topic.topic_id, queue)
        return self.in_flight_max - self.tx.state.in_flight.get(key, 0)

    def has(self, queue: int) -> bool:
        """Whether a queue has unread messages for this plan."""
        where = (self.topic.topic_id, queue)
        begin = self.begins.get(queue, self.tx.state.poff.get((self.group.group_id, *where), 0))
        return begin < self._stop(queue)

    def has_retries(self) -> bool:
        """Whether the retry topic has entries."""
        return self.tx.state.stat.get((self.group.group_id, self.topic.topic_id), _NONE).retry > 0

    def _stop(self, queue: int) -> int:
        """The offset at which a queue ends for this plan."""
        stop = self.tx.state.queue_max.get((self.topic.topic_id, queue), 0)
        return stop if self.upto is None else min(stop, self.upto.queues.get(queue, 0))

    @property
    def cut(self) -> bool:
        """Whether the plan stopped at a bound of skipped or scanned messages."""
        return self.skipped >= SKIPS_MAX or self.units_left <= 0 or self.rejections_left <= 0 or bool(self.blocked)

    @property
    def no_room(self) -> Refused | None:
        """The refusal if the next message becomes a dead letter that finds no room."""
        return None if isinstance(self.blocked, Later) else self.blocked

    @property
    def unfinished(self) -> bool:
        """Whether another plan may find messages that this one did not reach."""
        return (self.cut or self.voids_left <= 0) and not self.no_room

    @property
    def _ended(self) -> bool:
        return self.full or self.cut

    def _take(self, position: int, size: int, read: tuple[int, bytes], queue: int, offset: int, attempt: int) -> None:
        """Adds one message to the plan, and its chunk, which the lease will pin."""
        chunk = self.log.chunk_of(position)
        if chunk < 0:
            broken(
                "popped_message_in_a_chunk", topic=self.topic.topic_id, queue=queue, offset=offset, position=position
            )
        if not self.chunks or self.chunks[-1][1] != chunk:
            self.chunks.append((len(self.rows), chunk))
        self.rows.append((read[1], read[0], queue, offset, attempt, len(self.rows)))
        self.bytes_left -= size

    def _fits(self, size: int) -> bool:
        """Whether a message fits the bytes that are left. The first message of a plan always does."""
        self.full = bool(self.rows) and size > self.bytes_left
        return not self.full

    def take_queue(self, queue: int) -> None:
        """Takes from one queue, beginning at poff.

        The first message of a plan is always taken, so that a message larger than the byte limit cannot block a queue.
        """
        offset = start = self._start(queue)
        rows_max = len(self.rows) + min(self.allowed(queue), self.room)
        stop = self._stop(queue)
        span = 0
        while (room := min(rows_max - len(self.rows), stop - offset)) > 0 and not self._ended:
            # Small steps first: where most messages match, few entries need to be scanned.
            span = min(max(2 * span, room), stop - offset)
            units, end = self._candidates(queue, offset, room if self.wanted.everything else span)
            if end > offset:
                offset = self._take_units(queue, offset, units, end, rows_max)
            else:
                offset = self._over_hole(queue, offset, stop)
        self._reach(queue, start, offset)

    def _reach(self, queue: int, start: int, offset: int) -> None:
        if offset < start:
            broken("pop_moves_on", topic=self.topic.topic_id, queue=queue, start=start, end=offset)
        self.poff[queue] = offset
        if offset > start:
            self.served.append(queue)

    def _candidates(self, queue: int, offset: int, count: int) -> tuple[list[tuple[int, int, int]], int]:
        """The index stage: entries that may match among the next `count`, and the offset after the scanned ones."""
        topic_id, hashes = self.topic.topic_id, self.wanted.hashes
        if not self.wanted.everything:
            count = min(count, self.units_left)
        if hashes is not None:
            units, end = tagged(self.tx.kv, topic_id, queue, offset, count, hashes)
        else:
            units = entries(self.tx.kv, topic_id, queue, offset, count)
            end = offset + len(units)
        self.units_left -= 0 if self.wanted.everything else end - offset
        return units, end

    def _take_units(self, queue: int, offset: int, units: list[tuple[int, int, int]], end: int, rows_max: int) -> int:
        """Takes the messages of `units` that match, can be read and fit; returns the offset after the last one.

        Messages between the units, and up to `end`, do not match. A run has consecutive offsets.
        """
        first = offset
        if self.wanted.everything and not (self._may_be_gone or self._may_expire):
            taken = self._take_sound(queue, offset, units, rows_max)
            offset, units = offset + taken, units[taken:]
        for at, position, size in units:
            if at > offset:
                self._close_run(queue, first, offset)
                self.filtered += at - offset
                first = offset = at
            if len(self.rows) >= rows_max or not self._fits(size) or self.rejections_left <= 0:
                break
            read = self.log.fetch(self.topic.topic_id, position, size)
            gone = self._is_gone(queue, at)
            passes = read is not None and not gone and self.passes(read[1])
            if read is not None and passes and self._may_expire:
                passes = not self.has_ended(read, Run(queue, at, 1, 0, position, size))
                if self.blocked:
                    break
            if read is not None and passes:
                self._take(position, size, read, queue, at, 1)
            else:
                self._close_run(queue, first, offset)
                first = at + 1
                if read is None and not gone:
                    self._skip(queue, at, position, size)
            offset = at + 1
        else:
            self.filtered += end - offset
            self._close_run(queue, first, offset)
            return end
        self._close_run(queue, first, offset)
        return offset

    def _take_sound(self, queue: int, offset: int, units: list[tuple[int, int, int]], rows_max: int) -> int:
        """Takes readable messages that need no check of their own; returns how many. Stops at any other one."""
        before = len(self.rows)
        found = self.log.sound(self.topic.topic_id, units[: rows_max - before], self.bytes_left, not self.rows)
        taken = len(found.data)
        for index, chunk in found.chunks:
            if not self.chunks or self.chunks[-1][1] != chunk:
                self.chunks.append((before + index, chunk))
        places = range(offset, offset + taken), repeat(1), range(before, before + taken)
        self.rows += zip(found.data, found.stored_ms, repeat(queue), *places)
        self.bytes_left = found.bytes_left
        return taken

    def _is_gone(self, queue: int, offset: int) -> bool:
        """Whether this is a redriven dead letter; it counts as if the group had begun after it."""
        if not self._may_be_gone or not deadletter.is_gone(self.tx.kv, self.topic.topic_id, queue, offset):
            return False
        self.skipped += 1
        self.gone += 1
        return True

    def passes(self, data: bytes) -> bool:
        """The log stage: whether a message matches. Counts one that does not, so call it once for each message."""
        if self.wanted.everything or self.wanted.matches(data):
            return True
        self.filtered += 1
        self.rejections_left -= 1
        return False

    def has_ended(self, read: tuple[int, bytes], run: Run) -> bool:
        """Whether the ttl of a message is over. Counts it then, or plans its dead letter; call it once for a message.

        `run`: the message, as a member of a CheckPoint. If its dead letter has to wait, only `blocked` says why.
        """
        stored_ms, data = read
        if not 0 < fields.ended_ms(data, stored_ms) <= self.tx.now_ms:
            return False
        self.rejections_left -= 1
        if not self.group.dead_letter_expired:
            self.expired += 1
        elif (budget := deadletter.budget(self.tx)).fits(run.size):
            self.dying.append(run)
        else:
            self.blocked = budget.refusal()
        return True

    def _start(self, queue: int) -> int:
        """The position of the group in a queue, after messages that retention dropped, which it counts."""
        state, topic_id = self.tx.state, self.topic.topic_id
        least = state.queue_min.get((topic_id, queue), 0)
        offset = self.begins.get(queue, state.poff.get((self.group.group_id, topic_id, queue), least))
        if max(offset, least) > (end := state.queue_max.get((topic_id, queue), 0)):
            where = self.group.group_id, topic_id, queue
            if least > end:
                broken("queue_begins_before_its_end", where=where, begin=least, end=end)
            broken("position_in_queue", where=where, offset=offset, end=end)
        self.dropped += max(0, least - offset)
        return max(offset, least)

    def _over_hole(self, queue: int, offset: int, stop: int) -> int:
        """The next offset up to `stop` that is in the consume queue; counts the missing ones: dropped or redriven."""
        topic_id = self.topic.topic_id
        stop = over_hole(self.tx.kv, topic_id, queue, offset, stop)
        gone = sum(1 for _ in marks.redriven(self.tx.kv, topic_id, queue, offset, stop)) if self._may_be_gone else 0
        self.gone += gone
        self.dropped += stop - offset - gone
        self.skipped += 1
        return stop

    def _skip(self, queue: int, offset: int, position: int, size: int) -> None:
        """Counts a message that cannot be read: retention dropped its chunk, or it is damaged."""
        self.skipped += 1
        if self.log.is_dropped(position, self.tx.state.counters[""].position):
            self.dropped += 1
        else:
            self.damaged.append((queue, offset, position, size))

    def _close_run(self, queue: int, first: int, stop: int) -> None:
        if stop > first:
            self.runs.append(Run(queue, first, stop - first, 1))

    def take_retry(self) -> bool:
        """Takes from the retry topic, oldest entry first; returns whether the plan removes entries.

        It also takes and counts an entry whose message cannot be read, since it would otherwise stay at the head of the
        retry topic, and an entry whose message does not match any more because the filter was replaced.
        """
        rows_max = len(self.rows) + min(self.allowed(RETRY_QUEUE), self.room, RETRIES_MAX)
        if not self.has_retries():
            return False
        for entry in self._retry_entries():
            if len(self.rows) >= rows_max or self._ended or not self._fits(entry.size):
                break
            self._take_retried(entry)
            if self.blocked:
                break
        return bool(self.retries or self.unwanted)

    def _take_retried(self, entry: RetryEntry) -> bool:
        """Takes the message of a retry entry; whether it did. One that is not delivered goes, unless it is blocked."""
        read = self.log.fetch(self.topic.topic_id, entry.position, entry.size)
        if self._is_gone(entry.queue, entry.offset) or (read is not None and not self.passes(read[1])):
            self.unwanted.append(entry)
            return False
        if read is not None and self._may_expire and self.has_ended(read, entry.as_run(entry.attempts)):
            if not self.blocked:
                self.unwanted.append(entry)
            return False
        self.retries.append(entry)
        if read is None:
            self._skip(entry.queue, entry.offset, entry.position, entry.size)
            return False
        attempt = entry.attempts + 1
        self._take(entry.position, entry.size, read, entry.queue, entry.offset, attempt)
        self.runs.append(entry.as_run(attempt))
        return True

    def take_more(self) -> None:
        """Takes more of the message groups that the plan has begun: FIFO topics only."""

    def _retry_entries(self) -> Iterator[RetryEntry]:
        """The entries, oldest first, without void ones and those that the requesting owner is about to take back."""
        where = (self.group.group_id, self.topic.topic_id)
        prefix = STAT_KEY.pack(*where)
        self.own, leading = 0, True
        for key, value in self.tx.kv.scan("rq", prefix, invalidated.begin(self.tx.state, where)):
            if self.own > OWN_ENTRIES_MAX or (self.upto is not None and U64.unpack(key[8:])[0] >= self.upto.retry):
                break
            entry = RetryEntry(key, *RQ_VALUE.unpack_from(value))
            if self.owner_id and self.returns_to(entry.bound_ck, entry.bound_member):
                self.own += 1
            elif not invalidated.has_entry(self.tx.state, where, U64.unpack(key[8:])[0], entry.queue, entry.offset):
                yield entry
            else:
                self.voids_left -= 1
                if leading:
                    invalidated.begin_after(self.tx.state, where, key)
                if self.voids_left <= 0:
                    return
                continue
            leading = False

    def more_retries(self) -> bool:
        """Whether an applied pick left entries that it could take; true also when it skipped too many to know."""
        if not self.tx.state.stat[(self.group.group_id, self.topic.topic_id)].retry:
            return False
        return next(self._retry_entries(), None) is not None or self.own > OWN_ENTRIES_MAX or self.voids_left <= 0

    def returns_to(self, ck_id: int, member: int) -> bool:
        """Whether the requesting owner is about to take back the entry tied to this member of a CheckPoint."""
        ck, part = self.tx.state.ck.get(ck_id), self.tx.state.leases.get((ck_id, 0))
        if ck is None or part is None or ck.owner_id != self.owner_id:
            return False
        return bool(part.released >> member & 1)

    def rest(self, queues: range | tuple[int, ...]) -> int:
        """Messages that are left in the queues and the retry topic after `apply`."""
        state, where = self.tx.state, (self.group.group_id, self.topic.topic_id)
        if len(queues) == self.topic.queues:
            unread = state.total.get(where[1], 0) - state.passed.get(where, 0)
            if unread < 0:
                broken("passed_within_the_ends", where=where, left=unread)
            return unread + state.stat[where].retry
        tops = sum(state.queue_max.get((where[1], queue), 0) for queue in queues)
        return tops - sum(state.poff.get((*where, queue), 0) for queue in queues) + state.stat[where].retry

    def apply(self) -> None:
        """Writes positions, counters, removed retry entries and damaged messages, whether or not rows were taken."""
        tx, where = self.tx, (self.group.group_id, self.topic.topic_id)
        for queue, offset in self.poff.items():
            readers.pass_to(tx, (*where, queue), offset)
        if self.turns is not None:
            tx.state.turns[where] = self.turns
        if self.dropped or self.filtered or self.gone:
            readers.count(tx, where, dropped=self.dropped, filtered=self.filtered, start=self.gone)
        if self.expired:
            readers.count(tx, where, expired=self.expired)
        if self.dying:
            deadletter.dead_letter_expired(tx, where, self.dying)
        if self.retries or self.unwanted:
            retry.take(tx, where, [*self.retries, *self.unwanted])
        for queue, offset, position, size in self.damaged:
            quarantine.set_aside(tx, *where, queue, offset, position, size)
