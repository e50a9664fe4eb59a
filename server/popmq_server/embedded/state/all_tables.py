"""All tables of the broker's state, each declared once with its rows and the roles of its key: see store/tables.py.

Modules that keep sums or orders over them (leases.py, ready_groups.py, …) import this one. `State`, which has the
tables and uses these modules, is in state.py.
"""

import functools
from typing import Any, Protocol

from popmq_server.embedded.state import rows
from popmq_server.embedded.state.checkpoints import CheckPointTable, LeaseTable
from popmq_server.embedded.store.keys import QUEUE_ENDS, QUEUE_KEY
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.embedded.store.table import Table
from popmq_server.embedded.store.tables import (
    GROUP,
    MESSAGE_GROUP,
    OTHER,
    OWNER,
    QUEUE,
    TOPIC,
    Tables,
)
from popmq_server.values.ids import (
    GroupId,
    GroupQueue,
    GroupTopic,
    MessageGroup,
    Taken,
    TopicId,
    TopicQueue,
)
from popmq_server.values.outgoing import hash8
from popmq_server.values.records import (
    Counters,
    Group,
    HeldNumbers,
    Lites,
    OpenChunk,
    Owner,
    Schedule,
    Stat,
    Subscription,
    SweepWork,
    Token,
    Topic,
    TopicStat,
    Void,
)
from popmq_server.values.turns import Turns

#: The hash of a lite topic's name: the key of its one message group.
lite_hash = functools.lru_cache(maxsize=65536)(hash8)


class KeyIndex(Protocol):
    """The messages of a group in a topic that wait by fair key."""

    def free(self, key: bytes) -> bool:
        """Notes that a lease of a key has ended. Returns whether the key waited for that."""


