"""Pop: which messages a group gets next, and the lease on them.

                     select                     lease
    ready, retry  ──────────▶  Pick (a plan)  ──────────▶  CheckPoint + due + poff     one transaction

    ready    cq at and above poff                        retry    rq, the retry topic
    leased   a member of a CheckPoint, undone            backoff  the same, CheckPoint of kind backoff
    done     its bit is set, or its CheckPoint is gone

    who moves a message            where
    ready → leased                 pop.pop            (owners: owner.pop)
    retry → leased                 pop.pop
    leased → leased, later due     lease.change       extend
    leased → done                  lease.ack
    leased → backoff, retry, dead  lease.change       release, reject
    leased → retry, dead           revive.revive      the lease ran out
    backoff → retry                revive.revive      the delay is over

One pop in five starts with the retry topic (exact, by a counter); the others fill up with it when there is room. The
start queue rotates. `rest` is what the visited queues still have.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

from popmq_server import quarantine
from popmq_server.checkpoint import NORMAL, RETRY, CheckPoint, Lease, Run, members_of
from popmq_server.commands import Pop, Popped, Position
from popmq_server.errors import Refused, group_not_found, topic_not_found
from popmq_server.records import RETRY_QUEUE, Group, Stat, Topic
from popmq_server.storage.keys import CQ_KEY, RQ_VALUE, STAT_KEY, TOPIC_AT, U32, U64
from popmq_server.topic import IDX_HEAD, Log, entries, located
from popmq_server.tx import Tx

#: One pop in so many starts with the retry topic (S1.36).
RETRY_FIRST_EVERY = 5
#: Retry entries of its own that an owner's pop steps over at most.
OWN_ENTRIES_MAX = 10_000
#: Unreadable messages that one pop steps over at most; the rest is for the next one.
SKIPS_MAX = 10_000


class RetryEntry(NamedTuple):
    """An entry of the retry topic: a pointer into the log."""

    key: bytes
    position: int
    size: int
    attempts: int
    queue: int
    offset: int
    first_pop_ms: int
    bound_ck: int
    bound_member: int


class Pick:
    """What a pop will take: collected by reading only, so that it can be dropped without a trace."""

    def __init__(
        self,
        tx: Tx,
        group: Group,
        topic: Topic,
        messages_max: int,
        bytes_max: int,
        upto: Position | None = None,
        owner_id: int = 0,
    ) -> None:
        """`upto`: nothing at or beyond this position. `owner_id`: whose own retry entries are stepped over."""
        self.tx = tx
        self.group = group
        self.topic = topic
        self.upto = upto
        self.owner_id = owner_id
        self.messages_max = messages_max
        self.bytes_left = bytes_max
        self.log = Log(tx.kv)
        self.rows: list[tuple[bytes, int, int, int, int, int]] = []
        self.runs: list[Run] = []
        self.chunks: list[tuple[int, int]] = []
        self.poff: dict[int, int] = {}
        self.retries: list[RetryEntry] = []
        self.expired = 0
        self.damaged: list[tuple[int, int, int, int]] = []
        self.own = 0  # retry entries of the asking owner that were stepped over
        self.skipped = 0  # messages that cannot be read, and holes
        self.full = False  # by bytes: what is left was not looked at

    @property
    def room(self) -> int:
        """How many messages still fit; none once the bytes are used up."""
        return 0 if self.full else self.messages_max - len(self.rows)

    @property
    def _ended(self) -> bool:
        return self.full or self.skipped >= SKIPS_MAX

    def _take(self, position: int, size: int, read: tuple[int, bytes], queue: int, offset: int, attempt: int) -> None:
        """Adds one message to the plan, and the chunk it lies in, which its lease will pin."""
        chunk = self.log.chunk_of(position)
        if not self.chunks or self.chunks[-1][1] != chunk:
            self.chunks.append((len(self.rows), chunk))
        self.rows.append((read[1], read[0], queue, offset, attempt, len(self.rows)))
        self.bytes_left -= size

    def _fits(self, size: int) -> bool:
        """One message is always allowed."""
        self.full = bool(self.rows) and size > self.bytes_left
        return not self.full

    def take_queue(self, queue: int, messages_max: int) -> None:
        """Takes from one queue, at most `messages_max`, beginning at poff.

        The first message is always taken, so a message larger than the bound does not stand in the way for ever.
        """
        topic_id = self.topic.topic_id
        offset = self._start(queue)
        rows_max = len(self.rows) + min(messages_max, self.room)
        stop = self.tx.state.queue_max.get((topic_id, queue), 0)
        if self.upto is not None:
            stop = min(stop, self.upto.queues.get(queue, 0))
        while (limit := min(rows_max - len(self.rows), stop - offset)) > 0 and not self._ended:
            units = entries(self.tx.kv, topic_id, queue, offset, limit)
            offset = self._take_units(queue, offset, units) if units else self._over_hole(queue, offset, stop)
        self.poff[queue] = offset

    def _take_units(self, queue: int, offset: int, units: list[tuple[int, int, int]]) -> int:
        """Takes what of `units` can be read and fits; the offset behind it."""
        first = offset
        for found, position, size in units:
            if not self._fits(size):
                break
            read = self.log.fetch(self.topic.topic_id, position, size)
            if read is None:
                self._close_run(queue, first, offset)
                self._skip(queue, found, position, size)
                first = found + 1
            else:
                self._take(position, size, read, queue, found, 1)
            offset = found + 1
        self._close_run(queue, first, offset)
        return offset

    def _start(self, queue: int) -> int:
        """Where the group is in a queue; over what retention dropped it steps, and counts it."""
        state, topic_id = self.tx.state, self.topic.topic_id
        least = state.queue_min.get((topic_id, queue), 0)
        offset = state.poff.get((self.group.group_id, topic_id, queue), least)
        self.expired += max(0, least - offset)
        return max(offset, least)

    def _over_hole(self, queue: int, offset: int, stop: int) -> int:
        """The first offset up to `stop` that still stands in the consume queue; what is missing has expired."""
        cursor, topic_id = self.tx.kv.cursor("cq"), self.topic.topic_id
        if cursor.set_range(CQ_KEY.pack(topic_id, queue, offset)):
            found_topic, found_queue, first = CQ_KEY.unpack(cursor.key())
            if (found_topic, found_queue) == (topic_id, queue):
                stop = min(stop, int(first))
        self.expired += stop - offset
        self.skipped += 1
        return stop

    def _skip(self, queue: int, offset: int, position: int, size: int) -> None:
        self.skipped += 1
        """A message that cannot be read: gone with its chunk (expired), or damaged."""
        if self.log.chunk_of(position) < 0:
            self.expired += 1
        else:
            self.damaged.append((queue, offset, position, size))

    def _close_run(self, queue: int, first: int, stop: int) -> None:
        if stop > first:
            self.runs.append(Run(queue, first, stop - first, 1))

    def take_retry(self, messages_max: int) -> None:
        """Takes from the retry topic, at most `messages_max`, oldest first.

        An entry whose message cannot be read is taken too and counted, or it would stay at the head of the retry
        topic.
        """
        where = (self.group.group_id, self.topic.topic_id)
        rows_max = len(self.rows) + min(messages_max, self.room)
        if not self.tx.state.stat[where].retry:
            return
        for entry in self._retry_entries():
            if len(self.rows) >= rows_max or self._ended or not self._fits(entry.size):
                break
            read = self.log.fetch(self.topic.topic_id, entry.position, entry.size)
            self.retries.append(entry)
            if read is None:
                self._skip(entry.queue, entry.offset, entry.position, entry.size)
                continue
            attempt = entry.attempts + 1
            self._take(entry.position, entry.size, read, entry.queue, entry.offset, attempt)
            self.runs.append(Run(entry.queue, entry.offset, 1, attempt, entry.position, entry.size, entry.first_pop_ms))

    def _retry_entries(self) -> Iterator[RetryEntry]:
        """From the oldest on; not those that the asking owner itself is about to take back."""
        prefix = STAT_KEY.pack(self.group.group_id, self.topic.topic_id)
        self.own = 0
        for key, value in self.tx.kv.scan("rq", prefix):
            if self.own > OWN_ENTRIES_MAX or (self.upto is not None and U64.unpack(key[8:])[0] >= self.upto.retry):
                break
            entry = RetryEntry(key, *RQ_VALUE.unpack_from(value))
            if self.owner_id and self._is_own(entry):
                self.own += 1
            else:
                yield entry

    def more_retries(self) -> bool:
        """Whether an applied pick left entries that it might have taken; too many to look at count as some."""
        if not self.tx.state.stat[(self.group.group_id, self.topic.topic_id)].retry:
            return False
        return next(self._retry_entries(), None) is not None or self.own > OWN_ENTRIES_MAX

    def _is_own(self, entry: RetryEntry) -> bool:
        """Whether an entry is tied to a CheckPoint of the owner that asks."""
        ck = self.tx.state.ck.get(entry.bound_ck)
        return ck is not None and ck.owner_id == self.owner_id

    def rest(self, queues: range | tuple[int, ...]) -> int:
        """Messages that the queues and the retry topic still have, once this is applied."""
        state, where = self.tx.state, (self.group.group_id, self.topic.topic_id)
        if len(queues) == self.topic.queues:
            return state.total.get(where[1], 0) - state.passed.get(where, 0) + state.stat[where].retry
        tops = sum(state.queue_max.get((where[1], queue), 0) for queue in queues)
        return tops - sum(state.poff.get((*where, queue), 0) for queue in queues) + state.stat[where].retry

    def apply(self) -> None:
        """Writes what is true whether or not anything was taken: positions, retry entries, what could not be read."""
        tx, where = self.tx, (self.group.group_id, self.topic.topic_id)
        for queue, offset in self.poff.items():
            tx.pass_to((*where, queue), offset)
        if self.expired:
            tx.count(where, expired=self.expired)
        for entry in self.retries:
            take_retry_entry(tx, where, entry)
        for queue, offset, position, size in self.damaged:
            quarantine.set_aside(tx, *where, queue, offset, position, size)


def take_retry_entry(tx: Tx, where: tuple[int, int], entry: RetryEntry) -> None:
    """An entry leaves the retry topic for another reader; an owner that was to have it learns that it is torn.

    Its attempt was counted when it was popped; the next CheckPoint carries it on.
    """
    tx.kv.delete("rq", entry.key)
    unpin_retry(tx, entry.position)
    tx.count(where, retry=-1)
    lease = tx.state.leases.get((entry.bound_ck, 0))
    if entry.bound_ck and lease is not None:
        bit = 1 << entry.bound_member
        tx.loosen(tx.state.ck[entry.bound_ck].owner_id, -1)
        tx.state.leases[(entry.bound_ck, 0)] = lease._replace(
            undone=lease.undone & ~bit, released=lease.released & ~bit, torn=lease.torn | bit
        )


def pin_retry(tx: Tx, chunk: int, count: int) -> None:
    """Moves the number of retry entries that point into a chunk."""
    key = U64.pack(chunk)
    raw = tx.kv.get("pin", key)
    left = (U32.unpack(raw)[0] if raw is not None else 0) + count
    if left:
        tx.kv.put("pin", key, U32.pack(left))
    elif raw is not None:
        tx.kv.delete("pin", key)


def unpin_retry(tx: Tx, position: int) -> None:
    """One retry entry less points at this position."""
    chunk = Log(tx.kv).chunk_of(position)
    if chunk >= 0:
        pin_retry(tx, chunk, -1)


def pop(tx: Tx, command: Pop) -> Popped:
    """Leases what is deliverable; an empty answer leases nothing.

    Nothing is written before everything is chosen: `Pick` only reads, `apply` moves positions, `lease` makes the
    CheckPoint. When something is left behind, the commit wakes the next waiter: chain waking (S1.42).
    """
    group, topic = resolve(tx, command.topic, command.group)
    queues = queues_of(topic, command.queues)
    bind(tx, group, topic)
    if command.attempt_id:
        ck_id = tx.state.attempts.get((group.group_id, topic.topic_id, command.client_id, command.attempt_id))
        if ck_id is not None:
            return _replay(tx, tx.state.ck[ck_id])
    pick = Pick(tx, group, topic, command.max_messages, command.max_bytes)
    choose(pick, queues, group.in_flight_max)
    pick.apply()
    rest = pick.rest(tuple(queues))
    if rest and (pick.rows or pick.skipped >= SKIPS_MAX):
        tx.wake(group.group_id, topic.topic_id)
    if not pick.rows:
        return Popped([], 0, 0, tx.now_ms, 0, rest)
    due_ms = tx.now_ms + (command.invisible_ms or group.invisible_ms)
    ck = lease(tx, pick, Lease(due_ms, 0), command.client_id, command.attempt_id)
    return Popped(pick.rows, ck.ck_id, ck.nonce, tx.now_ms, due_ms, rest)


def choose(pick: Pick, queues: range | tuple[int, ...], in_flight_max: int | None) -> None:
    """One round over the retry topic and the queues, until the pick is full."""
    state, where = pick.tx.state, (pick.group.group_id, pick.topic.topic_id)

    def room(queue: int) -> int:
        return pick.room if in_flight_max is None else in_flight_max - state.in_flight.get((*where, queue), 0)

    turn = state.pop_turns.get(where, 0) + 1
    state.pop_turns[where] = turn
    retry_first = turn % RETRY_FIRST_EVERY == 0
    if retry_first:
        pick.take_retry(room(RETRY_QUEUE))
    for step in range(len(queues)):
        if not pick.room:
            break
        queue = queues[(turn + step) % len(queues)]
        pick.take_queue(queue, room(queue))
    if not retry_first:
        pick.take_retry(room(RETRY_QUEUE))


def lease(tx: Tx, pick: Pick, part: Lease, client: str, attempt_id: str, owner_id: int = 0) -> CheckPoint:
    """Puts what was picked under one CheckPoint; `part` says until when."""
    kind = RETRY if len(pick.retries) == len(pick.runs) and pick.retries else NORMAL
    ck = CheckPoint(
        tx.next("ck_id"),
        pick.group.group_id,
        pick.topic.topic_id,
        kind,
        owner_id,
        int.from_bytes(os.urandom(8), "big"),
        tx.now_ms,
        attempt_id,
        client,
        "",
        tuple(pick.runs),
        len(pick.rows),
        tuple(pick.chunks),
    )
    tx.state.ck[ck.ck_id] = ck
    tx.set_lease(ck, 0, part._replace(undone=ck.all_bits))
    tx.hold(ck, ck.all_bits, 1)
    if attempt_id:
        tx.state.attempts[(ck.group_id, ck.topic_id, client, attempt_id)] = ck.ck_id
    return ck


def resolve(tx: Tx, topic_name: str, group_name: str) -> tuple[Group, Topic]:
    """The group and the topic of these names, or Refused."""
    group, topic = tx.group(group_name), tx.topic(topic_name)
    if topic is None:
        raise topic_not_found(topic_name)
    if group is None:
        raise group_not_found(group_name)
    return group, topic


def queues_of(topic: Topic, named: tuple[int, ...]) -> range | tuple[int, ...]:
    """The queues to visit: those that are named, or all. Refused for one that the topic does not have."""
    for place, queue in enumerate(named):
        if queue >= topic.queues:
            raise Refused(
                "INVALID_FIELD",
                f"topic {topic.name!r} has no queue {queue}, it has {topic.queues}",
                field=f"queues[{place}]",
                action="name queues from 0 to the number of queues less one",
            )
    return named or range(topic.queues)


def bind(tx: Tx, group: Group, topic: Topic, start: tuple[str, int] | None = None) -> None:
    """Fixes where a group starts in a topic, when it names the topic for the first time.

    At the first naming, not at the first message: what is sent between the two is not skipped. Queues that a topic
    gets later begin at their first offset for everybody.
    """
    where = (group.group_id, topic.topic_id)
    if where in tx.state.stat:
        return
    kind, since_ms = start or (group.start_from, group.start_ms)
    begin = 0
    tx.state.topic_groups[topic.topic_id] = (*tx.state.topic_groups.get(topic.topic_id, ()), group.group_id)
    for queue in range(topic.queues):
        least = tx.state.queue_min.get((topic.topic_id, queue), 0)
        most = tx.state.queue_max.get((topic.topic_id, queue), 0)
        offset = {"EARLIEST": least, "LATEST": most}.get(kind)
        if offset is None:
            offset = _offset_at(tx, topic.topic_id, queue, since_ms, least, most)
        tx.pass_to((*where, queue), offset)
        begin += offset
    tx.state.stat[where] = Stat(start=begin)


def _offset_at(tx: Tx, topic_id: int, queue: int, since_ms: int, low: int, high: int) -> int:
    """The first offset stored at or after a time: store times never fall within a queue, so halving finds it.

    The time is that of the chunk, which is known of a damaged message too; what retention dropped is older.
    """
    while low < high:
        middle = (low + high) // 2
        unit = entries(tx.kv, topic_id, queue, middle, 1)
        block = tx.kv.floor("idx", TOPIC_AT.pack(topic_id, unit[0][1]), U32.pack(topic_id)) if unit else None
        if block is not None and IDX_HEAD.unpack_from(block[1])[0] >= since_ms:
            high = middle
        else:
            low = middle + 1
    return low


def _replay(tx: Tx, ck: CheckPoint) -> Popped:
    """The same messages that are not done yet, uncounted: the answer to a repeated attempt id.

    Members whose lease was changed alone are among them; the deadline that is told is the earliest of all.
    """
    parts = [part for sub in range(ck.members + 1) if (part := tx.state.leases.get((ck.ck_id, sub)))]
    rows, _ = read_members(tx, ck, sum(part.undone for part in parts))
    return Popped(rows, ck.ck_id, ck.nonce, ck.popped_ms, min(part.due_ms for part in parts), 0, True)


def read_members(tx: Tx, ck: CheckPoint, bits: int) -> tuple[list[tuple[bytes, int, int, int, int, int]], int]:
    """Rows of the members in `bits`, and how many of them cannot be read."""
    log, rows, lost = Log(tx.kv), [], 0
    for (run, offset, position, size), member in zip(located(tx, ck, bits), members_of(bits), strict=True):
        read = log.fetch(ck.topic_id, position, size)
        if read is None:
            lost += 1
        else:
            rows.append((read[1], read[0], run.queue, offset, run.attempts, member))
    return rows, lost
