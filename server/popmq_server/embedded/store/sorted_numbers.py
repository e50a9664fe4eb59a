"""Sorted numbers of a key in two levels of tables: a change copies only a short tuple.

numbers    key, span → its numbers        ascending        span = number >> bits: at most 2^bits numbers
spans      key → its spans                ascending        copied when a span gets its first or loses its last
"""

import bisect
from collections.abc import Iterable

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.store.table import Item, Table

#: Of any table.
Key = tuple[Item, ...]
Numbers = Table[Key, tuple[int, ...]]


def add(numbers: Numbers, spans: Numbers, key: Key, number: int, bits: int) -> None:
    if not _insert(numbers, (*key, number >> bits), number):
        _insert(spans, key, number >> bits)


def remove(numbers: Numbers, spans: Numbers, key: Key, number: int, bits: int) -> None:
    if not _take(numbers, (*key, number >> bits), number):
        _take(spans, key, number >> bits)


def add_all(numbers: Numbers, spans: Numbers, key: Key, more: list[int], bits: int) -> None:
    """`add` of each: a tuple is copied once for all that it gets."""
    for span, alike in _by_span(more, bits):
        held = numbers.get((*key, span), ())
        numbers[(*key, span)] = tuple(sorted((*held, *alike)))
        if not held:
            _insert(spans, key, span)


def remove_all(numbers: Numbers, spans: Numbers, key: Key, gone: list[int], bits: int) -> None:
    """`remove` of each."""
    for span, alike in _by_span(gone, bits):
        if left := tuple(number for number in numbers[(*key, span)] if number not in alike):
            numbers[(*key, span)] = left
        else:
            numbers.pop((*key, span))
            _take(spans, key, span)


def _by_span(numbers: list[int], bits: int) -> Iterable[tuple[int, set[int]]]:
    if len(numbers) == 1:
        return ((numbers[0] >> bits, {*numbers}),)
    found: dict[int, set[int]] = {}
    for number in numbers:
        found.setdefault(number >> bits, set()).add(number)
    return found.items()


def load(numbers: Numbers, spans: Numbers, found: dict[Key, list[int]], bits: int) -> None:
    """At start: loads the numbers of each key, given in any order."""
    by_span: dict[Key, list[int]] = {}
    for key, each in found.items():
        for number in sorted(each):
            by_span.setdefault((*key, number >> bits), []).append(number)
    by_key: dict[Key, list[int]] = {}
    for *name, span in by_span:
        by_key.setdefault(tuple(name), []).append(span)
    for table, entries in ((numbers, by_span), (spans, by_key)):
        for key, each in entries.items():
            table.load(key, tuple(each))


def after(numbers: Numbers, spans: Numbers, key: Key, number: int, bits: int, most: int) -> list[int]:
    """At most `most` numbers of a key that are greater than `number`, in ascending order."""
    held, found = spans.get(key, ()), list[int]()
    for index in range(bisect.bisect_left(held, number >> bits), len(held)):
        inside = numbers[(*key, held[index])]
        found += inside[bisect.bisect_right(inside, number) :]
        if len(found) >= most:
            break
    return found[:most]


def _insert(table: Numbers, key: Key, number: int) -> bool:
    """Adds a number to a sorted tuple; returns whether there were others."""
    held = table.get(key, ())
    index = bisect.bisect_left(held, number)
    if held[index : index + 1] == (number,):
        broken("sorted_number_new", key=key, number=number)
    table[key] = (*held[:index], number, *held[index:])
    return bool(held)


def _take(table: Numbers, key: Key, number: int) -> bool:
    """Removes a number from a sorted tuple; returns whether others are left."""
    held = table.get(key, ())
    index = bisect.bisect_left(held, number)
    if held[index : index + 1] != (number,):
        broken("sorted_number_known", key=key, number=number)
    left = held[:index] + held[index + 1 :]
    if left:
        table[key] = left
    else:
        table.pop(key)
    return bool(left)
