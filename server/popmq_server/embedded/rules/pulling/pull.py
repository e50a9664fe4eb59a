"""Pull: reads one queue from an offset on, without a lease. The request names the offset to read from; the broker
stores a group's offset only if the request commits one.

    offset      below the first      first … next - 1            = next                  beyond
                │                    │                           │                       │
    status      OFFSET_TOO_SMALL     FOUND, or why there is      OFFSET_OVERFLOW_ONE     OFFSET_OVERFLOW_BADLY
    next        the first            see below                   the same                next

    no messages because                         status                  next
    the queue never had a message               NO_MESSAGE_IN_QUEUE     0
    the topic has no such queue                 NO_MATCHED_LOGIC_QUEUE  0
    the index has a hole there                  OFFSET_FOUND_NULL       after it
    no examined message matches the filter      NO_MATCHED_MESSAGE      after the examined ones
    no examined message can be read             MESSAGE_WAS_REMOVING    after the examined ones

An offset outside the queue is always corrected; in the reference that depends on the kind of replica and on settings.
Only answers without messages have the last three statuses. The next offset is after all messages that were
examined, matching or not, so that no message is filtered twice. Messages whose ttl is over are examined and not
delivered, like those that do not match.

The offset of a message in `%RETRY%group+topic` is the number of its entry. Numbers have gaps, so a pull may start at
any number up to the next one, and no offset is too small.

The event loop parks Pulls at the end of a queue: parked_pulls.py.
"""

from dataclasses import replace
from itertools import repeat

from popmq_server.contract.commands import Pull, Pulled, UpdateOffsets
from popmq_server.embedded.rules.delivery import deadletter, invalidated
from popmq_server.embedded.rules.delivery.pick import REJECTIONS_MAX, SCAN_UNITS_MAX, SKIPS_MAX
from popmq_server.embedded.rules.delivery.subscription import (
    expect_mode,
    note_read,
    refuse_lite,
    subscribe,
)
from popmq_server.embedded.rules.pulling import offsets
from popmq_server.embedded.rules.topics import quarantine, quotas, readers, registry
from popmq_server.embedded.rules.topics.log import (
    Log,
    entries,
    over_hole,
    tagged,
)
from popmq_server.embedded.rules.topics.topic_lifecycle import expect_creation
from popmq_server.embedded.state.events import Event
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import (
    RQ_KEY,
    RQ_VALUE,
    STAT_KEY,
    U64,
)
from popmq_server.errors import group_not_found, invalid, topic_not_found
from popmq_server.values import fields, permission
from popmq_server.values.filters import filter as filters
from popmq_server.values.filters.filter import Filter
from popmq_server.values.ids import GroupTopic
from popmq_server.values.message import RETRY_PREFIX, read_head, read_record
from popmq_server.values.records import Group, Topic

Row = tuple[bytes, int, int, int, int]
#: Statuses of answers that correct the requested offset.
CORRECTED = ("OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_BADLY")


def pull(tx: Tx, command: Pull) -> Pulled:
    """Reads for a group that pulls, or without a group; commits first if the request says so.

    Refuses a group that pops: its consumers would process the messages a second time.
    """
    if command.topic.startswith(RETRY_PREFIX):
        return _pull_retry(tx, command)
    topic = registry.topic(tx, command.topic)
    if topic is None:
        raise topic_not_found(command.topic)
    expect_creation(topic, command.topic_created_ms)
    refuse_lite(topic)
    group = readers.group(tx, command.group) if command.group else None
    if command.group and group is None:
        raise group_not_found(command.group)
    permission.check_read(group, topic)
    if group is not None:
        expect_mode(tx, group, topic, "PULL")
    least, most = offsets.ends(tx, topic, command.queue)
    command = _within_quota(tx, group, topic, command, least <= command.offset < most)
    wanted = _filter(tx, group, topic, command)
    if group is not None:
        note_read(tx, (group.group_id, topic.topic_id), (command.queue,))
    acked = _commit(tx, group, topic, command)
    pulled = Reading(tx, topic, wanted, command).pulled()
    return _counted(tx, group, topic, pulled._replace(acked=acked, topic_created_ms=topic.created_ms))


