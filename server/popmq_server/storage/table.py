"""Write-through tables: state in memory with an uncommitted layer above it.

A transaction reads through the layer and writes into it. `flush` puts what changed into LMDB, once for each key however
often it changed; `merge` makes the layer the truth after the commit; `drop` forgets it after an abort. Values must be
immutable, or an abort could not undo them. A table without a `store` function lives in memory only.

    poff = Table(store)      poff[g, t, q] = 7        a layer above the committed 5
                             poff[g, t, q] → 7        inside the transaction
    flush(tx)                one put, though it changed in ten commands
    commit, merge()          7 for everybody          or abort, drop(): 5, as if nothing had been

A StoredTable has the same layer, but its committed entries stay in the store and are read through the transaction of
the moment: memory does not grow with them.

Compared with undo logs or copies of the state this costs one more look-up for a read while something is uncommitted,
and nothing else.
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Generic, TypeVar, overload

from popmq_server.storage.lmdb import Transaction
from popmq_server.storage.sharded import Sharded

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

#: A deleted key in a layer.
_GONE: Any = object()
_NONE: Any = object()

#: (tx, key, value before or None, value now or None) → writes the change.
StoreChange = Callable[[Transaction, Any, Any, Any], None]


#: Entries of one generation that a StoredTable keeps as objects, and those of one commit more: what was put or read
#: last. Two generations of leases and their CheckPoints are some 12 MiB, whatever the store holds.
RECENT_MAX = 4096
#: A table of more entries grows in shards: to make a dict of so many larger takes a millisecond.
LARGE = 16_384


class Table(Generic[K, V]):
    """A dict with an uncommitted layer. Only the writer thread uses it while a transaction runs."""

    __slots__ = ("_base", "_layer", "_store")

    #: Counts every change of every table: whoever compares it before and after knows whether anything was touched.
    changes: ClassVar[int] = 0

    def __init__(self, store: StoreChange | None = None) -> None:
        self._base: dict[K, V] | Sharded[K, V] = {}
        self._layer: dict[K, V] = {}
        self._store = store

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: Any = None) -> Any:
        value = self._layer.get(key, _NONE) if self._layer else _NONE
        if value is _NONE:
            return self._base.get(key, default)
        return default if value is _GONE else value

    def __getitem__(self, key: K) -> V:
        value = self.get(key, _NONE)
        if value is _NONE:
            raise KeyError(key)
        return value

    def __contains__(self, key: K) -> bool:
        return self.get(key, _NONE) is not _NONE

    def __setitem__(self, key: K, value: V) -> None:
        Table.changes += 1
        self._layer[key] = value

    def pop(self, key: K) -> None:
        """Removes `key` if it is there."""
        Table.changes += 1
        if key in self._base:
            self._layer[key] = _GONE
        else:
            self._layer.pop(key, None)

    def items(self) -> Iterator[tuple[K, V]]:
        """All entries, the layer's first; the table may change while it is read."""
        for key, value in list(self._layer.items()):
            if value is not _GONE:
                yield key, value
        for key, value in list(self._base.items()):
            if key not in self._layer:
                yield key, value

    def __iter__(self) -> Iterator[K]:
        """All keys, as `items`; no pair is made for each: of 100,000 entries that is most of the cost."""
        for key, value in list(self._layer.items()):
            if value is not _GONE:
                yield key
        for key in list(self._base):
            if key not in self._layer:
                yield key

    def values(self) -> Iterator[V]:
        return (value for _, value in self.items())

    def load(self, key: K, value: V) -> None:
        """Sets a committed value: for the scan at start."""
        self._base[key] = value

    def load_all(self, entries: dict[K, V]) -> None:
        """Sets all committed values, which the caller does not change any more: for the scan at start."""
        self._base = entries if entries.__class__ is dict else dict(entries)

    @property
    def changed(self) -> bool:
        return bool(self._layer)

    def changed_items(self) -> Iterator[tuple[K, V | None]]:
        """What is not committed yet; None: removed."""
        return iter([(key, None if value is _GONE else value) for key, value in self._layer.items()])

    def flush(self, tx: Transaction) -> None:
        """Writes each changed key once. Memory follows only with `merge`."""
        if self._store is None:
            return
        for key, value in self._layer.items():
            self._store(tx, key, self._base.get(key), None if value is _GONE else value)

    def merge(self) -> None:
        """The layer becomes the truth: after the commit."""
        if self._base.__class__ is dict and len(self._base) > LARGE:
            self._base = Sharded(self._base)
        for key, value in self._layer.items():
            if value is _GONE:
                self._base.pop(key, None)
            else:
                self._base[key] = value
        self._layer.clear()

    def drop(self) -> None:
        """The layer is forgotten: after an abort."""
        self._layer.clear()

    def committed(self) -> dict[K, V]:
        """A copy of the committed entries: for comparisons in tests and the checker."""
        return dict(self._base.items())


