"""How far all groups of a topic are: one walk over the groups in pieces, instead of one for each chunk.

    floors    T, Q → offset    every group of T is at this offset or past it
    climbs    T → Climb        a walk over the groups of T that has not ended

A chunk that ends at or before the floors of its queues has been passed by every group. When the floors do not show it,
a walk looks for the first group that has not passed the chunk. If there is none, the least offset of each queue becomes
its floor. A group that moves back, or is new to the topic, lowers the floor and ends the walk (tx.pass_to).
Both tables are in memory only: a restart begins without floors.
"""

from typing import NamedTuple

from popmq_server.model.records import Topic
from popmq_server.retention.chunks import Chunk
from popmq_server.state.tx import Tx


class Climb(NamedTuple):
    """Groups that the walk has looked at, the last of them, and the least offset of each queue among them."""

    looked_at: int
    last_id: int
    least: tuple[int, ...]


def cover(tx: Tx, topic: Topic, chunk: Chunk) -> bool:
    """Whether the floors show that every group has passed a chunk."""
    floors, topic_id = tx.state.floors, topic.topic_id
    return all(floors.get((topic_id, queue), 0) >= first + count for queue, first, count in chunk.ranges)


def climb(tx: Tx, topic: Topic, chunk: Chunk, groups_max: int) -> tuple[bool | None, int]:
    """Looks at `groups_max` groups more. Returns whether all groups have passed the chunk, None = not known yet, and
    the number of groups looked at.
    """
    state, topic_id = tx.state, topic.topic_id
    groups = state.topic_groups.get(topic_id, ())
    start, _, least = _continued(tx, topic, groups)
    lows: list[int] = list(least)
    ends = {queue: first + count for queue, first, count in chunk.ranges}
    stop = min(len(groups), start + groups_max)
    for place in range(start, stop):
        group_id = groups[place]
        if group_id not in state.groups:
            continue
        for queue in range(topic.queues):
            offset = state.poff.get((group_id, topic_id, queue), 0)
            if offset < ends.get(queue, 0):
                state.climbs.pop(topic_id)
                return False, place + 1 - start
            lows[queue] = min(lows[queue], offset)
    if stop < len(groups):
        state.climbs[topic_id] = Climb(stop, groups[stop - 1], tuple(lows))
        return None, stop - start
    _raise(tx, topic, lows)
    return True, stop - start


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
