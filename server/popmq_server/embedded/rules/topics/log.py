"""Reads a topic: the entries of its queues, and the records that they point to.

entries → (offset, position, size) of a queue from an offset on; tagged → only those with one of some tags
fetch   → the message at a position, with its checksum verified
"""

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.store.checkpoint import CheckPoint, Run, members_of
from popmq_server.embedded.store.keys import CQ_ENTRY, CQ_KEY, QUEUE_KEY, U64
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.errors import UnreadableRow
from popmq_server.values import fields
from popmq_server.values.message import (
    RECORD,
    RECORD_HEAD_BYTES,
    read_record,
    without_body,
)

#: (record, topic id) → (stored ms, message): `read_record` or `read_head`.
Reader = Callable[[memoryview, int], tuple[int, bytes] | None]
#: An entry of the consume queue with its tag hash as bytes; only the tag hash.
_WITH_TAG, _ONLY_TAG = struct.Struct(">QI8s"), struct.Struct(">12x8s")

#: The key of the field message_id, and where one of less than 128 bytes ends that comes first.
_ID_KEY, _ID_END = fields.MESSAGE_ID << 3 | 2, RECORD_HEAD_BYTES + 2 + 127
#: Bytes of a record that is copied whole where only its other fields are needed: that costs less than to leave out the
#: body.
WHOLE_MAX = 2048
#: The head of a record: bytes of its crc32, and bytes that the crc32 covers.
_CRC_BYTES, _HEAD_LEFT = 4, RECORD_HEAD_BYTES - 4


def _pieces(
    kv: Transaction, topic_id: int, queue: int, offset: int, count: int
) -> Iterator[tuple[int, int, bytes | memoryview]]:
    """(first offset, end offset, raw entries) of up to `count` entries of a queue from `offset` on; stops at a hole.

    One value has up to BLOCK_ENTRIES_MAX entries, so a batch usually needs one or two values.
    """
    prefix = CQ_KEY.pack(topic_id, queue, offset)
    cursor = kv.cursor("cq")
    if not (cursor.set_range(prefix) and cursor.key() == prefix) and not (
        cursor.prev() if cursor.key() else cursor.last()
    ):
        return
    stop, several = offset + count, False
    while offset < stop:
        key = bytes(cursor.key())
        block_topic, block_queue, first = CQ_KEY.unpack(key)
        if (block_topic, block_queue) != (topic_id, queue) or first > offset:
            break
        raw = kv.value_of("cq", key, cursor.value())[(offset - first) * CQ_ENTRY.size : (stop - first) * CQ_ENTRY.size]
        if several and first < offset:
            broken("queue_blocks_apart", ("cq", key), first=first, end_before=offset)
        if not raw:
            break
        size, several = len(raw), True
        if size % CQ_ENTRY.size:
            broken("queue_block_of_whole_entries", ("cq", key), bytes=size)
        end = offset + size // CQ_ENTRY.size
        yield offset, end, raw
        offset = end
        if not cursor.next():
            break


def entries(kv: Transaction, topic_id: int, queue: int, offset: int, count: int) -> list[tuple[int, int, int]]:
    """Up to `count` (offset, position, size) of a queue from `offset` on; stops at a hole."""
    found: list[tuple[int, int, int]] = []
    for first, end, raw in _pieces(kv, topic_id, queue, offset, count):
        units = zip(range(first, end), CQ_ENTRY.iter_unpack(raw), strict=True)
        found += [(at, position, size) for at, (position, size, _) in units]
    return found


def entries_at(kv: Transaction, topic_id: int, queue: int, offsets: list[int]) -> list[tuple[int, int, int]]:
    """(offset, position, size) of these offsets of a queue, which ascend; without those in holes.

    One value of the store serves all of the offsets in it.
    """
    found: list[tuple[int, int, int]] = []
    first = stop = 0
    raw: bytes | memoryview = b""
    unpack, width = CQ_ENTRY.unpack_from, CQ_ENTRY.size
    for offset in offsets:
        if not first <= offset < stop:
            block = kv.floor("cq", CQ_KEY.pack(topic_id, queue, offset), QUEUE_KEY.pack(topic_id, queue))
            if block is None:
                continue
            first, raw = CQ_KEY.unpack(block[0])[2], block[1]
            stop = first + len(raw) // width
            if offset >= stop:
                continue
        position, size, _ = unpack(raw, (offset - first) * width)
        found.append((offset, position, size))
    return found


def is_readable(kv: Transaction, topic_id: int, queue: int, offset: int) -> bool:
    """Whether a queue has a message at an offset, and its record is still stored."""
    found = entries(kv, topic_id, queue, offset, 1)
    return bool(found) and Log(kv).chunk_of(found[0][1]) >= 0


