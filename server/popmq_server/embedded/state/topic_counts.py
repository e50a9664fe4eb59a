"""Counters of topics: the one module that writes them, and their sums.

topic_stat   T → bytes, delayed, half …            those of a lite topic count for its parent too
unseen       "delayed", "half" → the sum of this counter over all topics; no entry for 0: a list adds up no topics
lites        T → its lite topics and their messages
"""

from collections.abc import Mapping

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.state.state import State
from popmq_server.embedded.state.tx import Tx, added
from popmq_server.values.ids import TopicId
from popmq_server.values.records import Lites, Topic, TopicStat

_NAMES = ("delayed", "half")
_NONE = TopicStat()


def add(tx: Tx, topic_id: int, **changes: int) -> TopicId:
    """Adds to counters of a topic; for a lite topic also to those of its parent. Returns that one's id, or 0."""
    state = tx.state
    now = state.topic_stat[topic_id] = added(state.topic_stat.get(topic_id, TopicStat()), changes)
    if now.bytes < 0:
        broken("topic_bytes_counted", topic=topic_id, left=now.bytes)
    if now.delayed < 0:
        broken("delayed_counted", topic=topic_id, left=now.delayed)
    if now.half < 0:
        broken("half_counted", topic=topic_id, left=now.half)
    if now.redriven < 0:
        broken("redriven_counted", topic=topic_id, left=now.redriven)
    if now.abandoned < 0:
        broken("abandoned_counted", topic=topic_id, left=now.abandoned)
    if parent := state.parent_of(topic_id):
        add(tx, parent, **changes)
    elif ("delayed" in changes or "half" in changes) and topic_id in state.topics:
        _add_unseen(state, changes)
    return parent


def add_bytes(tx: Tx, topic_id: int, size: int) -> TopicId:
    """Adds stored bytes: `add`, for each commit that stores messages."""
    state = tx.state
    stat = state.topic_stat.get(topic_id, _NONE)
    state.topic_stat[topic_id] = TopicStat(stat.bytes + size, *stat[1:])
    topic = state.topics.get(topic_id)
    if topic is None or not topic.parent_id:
        return TopicId(0)
    add(tx, topic.parent_id, bytes=size)
    return topic.parent_id


def add_lites(tx: Tx, parent_id: int, topics: int, messages: int) -> None:
    """Adds to the sums of a topic over its lite topics; does nothing for parent 0."""
    if parent_id:
        sums = tx.state.lites.get(parent_id, Lites())
        now = tx.state.lites[parent_id] = Lites(sums.topics + topics, sums.messages + messages)
        if now.topics < 0:
            broken("lite_topics_counted", parent=parent_id, left=now.topics)
        if now.messages < 0:
            broken("lite_messages_counted", parent=parent_id, left=now.messages)


def leave_out(tx: Tx, topic: Topic) -> None:
    """Takes a topic that is deleted out of the sums over all topics; its own counters go with its rows."""
    _add_unseen(tx.state, _unseen(tx.state, topic), -1)


def load(state: State) -> None:
    """The scan at start. The numbers of a LITE topic include those of its lite topics, which are left out."""
    for topic in state.topics.values():
        if not topic.parent_id:
            for name, count in _unseen(state, topic).items():
                state.unseen.load(name, state.unseen.get(name, 0) + count)


def _unseen(state: State, topic: Topic) -> dict[str, int]:
    """The counters of one topic that are not 0."""
    stat = state.topic_stat.get(topic.topic_id, TopicStat())
    return {name: count for name, count in zip(_NAMES, (stat.delayed, stat.half), strict=True) if count}


def _add_unseen(state: State, changes: Mapping[str, int], sign: int = 1) -> None:
    """Adds changes of a topic's counters, or with a negative sign subtracts them."""
    for name in _NAMES:
        if change := changes.get(name, 0):
            count = state.unseen.get(name, 0) + sign * change
            if count < 0:
                broken("sums_over_topics", name=name, left=count)
            if count:
                state.unseen[name] = count
            else:
                state.unseen.pop(name)
