"""Records that outlive their chunk: live ones are copied to `kept`, so that a few do not hold a whole chunk.

    kept   position → chunk position, record      readers look there when the chunk is not in the log (topic.Log)

Retention notes chunks that are held KEEP_COPY_AFTER_MS past their time. Then one search goes over whatever may point
into them, once for all of them and in pieces between the clients' commands:

    rq, fwait   of the groups of their topics          each entry points at a record
    due, ck     if a lease holds one of them           each undone member lies in a chunk

Meanwhile messages move: from a lease to the retry topic, from there to another lease, perhaps behind the place where
the search is. A chunk is copied only if nothing that points into it has moved since the search began (State.searched,
which tx.hold and tx.pin take it from) and if as many pointers were found as its pins count: then these are all there
are. Any other chunk stays, and the next search looks at it again. So does one whose live records are most of it: to
copy these would free nothing.
"""

import bisect
import struct
from dataclasses import dataclass, field

from popmq_server.model import checkpoint
from popmq_server.model.records import Topic
from popmq_server.retention.chunks import Chunk, pins
from popmq_server.state.space import GROW, messages_bytes, value_bytes
from popmq_server.state.tx import Tx
from popmq_server.storage.keys import DUE_KEY, STAT_KEY, SUB_OWNER, U64
from popmq_server.topics.log import located_in

#: How long after its time a chunk may be held as a whole, and how often such chunks are searched for.
KEEP_COPY_AFTER_MS = 3_600_000
#: Pointers that one search remembers, some 200 bytes each: the chunks beyond are left to the next one.
POINTERS_MAX = 100_000
#: What a lease and a copied record cost, where a retry entry costs one look.
LEASE_COST, COPY_COST = 5, 3
#: `rq` and `fwait` begin with the position and the size of a record.
_POINTER = struct.Struct(">QI")
#: A part of a CheckPoint's lease, and a member of it: what tells pointers of leases apart, also when the lease moves.
_MEMBER = struct.Struct(">QH")


@dataclass
class _Held:
    """A chunk that is held: who points into it, and the records (position → size) that they point at."""

    size: int
    pointers: set[bytes] = field(default_factory=set)
    live: dict[int, int] = field(default_factory=dict)


class Keeping:
    """The search, and the copies."""

    def __init__(self) -> None:
        self._not_before_ms = 0
        self._held: dict[int, _Held] = {}
        self._topics: set[int] = set()
        self._expected = 0
        self._leased = False
        #: (database, prefix) of what is left to go over, and where in the first of them; None: it has not begun.
        self._sources: list[tuple[str, bytes]] | None = None
        self._at = b""
        self._starts: list[int] = []
        self._left = 0

    def note(self, tx: Tx, topic: Topic, chunk: Chunk) -> None:
        """A chunk that is held past its time; it is searched if that may free something."""
        if tx.now_ms < max(self._not_before_ms, chunk.stored_ms + topic.keep_ms + KEEP_COPY_AFTER_MS):
            return
        leased, entries = pins(tx, chunk.position)
        messages = sum(count for _, _, count in chunk.ranges)
        most = messages * len(tx.state.topic_groups.get(topic.topic_id, ())) // 2
        if chunk.ranges and leased + entries > most:
            return
        if self._held and self._expected + leased + entries > POINTERS_MAX:
            return
        if tx.kv.get("log", U64.pack(chunk.position)) is not None:
            self._held[chunk.position] = _Held(chunk.bytes)
            self._topics.add(topic.topic_id)
            self._expected += leased + entries
            self._leased |= leased > 0

    def run(self, tx: Tx, left: int) -> int:
        """One piece of so many looks; how many are left, 0 when there is more to do."""
        self._left = left
        if not self._held:
            return left
        if self._sources is None:
            self._begin(tx)
        while self._sources and self._left > 0:
            if self._walk(tx, *self._sources[0]):
                self._sources.pop(0)
                self._at = b""
        while not self._sources and self._held and self._left > 0:
            position = next(iter(self._held))
            self._copy(tx, position, self._held.pop(position))
        if self._sources or self._held:
            return 0
        self._end(tx)
        return max(1, self._left)

    def _begin(self, tx: Tx) -> None:
        """From here on a chunk into which something moved is not copied."""
        tx.state.searched = set(self._held)
        self._starts = sorted(self._held)
        pairs = ((group, topic) for topic in self._topics for group in tx.state.topic_groups.get(topic, ()))
        prefixes = [STAT_KEY.pack(*pair) for pair in pairs]
        self._sources = [(name, prefix) for prefix in prefixes for name in ("rq", "fwait")]
        if self._leased:
            self._sources.append(("due", b""))

    def _end(self, tx: Tx) -> None:
        tx.state.searched = set()
        self._not_before_ms = tx.now_ms + KEEP_COPY_AFTER_MS
        self._held, self._topics, self._expected, self._leased = {}, set(), 0, False
        self._sources, self._starts = None, []

    def _walk(self, tx: Tx, name: str, prefix: bytes) -> bool:
        """Goes on in one database; whether it is at its end."""
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
        """The undone members of a part of a lease, those that lie in chunks that are searched."""
        due_ms, ck_id, sub = DUE_KEY.unpack(key)
        raw = tx.kv.get("ck", U64.pack(ck_id)) if sub != SUB_OWNER else None
        ck = None if raw is None else checkpoint.decode(ck_id, raw)
        if ck is None or ck.topic_id not in self._topics:
            return
        part = checkpoint.decode_lease(due_ms, sub, value, ck.members)
        undone = checkpoint.members_of(part.undone & ~part.released)
        bits = sum(1 << member for member in undone if ck.chunk_of(member) in self._held)
        for member, unit in zip(checkpoint.members_of(bits), located_in(tx.kv, ck, bits), strict=True):
            self._left -= 1
            self._see(_MEMBER.pack(ck_id, member), *unit[2:])

    def _see(self, pointer: bytes, position: int, size: int) -> None:
        """Somebody points at a record."""
        place = bisect.bisect_right(self._starts, position) - 1
        start = self._starts[place] if place >= 0 else position
        held = self._held.get(start)
        if held is not None and position < start + held.size:
            held.pointers.add(pointer)
            held.live[position] = size

    def _copy(self, tx: Tx, position: int, held: _Held) -> None:
        """Copies the live records of a chunk and lets the chunk itself go, if all that point into it are known."""
        self._left -= 1
        raw = tx.kv.get("log", U64.pack(position))
        if raw is None or position not in tx.state.searched or len(held.pointers) != sum(pins(tx, position)):
            return
        if 2 * sum(held.live.values()) > held.size:
            return
        if not tx.room.take(GROW, messages_bytes([value_bytes(size) for size in held.live.values()])):
            return
        self._left -= COPY_COST * len(held.live)
        whole = bytes(raw)
        for at, size in sorted(held.live.items()):
            record = whole[at - position : at - position + size]
            tx.kv.put("kept", U64.pack(at), U64.pack(position) + record)
        tx.kv.delete("log", U64.pack(position))
