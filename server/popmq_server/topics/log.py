"""Reading a topic: the entries of its queues, and the records that they point to.

entries → (offset, position, size) of a queue from an offset on; tagged → of those with one of some tags
fetch   → the message at a position, its checksum compared
"""

import struct
from collections.abc import Iterator
from itertools import chain

from popmq_server.model.checkpoint import CheckPoint, Run, members_of
from popmq_server.model.message import read_record
from popmq_server.state.tx import Tx
from popmq_server.storage.keys import CQ_ENTRY, CQ_KEY, U64
from popmq_server.storage.lmdb import Transaction

#: An entry of the consume queue, its tag hash as bytes.
_WITH_TAG, _ONLY_TAG = struct.Struct(">QI8s"), struct.Struct(">12x8s")


def _pieces(
    kv: Transaction, topic_id: int, queue: int, offset: int, count: int
) -> Iterator[tuple[int, int, bytes | memoryview]]:
    """(first offset, offset behind, raw entries) of up to `count` entries of a queue from `offset` on; stops at a hole.

    One value holds up to BLOCK_ENTRIES_MAX entries, so a batch is one or two reads of the tree.
    """
    prefix = CQ_KEY.pack(topic_id, queue, offset)
    cursor = kv.cursor("cq")
    if not (cursor.set_range(prefix) and cursor.key() == prefix) and not (
        cursor.prev() if cursor.key() else cursor.last()
    ):
        return
    stop = offset + count
    while offset < stop:
        block_topic, block_queue, first = CQ_KEY.unpack(cursor.key())
        if (block_topic, block_queue) != (topic_id, queue) or first > offset:
            break
        raw = cursor.value()[(offset - first) * CQ_ENTRY.size : (stop - first) * CQ_ENTRY.size]
        if not raw:
            break
        behind = offset + len(raw) // CQ_ENTRY.size
        yield offset, behind, raw
        offset = behind
        if not cursor.next():
            break


def entries(kv: Transaction, topic_id: int, queue: int, offset: int, count: int) -> list[tuple[int, int, int]]:
    """Up to `count` (offset, position, size) of a queue from `offset` on; stops at a hole."""
    found: list[tuple[int, int, int]] = []
    for first, behind, raw in _pieces(kv, topic_id, queue, offset, count):
        units = zip(range(first, behind), CQ_ENTRY.iter_unpack(raw), strict=True)
        found += [(at, position, size) for at, (position, size, _) in units]
    return found


def is_readable(kv: Transaction, topic_id: int, queue: int, offset: int) -> bool:
    """Whether a queue has a message at an offset, and its record is still stored: whoever comes there gets it."""
    found = entries(kv, topic_id, queue, offset, 1)
    return bool(found) and Log(kv).chunk_of(found[0][1]) >= 0


def tagged(
    kv: Transaction, topic_id: int, queue: int, offset: int, count: int, hashes: frozenset[bytes]
) -> tuple[list[tuple[int, int, int]], int]:
    """Those of `entries` whose tag hash is among `hashes`, and the offset behind all that was looked at.

    A piece without any is passed over in C, 0.05 µs an entry: a sparse filter looks at nothing else.
    """
    found: list[tuple[int, int, int]] = []
    for first, behind, raw in _pieces(kv, topic_id, queue, offset, count):
        if not hashes.isdisjoint(chain.from_iterable(_ONLY_TAG.iter_unpack(raw))):
            units = zip(range(first, behind), _WITH_TAG.iter_unpack(raw), strict=True)
            found += [(at, position, size) for at, (position, size, tag) in units if tag in hashes]
        offset = behind
    return found, offset


def located(tx: Tx, ck: CheckPoint, bits: int) -> list[tuple[Run, int, int, int]]:
    """(run, offset, position, size) of each member in `bits`, ascending."""
    return located_in(tx.kv, ck, bits)


def located_in(kv: Transaction, ck: CheckPoint, bits: int) -> list[tuple[Run, int, int, int]]:
    """`located`, for readers that have no unit of work."""
    found = []
    for run, _, inside in ck.runs_with(bits):
        if run.size:
            found.append((run, run.first, run.position, run.size))
        else:
            found += _located_run(kv, ck.topic_id, run, members_of(inside))
    return found


def _located_run(kv: Transaction, topic_id: int, run: Run, places: list[int]) -> Iterator[tuple[Run, int, int, int]]:
    """Retention drops a chunk whose members are all done, so a run may have holes between those that are not."""
    while places:
        first = places[0]
        units = entries(kv, topic_id, run.queue, run.first + first, places[-1] - first + 1)
        if not units:
            raise LookupError(f"topic {topic_id} queue {run.queue} has no offset {run.first + first}, which is leased")
        here = [place for place in places if place - first < len(units)]
        for place in here:
            yield run, *units[place - first]
        places = places[len(here) :]


class Log:
    """Reads records by position; remembers the last chunk, since neighbours are mostly asked for next.

    Good until the next put of the transaction, as the views of LMDB are.
    """

    __slots__ = ("_chunk", "_kv", "_start", "_stop")

    def __init__(self, kv: Transaction) -> None:
        self._kv = kv
        self._start = self._stop = -1
        self._chunk = memoryview(b"")

    def chunk_of(self, position: int) -> int:
        """The position under which the chunk of a record stands, or stood before the record was kept; -1 = gone."""
        if self._load(position):
            return self._start
        kept = self._kv.get("kept", U64.pack(position))
        return -1 if kept is None else int(U64.unpack_from(kept)[0])

    def _load(self, position: int) -> bool:
        """Makes the chunk of a position the current one; False when it is not in the log."""
        if not self._start <= position < self._stop:
            found = self._kv.floor("log", U64.pack(position))
            if found is None or (start := U64.unpack(found[0])[0]) + len(found[1]) <= position:
                return False
            self._chunk, self._start, self._stop = found[1], start, start + len(found[1])
        return True

    def fetch(self, topic_id: int, position: int, size: int) -> tuple[int, bytes] | None:
        """(stored ms, message bytes), or None when the record is gone or damaged."""
        if self._load(position):
            return read_record(self._chunk[position - self._start : position - self._start + size], topic_id)
        kept = self._kv.get("kept", U64.pack(position))
        return None if kept is None else read_record(kept[8:], topic_id)


def over_hole(kv: Transaction, topic_id: int, queue: int, offset: int, stop: int) -> int:
    """The first offset from `offset` on that still stands in the consume queue, at most `stop`."""
    cursor = kv.cursor("cq")
    if cursor.set_range(CQ_KEY.pack(topic_id, queue, offset)):
        found_topic, found_queue, first = CQ_KEY.unpack(cursor.key())
        if (found_topic, found_queue) == (topic_id, queue):
            return min(stop, int(first))
    return stop
