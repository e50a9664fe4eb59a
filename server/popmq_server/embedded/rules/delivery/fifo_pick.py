"""FifoPick: chooses the messages of a pop of a FIFO topic by reading only, as Pick does (pick.py).

    fwait ─ ready message groups ─────────────▶ rows                       apply: removes taken, adds waiting entries
    cq ──── the first of a free message group ▶ rows                       lease: locks their message groups
       └─── of one that waits or is locked ───▶ waits in fwait

Every second pop begins with the queues, so that neither source starves the other (turns.py). Each ready message group
first gets only a share of the batch, so that one with a large backlog leaves room for others.
"""

from popmq_server.embedded.rules.delivery import fifo
from popmq_server.embedded.rules.delivery.fifo import Waiting
from popmq_server.embedded.rules.delivery.pick import RETRIES_MAX, Bounds, Pick
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.checkpoint import Run
from popmq_server.embedded.store.keys import FWAIT_KEY
from popmq_server.values.records import (
    RETRY_QUEUE,
    Group,
    Stat,
    Topic,
)

#: Waiting messages of a group in a topic beyond which pops stop reading the queues until some are taken.
WAITING_MAX = 100_000
#: Messages that one pop adds to the waiting ones at most; the next pop continues after them.
NEW_WAITING_MAX = 1_000
#: The share of a batch that one waiting message group gets before others: 1 / SHARE_OF_BATCH.
SHARE_OF_BATCH = 8
_NONE = Stat()


