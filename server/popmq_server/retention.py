"""Retention: chunks of the log go when their time has come.

By default a chunk goes `keep_ms` after every group had moved past it, which marks tell (marks.py), and only if every
group is past it at the moment it goes: what a group has not finished is kept, whoever went back and whoever came late.
By age it goes `keep_ms` after it was stored, and what nobody had read is counted as expired. A chunk that a lease or a
retry entry points into is skipped, not stopped at; one that is held KEEP_COPY_AFTER_MS past its time has its live
records copied to `kept`, so that a forgotten lease does not hold a whole chunk.

    stored ──── every group moved past it ──── keep_ms ────▶ drop, if that is still so
                          │ mark                        ├── pinned: skipped, looked at again each minute
                                                        └── an hour later: live records → kept, the chunk goes

With a chunk go its index block, its consume-queue values, its history and quarantine rows, and the first readable
offset of each of its queues moves up to the next block that is left; marks of redriven letters (`gone`) go with it.
room.py drops chunks before their time.

A chunk that no queue names (`bare`: redriven messages) goes as soon as nothing points into it. One whose letters were
all redriven goes REDRIVEN_KEEP_MS after the last of them: until then they tell `why`.
"""

import bisect
import itertools
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from popmq_server import deadletter, index, marks
from popmq_server.catalog import KEEP_MS_DEFAULT
from popmq_server.checkpoint import members_of
from popmq_server.message import RECORD
from popmq_server.records import Topic
from popmq_server.storage.keys import CQ_ENTRY, CQ_KEY, FWAIT_VALUE, QUEUE_KEY, RQ_VALUE, STAT_KEY, TOPIC_AT, U32, U64
from popmq_server.topic import IDX_HEAD, IDX_RANGE, located_in, written
from popmq_server.tx import Tx

#: Chunks looked at for one topic in one piece.
CHUNKS_MAX = 200
#: Topics looked at in one piece: lite topics may be many.
TOPICS_MAX = 100
KEEP_COPY_AFTER_MS = 3_600_000
#: How long redriven letters are kept, and how often their chunks are looked for.
REDRIVEN_KEEP_MS, LOOK_AGAIN_MS = KEEP_MS_DEFAULT, 3_600_000
#: History rows removed with one chunk; more are left to the next chunk of the queue.
HISTORY_MAX = 10_000


class Chunk(NamedTuple):
    """What `idx` says of a chunk."""

    position: int
    stored_ms: int
    bytes: int
    ranges: tuple[tuple[int, int, int], ...]  # queue, first offset, count


def chunks(tx: Tx, topic_id: int, start: int) -> Iterator[Chunk]:
    """The chunks of a topic from a position on."""
    for key, value in tx.kv.scan("idx", U32.pack(topic_id), TOPIC_AT.pack(topic_id, start)):
        stored_ms, size, count = IDX_HEAD.unpack_from(value)
        raw = value[IDX_HEAD.size : IDX_HEAD.size + count * IDX_RANGE.size]
        yield Chunk(TOPIC_AT.unpack(key)[1], stored_ms, size, tuple(IDX_RANGE.iter_unpack(raw)))


def chunks_of(tx: Tx, topic: Topic, start: int) -> Iterator[tuple[Topic | None, Chunk]]:
    """The chunks of a topic from a position on, with the topic that each belongs to: of a LITE topic a lite topic.

    These lie among others' in the log, oldest first; a chunk of somebody else has no owner here, and only a position.
    """
    if topic.type != "LITE":
        yield from ((topic, chunk) for chunk in chunks(tx, topic.topic_id, start))
        return
    for key, value in tx.kv.scan("log", b"", U64.pack(start)):
        position, owner = U64.unpack(key)[0], tx.state.topics.get(RECORD.unpack_from(value)[2])
        if owner is None or owner.parent_id != topic.topic_id:
            yield None, Chunk(position, 0, 0, ())
        else:
            yield owner, next(chunks(tx, owner.topic_id, position))


