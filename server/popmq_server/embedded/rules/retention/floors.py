"""How far all groups of a topic are: one walk over the groups in pieces, instead of one for each chunk.

    floors    T, Q → offset    every group of T is at this offset or past it
    climbs    T → Climb        a walk over the groups of T that has not ended
    laggards  T → G            the group that the last walk found before the chunk: the next one looks at it first
    lagging   T                topics with groups before the first offset of a queue (Topic.lagging)

A chunk that ends at or before the floors of its queues has been passed by every group. When the floors do not show it,
a walk looks for the first group that has not passed the chunk. If there is none, the least offset of each queue becomes
its floor. A group that moves back, or is new to the topic, lowers the floor and ends the walk (readers.pass_to).

Where retention drops messages that groups have not read, these groups have to be moved to the first offset that is
left. A drop moves some of them; a job moves the others in pieces, and a command that names a group moves that one first
(readers.group).

    drop: floor < first offset ──▶ some groups are moved ──▶ lagging ──▶ pieces of the job ──▶ floor ≥ first offset

All but `lagging` is in memory only: a restart begins without floors.
"""

from typing import NamedTuple

from popmq_server.embedded.rules.delivery import deadletter
from popmq_server.embedded.rules.retention import chunks
from popmq_server.embedded.rules.retention.chunks import Chunk
from popmq_server.embedded.rules.topics import readers, registry
from popmq_server.embedded.state import marks
from popmq_server.embedded.state.tx import Tx
from popmq_server.values.ids import GroupId, TopicId
from popmq_server.values.records import Topic

#: The cost of moving a group in a queue, in positions looked at: some 10 µs.
MOVE_COST = 40
#: Positions of groups that a piece looks at: some 4 ms.
POSITIONS_MAX = 8000


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


def passed(tx: Tx, topic: Topic, ends: dict[int, int], positions_max: int) -> tuple[bool | None, int]:
    """Whether every group has passed these offsets of queues, None = not known yet; and the positions looked at."""
    if reach(tx, topic, ends):
        return True, 0
    positions = topic.queues + 1
    found, looked_at = climb(tx, topic, ends, 1 + max(0, positions_max) // positions)
    if found and not reach(tx, topic, ends):
        found = None  # the walk began for other offsets: another one follows
    return found, looked_at * positions


def climb(tx: Tx, topic: Topic, ends: dict[int, int], groups_max: int) -> tuple[bool | None, int]:
    """Looks at `groups_max` groups more. Returns whether all groups have passed the offsets `ends` of queues, None =
    not known yet, and the number of groups looked at.

    Moves groups that are before the first offset of a queue to it; each move counts as much as MOVE_COST positions.
    """
    state, topic_id = tx.state, topic.topic_id
    if _lags(tx, topic_id, ends):
        return False, 1
    groups, begins = state.topic_groups.get(topic_id, ()), _begins(tx, topic)
    start, _, least = _continued(tx, topic, groups)
    lows, gone = list[int](least), dict[int, list[int]]()
    place, looks = start, 0
    while place < len(groups) and looks < groups_max:
        group_id, place, looks = groups[place], place + 1, looks + 1
        if group_id not in state.groups:
            continue
        for queue, begin in begins.items():
            offset = state.poff.get((group_id, topic_id, queue), 0)
            if offset < begin:
                if queue not in gone:
                    gone[queue] = list(marks.redriven(tx.kv, topic_id, queue, 0, begin))
                readers.pass_dropped(tx, (group_id, topic_id, queue), begin, gone[queue])
                looks, offset = looks + 1 + MOVE_COST // (topic.queues + 1), begin
            if offset < ends.get(queue, 0):
                readers.end_climb(tx, topic_id, group_id)
                return False, looks
            lows[queue] = min(lows[queue], offset)
    if place < len(groups):
        readers.pause_climb(tx, topic_id, Climb(place, groups[place - 1], tuple(lows)))
        return None, looks
    readers.raise_floors(tx, topic_id, lows)
    return True, looks


def _begins(tx: Tx, topic: Topic) -> dict[int, int]:
    """The first offset of each queue."""
    return {queue: tx.state.queue_min.get((topic.topic_id, queue), 0) for queue in range(topic.queues)}


def _lags(tx: Tx, topic_id: TopicId, ends: dict[int, int]) -> bool:
    """Whether the group that the last walk found has still not passed these offsets."""
    state, group_id = tx.state, tx.state.laggards.get(topic_id, GroupId(0))
    if group_id not in state.groups or (group_id, topic_id) not in state.stat:
        return False
    return any(
        max(state.poff.get((group_id, topic_id, queue), 0), state.queue_min.get((topic_id, queue), 0)) < end
        for queue, end in ends.items()
    )


def _continued(tx: Tx, topic: Topic, groups: tuple[int, ...]) -> Climb:
    """The walk of the last piece; a new one if groups before its place have left, or the number of queues differs."""
    found = tx.state.climbs.get(topic.topic_id)
    if found is not None:
        looked_at, last_id, least = found
        if len(least) == topic.queues and groups[looked_at - 1 : looked_at] == (last_id,):
            return Climb(*found)
    ends = (tx.state.queue_max.get((topic.topic_id, queue), 0) for queue in range(topic.queues))
    return Climb(0, 0, tuple(ends))


def drop(tx: Tx, topic: Topic, those: list[Chunk], positions_max: int) -> int:
    """Drops chunks, and moves groups as `catch_up` does; returns the positions looked at."""
    for chunk in those:
        chunks.drop(tx, topic, chunk)
    return catch_up(tx, topic, positions_max)


def catch_up(tx: Tx, topic: Topic, positions_max: int) -> int:
    """Moves groups that are before the first offset of a queue to it; returns the positions looked at.

    What it does not reach is left to `go_on`. The marks of dropped dead letters go when all groups are past them.
    """
    begins, left = _begins(tx, topic), positions_max
    while left > 0 and not reach(tx, topic, begins):
        _, looked_at = climb(tx, topic, begins, 1 + left // (topic.queues + 1))
        left -= looked_at * (topic.queues + 1)
    done = reach(tx, topic, begins)
    for queue, begin in begins.items() if done else ():
        deadletter.forget_gone(tx, topic.topic_id, queue, begin)
    registry.set_lagging(tx, topic.topic_id, not done)
    return positions_max - left


def go_on(tx: Tx, positions_max: int) -> None:
    """Moves groups of the lagging topics: one piece."""
    for topic_id in list(tx.state.lagging):
        if positions_max <= 0:
            break
        positions_max -= 1 + catch_up(tx, tx.state.topics[topic_id], positions_max)
