"""Retention by size: a topic with `bytes_max` drops old messages before it stores new ones, or refuses the Send.

    Send ──▶ it fits (topics/topic.py:demand) ──────────────────────▶ stored       without this module
         ──▶ droppable chunks are enough ──▶ they are dropped ──────▶ stored      the same transaction
         ──▶ they are not ──▶ STORAGE_FULL, naming the group that holds the most

    droppable      chunks that every group has passed; by_age the oldest, whose unread messages are counted as `dropped`
    not droppable  a chunk that a lease or an entry of a retry topic points into: the search skips it and goes on

A Send never exceeds the limit. Messages that the broker itself appends (dead letters, delayed messages) are stored in
any case, and the next transaction trims the topic; a topic whose limit was lowered is trimmed too. Sizes are those of
the chunks (records.TopicStat), without keys and indexes.

Each piece looks at CHUNKS_MAX chunks, and at floors.POSITIONS_MAX positions of groups. A Send whose search ends there
is refused, and a job continues the search at once. To make that rare, once a minute a job compares the groups of a
nearly full topic with its oldest messages, ahead of the Sends.
"""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from popmq_server.embedded.rules.retention import chunks, floors
from popmq_server.embedded.rules.retention.chunks import Chunk
from popmq_server.embedded.rules.topics import backlog
from popmq_server.embedded.rules.topics.topic import NeedsRoom, flush, mark_full, over, unmark_full
from popmq_server.embedded.rules.topics.walks import TopicRound
from popmq_server.embedded.state.tx import Tx
from popmq_server.errors import NoRoom, Refused
from popmq_server.values.records import Topic, TopicStat

P = ParamSpec("P")
A = TypeVar("A")

#: Chunks that one piece examines.
CHUNKS_MAX = 200
#: Minimum time between two searches, beyond one piece, of a topic without droppable chunks.
TRIM_AGAIN_MS = 1000
#: A topic is nearly full when less than 1 / NEARLY of its limit is left. A job then compares the
#: groups with the oldest 1 / NEARLY of its messages, which the next Sends may drop.
NEARLY = 8


def with_room(rule: Callable[Concatenate[Tx, P], A]) -> Callable[Concatenate[Tx, P], A]:
    """Decorates a rule that stores messages: where it raises NeedsRoom, room is made and it runs again."""

    @wraps(rule)
    def run(tx: Tx, /, *args: P.args, **kwargs: P.kwargs) -> A:
        try:
            return rule(tx, *args, **kwargs)
        except NeedsRoom as needs:
            _make_room(tx, needs.topic, needs.size)
        return rule(tx, *args, **kwargs)

    return run


def _make_room(tx: Tx, topic: Topic, size: int) -> None:
    """Drops chunks until a request of `size` bytes fits, before any of it is stored. Refused if it cannot; nothing has
    changed then.

    Flushes this commit's staged messages first if they may be dropped too: a burst into such a topic is not refused.
    """
    missing = over(tx, topic, size)
    if missing <= 0:
        return
    if topic.topic_id in tx.state.trims and topic.topic_id in tx.state.climbs and not topic.by_age:
        raise _full(tx, topic, size)  # a job is looking; what this search found out would be undone
    found = spare(tx, topic, missing)
    if _sum(found) < missing and tx.state.staged.get(topic.topic_id) and _forgets(tx, topic):
        flush(tx)
        missing = over(tx, topic, size)
        found = spare(tx, topic, missing)
    if _sum(found) < missing:
        raise _full(tx, topic, size)
    _drop(tx, found)


def _forgets(tx: Tx, topic: Topic) -> bool:
    """Whether retention may drop messages that no group has read."""
    return topic.by_age or not tx.state.topic_groups.get(topic.topic_id)


def _sum(found: list[tuple[Topic, Chunk]]) -> int:
    return sum(chunk.bytes for _, chunk in found)


