"""Where results are: a directory from the hash of a message id to the position of its last record.

A look-up mostly asks for an id that has no result yet, or for one of the last results. So both have to be fast, with
millions of results, and without an object in memory for each.

    ◀── older                                                         newer ──▶
    │ generation       │ generation       │ generation, grows │  tail          │
    │ 65,536 names     │ 65,536 names     │                   │  index blocks  │
      res: 512 parts     res: 512 parts     ◀───── a job ──────  idx: of chunks

    res   T + position + part [2] → (hash [8], position [8]) …, by chunks in the order of the log, and in a chunk by
                                    hash; the names of a part have the same 9 first bits. `position`: where it begins
    res   T + position + 0xFFFF   → the position up to which it reaches, the number of its names

A new result costs no random key: its name is in the index block of its chunk anyway (chunk.py). A job moves the names
of closed blocks, MOVE_NAMES at a time, into the last generation: some 8 names for each of its parts. A look-up reads
the tail, and one part of each generation, the newest first: 2 µs each. A generation whose chunks retention has dropped
is removed, one in a piece.

See docs/decisions/0055-results.md.
"""

import struct
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.rules.topics.chunk import IDX_HEAD, IDX_RANGE, NAME_BYTES
from popmq_server.embedded.rules.topics.index import NAME, WIDE_NAME
from popmq_server.embedded.state.jobs import Job, Timed
from popmq_server.embedded.state.space import GROW
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import TOPIC_AT, U16, U32
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.values.message import RESULT_PREFIX

#: Names of a full generation, and its parts: 128 entries of a part are 2 KiB, which take no pages of their own.
GENERATION_NAMES, PARTS = 65_536, 512
#: Names, or index blocks, of a tail that are moved together; a tail of either number is due.
MOVE_NAMES, MOVE_BLOCKS = 4096, 64
#: The pause between two rounds over all topics of results, and topics of one piece.
ROUND_MS, TOPICS_MAX = 1000, 200
#: Without so many new results a round begins only each TICK_MS, to remove generations.
FRESH_MIN, TICK_MS = 1024, 60_000

#: T, position, part.
KEY = struct.Struct(">IQH")
#: The part of the row that ends a generation; its value: where it reaches, its names.
END = 0xFFFF
REACH = struct.Struct(">QI")
#: Bytes of a row: a page of LMDB holds no more than this of a value.
_PART_BYTES = 4096


class Generation(NamedTuple):
    """Some names of a topic. `prefix`: of its keys. `reach`: the position up to which it has all names."""

    prefix: bytes
    reach: int
    names: int


def find(kv: Transaction, topic_id: int, names: frozenset[bytes]) -> dict[bytes, int]:
    """The position of the last record of each name that has one."""
    every = list(generations(kv, topic_id))
    found = _in_tail(kv, topic_id, every[0].reach if every else 0, names)
    missing = [name for name in names if name not in found]
    for generation in every:
        if not missing:
            break
        found.update(_in_generation(kv, generation, missing))
        missing = [name for name in missing if name not in found]
    return found


def generations(kv: Transaction, topic_id: int) -> Iterator[Generation]:
    """All generations of a topic, the newest first."""
    prefix = U32.pack(topic_id)
    row = kv.last("res", prefix)
    while row is not None:
        _, begin, part = KEY.unpack(row[0])
        if part != END:
            broken("generation_has_its_end", ("res", row[0]), part=part)
        reach, names = REACH.unpack(row[1])
        if reach <= begin or not names:
            broken("generation_reaches_on", ("res", row[0]), reach=reach, names=names)
        yield Generation(row[0][: TOPIC_AT.size], reach, names)
        row = kv.floor("res", row[0][: TOPIC_AT.size], prefix)


def _in_tail(kv: Transaction, topic_id: int, reach: int, names: frozenset[bytes]) -> dict[bytes, int]:
    """The positions of names in the index blocks from a position on, the newest first."""
    found: dict[bytes, int] = {}
    wanted, lowest = set(names), TOPIC_AT.pack(topic_id, reach)
    cursor = kv.cursor("idx")
    if not (cursor.prev() if cursor.set_range(U32.pack(topic_id + 1)) else cursor.last()):
        return found
    for key, value in cursor.iterprev(keys=True, values=True):
        at = bytes(key)
        if at < lowest or not at.startswith(lowest[: U32.size]):
            break
        position, block = TOPIC_AT.unpack(at)[1], kv.value_of("idx", at, value)
        for name, place in _placed(names_of(block), wanted):
            found[name] = position + place
        wanted.difference_update(found)
        if not wanted:
            break
    return found


def names_of(block: bytes | memoryview) -> bytes:
    """The names of an index block: sorted (hash, place)."""
    return bytes(block[IDX_HEAD.size + IDX_HEAD.unpack_from(block)[2] * IDX_RANGE.size :])


def _placed(raw: bytes, wanted: set[bytes]) -> list[tuple[bytes, int]]:
    """The last place of each wanted name in an index block: few by search, more by a scan."""
    if len(wanted) * 8 > len(raw) // NAME_BYTES:
        return [one for one in NAME.iter_unpack(raw) if one[0] in wanted]
    found = []
    for name in wanted:
        at = _last(raw, name, NAME_BYTES)
        if at >= 0:
            found.append((name, NAME.unpack_from(raw, at)[1]))
    return found


