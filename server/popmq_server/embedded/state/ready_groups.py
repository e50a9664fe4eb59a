"""Ready and stopped message groups of FIFO topics. Ready: waiting messages, no lock, not stopped; oldest first.

    waiting  (G, T, message group) → entries in fwait          locks    → undone members under leases, owner, part
    stopped  (G, T, message group) → offsets and reasons       ready = waiting, not locked, not stopped

These three tables determine which message groups are ready; this module keeps only the order in which they became
ready. An aborted commit restores the order (table.py:Undo): otherwise a batch that runs twice would change it twice.
The start builds it from the tables, in one walk over all: a walk at the first Pop of each group in each topic would
stop all other calls, with a million waiting message groups for 0.2 s.

Stopped message groups are counted and kept sorted by group and topic, so that neither a scrape nor a page of a list
walks those of others. A LITE topic has one message group for each lite topic: they count for their parent, by id.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.state.all_tables import AllTables
from popmq_server.embedded.store import sorted_numbers
from popmq_server.embedded.store.table import Table, Undo
from popmq_server.values.ids import (
    GroupId,
    GroupTopic,
    MessageGroup,
    TopicId,
)

#: Spans of the sorted numbers: of 8 bytes of a hash the first 12 bits, of ids of lite topics those above the last 10.
HASH_SPAN_BITS, LITE_SPAN_BITS = 52, 10

M = TypeVar("M")


class Ordered(Generic[M]):
    """Members in the order of their arrival. An abort restores the order."""

    __slots__ = ("_came", "_next", "_sorted", "_undo")

    def __init__(self, undo: Undo) -> None:
        self._undo = undo
        self._came: dict[M, int] = {}
        self._next = 0
        self._sorted = True

    def load(self, member: M) -> None:
        """Adds a member to the end: at start, where nothing is undone."""
        self._came[member] = self._next
        self._next += 1

    def set_ready(self, member: M, ready: bool) -> None:
        """Adds a member to the end, unless it is present, or removes it."""
        if ready and member not in self._came:
            self._came[member] = self._next
            self._next += 1
            self._undo.note(self._take_out, member)
        elif not ready and member in self._came:
            self._undo.note(self._put_back, member, self._came.pop(member))

    def _take_out(self, member: M) -> None:
        del self._came[member]

    def _put_back(self, member: M, came: int) -> None:
        self._came[member] = came
        self._sorted = False

    def __iter__(self) -> Iterator[M]:
        """The message groups in the order of their arrival. No change during the iteration."""
        if not self._sorted:
            self._came = dict(sorted(self._came.items(), key=lambda one: one[1]))
            self._sorted = True
        return iter(self._came)

    def __len__(self) -> int:
        return len(self._came)


class ReadyGroups:
    """The ready message groups of each group in each topic."""

    def __init__(
        self,
        waiting: Table[MessageGroup, int],
        locks: Table[MessageGroup, tuple[int, int, int]],
        stopped: Table[MessageGroup, tuple[tuple[int, str], ...]],
        undo: Undo,
    ) -> None:
        self._waiting = waiting
        self._locks = locks
        self._stopped = stopped
        self._undo = undo
        self._orders: dict[tuple[int, int], Ordered[bytes]] = {}

    def _ready(self, key: MessageGroup) -> bool:
        return key in self._waiting and key not in self._locks and key not in self._stopped

    def load(self) -> None:
        """At start: the ready message groups, in the order of their names."""
        for key in filter(self._ready, self._waiting):
            self._order(key[:2]).load(key[2])

    def judge(self, key: MessageGroup) -> bool:
        """Adds a message group as the last ready one, or removes it, by the tables; returns whether it is ready."""
        ready, where = self._ready(key), key[:2]
        if ready or where in self._orders:
            self._order(where).set_ready(key[2], ready)
        return ready

    def _order(self, where: tuple[int, int]) -> Ordered[bytes]:
        """The order of a group in a topic. An empty one stays: an abort may add to it."""
        order = self._orders.get(where)
        if order is None:
            order = self._orders[where] = Ordered(self._undo)
        return order

    def of(self, where: GroupTopic) -> Iterator[bytes]:
        """The ready message groups, the longest ready first. No change during the iteration."""
        return iter(self._orders.get(where, ()))

    def forget(self, where: GroupTopic) -> None:
        """Drops the order of a group in a topic, which has no waiting messages."""
        order = self._orders.pop(where, None)
        if order is not None:
            self._undo.note(self._orders.__setitem__, where, order)

    def count(self, where: GroupTopic) -> int:
        """Number of ready message groups."""
        return len(self._orders.get(where, ()))


# ── Waiting and stopped message groups ───────────────────────────────────────────────────────────────────────────────


def count_waiting(state: AllTables, key: MessageGroup, count: int, *, tied: bool, stop: tuple[int, str] | None) -> None:
    """Counts a waiting entry of a message group that came (1) or went (-1).

    `tied`: to an owner's CheckPoint. `stop`: its (offset, reason) if it stops the message group.
    """
    if (left := _add(state.waiting, key, count)) < 0:
        broken("message_group_waiting_counted", group=key[0], topic=key[1], left=left)
    if tied:
        _add_tied(state, key, count)
    if stop is not None:
        _note_stop(state, key, stop, count)


def untie(state: AllTables, key: MessageGroup) -> None:
    """Counts a waiting entry that is no longer tied to an owner's CheckPoint."""
    _add_tied(state, key, -1)