def _within_quota(tx: Tx, group: Group | None, topic: Topic, command: Pull, something: bool) -> Pull:
    """Limits the request to the group's quota; Refused if there are messages but the quota permits none."""
    allowed = quotas.pop_room(tx, group, topic) if group is not None else None
    if group is not None and allowed == 0 and something:
        raise quotas.no_quota(tx, group, topic)
    return replace(command, max_messages=min(command.max_messages, allowed)) if allowed else command


def _counted(tx: Tx, group: Group | None, topic: Topic, pulled: Pulled) -> Pulled:
    """Charges the messages to the group's quota; a reader without a group has none."""
    if group is not None:
        quotas.popped(tx, group, topic, len(pulled.rows))
    return pulled


def _filter(tx: Tx, group: Group | None, topic: Topic, command: Pull) -> Filter:
    """The group's filter, fixed by its first request; without a group, the request's own."""
    asked = command.filter
    if group is None:
        return filters.make(*asked) if asked else filters.EVERYTHING
    return subscribe(tx, group, topic, asked, replace=command.filter_wins)


def _commit(tx: Tx, group: Group | None, topic: Topic, command: Pull) -> int:
    """Commits the offset in the request; returns how many messages it moved past."""
    if command.commit_offset is None:
        return 0
    if group is None:
        raise invalid(
            "a reader without a group has no offset to commit",
            field="commit_offset",
            action="name a group, or leave the offset out",
        )
    offsets.check_offset(tx, topic, command.queue, command.commit_offset, "commit_offset")
    return offsets.commit(tx, group, topic, command.queue, command.commit_offset)


