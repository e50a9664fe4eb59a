"""Removes keys of deleted topics and groups, a bounded number per transaction, for purge.py and lite_topics.py."""

import itertools

from popmq_server.embedded.rules.topics import quotas, readers
from popmq_server.embedded.rules.topics.chunk import IDX_HEAD, drop_records, pin
from popmq_server.embedded.rules.topics.log import Log
from popmq_server.embedded.state import owners, ready_groups
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import (
    FWAIT_KEY,
    POFF_KEY,
    STAT_KEY,
    TOPIC_AT,
    U32,
    U64,
)
from popmq_server.values.ids import GroupId, GroupTopic, TopicId
from popmq_server.values.records import RETRY_QUEUE, Stat

#: Databases whose keys start with the topic id.
OF_TOPIC = ("cq", "idx", "widx", "lidx", "bare", "mark", "queue", "hist", "quar", "uid", "gone", "res", "tstat")
#: The cost of the removal of a subscription beside its keys, in keys.
SUBSCRIPTION_COST = 5
#: A group leaves the tuple of its topic's groups, which is copied: this many cost as much as a key.
GROUPS_PER_KEY = 1000


def drop_range(tx: Tx, name: str, prefix: bytes, left: int, parent_id: int = 0) -> int:
    """Removes up to `left` keys; returns how many more this piece may remove. `parent_id`: that of a lite topic."""
    if not left:
        return 0
    found: list[tuple[bytes, int]] = []
    for key, value in tx.kv.scan(name, prefix):
        if len(found) == left:
            break
        found.append((key, U64.unpack_from(value)[0] if name in ("rq", "fwait") else 0))
    log = Log(tx.kv)
    for key, position in found:
        if name in ("rq", "fwait") and (chunk := log.chunk_of(position)) >= 0:
            pin(tx, chunk, -1)
        if name == "fwait":
            ready_groups.forget_message_group(tx.state, FWAIT_KEY.unpack(key)[:3])
        if name == "idx":
            position = TOPIC_AT.unpack(key)[1]
            size = IDX_HEAD.unpack_from(tx.kv.get(name, key) or b"")[1]
            left -= drop_records(tx, parent_id, position, size)
        tx.kv.delete(name, key)
        left -= 1
        if left <= 0:
            return 0
    return left


def drop_readers(tx: Tx, topic_id: TopicId, left: int) -> int:
    """Removes subscriptions of a deleted topic; returns how many more keys this piece may remove, 0 = go on later."""
    groups, done = tx.state.topic_groups.get(topic_id, ()), 0
    for group_id in groups:
        left = _drop_subscription(tx, (group_id, topic_id), left)
        if (group_id, topic_id) in tx.state.stat:
            break
        done += 1
        if not left:
            break
    if done:
        readers.leave_together(tx, topic_id, {*groups[:done]})
    return left


def drop_subscriptions(tx: Tx, group_id: GroupId, left: int) -> int:
    """Removes subscriptions of a deleted group; returns how many more keys this piece may remove, 0 = go on later."""
    rows = itertools.islice(tx.kv.scan("stat", U32.pack(group_id)), left)
    for topic_id in [TopicId(STAT_KEY.unpack(key)[1]) for key, _ in rows]:
        left = _drop_subscription(tx, (group_id, topic_id), left)
        if (group_id, topic_id) in tx.state.stat:
            return 0
        left = max(0, left - readers.leave(tx, (group_id, topic_id)) // GROUPS_PER_KEY)
        if not left:
            return 0
    return left


def _drop_subscription(tx: Tx, where: GroupTopic, left: int) -> int:
    """Removes all that a group has in a topic; one of the two was deleted. Returns how many more keys may go.

    Its leases have ended. Its counters go last: as long as they are there, a piece continues with it, also after a
    restart. The delete was committed before, so the store has all rows.
    """
    state, prefix = tx.state, STAT_KEY.pack(*where)
    stat = state.stat.get(where, Stat())
    for name in ("rq", "fwait", "begin") if stat.retry or stat.waiting else ("begin",):
        left = drop_range(tx, name, prefix, left)
    if state.owner_count.get(where[0]):
        left = _drop_tokens(tx, prefix, left)
    if not left:
        return 0
    queues = [POFF_KEY.unpack(key)[2] for key, _ in tx.kv.scan("poff", prefix)]
    state.forget_subscription(where, (*queues, RETRY_QUEUE))
    readers.forget_unread(tx, where)
    quotas.forget_group(tx, *where)
    return max(0, left - SUBSCRIPTION_COST - len(queues))


def _drop_tokens(tx: Tx, prefix: bytes, left: int) -> int:
    """Removes tokens of owners; returns how many more keys may go in this piece."""
    gone = dict[int, set[owners.TokenKey]]()
    rows = itertools.islice(tx.kv.scan("tok", prefix), left)
    for key in [(*STAT_KEY.unpack_from(raw), raw[STAT_KEY.size :]) for raw, _ in rows]:
        left -= 1
        token = tx.state.tokens.get(key)
        if token is not None:
            gone.setdefault(token.owner_id, set()).add(key)
    for owner_id, keys in gone.items():
        owners.drop_tokens(tx, owner_id, keys)
    return left


def drop_owners(tx: Tx, group_id: GroupId, left: int) -> int:
    """Removes the owners of a deleted group, which have no tokens any more; returns how many more keys may go."""
    rows = itertools.islice(tx.kv.scan("own", U32.pack(group_id)), left)
    for key in [(group_id, raw[U32.size :]) for raw, _ in rows]:
        left -= 1
        if (owner := tx.state.owners.get(key)) is not None:
            owners.forget(tx, owner)
    return left