def _add_tied(state: AllTables, key: MessageGroup, count: int) -> None:
    if (left := _add(state.tied, key, count)) < 0:
        broken("message_group_tied_counted", group=key[0], topic=key[1], left=left)


def _note_stop(state: AllTables, key: MessageGroup, stop: tuple[int, str], count: int) -> None:
    """Records stops: several messages may stop one message group, as members of one lease fail separately."""
    before = state.stopped.get(key, ())
    left = tuple(one for one in before if one[0] != stop[0])
    if count > 0:
        left = tuple(sorted((*left, stop)))
    elif left == before:
        broken("stop_was_noted", group=key[0], topic=key[1], offset=stop[0])
    if bool(left) != bool(before):
        _sort_stopped(state, key, bool(left))
    if left:
        state.stopped[key] = left
    else:
        state.stopped.pop(key)


def _add(table: Table[MessageGroup, int], key: MessageGroup, count: int) -> int:
    """Moves a count; removes the entry at zero. Returns the new count."""
    left = table.get(key, 0) + count
    if left:
        table[key] = left
    else:
        table.pop(key)
    return left


def forget_message_group(state: AllTables, key: MessageGroup) -> None:
    """Removes a message group of a deleted topic or group, none of whose messages is leased."""
    for table in (state.waiting, state.tied, state.stopped):
        if key in table:
            table.pop(key)


def forget_stopped(state: AllTables, where: GroupTopic) -> None:
    """Removes the sorted numbers of a group in a topic, by their spans: no role of their keys names them."""
    for span in state.stopped_spans.get(where, ()):
        state.stopped_numbers.pop((*where, span))


def _sort_stopped(state: AllTables, key: MessageGroup, stopped: bool) -> None:
    """Adds a message group that was stopped just now to the sorted ones, or removes one that is no longer stopped."""
    where, number = _sorted_as(state, key)
    table = state.stopped_numbers, state.stopped_spans, where, number, _bits(state, where)
    count = state.stopped_count.get(where, 0) + (1 if stopped else -1)
    if count < 0:
        broken("stopped_groups_counted", where=where, left=count)
    if stopped:
        sorted_numbers.add(*table)
    else:
        sorted_numbers.remove(*table)
    if count:
        state.stopped_count[where] = count
    else:
        state.stopped_count.pop(where)


def stopped_after(state: AllTables, where: GroupTopic, number: int, most: int) -> list[tuple[int, MessageGroup]]:
    """At most `most` stopped message groups of a group in a topic, each with its number, greater than `number`."""
    table = state.stopped_numbers, state.stopped_spans, where, number, _bits(state, where)
    return [(found, _named_by(state, where, found)) for found in sorted_numbers.after(*table, most)]


def load_stopped(state: AllTables) -> None:
    """At start: loads the sorted numbers from the table of stopped message groups."""
    found: dict[GroupTopic, list[int]] = {}
    for key in state.stopped:
        where, number = _sorted_as(state, key)
        found.setdefault(where, []).append(number)
    by_kind: dict[int, dict[GroupTopic, list[int]]] = {}
    for where, numbers in found.items():
        by_kind.setdefault(_bits(state, where), {})[where] = numbers
        state.stopped_count.load(where, len(numbers))
    for bits, alike in by_kind.items():
        sorted_numbers.load(state.stopped_numbers, state.stopped_spans, alike, bits)


def _sorted_as(state: AllTables, key: MessageGroup) -> tuple[GroupTopic, int]:
    """The group and topic under which a message group is counted, and its number there."""
    group_id, topic_id, message_group = key
    if parent := state.parent_of(topic_id):
        return (group_id, parent), topic_id
    return (group_id, topic_id), int.from_bytes(message_group)


def _named_by(state: AllTables, where: GroupTopic, number: int) -> MessageGroup:
    """The inverse of `_sorted_as`."""
    if _bits(state, where) == LITE_SPAN_BITS:
        return GroupId(where[0]), TopicId(number), state.hash_of_lite(number)
    return GroupId(where[0]), TopicId(where[1]), number.to_bytes(8)


def _bits(state: AllTables, where: GroupTopic) -> int:
    topic = state.topics.get(where[1])
    return LITE_SPAN_BITS if topic is not None and topic.type == "LITE" else HASH_SPAN_BITS