class Reading:
    """One read of a queue: the messages found, and how far it got."""

    def __init__(self, tx: Tx, topic: Topic, wanted: Filter, command: Pull) -> None:
        self.tx = tx
        self.topic = topic
        self.wanted = wanted
        self.group = command.group
        self.queue = command.queue
        self.offset = command.offset
        self.messages_max = command.max_messages
        self.bytes_left = self.bytes_max = command.max_bytes
        self.log = Log(tx.kv)
        self.body = command.body
        self.read = read_record if command.body else read_head
        self.log_end = tx.state.counters[""].position
        self.rows: list[Row] = []
        self.least, self.most = offsets.ends(tx, topic, command.queue)
        self.end = min(self.most, command.end_offset or self.most)
        self.units_left, self.rejections_left, self.skips_left = SCAN_UNITS_MAX, REJECTIONS_MAX, SKIPS_MAX
        self.rejected = self.removed = 0
        self.full, self.rest_bytes = False, command.rest_bytes
        self.may_be_gone, self.may_expire = deadletter.has_gone(tx, topic.topic_id), topic.expires
        self.damaged: list[tuple[int, int, int]] = []

    def pulled(self) -> Pulled:
        """Checks the offset, then reads the queue."""
        outside = self._outside()
        if outside is not None:
            if not self.rest_bytes:  # else the next pull asks for this offset, and is corrected
                self._tell_corrected(*outside)
            return Pulled(outside[0], [], outside[1], self.least, self.most)
        self._read()
        for place in self.damaged:
            quarantine.report(self.tx, self.topic.topic_id, self.queue, *place)
        return Pulled(
            status=self._status(),
            rows=self.rows,
            next_offset=self.offset,
            min_offset=self.least,
            max_offset=self.most,
            more=self.offset < self.most,
            full=self.full or len(self.rows) >= self.messages_max,
            bytes=self.bytes_max - self.bytes_left,
            passed_over=self.rejected if self.wanted.everything else 0,
        )

    def _outside(self) -> tuple[str, int] | None:
        """(status, next offset) if there is nothing to read at this offset."""
        if self.queue >= self.topic.queues:
            return "NO_MATCHED_LOGIC_QUEUE", 0
        if not self.most:
            return "NO_MESSAGE_IN_QUEUE", 0
        if self.offset < self.least:
            return "OFFSET_TOO_SMALL", self.least
        if self.offset == self.most:
            return "OFFSET_OVERFLOW_ONE", self.most
        return ("OFFSET_OVERFLOW_BADLY", self.most) if self.offset > self.most else None

    def _tell_corrected(self, status: str, at: int) -> None:
        """Reports a corrected offset: the caller lost messages, or used an offset that is not from this queue."""
        if status in CORRECTED:
            text = (
                f"a pull of {f'group {self.group!r}' if self.group else 'a reader'} asked for offset {self.offset} of "
                f"queue {self.queue} of topic {self.topic.name!r}, which has {self.least} to {self.most}: "
                f"it goes on at {at}"
            )
            lost = max(0, at - self.offset)
            self.tx.tell(Event("offset_corrected", self.group, self.topic.name, lost, text))

    def _status(self) -> str:
        if self.rows:
            return "FOUND"
        if self.rejected:
            return "NO_MATCHED_MESSAGE"
        return "MESSAGE_WAS_REMOVING" if self.removed else "OFFSET_FOUND_NULL"

    def _read(self) -> None:
        """Reads until the answer is full, the queue ends, or a limit is used up; skips a hole only at the start."""
        span, where = 0, (self.topic.topic_id, self.queue)
        while self.offset < self.end and self.units_left > 0 and not self._ended():
            room = self.messages_max - len(self.rows)
            span = min(max(2 * span, room), self.end - self.offset, self.units_left)
            units, end = self._candidates(span if not self.wanted.everything else min(room, self.end - self.offset))
            if end == self.offset:
                if not (self.rows or self.rejected or self.removed):
                    self.offset = over_hole(self.tx.kv, *where, self.offset, self.end)
                return
            self._take(units, end)

    def _ended(self) -> bool:
        return self.full or min(self.messages_max - len(self.rows), self.rejections_left, self.skips_left) <= 0

    def _candidates(self, count: int) -> tuple[list[tuple[int, int, int]], int]:
        """The index stage: returns entries among the next `count` that may match, and the offset after them."""
        where = (self.tx.kv, self.topic.topic_id, self.queue, self.offset, count)
        if self.wanted.hashes is not None:
            units, end = tagged(*where, self.wanted.hashes)
        else:
            units = entries(*where)
            end = self.offset + len(units)
        self.units_left -= 0 if self.wanted.everything else end - self.offset
        return units, end

    def _take(self, units: list[tuple[int, int, int]], end: int) -> None:
        """The log stage: takes messages that can be read, match and fit; the first always fits."""
        all_come = self.wanted.everything and not (self.may_be_gone or self.may_expire)
        taken = self._take_sound(units) if all_come else 0
        for found, position, size in units[taken:]:
            self._pass_over(found)
            self.full = self.full or (size > self.bytes_left and not self._fits_first(size))
            if self._ended():
                return
            read = self.log.fetch(self.topic.topic_id, position, size, self.read)
            self.offset = found + 1
            if self.may_be_gone and deadletter.is_gone(self.tx.kv, self.topic.topic_id, self.queue, found):
                self._miss()
            elif read is None:
                self._miss()
                if not self.log.is_dropped(position, self.log_end):
                    self.damaged.append((found, position, size))
            elif (self.wanted.everything or self.wanted.matches(read[1])) and not self._has_ended(read):
                self.rows.append((read[1], read[0], self.queue, found, 1))
                self.bytes_left -= size
            else:
                self.rejected += 1
                self.rejections_left -= 1
        self._pass_over(end)

    def _has_ended(self, read: tuple[int, bytes]) -> bool:
        """Whether the ttl of a message is over."""
        return self.may_expire and 0 < fields.ended_ms(read[1], read[0]) <= self.tx.now_ms

    def _take_sound(self, units: list[tuple[int, int, int]]) -> int:
        """Takes messages up to the first that cannot be read or does not fit; returns how many.

        The common case, without the checks of the log stage: nothing is filtered, and units are consecutive.
        """
        first_fits = bool(units) and self._fits_first(units[0][2])
        found = self.log.sound(self.topic.topic_id, units, self.bytes_left, first_fits, self.body)
        taken = len(found.data)
        offsets_taken = range(self.offset, self.offset + taken)
        self.rows += zip(found.data, found.stored_ms, repeat(self.queue), offsets_taken, repeat(1))
        self.bytes_left = found.bytes_left
        self.offset += taken
        return taken

    def _fits_first(self, size: int) -> bool:
        """Whether a message is the first of its piece, and fits into what the whole read may have."""
        return not self.rows and (not self.rest_bytes or size <= self.rest_bytes)

    def _pass_over(self, offset: int) -> None:
        """Counts entries before `offset` as rejected: the index stage left them out."""
        self.rejected += offset - self.offset
        self.offset = offset

    def _miss(self) -> None:
        """Counts a message that cannot be read, or a dead letter that was redriven."""
        self.removed += 1
        self.skips_left -= 1