class Retention:
    """Goes over the topics; remembers where it stopped in each."""

    def __init__(self) -> None:
        self._resume: dict[int, int] = {}
        #: Topics whose chunks were not all marked in one piece: the mark that moves on.
        self._marking: dict[int, int] = {}
        self._bare_at = b""
        #: For each dead-letter topic where the look for redriven chunks goes on, and not before when.
        self._letters: dict[int, tuple[int, int]] = {}
        #: Topics that this round is not done with, and whether it has begun.
        self._round: deque[int] = deque()
        self._running = False

    def run(self, tx: Tx) -> bool:
        """One piece of up to TOPICS_MAX topics that this round is not done with; whether there is more to do now."""
        if not self._running:
            self._round, self._running = deque(tx.state.topics), True
        for _ in range(min(TOPICS_MAX, len(self._round))):
            topic_id = self._round.popleft()
            topic = tx.state.topics.get(topic_id)
            if topic is not None and tx.state.alive(topic_id) and self._look_at(tx, topic):
                self._round.append(topic_id)
        self._running = bool(self._round) or self._drop_bare(tx)
        return self._running

    def _look_at(self, tx: Tx, topic: Topic) -> bool:
        """One piece of one topic; whether there is more. A lite topic has the retention of its parent."""
        if topic.parent_id:
            if tx.state.queue_min.get((topic.topic_id, 0), 0) == tx.state.queue_max.get((topic.topic_id, 0), 0):
                return False
            parent = tx.state.topics[topic.parent_id]
            topic = topic._replace(by_age=parent.by_age, keep_ms=parent.keep_ms)
        left = not topic.by_age and self._mark(tx, topic)
        since_ms = tx.now_ms - topic.keep_ms
        left |= self._drop(tx, topic, marks.limit(tx.kv, topic.topic_id, since_ms) if not topic.by_age else None)
        left |= deadletter.has_gone(tx, topic.topic_id) and self._drop_redriven(tx, topic)
        return left

    def _mark(self, tx: Tx, topic: Topic) -> bool:
        """Marks how far every group has moved; whether there is more to look at.

        Chunks that are pinned are passed as well: a mark says how far the groups have moved, a pin what must stay. A
        look that takes several pieces moves the mark of its first one on.
        """
        marked_ms, at = marks.last(tx.kv, topic.topic_id)
        goes_on = self._marking.pop(topic.topic_id, -1) == marked_ms
        if not goes_on and 0 <= tx.now_ms - marked_ms < topic.keep_ms // marks.MARKS_MAX:
            return False
        moved, seen = at, 0
        for chunk in chunks(tx, topic.topic_id, at):
            if seen == CHUNKS_MAX or not passed(tx, topic, chunk):
                break
            seen += 1
            moved = chunk.position + chunk.bytes
        if moved > at:
            if goes_on:
                tx.kv.delete("mark", TOPIC_AT.pack(topic.topic_id, marked_ms))
            marks.put(tx.kv, topic.topic_id, tx.now_ms, moved)
        if seen == CHUNKS_MAX:
            self._marking[topic.topic_id] = tx.now_ms
        return seen == CHUNKS_MAX

    def _drop(self, tx: Tx, topic: Topic, limit: int | None) -> bool:
        """Retires the chunks whose time has come, at most CHUNKS_MAX; whether there are more."""
        start, ripe = self._resume.pop(topic.topic_id, 0), list[Chunk]()
        for chunk in chunks(tx, topic.topic_id, start):
            if limit is None:
                stays = chunk.stored_ms + topic.keep_ms > tx.now_ms
            else:
                stays = chunk.position >= limit or not passed(tx, topic, chunk)
            if stays:
                break
            if len(ripe) == CHUNKS_MAX:
                self._resume[topic.topic_id] = chunk.position
                break
            ripe.append(chunk)
        for chunk in ripe:
            _retire(tx, topic, chunk)
        return topic.topic_id in self._resume

    def _drop_redriven(self, tx: Tx, topic: Topic) -> bool:
        """Drops the chunks of letters that nobody can read any more; looks at CHUNKS_MAX, and once an hour at all."""
        start, not_before_ms = self._letters.get(topic.topic_id, (0, 0))
        if tx.now_ms < not_before_ms:
            return False
        found = list(itertools.islice(chunks(tx, topic.topic_id, start), CHUNKS_MAX + 1))
        for chunk in found[:CHUNKS_MAX]:
            if chunk.ranges and not pinned(tx, chunk) and _is_redriven(tx, topic, chunk):
                drop(tx, topic, chunk)
        more = len(found) > CHUNKS_MAX
        self._letters[topic.topic_id] = (found[-1].position, 0) if more else (0, tx.now_ms + LOOK_AGAIN_MS)
        return more

    def _drop_bare(self, tx: Tx) -> bool:
        """Drops the chunks without a queue into which nothing points; looks at CHUNKS_MAX, whether there are more."""
        found = [key for key, _ in itertools.islice(tx.kv.scan("bare", b"", self._bare_at), CHUNKS_MAX + 1)]
        self._bare_at = found[CHUNKS_MAX] if len(found) > CHUNKS_MAX else b""
        for key in found[:CHUNKS_MAX]:
            topic_id, position = TOPIC_AT.unpack(key)
            topic, chunk = tx.state.topics.get(topic_id), next(chunks(tx, topic_id, position), None)
            if topic is not None and chunk is not None and not pinned(tx, chunk):
                drop(tx, topic, chunk)
        return bool(self._bare_at)


