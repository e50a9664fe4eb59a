"""How far all groups of a topic are: one walk over the groups in pieces, instead of one for each chunk.

    floors    T, Q → offset    every group of T is at this offset or past it
    climbs    T → Climb        a walk over the groups of T that has not ended
    laggards  T → G            the group that the last walk found before the chunk: the next one looks at it first

A chunk that ends at or before the floors of its queues has been passed by every group. When the floors do not show it,
a walk looks for the first group that has not passed the chunk. If there is none, the least offset of each queue becomes
its floor. A group that moves back, or is new to the topic, lowers the floor and ends the walk (tx.pass_to).

Where retention drops messages that groups have not read, the walk moves these groups past the chunks that will be
dropped (`move`): then no drop has to look at the groups.
The tables are in memory only: a restart begins without floors.
"""

from typing import NamedTuple

from popmq_server.delivery import deadletter
from popmq_server.model.ids import GroupId, TopicId
from popmq_server.model.records import Topic
from popmq_server.retention import chunks
from popmq_server.retention.chunks import Chunk
from popmq_server.state.tx import Tx

#: What it costs to move a group, in groups looked at: some 50 µs.
MOVE_COST = 20


class Climb(NamedTuple):
    """Groups that the walk has looked at, the last of them, and the least offset of each queue among them."""

    looked_at: int
    last_id: int
    least: tuple[int, ...]


def ends_of(chunk: Chunk) -> dict[int, int]:
    """The offset after the last message of a chunk in each of its queues."""
    return {queue: first + count for queue, first, count in chunk.ranges}


def reach(tx: Tx, topic: Topic, ends: dict[int, int]) -> bool:
    """Whether the floors show that every group has passed these offsets of queues."""
    return all(tx.state.floors.get((topic.topic_id, queue), 0) >= end for queue, end in ends.items())


def cover(tx: Tx, topic: Topic, chunk: Chunk) -> bool:
    """Whether the floors show that every group has passed a chunk."""
    return reach(tx, topic, ends_of(chunk))


def climb(
    tx: Tx, topic: Topic, ends: dict[int, int], groups_max: int, *, move: bool = False
) -> tuple[bool | None, int]:
    """Looks at `groups_max` groups more. Returns whether all groups have passed the offsets `ends` of queues, None =
    not known yet, and the number of groups looked at.

    `move`: moves the groups that have not; each move counts MOVE_COST groups.
    """
    state, topic_id = tx.state, topic.topic_id
    if not move and _lags(tx, topic_id, ends):
        return False, 1
    groups = state.topic_groups.get(topic_id, ())
    start, _, least = _continued(tx, topic, groups)
    lows: list[int] = list(least)
    gone = _gone(tx, topic, ends) if move else {}
    place, looks = start, 0
    while place < len(groups) and looks < groups_max:
        group_id, place, looks = groups[place], place + 1, looks + 1
        if group_id not in state.groups:
            continue
        for queue in range(topic.queues):
            offset, end = state.poff.get((group_id, topic_id, queue), 0), ends.get(queue, 0)
            if offset < end and not move:
                state.climbs.pop(topic_id)
                state.laggards[topic_id] = group_id
                return False, looks
            if offset < end:
                chunks.skip(tx, topic, (group_id, topic_id, queue), end, gone.get(queue, ()))
                looks, offset = looks + MOVE_COST, end
            lows[queue] = min(lows[queue], offset)
    if place < len(groups):
        state.climbs[topic_id] = Climb(place, groups[place - 1], tuple(lows))
        return None, looks
    _raise(tx, topic, lows)
    return True, looks


def _lags(tx: Tx, topic_id: TopicId, ends: dict[int, int]) -> bool:
    """Whether the group that the last walk found has still not passed these offsets."""
    state, group_id = tx.state, tx.state.laggards.get(topic_id, GroupId(0))
    if group_id not in state.groups or (group_id, topic_id) not in state.stat:
        return False
    return any(state.poff.get((group_id, topic_id, queue), 0) < end for queue, end in ends.items())


def _gone(tx: Tx, topic: Topic, ends: dict[int, int]) -> dict[int, list[int]]:
    """The offsets of redriven dead letters before these ends, by queue: groups do not lose them."""
    if not deadletter.has_gone(tx, topic.topic_id):
        return {}
    return {queue: list(deadletter.gone(tx.kv, topic.topic_id, queue, 0, end)) for queue, end in ends.items()}


def _continued(tx: Tx, topic: Topic, groups: tuple[int, ...]) -> Climb:
    """The walk of the last piece; a new one if groups before its place have left, or the number of queues differs."""
    found = tx.state.climbs.get(topic.topic_id)
    if found is not None:
        looked_at, last_id, least = found
        if len(least) == topic.queues and groups[looked_at - 1 : looked_at] == (last_id,):
            return Climb(*found)
    ends = (tx.state.queue_max.get((topic.topic_id, queue), 0) for queue in range(topic.queues))
    return Climb(0, 0, tuple(ends))


def _raise(tx: Tx, topic: Topic, lows: list[int]) -> None:
    """Sets the floors at the end of a walk."""
    tx.state.climbs.pop(topic.topic_id)
    for queue, offset in enumerate(lows):
        if tx.state.floors.get((topic.topic_id, queue), 0) != offset:
            tx.state.floors[(topic.topic_id, queue)] = offset
