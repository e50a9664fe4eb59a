"""Finds the chunk of the oldest message that a group has under a lease in a topic, without a walk over the leases.

    group_pins   G, T, chunk → leased messages in it         from 0 and to 0 ──┐
    span_chunks  G, T, span → its chunks that have any       ascending    ◀────┤
    spans        G, T → spans that have any                  ascending    ◀────┘

Positions in the log increase with the store time, so the lowest chunk is the oldest. The span size keeps both tuples
short: the chunks of a span, and the spans of a group. A tuple is copied only when a chunk gets its first or loses its
last leased message of the group.
"""

from popmq_server.embedded.state.all_tables import AllTables
from popmq_server.embedded.store import sorted_numbers
from popmq_server.values.ids import GroupTopic

#: A span is 4 MiB of the log; a terabyte has 262,144 spans.
SPAN_BITS = 22

Pinned = tuple[int, int, int]


def shift(state: AllTables, where: GroupTopic, chunk: int, count: int) -> None:
    """Adds `count` (may be negative) to the leased messages of a group in a chunk."""
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


def chunk(state: AllTables, where: GroupTopic) -> int | None:
    """The chunk of the oldest message that a group has under a lease in a topic, for a LITE topic in any of its lite
    topics; None if there is none.
    """
    spans = state.spans.get(where)
    return state.span_chunks[(*where, spans[0])][0] if spans else None


def load(state: AllTables, counted: dict[Pinned, int]) -> None:
    """At start: loads the tables from the leased messages by group, topic and chunk."""
    chunks: dict[tuple[int, int], list[int]] = {}
    for group_id, topic_id, position in counted:
        chunks.setdefault((group_id, topic_id), []).append(position)
    state.group_pins.load_all(counted)
    sorted_numbers.load(state.span_chunks, state.spans, chunks, SPAN_BITS)
