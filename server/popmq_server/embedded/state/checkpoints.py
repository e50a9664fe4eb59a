"""The tables of CheckPoints and of their leases: the entries stay in the store, memory keeps the due times.

    ck       ck_id → CheckPoint           read by its key
    leases   ck_id, sub → Lease           its key in `due` begins with its due time, so memory keeps that: 8 bytes of
                                          content for each lease, some 100 with Python's overhead

A store holds millions of leases, and a broker uses few of them per second: a client acks messages that it popped a
moment ago, whose leases are among the recent entries (table.py), and the revive reads due leases in key order.

See docs/decisions/0005-leases-stay-in-the-store.md.
"""

import itertools
import operator
import struct
from collections.abc import Callable, Iterator

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.store import checkpoint
from popmq_server.embedded.store.checkpoint import CheckPoint, Lease
from popmq_server.embedded.store.keys import DUE_KEY, NEVER, SUB_OWNER, U64
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.embedded.store.sharded import Sharded
from popmq_server.embedded.store.table import Item, StoredTable
from popmq_server.errors import UnreadableRow
from popmq_server.values.ids import GroupId, GroupTopic, TopicId

#: Keys or entries of the store that the scan at start processes together.
BATCH = 4096
#: CheckPoints that one piece of a walk visits: some 5 ms.
LOOKS_MAX = 2000
#: The next position of a walk that is complete.
DONE = 1 << 63
#: due ms, ck_id of a lease's key, without its sub.
_WHOLE = struct.Struct(">QQ2x")


