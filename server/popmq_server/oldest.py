"""Which chunk holds the oldest message that a group has under leases in a topic, without a walk over the leases.

    group_pins   G, T, chunk → leased messages in it         from 0 and to 0 ──┐
    span_chunks  G, T, span → its chunks that have any       ascending    ◀────┤
    spans        G, T → spans that have any                  ascending    ◀────┘

Positions in the log grow with the time of storing, so the lowest chunk is the oldest. A span is so many bytes of the
log that a sorted tuple of its chunks is short, and so is one of all the spans that a group has messages of: a tuple is
copied when a chunk begins or ceases to hold messages of the group, which is once for many messages.
"""

import bisect
from typing import TYPE_CHECKING, TypeVar

from popmq_server.storage.table import Table

if TYPE_CHECKING:
    from popmq_server.state import State

#: A span is 4 MiB: a terabyte of leased messages has as many spans as such a span can have chunks of one page.
SPAN_BITS = 22

K = TypeVar("K")
Pinned = tuple[int, int, int]


def shift(state: "State", where: tuple[int, int], chunk: int, count: int) -> None:
    """So many messages of a chunk come under leases of a group, or leave them."""
    key = (*where, chunk)
    before = state.group_pins.get(key, 0)
    if before + count:
        state.group_pins[key] = before + count
    else:
        state.group_pins.pop(key)
    if not before:
        _add(state, where, chunk)
    elif not before + count:
        _remove(state, where, chunk)


def chunk(state: "State", where: tuple[int, int]) -> int | None:
    """The chunk of the oldest message that a group has under a lease in a topic; of a LITE topic in any of its own."""
    spans = state.spans.get(where)
    return state.span_chunks[(*where, spans[0])][0] if spans else None


def load(state: "State", counted: dict[Pinned, int]) -> None:
    """At start: from the messages that are leased, by group, topic and chunk."""
    chunks: dict[Pinned, list[int]] = {}
    spans: dict[tuple[int, int], list[int]] = {}
    for group_id, topic_id, position in sorted(counted):
        chunks.setdefault((group_id, topic_id, position >> SPAN_BITS), []).append(position)
    for group_id, topic_id, span in chunks:
        spans.setdefault((group_id, topic_id), []).append(span)
    state.group_pins.load_all(counted)
    state.span_chunks.load_all({key: tuple(found) for key, found in chunks.items()})
    state.spans.load_all({key: tuple(found) for key, found in spans.items()})


def _add(state: "State", where: tuple[int, int], position: int) -> None:
    span = position >> SPAN_BITS
    if not _insert(state.span_chunks, (*where, span), position):
        _insert(state.spans, where, span)


def _remove(state: "State", where: tuple[int, int], position: int) -> None:
    span = position >> SPAN_BITS
    if not _take(state.span_chunks, (*where, span), position):
        _take(state.spans, where, span)


def _insert(table: Table[K, tuple[int, ...]], key: K, number: int) -> bool:
    """Adds a number to a sorted tuple; whether there were others."""
    held = table.get(key, ())
    place = bisect.bisect_left(held, number)
    table[key] = (*held[:place], number, *held[place:])
    return bool(held)


def _take(table: Table[K, tuple[int, ...]], key: K, number: int) -> bool:
    """Takes a number out of a sorted tuple; whether others are left."""
    held = table[key]
    place = bisect.bisect_left(held, number)
    left = held[:place] + held[place + 1 :]
    if left:
        table[key] = left
    else:
        table.pop(key)
    return bool(left)
