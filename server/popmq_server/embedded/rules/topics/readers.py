"""Readers: the groups that read a topic, with their positions, counters, filter and mode.

    topic_groups, stat, subscriptions   who reads T, and the counters, filter and mode of each
    poff, passed, unread                G T Q → the next offset to pop; sums over the queues, and over lite topics
    taken                               G T Q → what was passed beyond poff, by turns of fair keys; see `pass_over`
    fair_indexes                        G T → the messages that wait by fair key: delivery/fair/index.py
    floors, climbs, laggards            how far all groups of T are, and the walks that find it: retention/floors.py

A group without fair keys passes the messages of a queue in their order: `poff` says all. With fair keys it passes them
in any order: `poff` is then the first offset that is not passed, and `taken` has a bit for each later one that is.

    offsets   0 1 2 3 4 5 6 7 8          passed: 0, 1, 2, 5, 7
              ■ ■ ■ · · ■ · ■ ·          poff 3, taken {block 0: bits 5 and 7}; `passed` counts 3 + 2

This is the one module that writes these tables. What removes a topic or a group names their entries by role
(State.forget_subscription).
"""

import bisect
from collections.abc import Collection, Iterable, Sequence

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.state import events, marks, owners
from popmq_server.embedded.state.all_tables import KeyIndex
from popmq_server.embedded.state.state import State
from popmq_server.embedded.state.tx import Tx, added
from popmq_server.embedded.store.keys import TAKEN_BLOCK
from popmq_server.values.ids import GroupId, GroupQueue, GroupTopic, Taken, TopicId
from popmq_server.values.records import Group, Stat, Subscription, Topic

_PLAIN = Subscription()
_NOTHING: Taken = {}


def group(tx: Tx, name: str) -> Group | None:
    """A group by name. First moves it from purged topics (purge.py) and past dropped chunks (floors.py)."""
    state = tx.state
    group_id = state.ids.get(("g", name))
    if group_id is None:
        return None
    if state.moving or state.lagging:
        _follow(tx, GroupId(group_id))
    found = state.groups.get(group_id)
    if found is None or found.name != name:
        broken("group_has_its_name", ("name", b"g" + name.encode()), name=name, group=group_id)
    return found


def _follow(tx: Tx, group_id: GroupId) -> None:
    """Moves a group from each purged topic that it has not been moved from yet, and past dropped chunks."""
    state = tx.state
    for topic_id, old_id in list(state.moving.items()):
        if (group_id, old_id) in state.stat and (group_id, topic_id) not in state.stat:
            rebind(tx, state.topics[topic_id], [group_id])
    for topic_id in list(state.lagging):
        for queue in range(state.topics[topic_id].queues if (group_id, topic_id) in state.stat else 0):
            where, least = (group_id, topic_id, queue), state.queue_min.get((topic_id, queue), 0)
            if state.poff.get(where, 0) < least:
                pass_dropped(tx, where, least, list(marks.redriven(tx.kv, topic_id, queue, 0, least)))


# ── Entering and leaving ─────────────────────────────────────────────────────────────────────────────────────────────


def enter(tx: Tx, where: GroupTopic, begins: dict[int, int]) -> None:
    """A group begins to read a topic, at an offset of each queue."""
    state, (group_id, topic_id) = tx.state, where
    known = state.topic_groups.get(topic_id, ())
    if group_id in known:
        broken("reader_enters_once", where=where)
    state.topic_groups[topic_id] = (*known, group_id)
    count_unread(tx, where, state.total.get(topic_id, 0))
    for queue, offset in begins.items():
        pass_to(tx, (*where, queue), offset)
    state.stat[where] = Stat(start=sum(begins.values()))


def rebind(tx: Tx, new: Topic, group_ids: Iterable[GroupId]) -> None:
    """Moves groups from a purged topic to where the topic began again, with their counters, filters and tokens.

    The counters stay; their start moves past unfinished messages.
    """
    state, old_id, moved = tx.state, new.moving_from, list(group_ids)
    ends = [state.queue_min.get((new.topic_id, queue), 0) for queue in range(new.queues)]
    for group_id in moved:
        old, where = (group_id, old_id), (group_id, new.topic_id)
        for queue, end in enumerate(ends):
            pass_to(tx, (*where, queue), end)
        stat = state.stat[old]
        done = stat.acked + stat.dead + stat.dropped + stat.quarantined + stat.filtered + stat.expired
        state.stat[where] = stat._replace(retry=0, waiting=0, start=sum(ends) - done)
        if (subscription := state.subscriptions.get(old)) is not None:
            state.subscriptions[where] = subscription
        owners.move_tokens(tx, old, where)
    if moved:
        state.topic_groups[new.topic_id] = (*state.topic_groups.get(new.topic_id, ()), *moved)


