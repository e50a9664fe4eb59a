"""Write-through tables: state in memory with an uncommitted layer above it.

A transaction reads through the layer and writes into it. `flush` puts what changed into LMDB, once for each key however
often it changed; `merge` makes the layer the truth after the commit; `drop` forgets it after an abort. Values must be
immutable, or an abort could not undo them. A table without a `store` function lives in memory only.

    poff = Table(store)      poff[g, t, q] = 7        a layer above the committed 5
                             poff[g, t, q] → 7        inside the transaction
    flush(tx)                one put, though it changed in ten commands
    commit, merge()          7 for everybody          or abort, drop(): 5, as if nothing had been

Compared with undo logs or copies of the state this costs one more look-up for a read while something is uncommitted,
and nothing else.
"""

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Generic, TypeVar, overload

from popmq_server.storage.lmdb import Transaction

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

#: A deleted key in a layer.
_GONE: Any = object()
_NONE: Any = object()

#: (tx, key, value before or None, value now or None) → writes the change.
StoreChange = Callable[[Transaction, Any, Any, Any], None]


class Table(Generic[K, V]):
    """A dict with an uncommitted layer. Only the writer thread uses it while a transaction runs."""

    __slots__ = ("_base", "_layer", "_store")

    #: Counts every change of every table: whoever compares it before and after knows whether anything was touched.
    changes: ClassVar[int] = 0

    def __init__(self, store: StoreChange | None = None) -> None:
        self._base: dict[K, V] = {}
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

    @property
    def changed(self) -> bool:
        return bool(self._layer)

    def flush(self, tx: Transaction) -> None:
        """Writes each changed key once. Memory follows only with `merge`."""
        if self._store is None:
            return
        for key, value in self._layer.items():
            self._store(tx, key, self._base.get(key), None if value is _GONE else value)

    def merge(self) -> None:
        """The layer becomes the truth: after the commit."""
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
        return dict(self._base)
