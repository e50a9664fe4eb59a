"""Lite topics: a topic of type LITE is a parent; each lite topic name in a message is a small topic of its own.

    chat (LITE, id 7)                        name        l + 7 + alice → 12
      ├── alice   id 12  ▪▪▪▪▪               topic       12 → its record: parent 7, one queue, a lock for each group
      ├── bob     id 13  ▪▪                  log, cq …   as of any topic, by its own id
      └── …       id n
    stat, held, bytes of 7: the sums over its lite topics, updated in the same transactions (topic_counts.py)

    first Send ─▶ created ─▶ messages, subscribers ─▶ idle: no group has work in it, no client watches it
                   ▲                                    │ lite_ttl_ms later
                   └────────── a Send creates it again ◀┴─▶ removed (below)

A lite topic is one message group: a group leases one batch of it at a time, and gets the next one when that is acked or
returned (fifo.py). lite_watch.py knows which clients read which lite topics and which are ready, lite_pop.py delivers,
lite_sync.py handles subscriptions. The parent has no messages of its own; its limits, retention and quotas apply to all
lite topics together. Purging or deleting it removes its id, so no client can name its lite topics any more.

A job looks for idle lite topics once a minute, in pieces. The record stores since when one is idle, so a restart does
not reset it.

See docs/decisions/0037-lite-topics.md.
"""

import itertools

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.rules.delivery.subscription import bind
from popmq_server.embedded.rules.topics import readers, registry
from popmq_server.embedded.rules.topics.log import Log, entries
from popmq_server.embedded.rules.topics.removal import OF_TOPIC, drop_range
from popmq_server.embedded.state import topic_counts
from popmq_server.embedded.state.rows import LITE_NAME
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import FWAIT_VALUE, STAT_KEY, U32
from popmq_server.errors import (
    Refused,
    group_not_found,
    invalid,
    topic_not_found,
)
from popmq_server.values.ids import TopicId
from popmq_server.values.limits import LITE_TOPICS_DEFAULT, LITE_TTL_MS_DEFAULT
from popmq_server.values.message import ALL_LITE_TOPICS
from popmq_server.values.records import (
    Group,
    HeldNumbers,
    Lites,
    Stat,
    Topic,
)

#: Lite topics checked in one piece, and keys removed with idle ones: some 10 ms each.
LOOKS_MAX, REMOVAL_KEYS_MAX = 250, 1000
#: Names in watches that one piece drops: some 5 ms.
WATCHED_MAX = 2000
#: Groups of a lite topic that are checked at the cost of one look.
GROUPS_PER_LOOK = 20
#: Lite topics searched for the oldest message, and those of them that are read.
OLDEST_LOOKS, OLDEST_READS = 10_000, 500
#: The retry delay if a topic has reached its limit of lite topics.
QUOTA_RETRY_MS = 60_000


def resolve(tx: Tx, topic_name: str, group_name: str) -> tuple[Group, Topic]:
    """The group and the LITE topic of these names, or Refused."""
    group, topic = readers.group(tx, group_name), registry.topic(tx, topic_name)
    if topic is None:
        raise topic_not_found(topic_name)
    if group is None:
        raise group_not_found(group_name)
    if topic.type != "LITE":
        raise invalid(
            f"topic {topic.name!r} has type {topic.type}, it has no lite topics",
            field="topic",
            action="name a topic that was created with --type LITE",
        )
    return group, topic


def find(tx: Tx, parent: Topic, name: str) -> Topic | None:
    """A lite topic by name, or None."""
    topic_id = tx.state.lite_ids.get((parent.topic_id, name))
    if topic_id is None:
        return None
    found = tx.state.topics.get(topic_id)
    if found is None or found.parent_id != parent.topic_id or found.lite_topic != name:
        broken("lite_topic_has_its_name", parent=parent.topic_id, topic=topic_id)
    return found


def ensure(tx: Tx, parent: Topic, name: str) -> Topic | Refused:
    """The lite topic for a new message: created if it does not exist, no longer idle if it was."""
    lite_topic = find(tx, parent, name)
    if lite_topic is None:
        return _make(tx, parent, name)
    if lite_topic.idle_ms:
        lite_topic = registry.change_topic(tx, lite_topic._replace(idle_ms=0))
    return lite_topic


def _make(tx: Tx, parent: Topic, name: str) -> Topic | Refused:
    """Creates a lite topic. Groups that watch the name begin there at its first message.

    A watch outlives its topic and its group: one created again under the same name has no position in the parent yet.
    """
    state, count = tx.state, tx.state.lites.get(parent.topic_id, Lites()).topics
    if count >= (parent.lite_topics_max or LITE_TOPICS_DEFAULT):
        return Refused(
            "LITE_TOPIC_QUOTA",
            f"topic {parent.name!r} has {count} lite topics, which is its maximum",
            field="lite_topic",
            action="use existing ones, raise the topic's lite.topics_max, or shorten its lite.ttl_ms",
            retry_after_ms=QUOTA_RETRY_MS,
        )
    made = Topic(
        topic_id=TopicId(tx.new_id()),
        name=parent.name,
        queues=1,
        by_age=parent.by_age,
        keep_ms=parent.keep_ms,
        created_ms=tx.now_ms,
        type="LITE",
        parent_id=parent.topic_id,
        lite_topic=name,
    )
    registry.add_topic(tx, made)
    topic_counts.add_lites(tx, parent.topic_id, 1, 0)
    watches, now_ms = state.watches, tx.now_ms
    for key in (*watches.watchers(parent.name, name, now_ms), *watches.watchers(parent.name, ALL_LITE_TOPICS, now_ms)):
        if (group := readers.group(tx, key[0])) is not None:
            bind(tx, group, parent)
            bind(tx, group, made)
    return made