def leave(tx: Tx, where: GroupTopic) -> int:
    """A group reads a topic no longer; returns how many groups the topic had."""
    group_id, topic_id = where
    groups = tx.state.topic_groups.get(topic_id, ())
    if group_id not in groups:
        return 0
    index = groups.index(group_id)
    tx.state.topic_groups[topic_id] = groups[:index] + groups[index + 1 :]
    return len(groups)


def leave_together(tx: Tx, topic_id: TopicId, gone: Collection[GroupId]) -> None:
    """Several groups read a topic no longer: their tuple is copied once."""
    left = tuple(group_id for group_id in tx.state.topic_groups.get(topic_id, ()) if group_id not in gone)
    tx.state.topic_groups[topic_id] = left


def forget_unread(tx: Tx, where: GroupTopic) -> None:
    """Removes a group's unread messages in the parent of a lite topic, which a restart or a Send counted again."""
    if (above := (where[0], tx.state.parent_of(where[1]))) in tx.state.unread:
        tx.state.unread.pop(above)


# ── Filter, mode, idleness ───────────────────────────────────────────────────────────────────────────────────────────


def fix_filter(tx: Tx, where: GroupTopic, kind: str, text: str) -> Subscription:
    """Fixes the filter of a group in a topic."""
    fixed = tx.state.subscriptions.get(where, _PLAIN)._replace(filter_kind=kind, filter_text=text)
    tx.state.subscriptions[where] = fixed
    return fixed


def switch(tx: Tx, where: GroupTopic, mode: str, share_number: bool | int) -> tuple[Subscription, Subscription]:
    """Sets how a group reads a topic; returns its subscription before and after."""
    before = tx.state.subscriptions.get(where, _PLAIN)
    after = before._replace(mode=mode, share_number=share_number, pulled=before.pulled or mode == "PULL")
    if after != before:
        tx.state.subscriptions[where] = after
    return before, after


def note_idle(tx: Tx, where: GroupTopic, idle_ms: int, warned_ms: int) -> None:
    """Notes since when nobody reads a subscription (0: it is in use) and when its end was announced (0: it was not)."""
    before = tx.state.subscriptions.get(where, _PLAIN)
    tx.state.subscriptions[where] = before._replace(idle_ms=idle_ms, warned_ms=warned_ms)


# ── Counters and positions ───────────────────────────────────────────────────────────────────────────────────────────


def count(tx: Tx, where: GroupTopic, **changes: int) -> None:
    """Adds to counters of one group in one topic; for a lite topic also to those of its parent, except `start`."""
    stat = tx.state.stat
    if (before := stat.get(where)) is None:
        broken("reader_has_counters", where=where)
    now = stat[where] = added(before, changes)
    if now.retry < 0:
        broken("retry_counted", where=where, left=now.retry)
    if now.waiting < 0:
        broken("waiting_counted", where=where, left=now.waiting)
    parent = tx.state.parent_of(where[1])
    if parent and (above := (where[0], parent)) in stat:
        changes.pop("start", None)
        now = stat[above] = added(stat[above], changes)
        if now.retry < 0 or now.waiting < 0:
            broken("lite_returns_counted", where=above, retry=now.retry, waiting=now.waiting)


def count_unread(tx: Tx, where: GroupTopic, messages: int) -> None:
    """Adds to a group's unread messages in the parent of a lite topic; does nothing for other topics."""
    if parent := tx.state.parent_of(where[1]):
        above = (where[0], parent)
        unread = tx.state.unread.get(above, 0) + messages
        if unread < 0:
            broken("lite_unread_counted", where=above, left=unread)
        tx.state.unread[above] = unread


def pass_to(tx: Tx, where: GroupQueue, offset: int) -> None:
    """Sets the offset of a group in a queue. If the group moves back, or is new, takes back marks beyond it, and
    lowers the floor of the queue.
    """
    state = tx.state
    known, before = where in state.poff, state.poff.get(where, 0)
    if offset == before and known:
        return
    if not 0 <= offset <= state.queue_max.get(where[1:], 0):
        broken("position_in_queue", where=where, offset=offset, before=before)
    state.poff[where] = offset
    passed = state.passed.get(where[:2], 0) + offset - before
    if passed < offset:
        broken("passed_is_a_sum", where=where, offset=offset, passed=passed)
    state.passed[where[:2]] = passed
    count_unread(tx, where[:2], before - offset)
    if offset < before or not known:
        marks.take_back(tx.kv, where[1], where[2], offset)
        state.climbs.pop(where[1])
        if offset < state.floors.get(where[1:], 0):
            state.floors[where[1:]] = offset


