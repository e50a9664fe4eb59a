"""Write-through tables: state in memory with an uncommitted layer above it.

A transaction reads through the layer and writes into it. `flush` puts each changed key into LMDB once, however often it
changed; `merge` moves the layer into the committed entries after the commit; `drop` discards it after an abort. Values
must be immutable, or an abort could not undo changes. A table without a `store` function is in memory only. What is no
table notes how to undo its changes (Undo), and takes part in `merge` and `drop` with the tables.

    poff = Table(store)      poff[g, t, q] = 7        a layer above the committed 5
                             poff[g, t, q] → 7        inside the transaction
    flush(tx)                one put, though it changed in ten commands
    commit, merge()          7 is committed           or abort, drop(): 5 as before

A StoredTable has the same layer, but its committed entries stay in the store and are read through the current
transaction: memory does not grow with them.

Compared with undo logs or copies of the state, the only cost is one more look-up per read while the table has
uncommitted changes.

See docs/decisions/0004-write-through-tables.md.
"""

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, overload

from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.embedded.store.sharded import Sharded

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")
K_contra = TypeVar("K_contra", contravariant=True)
V_co = TypeVar("V_co", covariant=True)
C = TypeVar("C", bound="Table[Item, Item] | Undo")

#: A key or a value of a table, where the code is the same for all tables: each has types of its own.
Item: TypeAlias = Any

#: A deleted key in a layer.
_GONE: Item = object()
_NONE: Item = object()

#: Called with (tx, key, value before or None, value now or None): writes the change.
StoreChange = Callable[[Transaction, Item, Item, Item], None]


#: Recently used entries that a StoredTable keeps as objects in one generation; one commit may exceed it. Two
#: generations of leases and their CheckPoints are some 12 MiB, for any size of the store.
RECENT_MAX = 4096
#: A table of more entries grows in shards: resizing a dict of this many takes a millisecond.
LARGE = 16_384


class Changes:
    """Counts changes of tables: comparing `count` before and after shows whether anything changed.

    The tables of one broker share one (tables.py). Another broker of the process has its own, as its writer is another
    thread: a counter of both would make its changes look like changes of this one, and could lose some of either.
    """

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Get(Protocol[K_contra, V_co]):
    """The type of `Table.get`."""

    @overload
    def __call__(self, key: K_contra, /) -> V_co | None: ...
    @overload
    def __call__(self, key: K_contra, default: D, /) -> V_co | D: ...


class Table(Generic[K, V]):
    """A dict with an uncommitted layer. Only the writer thread uses it while a transaction runs."""

    __slots__ = ("_base", "_layer", "_store", "changes", "get")

    #: The value of a key, or the default. A commit asks some forty times, most of them tables without uncommitted
    #: changes: there it is the committed entries' own `get`.
    get: Get[K, V]

    def __init__(self, store: StoreChange | None = None) -> None:
        self._base: dict[K, V] | Sharded[K, V] = {}
        self._layer: dict[K, V] = {}
        self._store = store
        self.changes = Changes()
        self._rest()

    def _rest(self) -> None:
        """Sets `get` of a table without uncommitted changes."""
        self.get = self._base.get  # type: ignore[assignment]  # one of two kinds of committed entries

    def _get(self, key: K, default: Item = None, /) -> Item:
        """`get` of a table with uncommitted changes."""
        value = self._layer.get(key, _NONE)
        if value is _NONE:
            return self._base.get(key, default)
        return default if value is _GONE else value

    def __getitem__(self, key: K) -> V:
        if key in self._layer:
            value = self._layer[key]
            if value is _GONE:
                raise KeyError(key)
            return value
        found: Item = self._base.get(key, _NONE)
        if found is _NONE:
            raise KeyError(key)
        return found  # type: ignore[no-any-return]  # Item: the code is the same for all tables

    def __contains__(self, key: K) -> bool:
        if key in self._layer:
            return self._layer[key] is not _GONE
        return key in self._base

    def __setitem__(self, key: K, value: V) -> None:
        self.changes.count += 1
        if not self._layer:
            self.get = self._get
        self._layer[key] = value

    def pop(self, key: K) -> None:
        """Removes `key` if it exists."""
        self.changes.count += 1
        if key in self._base:
            self.get = self._get
            self._layer[key] = _GONE
        else:
            self._layer.pop(key, None)

    def take(self) -> dict[K, V]:
        """Removes all uncommitted entries and returns them: of a table that is empty before each commit."""
        taken, self._layer = self._layer, {}
        if taken:
            self._rest()
        return taken

    def items(self) -> Iterator[tuple[K, V]]:
        """All entries, the layer's first; the table may change during the iteration."""
        for key, value in list(self._layer.items()):
            if value is not _GONE:
                yield key, value
        for key, value in list(self._base.items()):
            if key not in self._layer:
                yield key, value

    def __iter__(self) -> Iterator[K]:
        """All keys, in the order of `items`, without creating pairs: for 100,000 entries these are most of the cost."""
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
        """Sets all committed values: for the scan at start. The caller must not change `entries` afterwards."""
        self._base = entries if entries.__class__ is dict else dict(entries)
        self._rest()

    @property
    def changed(self) -> bool:
        return bool(self._layer)

    def changed_items(self) -> Iterator[tuple[K, V | None]]:
        """Uncommitted entries; None: removed."""
        return iter([(key, None if value is _GONE else value) for key, value in self._layer.items()])

    @property
    def has_rows(self) -> bool:
        """Whether it writes its changes to the store."""
        return self._store is not None

    def flush(self, tx: Transaction) -> None:
        """Writes each changed key once. The committed entries change only in `merge`."""
        if self._store is None:
            return
        for key, value in self._layer.items():
            self._store(tx, key, self._base.get(key), None if value is _GONE else value)

    def merge(self) -> None:
        """After the commit: moves the layer into the committed entries."""
        if self._base.__class__ is dict and len(self._base) > LARGE:
            self._base = Sharded(self._base)
        for key, value in self._layer.items():
            if value is _GONE:
                self._base.pop(key, None)
            else:
                self._base[key] = value
        self.drop()

    def drop(self) -> None:
        """After an abort: discards the layer."""
        self._layer.clear()
        self._rest()

    def committed(self) -> dict[K, V]:
        """A copy of the committed entries: for comparisons in tests and fsck."""
        return dict(self._base.items())