# ── Retry topics ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _pull_retry(tx: Tx, command: Pull) -> Pulled:
    """Reads entries from a number on; the attempt of a message is the one that a Pop would count."""
    group, topic = offsets.own_retry_topic(tx, command.topic, command.group)
    expect_creation(topic, command.topic_created_ms)
    reader = group if command.group else None
    permission.check_read(reader, topic)
    if reader is not None:
        expect_mode(tx, reader, topic, "PULL")
    last = tx.kv.last("rq", STAT_KEY.pack(group.group_id, topic.topic_id))
    something = last is not None and RQ_KEY.unpack(last[0])[2] >= command.offset and not command.queue
    command = _within_quota(tx, reader, topic, command, something)
    wanted = _filter(tx, reader, topic, command)
    least, most = offsets.retry_ends(tx, group, topic)
    if command.queue:
        return Pulled("NO_MATCHED_LOGIC_QUEUE", [], 0, least, most, topic_created_ms=topic.created_ms)
    acked, left = _commit_entries(tx, command)
    if command.offset > most:
        return Pulled(
            status="OFFSET_OVERFLOW_BADLY",
            rows=[],
            next_offset=most,
            min_offset=least,
            max_offset=most,
            more=False,
            acked=acked,
            left=left,
            topic_created_ms=topic.created_ms,
        )
    rows, at, more = _read_entries(tx, group, topic, wanted, command)
    status = "FOUND" if rows else "NO_MATCHED_MESSAGE" if at > command.offset else "OFFSET_OVERFLOW_ONE"
    at = at if at > command.offset else most
    return _counted(
        tx,
        reader,
        topic,
        Pulled(
            status=status,
            rows=rows,
            next_offset=at,
            min_offset=least,
            max_offset=most,
            more=more,
            acked=acked,
            left=left,
            topic_created_ms=topic.created_ms,
        ),
    )


def _commit_entries(tx: Tx, command: Pull) -> tuple[int, bool]:
    """Finishes one piece of the entries below the request's commit offset."""
    if command.commit_offset is None:
        return 0, False
    if not command.group:
        raise invalid(
            "a reader without a group has no offset to commit",
            field="commit_offset",
            action="name a group, or leave the offset out",
        )
    return offsets.update(tx, UpdateOffsets(command.topic, command.group, {0: command.commit_offset}))


def _read_entries(tx: Tx, group: Group, topic: Topic, wanted: Filter, command: Pull) -> tuple[list[Row], int, bool]:
    """(rows, the number after the last examined entry, whether there may be more)."""
    where: GroupTopic = (group.group_id, topic.topic_id)
    log, at, bytes_left = Log(tx.kv), command.offset, command.max_bytes
    rows: list[Row] = []
    start = RQ_KEY.pack(*where, command.offset)
    for seen, (key, value) in enumerate(tx.kv.scan("rq", STAT_KEY.pack(*where), start)):
        rseq = U64.unpack(key[8:])[0]
        position, size, attempts, queue, offset, *_ = RQ_VALUE.unpack_from(value)
        full = len(rows) == command.max_messages or (rows and size > bytes_left)
        full = full or 0 < command.end_offset <= rseq
        if full or seen >= REJECTIONS_MAX + command.max_messages:
            return rows, at, True
        at = rseq + 1
        if invalidated.has_entry(tx.state, where, rseq, queue, offset):
            continue
        read = log.fetch(where[1], position, size)
        if read is None or (topic.expires and 0 < fields.ended_ms(read[1], read[0]) <= tx.now_ms):
            continue
        if wanted.everything or wanted.matches(read[1]):
            rows.append((read[1], read[0], 0, rseq, attempts + 1))
            bytes_left -= size
    return rows, at, False