def pass_dropped(tx: Tx, where: GroupQueue, least: int, gone: Sequence[int]) -> None:
    """Moves a group to an offset if it is before it, and counts what it loses; `gone`: redriven dead letters."""
    state, offset = tx.state, tx.state.poff.get(where, 0)
    if offset >= least or where[:2] not in state.stat:
        return
    if where in state.taken:
        passed = pass_over(tx, where, ((offset, least - offset),))
    else:
        pass_to(tx, where, least)
        passed = least - offset
    skipped = bisect.bisect_left(gone, least) - bisect.bisect_left(gone, offset)
    lost = passed - skipped
    count(tx, where[:2], dropped=lost, start=skipped)
    reader, topic = state.groups.get(where[0]), state.topics.get(where[1])
    if reader is not None and topic is not None and lost:
        tx.tell(events.dropped(reader.name, topic.name, where[2], offset, least, lost))


# ── Passing messages out of order ────────────────────────────────────────────────────────────────────────────────────


def has_passed(state: State, where: GroupQueue, offset: int) -> bool:
    """Whether a group has passed an offset of a queue, in order or by turns of fair keys."""
    if offset < state.poff.get(where, 0):
        return True
    return bool(state.taken.get(where, _NOTHING).get(offset // TAKEN_BLOCK, 0) >> offset % TAKEN_BLOCK & 1)


def passed_of(state: State, where: GroupQueue, first: int, bits: int) -> int:
    """Those bits that `has_passed` says yes of: bit n is the offset `first` + n of a queue."""
    found = bits & (1 << max(0, state.poff.get(where, 0) - first)) - 1
    if blocks := state.taken.get(where):
        for block in range(first // TAKEN_BLOCK, (first + bits.bit_length()) // TAKEN_BLOCK + 1):
            if taken := blocks.get(block):
                begin = block * TAKEN_BLOCK - first
                found |= bits & (taken << begin if begin > 0 else taken >> -begin)
    return found


def not_passed(state: State, where: GroupQueue, offsets: Sequence[int]) -> list[int]:
    """The indexes of the offsets of a queue that `has_passed` says no of."""
    position, blocks = state.poff.get(where, 0), state.taken.get(where, _NOTHING)
    return [
        index
        for index, offset in enumerate(offsets)
        if offset >= position and not blocks.get(offset // TAKEN_BLOCK, 0) >> offset % TAKEN_BLOCK & 1
    ]


def taken_ahead(state: State, where: GroupQueue) -> int:
    """How many messages of a queue a group has passed beyond its position."""
    return sum(bits.bit_count() for bits in state.taken.get(where, _NOTHING).values())


def ahead_in(state: State, where: GroupTopic, topic: Topic) -> bool:
    """Whether a group has passed any message of a topic beyond its position."""
    return any((*where, queue) in state.taken for queue in range(topic.queues))


def pass_over(
    tx: Tx, where: GroupQueue, stretches: Iterable[tuple[int, int]], sparse: Iterable[tuple[int, int]] = ()
) -> int:
    """Passes offsets of a queue, in any order; returns how many of these were not passed yet.

    `stretches`: (first offset, number); `sparse`: (first offset, a bit for each one from it on). The cost is one row
    for each touched block of TAKEN_BLOCK offsets; none where the offsets follow the position.
    """
    state = tx.state
    known = state.poff.get(where)
    at = state.queue_min.get(where[1:], 0) if known is None else known
    if known is None:
        pass_to(tx, where, at)
    before = state.taken.get(where, _NOTHING)
    blocks, new = dict(before), 0
    end = state.queue_max.get(where[1:], 0)
    for first, count in stretches:
        if first + count > end:
            broken("passed_over_in_queue", where=where, first=first, count=count, end=end)
        new += _mark(blocks, max(first, at), first + count)
    for first, bits in sparse:
        if first + bits.bit_length() > end:
            broken("passed_over_in_queue", where=where, first=first, count=bits.bit_length(), end=end)
        below = max(0, at - first)
        new += _mark_bits(blocks, first + below, bits >> below)
    if not new:
        return 0
    _put_taken(tx, where, at, blocks)
    state.passed[where[:2]] = state.passed.get(where[:2], 0) + new
    return new


def _put_taken(tx: Tx, where: GroupQueue, at: int, blocks: Taken) -> None:
    """Stores blocks of a group at position `at`, which moves past those of their bits that follow it."""
    end = _first_not_passed(blocks, at)
    _drop_below(blocks, end)
    if end > at:
        tx.state.poff[where] = end
    if blocks:
        tx.state.taken[where] = blocks
    elif where in tx.state.taken:
        tx.state.taken.pop(where)


def _mark(blocks: Taken, first: int, stop: int) -> int:
    """Sets the bits of the offsets from `first` to `stop`; returns how many were not set."""
    new = 0
    while first < stop:
        block, low = divmod(first, TAKEN_BLOCK)
        high = min(stop - block * TAKEN_BLOCK, TAKEN_BLOCK)
        mask, bits = (1 << high) - (1 << low), blocks.get(block, 0)
        new += (mask & ~bits).bit_count()
        blocks[block] = bits | mask
        first = block * TAKEN_BLOCK + high
    return new


def _mark_bits(blocks: Taken, first: int, bits: int) -> int:
    """Sets the bits of the offsets `first` + n for each bit n; returns how many were not set."""
    new = 0
    while bits:
        block, low = divmod(first, TAKEN_BLOCK)
        room = TAKEN_BLOCK - low
        mask, before = (bits & (1 << room) - 1) << low, blocks.get(block, 0)
        new += (mask & ~before).bit_count()
        blocks[block] = before | mask
        bits >>= room
        first += room
    return new


def _first_not_passed(blocks: Taken, at: int) -> int:
    """The first offset from `at` on whose bit is not set."""
    while bits := blocks.get(at // TAKEN_BLOCK, 0) >> at % TAKEN_BLOCK:
        ones = (~bits & (bits + 1)).bit_length() - 1
        at += ones
        if at % TAKEN_BLOCK or not ones:
            break
    return at


def _drop_below(blocks: Taken, end: int) -> None:
    """Removes the bits below an offset, which the position stands for."""
    last, low = divmod(end, TAKEN_BLOCK)
    for block in [block for block in blocks if block < last]:
        del blocks[block]
    if last in blocks and not (left := blocks[last] >> low << low):
        del blocks[last]
    elif last in blocks:
        blocks[last] = left


def forget_taken(tx: Tx, where: GroupQueue) -> int:
    """Takes back what a group passed beyond its position in a queue, which is about to move; returns how much."""
    count = taken_ahead(tx.state, where)
    if count:
        tx.state.taken.pop(where)
        left = tx.state.passed.get(where[:2], 0) - count
        if left < 0:
            broken("passed_is_a_sum", where=where, passed=left, ahead=count)
        tx.state.passed[where[:2]] = left
    drop_index(tx, where[:2])
    return count


def copy_taken(tx: Tx, source: GroupQueue, where: GroupQueue) -> int:
    """Lets a group that was put at the position of another pass the same messages beyond it; returns how many."""
    blocks, at = dict(tx.state.taken.get(source, _NOTHING)), tx.state.poff.get(where, 0)
    if not blocks:
        return 0
    _put_taken(tx, where, at, blocks)
    count = tx.state.poff.get(where, 0) - at + taken_ahead(tx.state, where)
    tx.state.passed[where[:2]] = tx.state.passed.get(where[:2], 0) + count
    return count


def keep_index(tx: Tx, where: GroupTopic, index: KeyIndex) -> None:
    """Keeps the messages that wait by fair key. If this transaction is aborted they are read again."""
    tx.state.fair_indexes[where] = index
    forget_if_aborted(tx, where)


def forget_if_aborted(tx: Tx, where: GroupTopic) -> None:
    """Notes that the transaction changes what waits by fair key."""
    tx.state.undo.note(tx.state.fair_indexes.pop, where, None)


def drop_index(tx: Tx, where: GroupTopic) -> None:
    """Forgets the messages that wait by fair key: the next Pop reads them again."""
    tx.state.fair_indexes.pop(where, None)


# ── Floors: walks over the groups of a topic (retention/floors.py) ───────────────────────────────────────────────────


def pause_climb(tx: Tx, topic_id: TopicId, climb: tuple[int, int, tuple[int, ...]]) -> None:
    """Notes how far a walk over the groups has come."""
    tx.state.climbs[topic_id] = climb


def end_climb(tx: Tx, topic_id: TopicId, laggard: GroupId) -> None:
    """Ends a walk at a group that has not passed the chunk: the next walk looks at this group first."""
    tx.state.climbs.pop(topic_id)
    tx.state.laggards[topic_id] = laggard


def raise_floors(tx: Tx, topic_id: TopicId, lows: Iterable[int]) -> None:
    """Ends a walk over all groups: the least offset of each queue becomes its floor."""
    state: State = tx.state
    state.climbs.pop(topic_id)
    for queue, offset in enumerate(lows):
        if offset > state.queue_max.get((topic_id, queue), 0):
            broken("floor_in_queue", topic=topic_id, queue=queue, offset=offset)
        if state.floors.get((topic_id, queue), 0) != offset:
            state.floors[(topic_id, queue)] = offset