def _in_generation(kv: Transaction, generation: Generation, names: list[bytes]) -> dict[bytes, int]:
    found: dict[bytes, int] = {}
    for name in names:
        key = generation.prefix + U16.pack(part_of(name))
        raw = kv.get("res", key)
        if raw is not None and len(raw) % WIDE_NAME.size:
            broken("result_part_of_whole_entries", ("res", key), bytes=len(raw))
        if raw is not None and (at := _last(entries := bytes(raw), name, WIDE_NAME.size)) >= 0:
            found[name] = WIDE_NAME.unpack_from(entries, at)[1]
            if found[name] >= generation.reach:
                broken("result_within_its_generation", ("res", key), place=found[name], reach=generation.reach)
    return found


def part_of(name: bytes) -> int:
    """The part of a generation that has a name."""
    return name[0] << 1 | name[1] >> 7


def _last(raw: bytes, name: bytes, width: int) -> int:
    """Where the last entry with a name is; -1: nowhere. Entries of one name are in the order of the log."""
    at = raw.rfind(name)
    while at >= 0 and at % width:
        at = raw.rfind(name, 0, at + len(name) - 1)
    return at


# ── The job ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Listing(Job):
    """Moves names of closed index blocks into generations, and removes generations whose chunks are dropped.

    A piece moves the names of one topic, or removes one generation. After FRESH_MIN new results, and at least ROUND_MS
    after the last round, it visits the topics with results.
    """

    name = "places of results"

    def __init__(self, now_ms: int) -> None:
        super().__init__()
        self._place = b""
        self._due_ms, self._soon_ms = now_ms + TICK_MS, now_ms + ROUND_MS

    def next_ms(self, tx: Tx) -> int | None:
        return min(self._soon_ms, self._due_ms) if tx.state.fresh_results >= FRESH_MIN else self._due_ms

    def step(self, tx: Tx, work: Timed) -> None:
        tx.state.undo.save(self, "_place", "_due_ms", "_soon_ms")
        first = b"t" + RESULT_PREFIX.encode()
        for seen, (key, value) in enumerate(tx.kv.scan("name", first, self._place)):
            topic_id = U32.unpack(value)[0]
            if topic_id in tx.state.topics and not self.waits(tx, topic_id):
                with self.apart(topic_id):
                    if _remove(tx, topic_id) or _move_with_room(tx, topic_id):
                        self._place = key  # there may be more
                        return
            if seen == TOPICS_MAX:
                self._place = key
                return
        self._place = b""
        tx.state.fresh_results = 0
        self._due_ms, self._soon_ms = tx.now_ms + TICK_MS, tx.now_ms + ROUND_MS


def _move_with_room(tx: Tx, topic_id: int) -> bool:
    """Moves names if there is room: look-ups find what is not moved in the tail."""
    return tx.room.has(GROW, PARTS * _PART_BYTES) and move(tx, topic_id)


def move(tx: Tx, topic_id: int) -> bool:
    """Moves names of a tail into the last generation, or a new one, if enough are there; returns whether it did."""
    last = next(generations(tx.kv, topic_id), None)
    blocks, count, begin, reach = 0, 0, 0, 0
    parts = defaultdict[int, list[bytes]](list)
    for position, size, raw in _closed(tx, topic_id, last.reach if last else 0):
        blocks, begin, reach = blocks + 1, begin if blocks else position, position + size
        count += len(raw) // NAME_BYTES
        for name, place in NAME.iter_unpack(raw):
            parts[name[0] << 1 | name[1] >> 7].append(name + (position + place).to_bytes(8))
        if blocks == MOVE_BLOCKS or count >= MOVE_NAMES:
            break
    else:
        return False
    if last is None or last.names + count > GENERATION_NAMES:
        last = Generation(TOPIC_AT.pack(topic_id, begin), reach, 0)
    for part in sorted(parts):
        key = last.prefix + U16.pack(part)
        before = tx.kv.get("res", key) if last.names else None
        tx.kv.put("res", key, b"".join([b"" if before is None else bytes(before), *parts[part]]))
    tx.kv.put("res", last.prefix + U16.pack(END), REACH.pack(reach, last.names + count))
    return True


def _closed(tx: Tx, topic_id: int, start: int) -> Iterator[tuple[int, int, bytes]]:
    """(position, bytes, names) of the index blocks from a position on, but for the chunk that may still grow."""
    still_open = tx.state.open_chunks.get(topic_id)
    for key, block in tx.kv.scan("idx", U32.pack(topic_id), TOPIC_AT.pack(topic_id, start)):
        position = TOPIC_AT.unpack(key)[1]
        if still_open is not None and position == still_open.position:
            return
        yield position, IDX_HEAD.unpack_from(block)[1], names_of(block)


def _remove(tx: Tx, topic_id: int) -> bool:
    """Removes the oldest generation if all its chunks are dropped; returns whether it did."""
    prefix = U32.pack(topic_id)
    oldest = tx.kv.first("res", prefix)
    if oldest is None:
        return False
    keys = list(tx.kv.scan_keys("res", oldest[0][: TOPIC_AT.size]))
    reach = tx.kv.get("res", keys[-1])
    first = tx.kv.first("idx", prefix)
    if reach is None or (first is not None and TOPIC_AT.unpack(first[0])[1] < REACH.unpack(reach)[0]):
        return False
    for key in keys:
        tx.kv.delete("res", key)
    return True
