"""Which chunk holds the oldest message that a group has under leases in a topic, without a walk over the leases.

    group_pins   G, T, chunk → leased messages in it         from 0 and to 0 ──┐
    span_chunks  G, T, span → its chunks that have any       ascending    ◀────┤
    spans        G, T → spans that have any                  ascending    ◀────┘

Positions in the log grow with the time of storing, so the lowest chunk is the oldest. A span is so many bytes of the
log that a sorted tuple of its chunks is short, and so is one of all the spans that a group has messages of: a tuple is
copied when a chunk begins or ceases to hold messages of the group, which is once for many messages.
"""

from typing import TYPE_CHECKING

from popmq_server.storage import sorted_numbers

if TYPE_CHECKING:
    from popmq_server.state.state import State

#: A span is 4 MiB: a terabyte of leased messages has as many spans as such a span can have chunks of one page.
SPAN_BITS = 22

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
        sorted_numbers.add(state.span_chunks, state.spans, where, chunk, SPAN_BITS)
    elif not before + count:
        sorted_numbers.remove(state.span_chunks, state.spans, where, chunk, SPAN_BITS)


def chunk(state: "State", where: tuple[int, int]) -> int | None:
    """The chunk of the oldest message that a group has under a lease in a topic; of a LITE topic in any of its own."""
    spans = state.spans.get(where)
    return state.span_chunks[(*where, spans[0])][0] if spans else None


def load(state: "State", counted: dict[Pinned, int]) -> None:
    """At start: from the messages that are leased, by group, topic and chunk."""
    chunks: dict[tuple[int, int], list[int]] = {}
    for group_id, topic_id, position in counted:
        chunks.setdefault((group_id, topic_id), []).append(position)
    state.group_pins.load_all(counted)
    sorted_numbers.load(state.span_chunks, state.spans, chunks, SPAN_BITS)