class AllTables:
    """The tables, and what their keys name."""

    def __init__(self) -> None:
        self.tables = tables = Tables()
        self._declare_stored(tables)
        self._declare_leases(tables)
        self._declare_sums(tables)
        self._declare_transient(tables)

    def _declare_stored(self, tables: Tables) -> None:
        stored = tables.stored
        self.topics: Table[int, Topic] = stored(rows.TOPICS, TOPIC)
        self.groups: Table[int, Group] = stored(rows.GROUPS, GROUP)
        #: ("t" or "g", name) → id.
        self.ids: Table[tuple[str, str], int] = stored(rows.NAMES)
        #: T of the parent, lite topic → id.
        self.lite_ids: Table[tuple[TopicId, str], TopicId] = stored(rows.LITE_NAMES)
        #: Id → kind of a deleted topic or group that is not yet removed.
        self.purges: Table[int, str] = stored(rows.PURGES)
        #: The first readable offset. The row has both ends; `_load_ends` reads it.
        self.queue_min: Table[TopicQueue, int] = stored(rows.ends(self._store_ends), TOPIC, QUEUE)
        #: The next offset to pop.
        self.poff: Table[GroupQueue, int] = stored(rows.POSITIONS, GROUP, TOPIC, QUEUE)
        #: What a group passed beyond its position, by turns of fair keys: blocks of bits. Values are never changed.
        self.taken: Table[GroupQueue, Taken] = stored(rows.TAKEN, GROUP, TOPIC, QUEUE)
        self.stat: Table[GroupTopic, Stat] = stored(rows.STATS, GROUP, TOPIC)
        self.subscriptions: Table[GroupTopic, Subscription] = stored(rows.SUBSCRIPTIONS, GROUP, TOPIC)
        #: The remaining work of a reset or a switch of the consume mode.
        self.sweeps: Table[GroupTopic, SweepWork] = stored(rows.SWEEPS, GROUP, TOPIC)
        self.topic_stat: Table[int, TopicStat] = stored(rows.TOPIC_STATS, TOPIC)
        self.ck = CheckPointTable()
        self.leases = LeaseTable(self.ck)
        tables.add(self.ck)
        tables.add(self.leases)  # after ck: a lease is written with its CheckPoint's number of members
        #: G, hash of its name → owner; G, T, hash → token.
        self.owners: Table[tuple[int, bytes], Owner] = stored(rows.OWNERS, GROUP, OTHER)
        self.tokens: Table[tuple[int, int, bytes], Token] = stored(rows.TOKENS, GROUP, TOPIC, OTHER)
        self.schedules: Table[str, Schedule] = stored(rows.SCHEDULES)
        self.counters: Table[str, Counters] = stored(rows.COUNTERS)

    def _declare_leases(self, tables: Tables) -> None:
        """Declares the tables that follow from CheckPoints and leases: leases.py."""
        derived = tables.derived
        self.held: Table[GroupTopic, HeldNumbers] = derived(GROUP, TOPIC)
        #: Messages leased by ordinary pops, for the limit.
        self.in_flight: Table[GroupQueue, int] = derived(GROUP, TOPIC, QUEUE)
        #: Owner → messages under its lease; its messages in the retry topic, tied to their CheckPoint.
        self.owned: Table[int, int] = derived(OWNER)
        self.loose: Table[int, int] = derived(OWNER)
        #: CheckPoint → parts of its lease, where there are several.
        self.subs: Table[int, int] = derived()
        #: Chunk → leased messages in it; the same by group and topic, and in their order.
        self.pins: Table[int, int] = derived()
        self.group_pins: Table[tuple[int, int, int], int] = derived()
        self.span_chunks: Table[tuple[int, int, int], tuple[int, ...]] = derived()
        self.spans: Table[GroupTopic, tuple[int, ...]] = derived()
        #: Hash of G, T (a parent), client and attempt id → ck_id (ck_ids).
        self.attempts: Table[int, int] = derived()
        self.lite_attempts: Table[int, tuple[int, ...]] = derived()
        #: Client → ck_ids of leases bound to its session, in their order.
        self.session_leases: Table[tuple[str, int], tuple[int, ...]] = derived()
        self.session_spans: Table[tuple[str], tuple[int, ...]] = derived()
        #: G, client → messages leased to it.
        self.clients: Table[tuple[int, str], int] = derived()
        #: Message group → (leased messages, owner or 0, the owner's part): locked while it is here.
        self.locks: Table[MessageGroup, tuple[int, int, int]] = derived(GROUP, TOPIC, MESSAGE_GROUP)
        #: G, T, hash of a fair key → leased messages of it, for its limit.
        self.key_leases: Table[tuple[int, int, bytes], int] = derived()

    def _declare_sums(self, tables: Tables) -> None:
        """Declares the tables that follow from the ends of queues, from positions and from waiting entries."""
        derived = tables.derived
        self.queue_max: Table[TopicQueue, int] = derived(TOPIC, QUEUE)
        #: Sums over the queues: next offsets of a topic, next offsets to pop of a group in a topic. Their difference is
        #: the group's backlog, without a walk over the queues.
        self.total: Table[int, int] = derived(TOPIC)
        self.passed: Table[GroupTopic, int] = derived(GROUP, TOPIC)
        self.topic_groups: Table[int, tuple[GroupId, ...]] = derived(TOPIC)
        #: Parent → its lite topics and their messages; group and parent → messages that are not popped yet.
        self.lites: Table[int, Lites] = derived(TOPIC)
        self.unread: Table[GroupTopic, int] = derived(GROUP, TOPIC)
        #: T (0: given up) → due time of its first half message.
        self.checks: Table[int, int] = derived(TOPIC)
        #: Waiting entries; those tied to owners; (offset, reason) of the messages that stopped the message group.
        self.waiting: Table[MessageGroup, int] = derived(GROUP, TOPIC, MESSAGE_GROUP)
        self.tied: Table[MessageGroup, int] = derived(GROUP, TOPIC, MESSAGE_GROUP)
        self.stopped: Table[MessageGroup, tuple[tuple[int, str], ...]] = derived(GROUP, TOPIC, MESSAGE_GROUP)
        #: The number of stopped message groups by group and topic, and their sorted numbers: ready_groups.py.
        self.stopped_count: Table[GroupTopic, int] = derived(GROUP, TOPIC)
        self.stopped_numbers: Table[tuple[int, int, int], tuple[int, ...]] = derived(GROUP, TOPIC, OTHER)
        self.stopped_spans: Table[GroupTopic, tuple[int, ...]] = derived(GROUP, TOPIC)
        #: "delayed", "half" → the sum of this counter over all topics; none for 0.
        self.unseen: Table[str, int] = derived(OTHER)
        #: The number of owners of a group.
        self.owner_count: Table[int, int] = derived(GROUP)
        #: The keys of an owner in `owners` and in `tokens`.
        self.owner_keys: Table[int, tuple[int, bytes]] = derived(OWNER)
        self.owner_tokens: Table[int, tuple[tuple[int, int, bytes], ...]] = derived(OWNER)

    def _declare_transient(self, tables: Tables) -> None:
        """Declares the tables that a restart drops."""
        transient, transient_dict = tables.transient, tables.transient_dict
        #: How far a walk over CheckPoints has come: of a sweep, by group and topic; of a removal, by the id of the
        #: topic or group that is removed. For a purged topic: the walk over its groups. A restart begins again.
        self.walked: Table[GroupTopic, int] = transient()
        self.purged: Table[int, int] = transient()
        #: The turns of queues in pops and in sends.
        self.turns: Table[GroupTopic, Turns] = transient(GROUP, TOPIC)
        self.send_turns: dict[int, int] = transient_dict(TOPIC)
        #: Messages that are not written yet, by topic, and their bytes where bytes are limited: topic.py. Both are
        #: empty before a commit.
        self.staged: Table[int, list[Any]] = transient(TOPIC)
        self.coming: Table[int, int] = transient(TOPIC)
        #: The offset that all groups are at or past, and the walks that find it: floors.py.
        self.floors: Table[TopicQueue, int] = transient(TOPIC, QUEUE)
        self.climbs: Table[int, tuple[int, int, tuple[int, ...]]] = transient(TOPIC)
        #: The group at which such a walk ended. Only a hint, so an abort need not undo it.
        self.laggards: dict[int, GroupId] = transient_dict(TOPIC)
        #: Kind, T, G → units of a quota, in thousandths, and as of when: quotas.py. A restart fills them.
        self.buckets: Table[tuple[int, int, int], tuple[int, int]] = transient(OTHER, TOPIC, GROUP)
        #: The next position of pops in a retry topic that a reset made void, with its voids: invalidated.py.
        self.void_begins: dict[GroupTopic, tuple[tuple[Void, ...], bytes]] = transient_dict(GROUP, TOPIC)
        #: CheckPoint, sub → members of an expired lease with no attempt left, whose dead letter finds no room; and
        #: their number by group and topic. The revive meets them again after a restart.
        self.dead_blocked: Table[tuple[int, int], int] = transient()
        self.dead_blocked_count: Table[GroupTopic, int] = transient()
        #: Topics to which groups have to be moved → the purged one (Topic.moving_from); a start loads them from it. A
        #: dict, since every command of a group reads it; `set_moving` notes how to undo its changes.
        self.moving: dict[TopicId, TopicId] = transient_dict(TOPIC)
        #: Topics with groups that have to be moved past dropped chunks (Topic.lagging); as with `moving`.
        self.lagging: dict[TopicId, bool] = transient_dict(TOPIC)
        #: For by_size.py: topics to trim → bytes that a request still needs; the chunk at which an incomplete search
        #: continues; when a trim last ended, ms. After a restart housekeeping marks the topics within a minute.
        self.trims: dict[int, int] = transient_dict(TOPIC)
        self.looked: dict[int, int] = transient_dict(TOPIC)
        self.trimmed: dict[int, int] = transient_dict(TOPIC)
        #: The chunk of a topic that small commits share: topic.py.
        self.open_chunks: Table[int, OpenChunk] = transient(TOPIC)
        #: When a group last asked to read a topic, ms: idle_subscriptions.py.
        self.last_read: dict[GroupTopic, int] = transient_dict(GROUP, TOPIC)
        #: When a group last popped or pulled from each queue, ms: subscription.note_read.
        self.queue_reads: dict[GroupTopic, dict[int, int]] = transient_dict(GROUP, TOPIC)
        #: Fair keys: the messages that wait by key (delivery/fair/index.py), made again when a Pop needs them.
        self.fair_indexes: dict[GroupTopic, KeyIndex] = transient_dict(GROUP, TOPIC)

    def _store_ends(self, tx: Transaction, key: TopicQueue, _: int | None, least: int | None) -> None:
        """Stores both ends. The last block gives the upper end, unless retention dropped it and kept an earlier one."""
        if least is None:
            tx.delete("queue", QUEUE_KEY.pack(*key))
        else:
            tx.put("queue", QUEUE_KEY.pack(*key), QUEUE_ENDS.pack(least, self.queue_max.get(key, least)))

    def hash_of_lite(self, topic_id: int) -> bytes:
        """The message group of a lite topic."""
        return lite_hash(self.topics[topic_id].lite_topic)

    def parent_of(self, topic_id: int) -> TopicId:
        """The id of a lite topic's parent; 0 for all other topics."""
        topic = self.topics.get(topic_id)
        return TopicId(0) if topic is None else topic.parent_id

    def name_of(self, topic_id: int) -> str:
        """The name that rights on a topic have: that of a lite topic's parent; empty if the topic is gone."""
        topic = self.topics.get(self.parent_of(topic_id) or topic_id)
        return "" if topic is None else topic.name
