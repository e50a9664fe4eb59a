"""Look-ups by message id and key: finds the positions of messages, the newest first.

    idx    T + position → ranges of offsets, sorted (hash, place) of one chunk          put with the chunk (topic.py)
    widx   T + position → how far it reaches, sorted (hash, position)                   put by a job (MergingBlocks)

A topic that was filled message by message has an index block for each: a walk over a million of them takes more than a
second. So a job merges small neighbouring blocks: one *wide* block for some NAMES_MAX names. Over
large blocks it puts an empty wide block, and the walk visits them one by one. The newest blocks are not merged yet.

              widx: names of 2,048 blocks   │ widx: none, blocks are large │  tail: not merged yet
    idx:  ▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪ │ ███ ███ ███ ███ ███ ███ ███ │  ▪▪▪▪▪▪▪▪▪     ◀── the walk begins here

Names are eight-byte hashes of an id or a key, so callers compare the text of each hit.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from popmq_server.embedded.rules.topics.chunk import IDX_HEAD, IDX_RANGE, OPEN_BYTES_MAX
from popmq_server.embedded.rules.topics.log import Log
from popmq_server.embedded.rules.topics.walks import TopicRound
from popmq_server.embedded.state.jobs import POSTPONE_MS, Job, Timed
from popmq_server.embedded.state.space import GROW
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import (
    CQ_ENTRY,
    CQ_KEY,
    TOPIC_AT,
    U32,
    U64,
)
from popmq_server.embedded.store.lmdb import Transaction

#: A wide block covers this many index blocks, or this many names, whichever comes first.
BLOCKS_MAX = 2048
NAMES_MAX = 8192
#: Index blocks with this many names on average are not merged: copying a name takes 0.6 µs, visiting a block 2 µs.
NAMES_LARGE = 32
#: Up to this many names are found by binary search, more by a scan of the entries.
HALVING_MAX = 16
#: A block of up to this many bytes is first searched as a byte string: a microsecond at most.
SMALL_BYTES = 1024

#: An entry of `idx` and of `widx`: the hash of an id or key, and its place or position.
NAME, WIDE_NAME = struct.Struct(">8sI"), struct.Struct(">8sQ")
#: Head of a wide block: the position after the last chunk that it covers.
WIDE_HEAD = U64


class Hit(NamedTuple):
    """A message that may have one of the names."""

    name: bytes
    position: int


class Spot(NamedTuple):
    """The place of a message: the data that its index block and its queue have."""

    position: int
    size: int
    queue: int
    offset: int
    stored_ms: int


def search(
    kv: Transaction, topic_id: int, wanted: frozenset[bytes], below: int, steps: int
) -> tuple[list[Hit], int, int]:
    """Hits below a position, the newest first; the position to continue below (0 = complete), steps left.

    A step is one index block, which bounds the writer's time in a search.
    """
    hits: list[Hit] = []
    while steps > 0 and below > 0:
        wide = kv.floor("widx", TOPIC_AT.pack(topic_id, below - 1), U32.pack(topic_id))
        stop = WIDE_HEAD.unpack_from(wide[1])[0] if wide else 0
        if stop < below:
            found, below, steps = _walk(kv, topic_id, wanted, stop, below, steps)
            hits += found
        elif wide is not None and len(wide[1]) > WIDE_HEAD.size:
            names = _named(wide[1][WIDE_HEAD.size :], WIDE_NAME, wanted)
            hits += [
                Hit(name, at) for at, name in sorted(((at, name) for name, at in names if at < below), reverse=True)
            ]
            below, steps = TOPIC_AT.unpack(wide[0])[1], steps - HALVING_MAX
        elif wide is not None:
            found, below, steps = _walk(kv, topic_id, wanted, TOPIC_AT.unpack(wide[0])[1], below, steps)
            hits += found
    return hits, below, steps


def _walk(
    kv: Transaction, topic_id: int, wanted: frozenset[bytes], low: int, below: int, steps: int
) -> tuple[list[Hit], int, int]:
    """Searches the index blocks of chunks from `low` up to `below`, the newest first.

    Most blocks lack the name, and most are small: a byte search skips them, in a microsecond each.
    """
    hits, limit = list[Hit](), below
    only = next(iter(wanted)) if len(wanted) == 1 else b""
    cursor, lowest = kv.cursor("idx"), TOPIC_AT.pack(topic_id, low)
    if not (cursor.prev() if cursor.set_range(TOPIC_AT.pack(topic_id, below)) else cursor.last()):
        return hits, 0, steps
    last = b""
    for key, value in cursor.iterprev(keys=True, values=True):
        at = bytes(key)
        if at < lowest:
            return hits, low, steps
        if steps <= 0:
            return hits, TOPIC_AT.unpack(last)[1] if last else below, 0
        steps, last = steps - 1, at
        if len(value) <= SMALL_BYTES and only not in bytes(value):
            continue
        value = kv.value_of("idx", at, value)
        position, raw = TOPIC_AT.unpack(at)[1], value[IDX_HEAD.size + IDX_HEAD.unpack_from(value)[2] * IDX_RANGE.size :]
        if names := _named(raw, NAME, wanted):
            places = sorted(((position + place, name) for name, place in names), reverse=True)
            hits += [Hit(name, place) for place, name in places if place < limit]
    return hits, 0, steps


def _named(raw: bytes | memoryview, entry: struct.Struct, wanted: frozenset[bytes]) -> list[tuple[bytes, int]]:
    """The distinct entries of a sorted block with one of the names."""
    if len(wanted) > HALVING_MAX or len(raw) <= SMALL_BYTES:
        return list({found for found in entry.iter_unpack(raw) if found[0] in wanted})
    found: set[tuple[bytes, int]] = set()
    for name in wanted:
        at = _first(raw, entry.size, U64.unpack(name)[0])
        while at < len(raw) and bytes(raw[at : at + len(name)]) == name:
            found.add(entry.unpack_from(raw, at))
            at += entry.size
    return list(found)


def _first(raw: bytes | memoryview, width: int, name: int) -> int:
    """Byte offset of the first entry ≥ `name` in a sorted block. Numbers have the same order as their bytes."""
    low, high = 0, len(raw) // width
    while low < high:
        middle = (low + high) // 2
        if U64.unpack_from(raw, middle * width)[0] < name:
            low = middle + 1
        else:
            high = middle
    return low * width


def spot(kv: Transaction, topic_id: int, position: int) -> Spot | None:
    """The place of the record at a position, from its index block and its queue; None if they were dropped."""
    block = kv.floor("idx", TOPIC_AT.pack(topic_id, position), U32.pack(topic_id))
    if block is None:
        return None
    _, size, ranges = IDX_HEAD.unpack_from(block[1])
    if position >= TOPIC_AT.unpack(block[0])[1] + size:
        return None
    for queue, first, _ in IDX_RANGE.iter_unpack(block[1][IDX_HEAD.size : IDX_HEAD.size + ranges * IDX_RANGE.size]):
        raw = kv.get("cq", CQ_KEY.pack(topic_id, queue, first))
        if raw is not None and (found := _entry_at(raw, position)) is not None:
            when_ms = stored_ms(kv, topic_id, position, found[1], block[1])
            return Spot(position, found[1], queue, first + found[0], when_ms)
    return None


def stored_ms(kv: Transaction, topic_id: int, position: int, size: int, head: memoryview) -> int:
    """The store time of a message; from its own record if several commits share its chunk (`head`: the index block).

    For an unreadable record it is the time of the last message of its chunk, at most OPEN_MS_MAX later. A record with a
    later time than that has the time of a wrong clock: rebase.py corrects only that of the block.
    """
    last_ms, chunk_bytes, _ = IDX_HEAD.unpack_from(head)
    read = Log(kv).fetch(topic_id, position, size) if chunk_bytes <= OPEN_BYTES_MAX else None
    return int(last_ms) if read is None else min(read[0], int(last_ms))


def _entry_at(raw: memoryview, position: int) -> tuple[int, int] | None:
    """(index, size) of the entry that points at a position. Positions ascend within one value of the consume queue."""
    low, high = 0, len(raw) // CQ_ENTRY.size
    while low < high:
        middle = (low + high) // 2
        found, size, _ = CQ_ENTRY.unpack_from(raw, middle * CQ_ENTRY.size)
        if found == position:
            return middle, int(size)
        low, high = (middle + 1, high) if found < position else (low, middle)
    return None


def before(kv: Transaction, topic_id: int, until_ms: int) -> int:
    """The end of the chunks with messages stored up to `until_ms`: store times increase with positions.

    The chunk that was being filled at that time is included as a whole.
    """
    prefix = U32.pack(topic_id)
    first = kv.first("idx", prefix)
    if first is None:
        return 0
    low, high = TOPIC_AT.unpack(first[0])[1], end(kv, topic_id)
    while low < high:
        middle = (low + high) // 2
        block = kv.floor("idx", TOPIC_AT.pack(topic_id, middle), prefix)
        if block is not None and IDX_HEAD.unpack_from(block[1])[0] <= until_ms:
            low = middle + 1
        else:
            high = middle
    chunk = kv.get("idx", TOPIC_AT.pack(topic_id, low))
    return int(low) if chunk is None else int(low + IDX_HEAD.unpack_from(chunk)[1])


def end(kv: Transaction, topic_id: int) -> int:
    """The position after the newest chunk of a topic; 0 if it has none."""
    last = kv.last("idx", U32.pack(topic_id))
    return 0 if last is None else int(TOPIC_AT.unpack(last[0])[1] + IDX_HEAD.unpack_from(last[1])[1])


# ── Wide blocks ──────────────────────────────────────────────────────────────────────────────────────────────────────


def covered_up_to(kv: Transaction, topic_id: int) -> int:
    """The position up to which wide blocks cover a topic."""
    last = kv.last("widx", U32.pack(topic_id))
    return int(WIDE_HEAD.unpack_from(last[1])[0]) if last else 0


def merge_blocks(tx: Tx, topic_id: int) -> bool:
    """Puts a wide block over the blocks after the last one, if there are enough; returns whether it did."""
    start = covered_up_to(tx.kv, topic_id)
    names: list[bytes] = []
    blocks, begin, stop = 0, 0, 0
    for position, size, raw in blocks_from(tx, topic_id, start):
        blocks, begin, stop = blocks + 1, begin if blocks else position, position + size
        names += [WIDE_NAME.pack(name, position + at) for name, at in NAME.iter_unpack(raw)]
        if blocks == BLOCKS_MAX or len(names) >= NAMES_MAX:
            break
    else:
        return False
    names = sorted(names) if len(names) < blocks * NAMES_LARGE else []
    tx.kv.put("widx", TOPIC_AT.pack(topic_id, begin), b"".join((WIDE_HEAD.pack(stop), *names)))
    return True


def blocks_from(tx: Tx, topic_id: int, start: int) -> Iterator[tuple[int, int, memoryview]]:
    """(position, bytes of the chunk, names) of each index block from a position on, up to the open chunk."""
    still_open = tx.state.open_chunks.get(topic_id)
    for key, value in tx.kv.scan("idx", U32.pack(topic_id), TOPIC_AT.pack(topic_id, start)):
        position = TOPIC_AT.unpack(key)[1]
        if still_open is not None and position == still_open.position:
            return
        _, size, ranges = IDX_HEAD.unpack_from(value)
        yield position, size, value[IDX_HEAD.size + ranges * IDX_RANGE.size :]


def forget(tx: Tx, topic_id: int) -> None:
    """Removes the wide blocks that cover only dropped chunks."""
    first = tx.kv.first("idx", U32.pack(topic_id))
    least = TOPIC_AT.unpack(first[0])[1] if first else None
    stale = []
    for key, value in tx.kv.scan("widx", U32.pack(topic_id)):
        if least is not None and WIDE_HEAD.unpack_from(value)[0] > least:
            break
        stale.append(key)
    for key in stale:
        tx.kv.delete("widx", key)


#: Minimum time between two rounds.
MERGE_EVERY_MS = 5_000
#: Minimum of new index blocks, of all topics together, for a round.
FRESH_MIN = 256


class Tail(NamedTuple):
    """The blocks of a topic without a wide block, counted up to position `seen`. `total`: the topic's messages then."""

    total: int
    seen: int
    blocks: int = 0
    names: int = 0


