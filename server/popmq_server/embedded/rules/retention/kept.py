"""Copies the live records of chunks that stay pinned to `kept`, so that a few records do not hold a whole chunk.

    kept   position → chunk position, record      readers look here if the chunk is not in the log (log.py)

Retention notes chunks that are still pinned KEEP_COPY_AFTER_MS past their time. Then one search covers everything that
may point into them, once for all noted chunks and in pieces between client commands:

    rq, fwait   of the groups of their topics          each entry points at a record
    due, ck     if a lease holds one of them           each undone member lies in a chunk

Meanwhile messages move: from a lease to the retry topic, from there to another lease, perhaps to a place that the
search has passed already. So a chunk is copied only if nothing that points into it has moved since the search began
(leases.hold and chunk.pin remove it from State.searched) and if the search found as many pointers as the chunk has
pins: then it knows all of them. All others stay for the next search. So does one that is mostly live records: copying
those would free nothing.

See docs/decisions/0015-copying-held-records.md.
"""

import bisect
import struct
from collections.abc import Iterator
from typing import Any

from popmq_server.embedded.rules.retention.chunks import Chunk
from popmq_server.embedded.rules.topics.chunk import keep, pins
from popmq_server.embedded.rules.topics.log import located
from popmq_server.embedded.state.space import GROW, messages_bytes, value_bytes
from popmq_server.embedded.state.state import State
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store import checkpoint
from popmq_server.embedded.store.keys import (
    DUE_KEY,
    STAT_KEY,
    SUB_OWNER,
    U64,
)
from popmq_server.values.records import Topic

#: How long past its time a pinned chunk stays whole, and the interval between two searches.
KEEP_COPY_AFTER_MS = 3_600_000
#: Pointers that one search remembers, some 200 bytes each; chunks beyond that wait for the next search.
POINTERS_MAX = 100_000
#: The cost of a lease and of a copied record, in looks: the steps that a piece may take. A retry entry, a chunk or a
#: group in a topic costs one look.
LEASE_COST, COPY_COST = 5, 3
#: Copying this many bytes costs one more look.
BYTES_PER_LOOK = 4096
#: `rq` and `fwait` begin with the position and the size of a record.
_POINTER = struct.Struct(">QI")
#: CheckPoint id and member: identifies a pointer of a lease, even if the lease moves.
_MEMBER = struct.Struct(">QH")