class IdleLiteTopics:
    """Finds and removes idle lite topics, once a tick. A job of housekeeping.py.

    It scans their names in the store, so neither a piece nor a round builds a list of all of them.
    """

    def __init__(self) -> None:
        self.place = b""

    def run(self, tx: Tx) -> bool:
        """Runs one piece; returns whether there is more to look at."""
        if tx.state.watches.expire(tx.now_ms, WATCHED_MAX):
            return True
        tx.state.undo.save(self, "place")
        names = tx.kv.scan("name", LITE_NAME, self.place)
        found = [(key, TopicId(U32.unpack(value)[0])) for key, value in itertools.islice(names, LOOKS_MAX + 1)]
        left, looks = REMOVAL_KEYS_MAX, LOOKS_MAX
        for index, (key, topic_id) in enumerate(found):
            if left <= 0 or looks <= 0 or index == LOOKS_MAX:
                self.place = key
                return True
            left = _look_at(tx, topic_id, left)
            looks -= 1 + len(tx.state.topic_groups.get(topic_id, ())) // GROUPS_PER_LOOK
        self.place = b""
        return False


def _look_at(tx: Tx, topic_id: TopicId, left: int) -> int:
    """Updates a lite topic's idle time, or removes it when that is up; returns how many more keys may be removed."""
    topic = tx.state.topics.get(topic_id)
    parent = tx.state.topics.get(topic.parent_id) if topic is not None else None
    if topic is None or parent is None:  # already removed, or about to be
        return left
    if is_needed(tx, topic):
        if topic.idle_ms:
            registry.change_topic(tx, topic._replace(idle_ms=0))
    elif not topic.idle_ms:
        registry.change_topic(tx, topic._replace(idle_ms=tx.now_ms))
    elif tx.now_ms - topic.idle_ms >= (parent.lite_ttl_ms or LITE_TTL_MS_DEFAULT):
        return remove(tx, topic, left)
    return left


def oldest(tx: Tx, group: Group, parent: Topic) -> int:
    """When the oldest message was stored that a group has not done, leases excluded; 0 = none.

    An estimate if there are very many: it looks at the lite topics created first, and at their first waiting message.
    """
    state, log, found = tx.state, Log(tx.kv), list[int]()
    names = (topic_id for (parent_id, _), topic_id in state.lite_ids.items() if parent_id == parent.topic_id)
    for topic_id in itertools.islice(names, OLDEST_LOOKS):
        where = (group.group_id, topic_id)
        stat = state.stat.get(where)
        if stat is None or len(found) == OLDEST_READS:
            continue
        units = list[tuple[int, ...]]()
        if state.total.get(topic_id, 0) > state.passed.get(where, 0):
            units = [unit[1:] for unit in entries(tx.kv, topic_id, 0, state.poff[(*where, 0)], 1)]
        if stat.waiting and (first := tx.kv.first("fwait", STAT_KEY.pack(*where))) is not None:
            units.append(FWAIT_VALUE.unpack_from(first[1])[:2])
        found += [read[0] for position, size in units if (read := log.fetch(topic_id, position, size))]
    return min(found, default=0)


def is_needed(tx: Tx, topic: Topic) -> bool:
    """Whether a client watches a lite topic, or a group has work in it."""
    state, topic_id = tx.state, topic.topic_id
    if state.watches.watchers(topic.name, topic.lite_topic, tx.now_ms):
        return True
    for group_id in state.topic_groups.get(topic_id, ()):
        where = (group_id, topic_id)
        stat = state.stat.get(where, Stat())
        if any(state.held.get(where, HeldNumbers())):  # also of a deleted group, until its leases are removed
            return True
        if group_id not in state.groups:
            continue
        if state.total.get(topic_id, 0) > state.passed.get(where, 0) or stat.retry or stat.waiting:
            return True
        if where in state.sweeps:
            return True
    return False


# ── Removal: of idle lite topics, and of all those of a deleted or purged topic ───────────────────────────────────────
#
#   remove   idle ──▶ its name is removed, its counts leave its parent's; so do its keys if they fit into the piece
#            otherwise ──▶ `purge` 12 → lite 3 (its parent)
#   step     removes keys of a large lite topic in pieces; the last piece clears its tables
#   orphans  removes those of a removed parent: no client can name them, their leases were dropped before

#: The minimum that one removal takes from the keys of a piece.
KEYS_EACH = 10


def remove(tx: Tx, topic: Topic, left: int) -> int:
    """Removes an idle lite topic; returns how many more keys may go in this piece.

    One piece removes many small lite topics whole, since 100,000 may end together. If one is too large for the rest of
    the piece, `step` removes the rest later, as for any deleted topic. Its id is never reused.
    """
    registry.retire(tx, topic)
    left = step(tx, topic.topic_id, left, topic.parent_id)
    if left:
        registry.removed(tx, topic.topic_id)
    return max(0, left - KEYS_EACH)


def parent_of(kind: str) -> int:
    """The parent's id in the kind of a retired lite topic; 0 = a preview retired it, without an index of its chunks."""
    return int(kind.removeprefix(registry.LITE) or 0)


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
        registry.forget_orphan(tx, parent_id, name, topic_id)
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