class FifoPick(Pick):
    """A plan over message groups. `part`: the token's part, whose later chunks may take more of its message groups."""

    def __init__(self, tx: Tx, group: Group, topic: Topic, bounds: Bounds) -> None:
        super().__init__(tx, group, topic, bounds)
        self.part = 0
        self.message_groups: list[bytes] = []  # the message group of each row
        self.where = (group.group_id, topic.topic_id)
        self._mine: dict[bytes, None] = {}  # message groups of the taken messages, in their order
        self._taken: dict[bytes, Waiting] = {}  # by key; includes messages that do not match or cannot be read
        self._from_waiting = 0
        self._new_waiting: list[Waiting] = []
        self._still_waiting: dict[bytes, int] = {}  # waiting messages of a message group after this plan
        self._waiting = tx.state.stat[self.where].waiting if self.where in tx.state.stat else 0

    @property
    def cut(self) -> bool:
        return super().cut or len(self._new_waiting) >= NEW_WAITING_MAX

    def allowed(self, queue: int) -> int:
        """Like Pick.allowed, less the waiting messages that an earlier step of this plan has taken."""
        return super().allowed(queue) - (self._from_waiting if queue == RETRY_QUEUE and self.in_flight_max else 0)

    def has_retries(self) -> bool:
        """Whether a message group with waiting messages is ready."""
        return self.tx.state.ready_groups.count(self.where) > 0

    def take_retry(self) -> bool:
        """Takes from the ready message groups, the longest ready first; returns whether it took or dropped any."""
        share, before = max(1, self.messages_max // SHARE_OF_BATCH), len(self._taken)
        for message_group in self.tx.state.ready_groups.of(self.where):
            if not self.room or self._from_waiting >= RETRIES_MAX or self.allowed(RETRY_QUEUE) <= 0:
                break
            self._take_waiting(message_group, min(share, self.room))
        return len(self._taken) > before

    def take_more(self) -> None:
        """Fills the batch with waiting messages of the message groups from which it has taken some."""
        for message_group in list(self._mine):
            if self._still_waiting.get(message_group, 0):
                self._take_waiting(message_group, self.room)

    def _take_waiting(self, message_group: bytes, count: int) -> None:
        """Takes up to `count` messages of one message group, from the front; drops those that do not match."""
        count = min(count, self.allowed(RETRY_QUEUE), RETRIES_MAX - self._from_waiting)
        for key, value in self.tx.kv.scan("fwait", fifo.prefix_of(self.where, message_group)):
            if key in self._taken:
                continue
            entry = fifo.waiting_of(key, value)
            if count <= 0 or self.rejections_left <= 0 or not self._fits(entry.size):
                return
            if self._is_tied(entry) or not self._is_below(entry):
                return
            count -= self._take_entry(message_group, entry)
            if self.blocked:
                return

    def _take_entry(self, message_group: bytes, entry: Waiting) -> bool:
        """Whether one waiting message was taken. Removes an unreadable one, which would otherwise block its group."""
        read = self.log.fetch(self.topic.topic_id, entry.position, entry.size)
        passes = read is not None and self.passes(read[1])
        if read is not None and passes and self._may_expire:
            passes = not self.has_ended(read, entry.as_run(entry.attempts))
            if self.blocked:
                return False
        self._taken[entry.key] = entry
        self._still_waiting[message_group] = self._waits(message_group) - 1
        if read is None:
            self._skip(entry.queue, entry.offset, entry.position, entry.size)
        if read is None or not passes:
            return False
        attempt = entry.attempts + 1
        self._take(entry.position, entry.size, read, entry.queue, entry.offset, attempt)
        self.runs.append(entry.as_run(attempt))
        self.message_groups.append(message_group)
        self._mine[message_group] = None
        self._from_waiting += 1
        return True

    def _waits(self, message_group: bytes) -> int:
        """Waiting messages of a message group, with the changes of this plan."""
        return self._still_waiting.get(message_group, self.tx.state.waiting.get((*self.where, message_group), 0))

    def _is_tied(self, entry: Waiting) -> bool:
        """Whether an entry is tied to a CheckPoint of the requesting owner: its own token returns it."""
        return bool(self.owner_id) and self.returns_to(entry.bound_ck, entry.bound_member)

    def _is_below(self, entry: Waiting) -> bool:
        return self.upto is None or entry.offset < self.upto.queues.get(entry.queue, 0)

    def take_queue(self, queue: int) -> None:
        """Reads one queue from the group's position: takes messages of free message groups and lets the others wait."""
        offset = start = self._start(queue)
        stop = self._stop(queue)
        rows_max = len(self.rows) + min(self.room, self.allowed(queue))
        while offset < stop and len(self.rows) < rows_max and not self._ended:
            units, end = self._candidates(queue, offset, min(stop - offset, NEW_WAITING_MAX))
            before = offset
            if end > offset:
                offset = self._read_units(queue, offset, units, end, rows_max)
            else:
                offset = self._over_hole(queue, offset, stop)
            if offset == before:
                break
        self._reach(queue, start, offset)

    def _read_units(self, queue: int, offset: int, units: list[tuple[int, int, int]], end: int, rows_max: int) -> int:
        """Reads units; returns the offset after the last message that was taken, skipped or made to wait."""
        first, waits = offset, self.tx.state.stat.get(self.where, _NONE).waiting - len(self._taken)
        for at, position, size in units:
            if at > offset:
                self._close_run(queue, first, offset)
                self.filtered += at - offset
                first = offset = at
            if len(self.rows) >= rows_max or self._ended or waits + len(self._new_waiting) >= WAITING_MAX:
                break
            taken = self._read_unit(queue, at, position, size)
            if taken is None:
                break
            if not taken:
                self._close_run(queue, first, offset)
                first = at + 1
            offset = at + 1
        else:
            self.filtered += end - offset
            self._close_run(queue, first, offset)
            return end
        self._close_run(queue, first, offset)
        return offset

    def _read_unit(self, queue: int, offset: int, position: int, size: int) -> bool | None:
        """Whether one message was taken; None when it does not fit the bytes that are left, or it is `blocked`."""
        read = self.log.fetch(self.topic.topic_id, position, size)
        if read is None:
            self._skip(queue, offset, position, size)
            return False
        message_group = fifo.message_group_hash(read[1])
        free = self._is_free(message_group)
        if free and not self._fits(size):
            return None
        if not self.passes(read[1]):
            return False
        if self._may_expire and self.has_ended(read, Run(queue, offset, 1, 0, position, size)):
            return None if self.blocked else False
        if not free:
            self._let_wait(message_group, queue, offset, position, size)
            return False
        self._take(position, size, read, queue, offset, 1)
        self.message_groups.append(message_group)
        self._mine[message_group] = None
        return True

    def _is_free(self, message_group: bytes) -> bool:
        """Whether the next unread message of a message group is free: no earlier one waits or is leased elsewhere."""
        if (self._waiting or self._still_waiting) and self._waits(message_group):
            return False
        if message_group in self._mine:
            return True
        lock = self.tx.state.locks.get((*self.where, message_group))
        return lock is None or (lock[1] > 0 and lock[1:] == (self.owner_id, self.part))

    def _let_wait(self, message_group: bytes, queue: int, offset: int, position: int, size: int) -> None:
        key = FWAIT_KEY.pack(*self.where, message_group, offset)
        self._still_waiting[message_group] = self._waits(message_group) + 1
        self._new_waiting.append(Waiting(key, position, size, 0, queue, 0, 0, 0, 0, ""))

    def more_retries(self) -> bool:
        """Whether an applied pick left ready message groups whose front is not tied to the requesting owner."""
        for message_group in self.tx.state.ready_groups.of(self.where):
            entry = fifo.front(self.tx, self.where, message_group)
            if entry is not None and not self._is_tied(entry) and self._is_below(entry):
                return True
        return False

    def rest(self, queues: range | tuple[int, ...]) -> int:
        """Unread messages, and one for each ready message group: its other messages wait for the first one."""
        return super().rest(queues) + self.tx.state.ready_groups.count(self.where)

    def apply(self) -> None:
        """Removes taken entries and adds waiting ones; the lease sets the locks."""
        super().apply()
        for entry in self._taken.values():
            fifo.remove(self.tx, self.where, entry)
        for entry in self._taken.values():
            fifo.tear(self.tx, self.where, entry)
        for entry in self._new_waiting:
            fifo.put(self.tx, self.where, entry)