class CheckPointTable(StoredTable[int, CheckPoint]):
    """Table `ck`."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(checkpoint.store_checkpoint)

    def read(self, kv: Transaction, key: int) -> CheckPoint | None:
        raw = kv.get("ck", U64.pack(key))
        return None if raw is None else checkpoint.decode(key, raw)

    def stored_keys(self) -> Iterator[int]:
        assert self.kv is not None
        return (U64.unpack(key)[0] for key in self.kv.keys("ck"))

    def pair(self, ck_id: int) -> GroupTopic:
        """G, T of a committed CheckPoint, without decoding the rest; (0, 0) if it does not exist."""
        raw = self.kv.get("ck", U64.pack(ck_id)) if self.kv is not None else None
        return (GroupId(0), TopicId(0)) if raw is None else checkpoint.pair_of(raw)

    def of(self, wanted: Callable[[GroupId, TopicId], bool], start: int) -> tuple[list[int], int]:
        """Visits up to LOOKS_MAX CheckPoints from `start` on; returns the ids of those whose (G, T) is wanted, and the
        next position, or DONE. Those that the running commit batch has removed are left out.

        CheckPoints that are created during a walk have higher ids, so the walk reaches them.
        """
        assert self.kv is not None
        found, last, changed = list[int](), start, dict(self.changed_items())
        for seen, (key, value) in enumerate(self.kv.scan("ck", b"", U64.pack(start))):
            last = U64.unpack(key)[0]
            if seen == LOOKS_MAX:
                return found, last
            if wanted(*checkpoint.pair_of(value)) and changed.get(last, True):
                found.append(last)
        made = [ck for ck_id, ck in changed.items() if ck is not None and ck_id >= start]
        found += [ck.ck_id for ck in made if wanted(ck.group_id, ck.topic_id)]
        return list(dict.fromkeys(found)), DONE

    def all_of(self, wanted: Callable[[GroupId, TopicId], bool]) -> Iterator[CheckPoint]:
        """All wanted CheckPoints. Each unwanted one costs some 2 µs, so frequent operations must not use it."""
        start = 0
        while start != DONE:
            found, start = self.of(wanted, start)
            yield from (self[ck_id] for ck_id in found)


class LeaseTable(StoredTable[tuple[int, int], Lease]):
    """Table `leases`: the parts of all leases, and under SUB_OWNER the key of each owner."""

    __slots__ = ("_cks", "_split", "_whole")

    def __init__(self, cks: CheckPointTable) -> None:
        super().__init__(self._put)
        self._cks = cks
        #: Committed due times: of whole CheckPoints (sub 0), which may be millions, by ck_id; else by (ck_id, sub).
        self._whole = Sharded[int, int]({})
        self._split = Sharded[tuple[int, int], int]({})

    def count(self) -> int:
        """Number of committed leases, keys of owners included."""
        return len(self._whole) + len(self._split)

    def checkpoints(self) -> int:
        """Number of CheckPoints with a committed lease."""
        apart = {ck_id for ck_id, sub in self._split if sub != SUB_OWNER}
        return len(self._whole) + sum(1 for ck_id in apart if ck_id not in self._whole)

    def load_keys(self, kv: Transaction) -> list[tuple[int, int]]:
        """The scan at start; returns the keys with a sub other than 0.

        Raises UnreadableRow for keys that do not ascend: the revive would not find the leases after such a key.
        """
        keys, whole, split = kv.keys("due"), dict[int, int](), dict[tuple[int, int], int]()
        last = b""
        while several := list(map(bytes, itertools.islice(keys, BATCH))):
            _check_ascending([last, *several])
            last, batch = several[-1], b"".join(several)
            if not any(batch[16 :: DUE_KEY.size]) and not any(batch[17 :: DUE_KEY.size]):  # the bytes of all subs
                for due_ms, ck_id in _WHOLE.iter_unpack(batch):
                    whole[ck_id] = due_ms
                continue
            for due_ms, ck_id, sub in DUE_KEY.iter_unpack(batch):
                if sub:
                    split[ck_id, sub] = due_ms
                else:
                    whole[ck_id] = due_ms
        self._whole, self._split = Sharded(whole), Sharded(split)
        return list(split)

    def due_ms(self, key: tuple[int, int]) -> int | None:
        """When a committed lease expires; None if there is none."""
        ck_id, sub = key
        found: int | None = self._split.get(key) if sub else self._whole.get(ck_id)
        return found

    def is_at(self, due_ms: int, key: tuple[int, int]) -> bool:
        """Whether a key of `due` in the running transaction, flushed or not, is that of a lease."""
        if (self._split.get(key) if key[1] else self._whole.get(key[0])) == due_ms:
            return True
        return bool(self._layer) and (now := self._layer.get(key)) is not None and getattr(now, "due_ms", 0) == due_ms

    def read(self, kv: Transaction, key: tuple[int, int]) -> Lease | None:
        due_ms = self.due_ms(key)
        if due_ms is None:
            return None
        if key[1] == SUB_OWNER:
            return Lease(due_ms, 0)
        if (ck := self._cks.get(key[0])) is None:
            broken("lease_has_checkpoint", ("due", DUE_KEY.pack(due_ms, *key)), checkpoint=key[0])
        return self._read(kv, key, due_ms, ck)

    def whole(self, kv: Transaction, ck: CheckPoint) -> Lease | None:
        """The committed lease of the members that were not split off (sub 0): for the scan at start."""
        due_ms = self._whole.get(ck.ck_id)
        return None if due_ms is None else self._read(kv, (ck.ck_id, 0), due_ms, ck)

    def _read(self, kv: Transaction, key: tuple[int, int], due_ms: int, ck: CheckPoint) -> Lease | None:
        raw = kv.get("due", packed := DUE_KEY.pack(due_ms, *key))
        if raw is None:
            return None
        row, sub, members = ("due", packed), key[1], ck.members
        if not sub and len(raw) < (4 * ((members + 7) // 8) + U64.size if due_ms == NEVER else (members + 7) // 8):
            broken("lease_row_whole", row, bytes=len(raw), members=members)
        if sub > members:
            broken("lease_part_of_a_member", row, part=sub, members=members)
        lease = checkpoint.decode_lease(due_ms, sub, raw, members)
        if not 0 <= lease.undone < 1 << members:
            broken("lease_inside_members", row, undone=lease.undone, members=members)
        if (due_ms == NEVER) != (ck.owner_id > 0):
            broken("lease_deadline_of_owner", row, owner=ck.owner_id)
        if not lease.undone and not ck.owner_id:
            broken("lease_holds_something", row)
        if ck.owner_id:
            check_owned(lease, ck, row)
        return lease

    def stored_keys(self) -> Iterator[tuple[int, int]]:
        yield from ((ck_id, 0) for ck_id in self._whole)
        yield from self._split

    def __contains__(self, key: Item) -> bool:
        if self._layer and key in self._layer:
            return super().__contains__(key)
        return key in self._split if key[1] else key[0] in self._whole

    def pop(self, key: tuple[int, int]) -> None:
        if key in self._split if key[1] else key[0] in self._whole:
            super().pop(key)
        else:
            self.changes.count += 1
            self._layer.pop(key, None)

    def _put(self, tx: Transaction, key: tuple[int, int], _: Lease | None, now: Lease | None) -> None:
        """Writes one part. When its due time changes it deletes the old key first."""
        ck_id, sub = key
        before_ms = self.due_ms(key)
        if before_ms is not None and (now is None or now.due_ms != before_ms):
            tx.delete("due", DUE_KEY.pack(before_ms, ck_id, sub))
        if now is not None:
            value = b"" if sub == SUB_OWNER else checkpoint.encode_lease(sub, now, self._cks[ck_id].members)
            tx.put("due", DUE_KEY.pack(now.due_ms, ck_id, sub), value)

    def merge(self) -> None:
        for key, value in self.changed_items():
            table: Sharded[Item, int] = self._split if key[1] else self._whole
            name = key if key[1] else key[0]
            if value is None:
                table.pop(name, None)
            else:
                table[name] = value.due_ms
        super().merge()


def check_owned(lease: Lease, ck: CheckPoint, row: tuple[str, bytes] | None = None) -> None:
    """Compares the released and torn members of an owner's CheckPoint with the others."""
    if lease.released & ~lease.undone:
        broken("released_not_done", row, checkpoint=ck.ck_id, released=lease.released, undone=lease.undone)
    if lease.torn & lease.undone:
        broken("torn_no_longer_held", row, checkpoint=ck.ck_id, torn=lease.torn, undone=lease.undone)
    if lease.released & ~lease.released_at:
        broken("released_has_a_place", row, checkpoint=ck.ck_id, released=lease.released, placed=lease.released_at)


def _check_ascending(keys: list[bytes]) -> None:
    """Raises UnreadableRow for the first key of `due` that is not above the one before it."""
    if not all(map(operator.lt, keys, itertools.islice(keys, 1, None))):
        wrong = next(after for before, after in itertools.pairwise(keys) if before >= after)
        raise UnreadableRow("due", wrong, "the keys do not ascend")