def tagged(
    kv: Transaction, topic_id: int, queue: int, offset: int, count: int, hashes: frozenset[bytes]
) -> tuple[list[tuple[int, int, int]], int]:
    """The `entries` whose tag hash is in `hashes`, and the offset after the last scanned entry.

    A piece without any is skipped in C, at 0.05 µs per entry, which keeps sparse filters fast.
    """
    found: list[tuple[int, int, int]] = []
    for first, end, raw in _pieces(kv, topic_id, queue, offset, count):
        if not hashes.isdisjoint(chain.from_iterable(_ONLY_TAG.iter_unpack(raw))):
            units = zip(range(first, end), _WITH_TAG.iter_unpack(raw), strict=True)
            found += [(at, position, size) for at, (position, size, tag) in units if tag in hashes]
        offset = end
    return found, offset


def located(kv: Transaction, ck: CheckPoint, bits: int) -> list[tuple[int, Run, int, int, int]]:
    """(member, run, offset, position, size) of each member in `bits`, ascending."""
    found = []
    for run, start, inside in ck.runs_with(bits):
        if run.size:
            found.append((start, run, run.first, run.position, run.size))
        else:
            found += _located_run(kv, ck.topic_id, run, start, members_of(inside))
    return found


def _located_run(
    kv: Transaction, topic_id: int, run: Run, start: int, places: list[int]
) -> Iterator[tuple[int, Run, int, int, int]]:
    """Locates members of one run. It may have holes: retention drops a chunk once all its members are done."""
    if run.bits:
        offsets = run.offsets
        found = {unit[0]: unit for unit in entries_at(kv, topic_id, run.queue, [offsets[place] for place in places])}
        for place in places:
            if (unit := found.get(offsets[place])) is None:
                broken("leased_message_in_its_queue", topic=topic_id, queue=run.queue, offset=offsets[place])
            yield start + place, run, *unit
        return
    while places:
        first = places[0]
        units = entries(kv, topic_id, run.queue, run.first + first, places[-1] - first + 1)
        if not units:
            broken("leased_message_in_its_queue", topic=topic_id, queue=run.queue, offset=run.first + first)
        here = [place for place in places if place - first < len(units)]
        for place in here:
            yield start + place, run, *units[place - first]
        places = places[len(here) :]


class Sound(NamedTuple):
    """Readable messages of consecutive entries.

    `chunks`: (index of the first message, position) of each chunk that they are in. `bytes_left`: of those given.
    """

    data: list[bytes]
    stored_ms: list[int]
    chunks: list[tuple[int, int]]
    bytes_left: int