def spare(tx: Tx, topic: Topic, wanted: int) -> list[tuple[Topic, Chunk]]:
    """Droppable chunks, oldest first, until they have `wanted` bytes; fewer if there are no more.

    Looks at CHUNKS_MAX chunks; the next search continues where this one stopped, remembered in memory. In a LITE topic
    an undroppable chunk does not end the search, since each lite topic has its own positions. A topic to which groups
    have to be moved has none: those groups have read nothing of it.
    """
    if topic.moving_from:
        return []
    state, topic_id, left = tx.state, topic.topic_id, floors.POSITIONS_MAX
    found = list[tuple[Topic, Chunk]]()
    for looked, (owner, chunk) in enumerate(chunks.chunks_of(tx, topic, state.looked.pop(topic_id, 0))):
        if wanted <= 0:
            return found
        if looked == CHUNKS_MAX:
            state.looked[topic_id] = chunk.position
            return found
        may_go, positions = (True, 0) if topic.by_age else floors.passed(tx, owner, floors.ends_of(chunk), left)
        left -= positions
        if may_go is None:
            state.looked[topic_id] = found[0][1].position if found else chunk.position
            return found
        if not (may_go or topic.type == "LITE"):
            return found
        if may_go and not chunks.pinned(tx, chunk):
            found.append((owner, chunk))
            wanted -= chunk.bytes
    return found


def _drop(tx: Tx, found: list[tuple[Topic, Chunk]]) -> None:
    """Drops chunks. By age it moves some of the groups that have not passed them; a job moves the others."""
    by_owner: dict[int, tuple[Topic, list[Chunk]]] = {}
    for owner, chunk in found:
        by_owner.setdefault(owner.topic_id, (owner, []))[1].append(chunk)
    left = floors.POSITIONS_MAX
    for owner, those in by_owner.values():
        left -= floors.drop(tx, owner, those, left)


def _full(tx: Tx, topic: Topic, size: int) -> Refused:
    """The refusal, with the group that could make room. After an incomplete search, housekeeping trims at once."""
    state, topic_id = tx.state, topic.topic_id
    is_early = tx.now_ms - state.trimmed.get(topic_id, 0) < TRIM_AGAIN_MS
    if topic_id in state.looked and (topic_id in state.climbs or not is_early):
        state.looked.pop(topic_id)
        mark_full(tx, topic_id, size)
    stored = state.topic_stat.get(topic_id, TopicStat()).bytes
    where = f"topic {topic.name!r} has {stored} bytes, its retention.max_bytes is {topic.bytes_max}"
    action = "let the group catch up, purge unneeded messages, or raise the topic's retention.max_bytes"
    if topic_id in state.trims and topic_id in state.climbs and not topic.by_age:
        why, action = "the broker is searching it for messages that all groups have passed", "send again later"
    else:
        why = backlog.greatest_backlog(state, topic_id)
    refused = NoRoom(f"{where}; {why}" if why else where)
    refused.field, refused.action = "topic", action
    return refused


def trim(tx: Tx) -> bool:
    """Trims each marked topic by one piece; returns whether there is more to do now."""
    state = tx.state
    for topic_id, size in list(state.trims.items()):
        topic = state.topics.get(topic_id)
        missing = over(tx, topic, size) if topic is not None and topic.bytes_max else 0
        if topic is not None and missing > 0:
            found = spare(tx, topic, missing)
            _drop(tx, found)
            missing -= _sum(found)
        if missing <= 0 or topic_id not in state.looked:
            unmark_full(tx, topic_id)
            state.trimmed[topic_id] = tx.now_ms
    return bool(state.trims)


class Watching:
    """Marks topics that are over their limit for trimming, and compares the groups of nearly full ones with the oldest
    messages; once a minute, even without Sends.
    """

    def __init__(self) -> None:
        self._round = TopicRound()

    def run(self, tx: Tx) -> bool:
        """Looks at one piece of the topics; returns whether there are more."""
        left = floors.POSITIONS_MAX
        for topic in self._round.piece(tx):
            if not topic.bytes_max:
                continue
            if over(tx, topic, 0) > 0:
                mark_full(tx, topic.topic_id)
            elif not topic.by_age and over(tx, topic, topic.bytes_max // NEARLY) > 0:
                is_known, positions = floors.passed(tx, topic, _ends_ahead(tx, topic), left)
                left -= positions
                if is_known is None:
                    self._round.back_to(topic)
                    break
        return self._round.more


def _ends_ahead(tx: Tx, topic: Topic) -> dict[int, int]:
    """The end of the oldest messages in each queue."""
    ends = dict[int, int]()
    for queue in range(topic.queues):
        least = tx.state.queue_min.get((topic.topic_id, queue), 0)
        ends[queue] = least - (least - tx.state.queue_max.get((topic.topic_id, queue), 0)) // NEARLY
    return ends