class MergingBlocks(Job):
    """The job that merges small blocks into wide ones.

    After FRESH_MIN new blocks, and at least MERGE_EVERY_MS after the last round, it visits each topic with new
    messages: it counts the new blocks, and puts a wide block if there are enough, at most one per transaction. The
    counts are in memory only; after a restart it counts again.

    See docs/decisions/0008-look-ups-by-sorted-blocks.md.
    """

    name = "index blocks"
    moved_by = frozenset({"meta"})  # a new block is that of a new chunk, whose position is a counter

    def __init__(self, now_ms: int) -> None:
        super().__init__()
        self._tails: dict[int, Tail] = {}
        self._round = TopicRound()
        self._due_ms = now_ms + MERGE_EVERY_MS
        self._more = False

    def next_ms(self, tx: Tx) -> int | None:
        """When the next round is due; None while few blocks are new, so an idle broker does nothing."""
        return self._due_ms if self._more or tx.state.fresh_blocks >= FRESH_MIN else None

    def step(self, tx: Tx, work: Timed) -> None:
        if not tx.room.has(GROW):  # wide blocks need space and only make look-ups faster
            self.postpone(tx.now_ms + POSTPONE_MS)
            return
        tx.state.undo.save(self, "_due_ms", "_more")
        merged = next((topic for topic in self._round.piece(tx) if self._look_at(tx, topic.topic_id)), None)
        if merged is not None:
            self._round.back_to(merged)
        self._more = self._round.more
        if not self._more:
            tx.state.fresh_blocks = 0
            self._due_ms = tx.now_ms + MERGE_EVERY_MS
            for deleted in [topic_id for topic_id in self._tails if topic_id not in tx.state.topics]:
                del self._tails[deleted]

    def _look_at(self, tx: Tx, topic_id: int) -> bool:
        """Counts the new blocks of a topic; returns whether it put a wide block, which ends the piece."""
        total = tx.state.total.get(topic_id, 0)
        tail = self._tails.get(topic_id)
        if tail is not None and tail.total == total:
            return False
        if tail is None:
            tail = Tail(total, covered_up_to(tx.kv, topic_id))
        seen, blocks, names = tail[1:]
        for position, size, raw in blocks_from(tx, topic_id, seen):
            seen, blocks, names = position + size, blocks + 1, names + len(raw) // NAME.size
            if blocks == BLOCKS_MAX or names >= NAMES_MAX:
                self._tails.pop(topic_id, None)
                return merge_blocks(tx, topic_id)
        self._tails[topic_id] = Tail(total, seen, blocks, names)
        return False
