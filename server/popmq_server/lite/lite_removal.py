"""Removes lite topics: idle ones, and all of a topic that was deleted or purged.

    remove   idle ──▶ its name is gone, its numbers leave those of its parent, and so do its keys, if they fit a piece
             they do not ──▶ `purge` 12 → lite
    step     keys of a large one, a piece                            its tables with the last piece
    orphans  the same for those whose parent is gone: nobody can name them, their leases were dropped before

Tables are left by key, not by a walk: a walk for each of 100,000 lite topics would be a walk over everything, 100,000
times.
"""

from typing import Any

from popmq_server.model.records import Topic, TopicStat
from popmq_server.state.state import LITE_NAME, lite_hash
from popmq_server.state.tx import Tx
from popmq_server.storage.keys import STAT_KEY, U32
from popmq_server.storage.table import Table
from popmq_server.topics.removal import OF_TOPIC, drop_range

#: What removing one takes at least of the keys that a piece may remove.
KEYS_EACH = 10


def remove(tx: Tx, topic: Topic, left: int) -> int:
    """An idle lite topic is not there any more; how many more keys may go in this piece.

    Small ones go whole and many in one piece, since 100,000 may end together. Of one that is too large for what is left
    of the piece the rest goes as of any deleted topic. Its number is never given again.
    """
    _retire(tx, topic)
    left = step(tx, topic.topic_id, left)
    if left:
        tx.state.purges.pop(topic.topic_id)
    return max(0, left - KEYS_EACH)


def _retire(tx: Tx, topic: Topic) -> None:
    """Its name is gone, and its numbers leave those of its parent."""
    state, where = tx.state, (topic.topic_id, 0)
    state.lite_ids.pop((topic.parent_id, topic.lite_topic))
    stored = state.queue_max.get(where, 0) - state.queue_min.get(where, 0)
    tx.count_lites(topic.parent_id, -1, -stored)
    tx.count_topic(topic.parent_id, bytes=-state.topic_stat.get(topic.topic_id, TopicStat()).bytes)
    state.topics.pop(topic.topic_id)
    state.purges[topic.topic_id] = "lite"


def step(tx: Tx, topic_id: int, left: int) -> int:
    """One piece of a retired one; how many more keys may go in it, 0 = it is not done."""
    left = _drop_keys(tx, topic_id, left)
    if left:
        _forget(tx, topic_id)
    return left


def step_orphans(tx: Tx, parent_id: int, left: int) -> int:
    """One piece of all lite topics of a topic that is gone; how many more keys may go in it."""
    rows = tx.kv.scan("name", LITE_NAME + U32.pack(parent_id))
    found = list[tuple[str, int]]()
    for key, value in rows:
        if len(found) * KEYS_EACH >= left:
            break
        found.append((key[5:].decode(), int(U32.unpack(value)[0])))
    for name, topic_id in found:
        left = _drop_keys(tx, topic_id, left)
        if not left:
            return 0
        _forget(tx, topic_id)
        tx.state.topics.pop(topic_id)
        tx.state.lite_ids.pop((parent_id, name))
        left = max(0, left - KEYS_EACH)
    return left


def _drop_keys(tx: Tx, topic_id: int, left: int) -> int:
    """What stands in the store under one lite topic; how many more keys may go in this piece.

    What the tables know of it is left to `_forget`, so that a restart between two pieces finds the same lite topic.
    Retries and what waits are looked for only where the group's counters tell of some: a look costs more than a count.
    """
    for group_id in tx.state.topic_groups.get(topic_id, ()):
        stat = tx.state.stat.get((group_id, topic_id))
        names = ("rq", "fwait", "begin") if stat is None or stat.retry or stat.waiting else ("begin",)
        for name in names:
            left = drop_range(tx, name, STAT_KEY.pack(group_id, topic_id), left)
    if (topic_id, 0) in tx.state.queue_max or topic_id not in tx.state.topics:  # retired before a restart
        for name in OF_TOPIC:
            left = drop_range(tx, name, U32.pack(topic_id), left)
    return left


def _forget(tx: Tx, topic_id: int) -> None:
    """Takes it out of every table that may know it."""
    state, topic = tx.state, tx.state.topics.get(topic_id)
    for group_id in state.topic_groups.get(topic_id, ()):
        where = (group_id, topic_id)
        pairs: tuple[Table[Any, Any], ...] = (
            state.stat,
            state.held,
            state.passed,
            state.subscriptions,
            state.sweeps,
        )
        for table in pairs:
            if where in table:
                table.pop(where)
        for queue in (0, 0xFFFF):
            state.in_flight.pop((*where, queue))
        state.poff.pop((*where, 0))
        if topic is not None:
            for lines in (state.waiting, state.tied, state.locks, state.stopped):
                lines.pop((*where, lite_hash(topic.lite_topic)))
    for ends in (state.queue_min, state.queue_max):
        ends.pop((topic_id, 0))
    for of_topic in (state.topic_groups, state.total, state.topic_stat, state.open_chunks):
        of_topic.pop(topic_id)
    for marks in (state.send_turns, state.trims, state.looked, state.trimmed, state.firsts):
        marks.pop(topic_id, None)
