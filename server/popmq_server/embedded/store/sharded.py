"""A mapping that grows without long pauses: resizing a dict of a million entries takes some 70 ms.

    first    the initial entries, in one dict: changed and removed, never added to, so it is never resized
    shards   later entries, by hash: a dict of a thousandth of the entries is resized in a thousandth of the time

The dict of a table that was loaded at start, or has become large, becomes `first` without a copy. A look-up also visits
one shard, which costs some 0.2 µs more than a dict.

See docs/decisions/0040-tables-grow-in-shards.md.
"""

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

#: A power of two. Ten million entries in this many dicts are 10,000 each, which take 0.3 ms to resize.
SHARDS = 1024
_MASK = SHARDS - 1
_NONE: Any = object()  # in place of any value


class Sharded(Generic[K, V]):
    """The part of the dict interface that tables need."""

    __slots__ = ("_first", "_shards")

    def __init__(self, first: dict[K, V]) -> None:
        """Takes ownership of `first`."""
        self._first = first
        self._shards: list[dict[K, V]] = [{} for _ in range(SHARDS)]

    def get(self, key: K, default: D | None = None) -> V | D | None:
        value = self._shards[hash(key) & _MASK].get(key, _NONE)
        return self._first.get(key, default) if value is _NONE else value

    def __contains__(self, key: K) -> bool:
        return key in self._shards[hash(key) & _MASK] or key in self._first

    def __setitem__(self, key: K, value: V) -> None:
        if key in self._first:
            self._first[key] = value
        else:
            self._shards[hash(key) & _MASK][key] = value

    def pop(self, key: K, default: D | None = None) -> V | D | None:
        shard = self._shards[hash(key) & _MASK]
        if key in shard:
            return shard.pop(key)
        value = self._first.pop(key, default)
        if not self._first:
            self._first = {}  # an emptied dict keeps its memory
        return value

    def __len__(self) -> int:
        return len(self._first) + sum(map(len, self._shards))

    def items(self) -> Iterator[tuple[K, V]]:
        """All entries. No change during the iteration."""
        yield from self._first.items()
        for shard in self._shards:
            yield from shard.items()

    def __iter__(self) -> Iterator[K]:
        yield from self._first
        for shard in self._shards:
            yield from shard