def changed(tables: "list[C]") -> "list[C]":
    """The tables with uncommitted changes. Each commit asks up to three times, so this makes no call per table."""
    return [table for table in tables if table._layer]


def merge_all(tables: "list[Table[Item, Item] | Undo]") -> None:
    """Merges the tables with uncommitted changes. A commit changes a dozen tables by an entry or two, so this makes few
    calls.
    """
    for table in tables:
        if not table._layer:
            continue
        if table.__class__ is Undo:
            table._layer.clear()
            continue
        if table.__class__ is not Table or table._base.__class__ is not dict or len(table._base) > LARGE:
            table.merge()
            continue
        base, layer, table._layer = table._base, table._layer, {}
        table.get = base.get
        for key in layer:
            if layer[key] is _GONE:
                base.pop(key, None)
            else:
                base[key] = layer[key]


class StoredTable(Table[K, V]):
    """A table whose committed entries are read from the store on access.

    Recently put or read entries are kept as objects, in two generations: when the younger one is full the older one is
    dropped. `kv` is the transaction to read through; without one such a read raises RuntimeError.
    """

    __slots__ = ("_older", "kv")

    def __init__(self, store: StoreChange | None = None) -> None:
        super().__init__(store)
        self._base: dict[K, V] = {}
        self._older: dict[K, V] = {}
        self.kv: Transaction | None = None

    def read(self, kv: Transaction, key: K) -> V | None:
        """Reads one committed entry from the store."""
        raise NotImplementedError

    def stored_keys(self) -> Iterator[K]:
        """The keys of all committed entries, which may be millions: for fsck and tests."""
        raise NotImplementedError

    def _rest(self) -> None:
        self.get = self._get

    def _get(self, key: K, default: Item = None, /) -> Item:
        value = self._layer.get(key, _NONE) if self._layer else _NONE
        if value is _NONE:
            if (value := self._base.get(key)) is None:
                value = self._committed(key)
            return default if value is None else value
        return default if value is _GONE else value

    def __getitem__(self, key: K) -> V:
        value = self.get(key, _NONE)
        if value is _NONE:
            raise KeyError(key)
        return value

    def __contains__(self, key: K) -> bool:
        return self.get(key, _NONE) is not _NONE

    def _committed(self, key: K) -> V | None:
        """A committed entry that is not in the younger generation; adds it there."""
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
        """If the younger generation is full, drops the older one and begins a new one."""
        if len(self._base) >= RECENT_MAX:
            self._older, self._base = self._base, {}

    def pop(self, key: K) -> None:
        self.changes.count += 1
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
        raise NotImplementedError("a stored table loads no entries")

    def flush(self, tx: Transaction) -> None:
        assert self._store is not None
        for key, value in self.changed_items():
            self._store(tx, key, None, value)

    def merge(self) -> None:
        """Like Table.merge; also removes changed entries from the older generation."""
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
        """The committed entries as the broker sees them: recent ones from memory, the others from the store."""
        found = {key: self._fetch(key) for key in self.stored_keys()}
        return {key: value for key, value in (found | self._older | self._base).items() if value is not None}


class Undo:
    """How to undo the changes of one transaction to what is no table: ready message groups and lite topics, watches,
    turns of sends, the places of jobs. They change at once, and note here how to undo each change. For a transaction
    it is one more table, whose layer is the notes:

        judge("bob")   ready: ann, bob    note(remove bob)
        commit         merge(): drops the notes        abort    drop(): runs the notes, the last one first

    A batch may run several times before it is committed: the same changes are made and undone each time. For the
    writer thread.
    """

    __slots__ = ("_layer", "changes")

    def __init__(self) -> None:
        self._layer: list[tuple[Callable[..., object], tuple[object, ...]]] = []
        #: Number of notes so far: comparing it before and after shows whether anything changed.
        self.changes = 0

    def note(self, step: Callable[..., object], *arguments: object) -> None:
        """Notes that `step(*arguments)` undoes the last change."""
        self.changes += 1
        self._layer.append((step, arguments))

    def save(self, holder: object, *fields: str) -> None:
        """Notes the values that attributes have now: the caller is about to set others."""
        for field in fields:
            self.note(setattr, holder, field, getattr(holder, field))

    def merge(self) -> None:
        """After a commit: drops the notes."""
        self._layer.clear()

    def drop(self) -> None:
        """After an abort: runs the notes, which restores the state before the transaction."""
        while self._layer:
            step, arguments = self._layer.pop()
            step(*arguments)