def _is_redriven(tx: Tx, topic: Topic, chunk: Chunk) -> bool:
    """Whether all letters of a chunk were redriven, and not lately."""
    for queue, first, count in chunk.ranges:
        times = list(deadletter.gone_times(tx.kv, topic.topic_id, queue, first, first + count))
        if len(times) < count or max(times) + REDRIVEN_KEEP_MS > tx.now_ms:
            return False
    return True


def passed(tx: Tx, topic: Topic, chunk: Chunk) -> bool:
    """Whether every group of the topic has popped (or skipped) all of a chunk."""
    for group_id in tx.state.topic_groups.get(topic.topic_id, ()):
        if group_id not in tx.state.groups:
            continue
        for queue, first, count in chunk.ranges:
            if tx.state.poff.get((group_id, topic.topic_id, queue), 0) < first + count:
                return False
    return True


def pinned(tx: Tx, chunk: Chunk) -> bool:
    """Whether a lease or an entry outside the queues points into a chunk."""
    return tx.state.pins.get(chunk.position, 0) > 0 or tx.kv.get("pin", U64.pack(chunk.position)) is not None


def _retire(tx: Tx, topic: Topic, chunk: Chunk) -> None:
    """Drops a chunk whose time has come, unless something points into it."""
    if not pinned(tx, chunk):
        drop(tx, topic, chunk)
    elif (
        chunk.stored_ms + topic.keep_ms + KEEP_COPY_AFTER_MS <= tx.now_ms
        and tx.kv.get("log", U64.pack(chunk.position)) is not None
    ):
        _copy_live(tx, topic, chunk)


def drop(tx: Tx, topic: Topic, chunk: Chunk) -> None:
    """Removes a chunk and all that belongs to it; groups that had not read it lose it, counted."""
    tx.kv.delete("log", U64.pack(chunk.position))
    tx.kv.delete("idx", TOPIC_AT.pack(topic.topic_id, chunk.position))
    tx.count_topic(topic.topic_id, bytes=-chunk.bytes)
    for key in [key for key, _ in _kept(tx, chunk)]:
        tx.kv.delete("kept", key)
    index.forget(tx, topic.topic_id)
    if not chunk.ranges:
        tx.kv.delete("bare", TOPIC_AT.pack(topic.topic_id, chunk.position))
    for queue, first, count in chunk.ranges:
        tx.kv.delete("cq", CQ_KEY.pack(topic.topic_id, queue, first))
        for name in ("quar", "hist"):
            _forget(tx, name, topic.topic_id, queue, first, first + count)
        _raise_min(tx, topic, queue)