class Keeping:
    """Searches for pointers into noted chunks, and copies their live records.

    It remembers numbers and bytes in few containers: with one object per chunk each full garbage collection during a
    search would hold the writer for 50 ms.
    """

    def __init__(self) -> None:
        self._not_before_ms = 0
        #: Noted chunks: position → bytes. `_topics`: of these chunks.
        self._sizes: dict[int, int] = {}
        self._topics: set[int] = set()
        self._expected = 0
        self._leased = False
        #: All pointers found, and by chunk the records that they point at: a _POINTER for each.
        self._pointers: set[bytes] = set()
        self._found: dict[int, bytes] = {}
        #: (database, prefix) of the remaining search, the current one, and its key to continue at; None: not started.
        self._sources: Iterator[tuple[str, bytes]] | None = None
        self._source: tuple[str, bytes] | None = None
        self._at = b""
        #: Positions of the noted chunks in order; those that are left to copy, the last first.
        self._starts: list[int] = []
        self._uncopied: list[int] = []
        self._left = 0

    def _go_back(self, not_before_ms: int, noted: tuple[Any, ...], count: int, uncopied: list[int], left: int) -> None:
        """After an abort: searches again for chunks that were copied in vain.

        A piece that only searched has changed nothing: the search goes on.
        """
        if self._uncopied is not uncopied or len(uncopied) != left:
            self._clear()
            self._not_before_ms = not_before_ms
            self._sizes, self._topics, self._expected, self._leased = noted
            while len(self._sizes) > count:  # the piece that is repeated notes these again
                self._sizes.popitem()

    def note(self, tx: Tx, topic: Topic, chunk: Chunk) -> None:
        """Notes a chunk that is pinned past its time, if copying it may free space."""
        if tx.now_ms < max(self._not_before_ms, chunk.stored_ms + topic.keep_ms + KEEP_COPY_AFTER_MS):
            return
        if chunk.position in self._sizes:  # a piece that is repeated meets it again
            return
        leased, entries = pins(tx, chunk.position)
        messages = sum(count for _, _, count in chunk.ranges)
        most = messages * len(tx.state.topic_groups.get(topic.topic_id, ())) // 2
        if chunk.ranges and leased + entries > most:
            return
        if self._sizes and self._expected + leased + entries > POINTERS_MAX:
            return
        if tx.kv.get("log", U64.pack(chunk.position)) is not None:
            self._sizes[chunk.position] = chunk.bytes
            self._topics.add(topic.topic_id)
            self._expected += leased + entries
            self._leased |= leased > 0

    def run(self, tx: Tx, left: int) -> int:
        """Runs one piece of `left` looks; returns how many are left, 0 if there is more to do."""
        self._left = left
        if not self._sizes:
            return left
        noted = self._sizes, self._topics, self._expected, self._leased
        places = len(self._sizes), self._uncopied, len(self._uncopied)
        tx.state.undo.note(self._go_back, self._not_before_ms, noted, *places)
        if self._sources is None:
            self._begin(tx)
        while self._source is not None and self._left > 0:
            if self._walk(tx, *self._source):
                self._next_source()
        while self._source is None and self._uncopied and self._left > 0:
            self._copy(tx, self._uncopied.pop())
        if self._source is not None or self._uncopied:
            return 0
        self._end(tx)
        return max(1, self._left)

    def _begin(self, tx: Tx) -> None:
        """Starts a search: from here on, a chunk into which something moves is not copied."""
        tx.state.searched = set(self._sizes)
        self._starts = sorted(self._sizes)
        self._uncopied = self._starts[::-1]
        self._sources = self._places(tx.state)
        self._next_source()

    def _places(self, state: State) -> Iterator[tuple[str, bytes]]:
        """(database, prefix) of all that may point into noted chunks."""
        for topic_id in sorted(self._topics):
            for group_id in tuple(state.topic_groups.get(topic_id, ())):
                yield from ((name, STAT_KEY.pack(group_id, topic_id)) for name in ("rq", "fwait"))
        if self._leased:
            yield "due", b""

    def _next_source(self) -> None:
        assert self._sources is not None
        self._source, self._at = next(self._sources, None), b""
        self._left -= 1

    def _end(self, tx: Tx) -> None:
        tx.state.searched = set()
        self._not_before_ms = tx.now_ms + KEEP_COPY_AFTER_MS
        self._clear()

    def _clear(self) -> None:
        self._sizes, self._topics, self._expected, self._leased = {}, set(), 0, False
        self._pointers, self._found = set(), {}
        self._sources, self._source, self._starts, self._uncopied = None, None, [], []

    def _walk(self, tx: Tx, name: str, prefix: bytes) -> bool:
        """Continues in one database; returns whether it is finished."""
        for key, value in tx.kv.scan(name, prefix, self._at):
            if self._left <= 0:
                self._at = key
                return False
            if name == "due":
                self._left -= LEASE_COST
                self._see_lease(tx, key, value)
            else:
                self._left -= 1
                self._see(key, *_POINTER.unpack_from(value))
        return True

    def _see_lease(self, tx: Tx, key: bytes, value: memoryview) -> None:
        """Records the undone members in one part of a lease that lie in noted chunks."""
        due_ms, ck_id, sub = DUE_KEY.unpack(key)
        raw = tx.kv.get("ck", U64.pack(ck_id)) if sub != SUB_OWNER else None
        ck = None if raw is None else checkpoint.decode(ck_id, raw)
        if ck is None or ck.topic_id not in self._topics:
            return
        part = checkpoint.decode_lease(due_ms, sub, value, ck.members)
        undone = checkpoint.members_of(part.undone & ~part.released)
        bits = sum(1 << member for member in undone if ck.chunk_of(member) in self._sizes)
        for member, _, _, *record in located(tx.kv, ck, bits):
            self._left -= 1
            self._see(_MEMBER.pack(ck_id, member), *record)

    def _see(self, pointer: bytes, position: int, size: int) -> None:
        """Records a pointer to a record."""
        place = bisect.bisect_right(self._starts, position) - 1
        start = self._starts[place] if place >= 0 else position
        if pointer not in self._pointers and position < start + self._sizes.get(start, 0):
            self._pointers.add(pointer)
            self._found[start] = self._found.get(start, b"") + _POINTER.pack(position, size)

    def _copy(self, tx: Tx, position: int) -> None:
        """Copies the live records of a chunk and removes the chunk from the log, if all pointers into it are known."""
        self._left -= 1
        stored, found = tx.kv.get("log", U64.pack(position)) is not None, self._found.get(position, b"")
        if not stored or position not in tx.state.searched or len(found) != _POINTER.size * sum(pins(tx, position)):
            return
        if not found:
            return  # the last pointer left before the search began: the next round drops the chunk with its queues
        live = dict(_POINTER.iter_unpack(found))
        if 2 * sum(live.values()) > self._sizes[position]:
            return
        if not tx.room.take(GROW, messages_bytes([value_bytes(size) for size in live.values()])):
            return
        self._left -= COPY_COST * len(live) + sum(live.values()) // BYTES_PER_LOOK
        keep(tx, position, live)