class Log:
    """Reads records by position; keeps the last chunk, since the next record is mostly in the same one.

    Valid until the next put of the transaction, like LMDB's views.
    """

    __slots__ = ("_chunk", "_kv", "_start", "_stop")

    def __init__(self, kv: Transaction) -> None:
        self._kv = kv
        self._start = self._stop = -1
        self._chunk = memoryview(b"")

    def chunk_of(self, position: int) -> int:
        """The position of a record's chunk, or of its former chunk if the record is in `kept`; -1 = neither exists."""
        if self._load(position):
            return self._start
        kept = self._kv.get("kept", U64.pack(position))
        return -1 if kept is None else int(U64.unpack_from(kept)[0])

    def is_dropped(self, position: int, end: int) -> bool:
        """Whether retention dropped the record at a position. `end`: of the log; a position after it is damaged."""
        return position < end and self.chunk_of(position) < 0

    def _load(self, position: int) -> bool:
        """Makes the chunk of a position the current one; False if it is not in the log."""
        if not self._start <= position < self._stop:
            found = self._kv.floor("log", U64.pack(position))
            if found is None or (start := U64.unpack(found[0])[0]) + len(found[1]) <= position:
                return False
            self._chunk, self._start, self._stop = found[1], start, start + len(found[1])
        return True

    def sound(
        self,
        topic_id: int,
        units: Iterable[tuple[int, int, int]],
        bytes_left: int,
        at_least_one: bool,
        body: bool = True,
    ) -> Sound:
        """The messages of `units` up to the first that does not fit, or that `fetch` must read from `kept` or refuse.

        The same checks as `read_record`, without its calls: it is where a read of many messages spends its time.
        `bytes_left`: of records; `at_least_one`: the first fits always. `body` False: as `read_head`.
        """
        start, last, chunk = 0, -1, self._chunk
        data, times, chunks = list[bytes](), list[int](), list[tuple[int, int]]()
        unpack, crc32 = RECORD.unpack_from, zlib.crc32
        for _, position, size in units:
            if size > bytes_left and (data or not at_least_one):
                break
            if not start <= position <= last:
                if not self._load(position) or position > self._stop - RECORD_HEAD_BYTES:
                    break
                start, last, chunk = self._start, self._stop - RECORD_HEAD_BYTES, self._chunk
                chunks.append((len(data), start))
            at = position - start
            crc, length, topic, stored_ms = unpack(chunk, at)
            covered = chunk[at + _CRC_BYTES : at + size]
            if crc32(covered) != crc or length != size - RECORD_HEAD_BYTES or topic != topic_id:
                break
            data.append(covered[_HEAD_LEFT:].tobytes() if body else without_body(covered, _HEAD_LEFT))
            times.append(stored_ms)
            bytes_left -= size
        if chunks and chunks[-1][0] == len(data):
            chunks.pop()
        return Sound(data, times, chunks, bytes_left)

    def sound_at(self, topic_id: int, positions: Iterable[int]) -> Sound:
        """`sound` of records at some positions, which tell their sizes; ends at the first that it cannot read."""
        start, last, chunk = 0, -1, self._chunk
        data, times, chunks = list[bytes](), list[int](), list[tuple[int, int]]()
        unpack, crc32 = RECORD.unpack_from, zlib.crc32
        for position in positions:
            if not start <= position <= last:
                if not self._load(position) or position > self._stop - RECORD_HEAD_BYTES:
                    break
                start, last, chunk = self._start, self._stop - RECORD_HEAD_BYTES, self._chunk
                chunks.append((len(data), start))
            at = position - start
            crc, length, topic, stored_ms = unpack(chunk, at)
            covered = chunk[at + _CRC_BYTES : at + RECORD_HEAD_BYTES + length]
            if crc32(covered) != crc or topic != topic_id:
                break
            data.append(covered[_HEAD_LEFT:].tobytes())
            times.append(stored_ms)
        return Sound(data, times, chunks, 0)

    def unverified(self, position: int, size: int) -> bytes:
        """The message at a position as it is stored, long ones without their body; empty if it is not in the log.

        Its checksum is not compared: for what the engine looks at ahead, and verifies before it delivers it.
        """
        if not self._start <= position < self._stop and not self._load(position):
            return b""
        record = self._chunk[position - self._start : position - self._start + size]
        if size <= WHOLE_MAX:
            return record[RECORD_HEAD_BYTES:].tobytes()
        return without_body(record, RECORD_HEAD_BYTES)

    def unverified_all(self, units: Iterable[tuple[int, int, int]]) -> list[bytes]:
        """`unverified` of each of some entries, without its calls: every message of a queue is looked at."""
        found, start, stop, chunk = list[bytes](), 0, 0, self._chunk
        for _, position, size in units:
            if not start <= position < stop:
                if not self._load(position):
                    found.append(b"")
                    continue
                start, stop, chunk = self._start, self._stop, self._chunk
            at = position - start
            if size <= WHOLE_MAX:
                found.append(chunk[at + RECORD_HEAD_BYTES : at + size].tobytes())
            else:
                found.append(without_body(chunk[at : at + size], RECORD_HEAD_BYTES))
        return found

    def fetch(
        self,
        topic_id: int,
        position: int,
        size: int,
        read: Reader = read_record,
    ) -> tuple[int, bytes] | None:
        """(stored ms, message bytes), or None if the record was dropped or is damaged. `read`: or `read_head`."""
        if self._start <= position < self._stop or self._load(position):
            return read(self._chunk[position - self._start : position - self._start + size], topic_id)
        try:
            kept = self._kv.get("kept", U64.pack(position))
        except UnreadableRow:  # as a damaged record of the log: it goes to quarantine
            return None
        return None if kept is None else read(kept[8:], topic_id)

    def ids(self, topic_id: int, units: Iterable[tuple[int, int]]) -> list[bytes | None]:
        """The message ids of the records at some (position, size); None: it was dropped, or is damaged.

        For messages that were just delivered, whose checksums were compared then: only the heads are.
        """
        found = list[bytes | None]()
        for position, size in units:
            if not (self._start <= position < self._stop or self._load(position)):
                read = self.fetch(topic_id, position, size)
                found.append(None if read is None else fields.raw(read[1], fields.MESSAGE_ID))
                continue
            at = position - self._start
            raw = self._chunk[at : at + min(size, _ID_END)].tobytes()
            _, length, topic, _ = RECORD.unpack_from(raw)
            if length != size - RECORD_HEAD_BYTES or topic != topic_id:
                found.append(None)
            elif raw[RECORD_HEAD_BYTES] == _ID_KEY and raw[RECORD_HEAD_BYTES + 1] < 0x80:  # as clients write it
                begin = RECORD_HEAD_BYTES + 2
                found.append(raw[begin : begin + raw[begin - 1]])
            else:
                found.append(fields.raw(self._chunk[at + RECORD_HEAD_BYTES : at + size].tobytes(), fields.MESSAGE_ID))
        return found

    def fetch_at(self, topic_id: int, position: int) -> tuple[int, bytes] | None:
        """`fetch` of a record whose size only the record says."""
        if not (self._start <= position < self._stop or self._load(position)):
            return self.fetch(topic_id, position, 0)
        at = position - self._start
        if self._stop - position < RECORD_HEAD_BYTES:
            return None
        length = RECORD.unpack_from(self._chunk, at)[1]
        return read_record(self._chunk[at : at + RECORD_HEAD_BYTES + length], topic_id)


def over_hole(kv: Transaction, topic_id: int, queue: int, offset: int, stop: int) -> int:
    """The first offset of the next consume-queue block at or after `offset`, at most `stop`."""
    cursor = kv.cursor("cq")
    if cursor.set_range(CQ_KEY.pack(topic_id, queue, offset)):
        found_topic, found_queue, first = CQ_KEY.unpack(cursor.key())
        if (found_topic, found_queue) == (topic_id, queue):
            return min(stop, int(first))
    return stop
