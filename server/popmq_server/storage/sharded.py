"""A mapping whose growth never holds its thread up: a dict of a million entries takes some 70 ms to be made larger.

    first    the entries that were there before, in one dict: changed and removed, never added to, so never made larger
    shards   what came later, by hash: a dict of a thousandth of the entries is made larger in a thousandth of the time

A table that was loaded at start, or has become large, becomes the `first` of such a mapping without a copy. A look-up
costs a look into one shard more than a dict does: some 0.2 µs.
"""

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

#: A power of two. Each of ten million entries in so many dicts is one of 10,000, which take 0.3 ms to be made larger.
SHARDS = 1024
_MASK = SHARDS - 1
_NONE: Any = object()


class Sharded(Generic[K, V]):
    """What tables need of a dict."""

    __slots__ = ("_first", "_shards")

    def __init__(self, first: dict[K, V]) -> None:
        """Takes `first` over."""
        self._first = first
        self._shards: list[dict[K, V]] = [{} for _ in range(SHARDS)]

    def get(self, key: K, default: Any = None) -> Any:
        value = self._shards[hash(key) & _MASK].get(key, _NONE)
        return self._first.get(key, default) if value is _NONE else value

    def __contains__(self, key: K) -> bool:
        return key in self._shards[hash(key) & _MASK] or key in self._first

    def __setitem__(self, key: K, value: V) -> None:
        if key in self._first:
            self._first[key] = value
        else:
            self._shards[hash(key) & _MASK][key] = value

    def pop(self, key: K, default: Any = None) -> Any:
        shard = self._shards[hash(key) & _MASK]
        if key in shard:
            return shard.pop(key)
        value = self._first.pop(key, default)
        if not self._first:
            self._first = {}  # an empty dict keeps the memory that it had
        return value

    def __len__(self) -> int:
        return len(self._first) + sum(map(len, self._shards))

    def items(self) -> Iterator[tuple[K, V]]:
        """No change while it runs."""
        yield from self._first.items()
        for shard in self._shards:
            yield from shard.items()

    def __iter__(self) -> Iterator[K]:
        yield from self._first
        for shard in self._shards:
            yield from shard
