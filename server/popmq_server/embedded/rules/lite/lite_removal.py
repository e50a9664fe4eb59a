"""Removes lite topics: idle ones, and all of a deleted or purged topic.

remove   idle ──▶ its name is removed, its counts leave its parent's; so do its keys if they fit into the piece
         otherwise ──▶ `purge` 12 → lite 3 (its parent)
step     removes keys of a large one in pieces; the last piece clears its tables
orphans  the same for lite topics of a removed parent: no client can name them, their leases were dropped before
"""

from popmq_server.embedded.rules.topics.removal import OF_TOPIC, drop_range
from popmq_server.embedded.state.rows import LITE_NAME
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import STAT_KEY, U32
from popmq_server.values.ids import TopicId
from popmq_server.values.records import Topic, TopicStat

#: The minimum that one removal takes from the keys of a piece.
KEYS_EACH = 10
#: The kind of a retired lite topic in `purge`, before the id of its parent.
KIND = "lite"


def remove(tx: Tx, topic: Topic, left: int) -> int:
    """Removes an idle lite topic; returns how many more keys may go in this piece.

    One piece removes many small lite topics whole, since 100,000 may end together. If one is too large for the rest of
    the piece, `step` removes the rest later, as for any deleted topic. Its id is never reused.
    """
    _retire(tx, topic)
    left = step(tx, topic.topic_id, left, topic.parent_id)
    if left:
        tx.state.purges.pop(topic.topic_id)
    return max(0, left - KEYS_EACH)


def _retire(tx: Tx, topic: Topic) -> None:
    """Removes its name, and subtracts its counts from its parent's."""
    state, where = tx.state, (topic.topic_id, 0)
    state.lite_ids.pop((topic.parent_id, topic.lite_topic))
    stored = state.queue_max.get(where, 0) - state.queue_min.get(where, 0)
    tx.count_lites(topic.parent_id, -1, -stored)
    tx.count_topic(topic.parent_id, bytes=-state.topic_stat.get(topic.topic_id, TopicStat()).bytes)
    state.set_lagging(topic.topic_id, False)
    state.topics.pop(topic.topic_id)
    state.purges[topic.topic_id] = f"{KIND} {topic.parent_id}"


def parent_of(kind: str) -> int:
    """The parent's id in the kind of a retired lite topic; 0 = a preview retired it, without an index of its chunks."""
    return int(kind.removeprefix(KIND) or 0)


def step(tx: Tx, topic_id: TopicId, left: int, parent_id: int) -> int:
    """Removes one piece of a retired lite topic; returns how many more keys may go in it, 0 = it is not done."""
    left = _drop_keys(tx, topic_id, left, parent_id)
    if left:
        tx.state.forget_lite_topic(topic_id)
    return left


def step_orphans(tx: Tx, parent_id: TopicId, left: int) -> int:
    """Removes one piece of a removed topic's lite topics; returns how many more keys may go in it."""
    rows = tx.kv.scan("name", LITE_NAME + U32.pack(parent_id))
    found = list[tuple[str, TopicId]]()
    for key, value in rows:
        if len(found) * KEYS_EACH >= left:
            break
        found.append((key[5:].decode(), TopicId(U32.unpack(value)[0])))
    for name, topic_id in found:
        left = _drop_keys(tx, topic_id, left, parent_id)
        if not left:
            return 0
        tx.state.forget_lite_topic(topic_id)
        tx.state.lite_ids.pop((parent_id, name))
        left = max(0, left - KEYS_EACH)
    return left


def _drop_keys(tx: Tx, topic_id: TopicId, left: int, parent_id: int) -> int:
    """Removes the keys of one lite topic; returns how many more keys may go in this piece.

    The tables forget it later, so that a restart between two pieces finds the same lite topic. Searches retries and
    waiting messages only if the group's counters show any: a search costs more than a look at a counter.
    """
    for group_id in tx.state.topic_groups.get(topic_id, ()):
        stat = tx.state.stat.get((group_id, topic_id))
        names = ("rq", "fwait", "begin") if stat is None or stat.retry or stat.waiting else ("begin",)
        for name in names:
            left = drop_range(tx, name, STAT_KEY.pack(group_id, topic_id), left)
    if (topic_id, 0) in tx.state.queue_max or topic_id not in tx.state.topics:  # retired before a restart
        for name in OF_TOPIC:
            left = drop_range(tx, name, U32.pack(topic_id), left, parent_id)
    return left