def changed(tables: list[Table[Any, Any]]) -> list[Table[Any, Any]]:
    """Those of many tables that have a layer. Each commit asks three times, so no call is made for a table."""
    return [table for table in tables if table._layer]


class StoredTable(Table[K, V]):
    """A table whose committed entries are read from the store when somebody asks for them.

    Those that were put or read last are kept as objects, in two generations: when the younger one is full the older one
    is forgotten. `kv` is the transaction to read through; without one nobody may ask.
    """

    __slots__ = ("_older", "kv")

    def __init__(self, store: StoreChange | None = None) -> None:
        super().__init__(store)
        self._base: dict[K, V] = {}
        self._older: dict[K, V] = {}
        self.kv: Transaction | None = None

    def read(self, kv: Transaction, key: K) -> V | None:
        """One committed entry, from the store."""
        raise NotImplementedError

    def stored_keys(self) -> Iterator[K]:
        """The keys of all committed entries. A walk over what may be millions: for checkers and tests."""
        raise NotImplementedError

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: Any = None) -> Any:
        value = self._layer.get(key, _NONE) if self._layer else _NONE
        if value is _NONE:
            if (value := self._base.get(key)) is None:
                value = self._committed(key)
            return default if value is None else value
        return default if value is _GONE else value

    def _committed(self, key: K) -> V | None:
        """What is not among the youngest; an entry that was read is among them from now on."""
        value = self._older.get(key) if self._older else None
        if value is None and (value := self._fetch(key)) is not None:
            self._make_room()
            self._base[key] = value
        return value

    def _fetch(self, key: K) -> V | None:
        if self.kv is None:
            raise RuntimeError("committed leases are read through a transaction, and there is none")
        return self.read(self.kv, key)

    def _make_room(self) -> None:
        """The younger generation is full: the older one is forgotten."""
        if len(self._base) >= RECENT_MAX:
            self._older, self._base = self._base, {}

    def pop(self, key: K) -> None:
        Table.changes += 1
        self._layer[key] = _GONE

    def __iter__(self) -> Iterator[K]:
        for key, value in list(self._layer.items()):
            if value is not _GONE:
                yield key
        for key in list(self.stored_keys()):
            if key not in self._layer:
                yield key

    def items(self) -> Iterator[tuple[K, V]]:
        return ((key, self[key]) for key in self)

    def load(self, key: K, value: V) -> None:
        raise NotImplementedError("what is stored is not loaded")

    def flush(self, tx: Transaction) -> None:
        assert self._store is not None
        for key, value in self.changed_items():
            self._store(tx, key, None, value)

    def merge(self) -> None:
        """As in every table; of a changed entry no copy stays in the older generation."""
        for key, value in self._layer.items():
            if self._older:
                self._older.pop(key, None)
            if value is _GONE:
                self._base.pop(key, None)
            else:
                self._base[key] = value
        self._layer.clear()
        self._make_room()

    def committed(self) -> dict[K, V]:
        """What the broker believes to be committed: the recent entries as it knows them, the others as stored."""
        found = {key: self._fetch(key) for key in self.stored_keys()}
        return {key: value for key, value in (found | self._older | self._base).items() if value is not None}