def _forget(tx: Tx, name: str, topic_id: int, queue: int, first: int, end: int) -> None:
    """Removes what is told of a queue up to `end`, at most HISTORY_MAX; what is left over goes with a later chunk.

    It begins behind the last block before `first` that is still there: also where a lease that ended later was written
    down after its chunk had gone.
    """
    before = tx.kv.floor("cq", CQ_KEY.pack(topic_id, queue, first), QUEUE_KEY.pack(topic_id, queue))
    begin = CQ_KEY.unpack(before[0])[2] + len(before[1]) // CQ_ENTRY.size if before else 0
    start, stop = (CQ_KEY.pack(topic_id, queue, offset) for offset in (begin, end))
    stale: list[bytes] = []
    for key, _ in tx.kv.scan(name, start[:6], start):
        if key >= stop or len(stale) == HISTORY_MAX:
            break
        stale.append(key)
    for key in stale:
        tx.kv.delete(name, key)


def _raise_min(tx: Tx, topic: Topic, queue: int) -> None:
    """The first readable offset follows the first block that is left; whoever was before it has lost messages,
    counted.
    """
    where = (topic.topic_id, queue)
    first = tx.kv.first("cq", QUEUE_KEY.pack(*where))
    least = CQ_KEY.unpack(first[0])[2] if first else written(tx, *where)
    before = tx.state.queue_min.get(where, 0)
    tx.state.queue_min[where] = max(least, before)  # also when it stays: with it the end of the queue is written
    if least <= before:
        return
    tx.count_lites(topic.parent_id, 0, before - least)
    gone = list(deadletter.gone(tx.kv, *where, 0, least)) if deadletter.has_gone(tx, topic.topic_id) else []
    for group_id in tx.state.topic_groups.get(topic.topic_id, ()):
        offset = tx.state.poff.get((group_id, *where), 0)
        if offset < least and (group_id, topic.topic_id) in tx.state.stat:
            tx.pass_to((group_id, *where), least)
            skipped = len(gone) - bisect.bisect_left(gone, offset)
            tx.count((group_id, topic.topic_id), expired=least - offset - skipped, start=skipped)
    deadletter.forget_gone(tx, topic.topic_id, queue, gone)


def _kept(tx: Tx, chunk: Chunk) -> Iterator[tuple[bytes, memoryview]]:
    """What of a chunk went to `kept`."""
    for key, value in tx.kv.scan("kept", b"", U64.pack(chunk.position)):
        if U64.unpack(key)[0] >= chunk.position + chunk.bytes:
            return
        yield key, value


def _copy_live(tx: Tx, topic: Topic, chunk: Chunk) -> None:
    """Copies the records that leases and retry entries still need, and lets the chunk itself go.

    A rare job that walks leases and retry entries: an hour after a chunk's time, for what is still held then.
    """
    raw = tx.kv.get("log", U64.pack(chunk.position))
    if raw is None:
        return
    held = bytes(raw)
    for position, size in sorted(_live(tx, topic, chunk)):
        start = position - chunk.position
        tx.kv.put("kept", U64.pack(position), U64.pack(chunk.position) + held[start : start + size])
    tx.kv.delete("log", U64.pack(chunk.position))


def _live(tx: Tx, topic: Topic, chunk: Chunk) -> set[tuple[int, int]]:
    """(position, size) of every record in the chunk that a lease or a retry entry points at."""
    stop = chunk.position + chunk.bytes
    found = set()
    for (ck_id, _), part in tx.state.leases.items():
        ck = tx.state.ck.get(ck_id)
        if ck is not None and ck.topic_id == topic.topic_id and members_of(part.undone):
            found |= {unit[2:] for unit in located_in(tx.kv, ck, part.undone) if chunk.position <= unit[2] < stop}
    for group_id in tx.state.topic_groups.get(topic.topic_id, ()):
        for _, value in tx.kv.scan("rq", STAT_KEY.pack(group_id, topic.topic_id)):
            position, size, *_ = RQ_VALUE.unpack_from(value)
            if chunk.position <= position < stop:
                found.add((position, size))
        for _, value in tx.kv.scan("fwait", STAT_KEY.pack(group_id, topic.topic_id)):
            position, size, *_ = FWAIT_VALUE.unpack_from(value)
            if chunk.position <= position < stop:
                found.add((position, size))
    return found
