"""The broker's state: tables over the store.

`State` is a write-through image of the small tables of the store (positions, counters, owners); the large ones (log,
consume queue, retry entries) are read from LMDB when needed. CheckPoints and leases have tables like the others, but
their committed entries stay in the store (checkpoints.py). A `Tx` changes the state (tx.py).

At start one scan of the small tables, ck and due, and the two ends of each queue rebuild everything; history is never
read. Tables that the store does not have follow from others.

Each table is declared once, in `State.__init__`, with its rows and the roles of its key: see tables.py.

Derived values are tables too, so an aborted commit drops their changes with the others. `check.differences` compares
the tables of a running broker with those of a fresh start.
"""

import functools
from collections.abc import Iterable, Iterator

from popmq_server.model import unseen
from popmq_server.model.checkpoint import CheckPoint, Lease
from popmq_server.model.ids import GroupId, GroupQueue, GroupTopic, MessageGroup, TopicId, TopicQueue
from popmq_server.model.records import (
    RETRY_QUEUE,
    Counters,
    Group,
    Held,
    Lites,
    OpenChunk,
    Owner,
    Schedule,
    Stat,
    Subscription,
    Sweep,
    Token,
    Topic,
    TopicStat,
    Void,
)
from popmq_server.state import lease_sums, rows
from popmq_server.state.checkpoints import CheckPoints, Leases
from popmq_server.state.lease_sums import attempt_key
from popmq_server.state.lite_watch import Watches
from popmq_server.state.ready_groups import Lines, load_stopped
from popmq_server.state.turns import Turns
from popmq_server.state.undo import Undo
from popmq_server.storage.keys import (
    CQ_ENTRY,
    CQ_KEY,
    FWAIT_KEY,
    FWAIT_VALUE,
    HDUE_KEY,
    NEVER,
    QUEUE_ENDS,
    QUEUE_KEY,
    SUB_OWNER,
    U32,
    U64,
    hash8,
)
from popmq_server.storage.lmdb import Transaction
from popmq_server.storage.rows import RowReader
from popmq_server.storage.table import Table
from popmq_server.storage.tables import GROUP, MESSAGE_GROUP, OTHER, OWNER, QUEUE, TOPIC, Tables

#: The hash of a lite topic's name: the key of its one message group.
lite_hash = functools.lru_cache(maxsize=65536)(hash8)
_NO_SWEEP = Sweep()


def first_occurrence(schedules: Iterable[Schedule]) -> int:
    """The earliest next occurrence of all schedules; 0: there is none."""
    return min((one.next_ms for one in schedules if one.next_ms), default=0)


class State:
    """All tables. `transactional` lists them in the order in which they are flushed."""

    def __init__(self) -> None:
        self.tables = tables = Tables()
        self._declare_stored(tables)
        self._declare_leases(tables)
        self._declare_sums(tables)
        self._declare_transient(tables)
        #: Undo log for state that is not a table.
        self.undo = Undo()
        self.lines = Lines(self.waiting, self.locks, self.stopped, self.undo)
        self.watches = Watches(self.watched_id, self.deliverable, self.undo)
        #: The earliest next occurrence of all schedules; 0: there is none. Not a table, since every commit reads it.
        self.schedule_due = 0
        #: Index blocks written since the last search for blocks to merge (index_merge.py).
        self.fresh_blocks = 0
        #: Names of topics with a live producer that can answer check backs (check_back.py); set by the event loop.
        self.listened: frozenset[str] = frozenset()
        #: Chunks whose pointers are being searched, without a new lease or pin since: kept.py.
        self.searched: set[int] = set()
        self.transactional = tables.transactional()
        self.counters.load("", Counters())

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
        self.stat: Table[GroupTopic, Stat] = stored(rows.STATS, GROUP, TOPIC)
        self.subscriptions: Table[GroupTopic, Subscription] = stored(rows.SUBSCRIPTIONS, GROUP, TOPIC)
        #: The remaining work of a reset or a switch of the consume mode.
        self.sweeps: Table[GroupTopic, Sweep] = stored(rows.SWEEPS, GROUP, TOPIC)
        self.topic_stat: Table[int, TopicStat] = stored(rows.TOPIC_STATS, TOPIC)
        self.ck = CheckPoints()
        self.leases = Leases(self.ck)
        tables.add(self.ck)
        tables.add(self.leases)  # after ck: a lease is written with its CheckPoint's number of members
        #: G, hash of its name → owner; G, T, hash → token.
        self.owners: Table[tuple[int, bytes], Owner] = stored(rows.OWNERS, GROUP, OTHER)
        self.tokens: Table[tuple[int, int, bytes], Token] = stored(rows.TOKENS, GROUP, TOPIC, OTHER)
        self.schedules: Table[str, Schedule] = stored(rows.SCHEDULES)
        self.counters: Table[str, Counters] = stored(rows.COUNTERS)

    def _declare_leases(self, tables: Tables) -> None:
        """Declares the tables that follow from CheckPoints and leases: lease_sums.py."""
        derived = tables.derived
        self.held: Table[GroupTopic, Held] = derived(GROUP, TOPIC)
        #: Messages leased by ordinary pops, for the limit.
        self.in_flight: Table[GroupQueue, int] = derived(GROUP, TOPIC, QUEUE)
        #: Owner → messages under its lease; its messages in the retry topic, tied to their CheckPoint.
        self.owned: Table[int, int] = derived(OWNER)
        self.loose: Table[int, int] = derived(OWNER)
        #: CheckPoint → parts of its lease, where there are several.
        self.subs: Table[int, int] = derived()
        #: Chunk → leased messages in it; the same by group and topic: oldest_leased.py.
        self.pins: Table[int, int] = derived()
        self.group_pins: Table[tuple[int, int, int], int] = derived()
        self.span_chunks: Table[tuple[int, int, int], tuple[int, ...]] = derived()
        self.spans: Table[GroupTopic, tuple[int, ...]] = derived()
        #: Hash of G, T (a parent), client and attempt id → ck_id (ck_ids).
        self.attempts: Table[int, int] = derived()
        self.lite_attempts: Table[int, tuple[int, ...]] = derived()
        #: Client → ck_ids of leases bound to its session: session_ids.py.
        self.session_leases: Table[tuple[str, int], tuple[int, ...]] = derived()
        self.session_spans: Table[tuple[str], tuple[int, ...]] = derived()
        #: G, client → messages leased to it.
        self.clients: Table[tuple[int, str], int] = derived()
        #: Undone members, owner, part.
        self.locks: Table[MessageGroup, tuple[int, int, int]] = derived(GROUP, TOPIC, MESSAGE_GROUP)

    def _declare_sums(self, tables: Tables) -> None:
        """Declares the tables that follow from the ends of queues, from positions and from waiting entries."""
        derived = tables.derived
        self.queue_max: Table[TopicQueue, int] = derived(TOPIC, QUEUE)
        #: Sums over the queues: next offsets of a topic, next offsets to pop of a group in a topic. Their difference is
        #: the group's backlog, without a walk over the queues.
        self.total: Table[int, int] = derived(TOPIC)
        self.passed: Table[GroupTopic, int] = derived(GROUP, TOPIC)
        self.topic_groups: Table[int, tuple[GroupId, ...]] = derived(TOPIC)
        #: Of a parent: its lite topics and their messages; by group, those not popped yet.
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
        #: Position of a walk over CheckPoints: of a removal by (id,), of a sweep by (G, T). A restart begins again.
        self.walked: Table[tuple[int, ...], int] = transient()
        #: The turns of queues in pops and in sends.
        self.turns: Table[GroupTopic, Turns] = transient(GROUP, TOPIC)
        self.send_turns: dict[int, int] = transient_dict(TOPIC)
        #: Kind, T, G → tokens of a quota, in thousandths, and as of when: quotas.py. A restart fills them.
        self.buckets: Table[tuple[int, int, int], tuple[int, int]] = transient(OTHER, TOPIC, GROUP)
        #: The next position of pops in a retry topic that a reset made void, with its voids: invalidated.py.
        self.void_begins: dict[GroupTopic, tuple[tuple[Void, ...], bytes]] = transient_dict(GROUP, TOPIC)
        #: CheckPoint, sub → members of an expired lease with no attempt left, whose dead letter finds no room; and
        #: their number by group and topic. The revive meets them again after a restart.
        self.dead_blocked: Table[tuple[int, int], int] = transient()
        self.dead_blocked_count: Table[GroupTopic, int] = transient()
        #: Sizes: size_limit.py, which restores them within a minute.
        self.trims: dict[int, int] = transient_dict(TOPIC)
        self.looked: dict[int, int] = transient_dict(TOPIC)
        self.trimmed: dict[int, int] = transient_dict(TOPIC)
        #: The chunk of a topic that small commits share: topic.py.
        self.open_chunks: Table[int, OpenChunk] = transient(TOPIC)
        #: When a group last asked to read a topic, ms: expiry.py.
        self.last_read: dict[GroupTopic, int] = transient_dict(GROUP, TOPIC)
        #: The same by queue, of pops and pulls: subscription.note_read.
        self.queue_reads: dict[GroupTopic, dict[int, int]] = transient_dict(GROUP, TOPIC)

    def forget_topic(self, topic_id: TopicId) -> None:
        """Removes a deleted topic from all tables. Its leases must have ended."""
        self.tables.forget(TOPIC, topic_id)
        for owner_id, keys in list(self.owner_tokens.items()):
            self.owner_tokens[owner_id] = tuple(key for key in keys if key[1] != topic_id)

    def forget_lite_topic(self, topic_id: TopicId) -> None:
        """Removes a lite topic from all tables, by key: a walk for each of 100,000 would visit everything each time."""
        topic = self.topics.get(topic_id)
        parts = {
            GROUP: self.topic_groups.get(topic_id, ()),
            TOPIC: (topic_id,),
            QUEUE: (0, RETRY_QUEUE),
            MESSAGE_GROUP: () if topic is None else (lite_hash(topic.lite_topic),),
        }
        self.tables.forget_keys(parts, TOPIC)

    def forget_subscription(self, where: GroupTopic) -> None:
        """Removes the entries of a group in a topic from all tables. Its leases and waiting entries must have ended."""
        queues = (*range(self.topics[where[1]].queues), RETRY_QUEUE)
        self.tables.forget_keys({GROUP: where[:1], TOPIC: where[1:], QUEUE: queues}, GROUP, TOPIC)

    def forget_group(self, group_id: GroupId) -> None:
        """Removes a deleted group from all tables, with its owners. Its leases must have ended."""
        for owner in [owner for key, owner in self.owners.items() if key[0] == group_id]:
            self.forget_owner(owner)
        self.tables.forget(GROUP, group_id)
        for topic_id, groups in list(self.topic_groups.items()):
            if group_id in groups:
                self.topic_groups[topic_id] = tuple(group for group in groups if group != group_id)

    def forget_owner(self, owner: Owner) -> None:
        """Removes an owner and its lease. Its tokens must have been removed, or be removed with its group."""
        self.tables.forget(OWNER, owner.owner_id)
        self.owners.pop((owner.group_id, owner.key))
        self.count_owner(owner.group_id, -1)
        self.leases.pop((owner.owner_id, SUB_OWNER))

    def count_owner(self, group_id: int, change: int) -> None:
        """Adds to the number of owners of a group."""
        if count := self.owner_count.get(group_id, 0) + change:
            self.owner_count[group_id] = count
        else:
            self.owner_count.pop(group_id)

    def hash_of_lite(self, topic_id: int) -> bytes:
        """The message group of a lite topic."""
        return lite_hash(self.topics[topic_id].lite_topic)

    def _store_ends(self, tx: Transaction, key: TopicQueue, _: int | None, least: int | None) -> None:
        """Stores both ends. The last block gives the upper end, unless retention dropped it and kept an earlier one."""
        if least is None:
            tx.delete("queue", QUEUE_KEY.pack(*key))
        else:
            tx.put("queue", QUEUE_KEY.pack(*key), QUEUE_ENDS.pack(least, self.queue_max.get(key, least)))

    def named_topics(self) -> Iterator[Topic]:
        """All topics except lite topics, which may be many."""
        return (self.topics[topic_id] for (kind, _), topic_id in self.ids.items() if kind == "t")

    def alive(self, topic_id: int) -> bool:
        """Whether a topic exists, and the parent of a lite topic too."""
        topic = self.topics.get(topic_id)
        return topic is not None and (not topic.parent_id or topic.parent_id in self.topics)

    def parent_of(self, topic_id: int) -> TopicId:
        """The id of a lite topic's parent; 0 for all other topics."""
        topic = self.topics.get(topic_id)
        return TopicId(0) if topic is None else topic.parent_id

    def watched_id(self, topic_name: str, lite_topic: str) -> TopicId | None:
        """The id of a lite topic by names; None if it does not exist."""
        return self.lite_ids.get((TopicId(self.ids.get(("t", topic_name), 0)), lite_topic))

    def deliverable(self, group_name: str, topic_id: TopicId) -> bool:
        """Whether a Pop of the group would get a message from a lite topic now."""
        topic, group_id = self.topics.get(topic_id), self.ids.get(("g", group_name))
        if topic is None or group_id is None:
            return False
        where = (GroupId(group_id), topic_id)
        key = (*where, lite_hash(topic.lite_topic))
        if key in self.locks or key in self.stopped or self.sweeps.get(where, _NO_SWEEP).hides:
            return False
        return key in self.waiting or self.total.get(topic_id, 0) > self.passed.get(where, 0)

    def read_through(self, kv: Transaction | None) -> None:
        """Sets the transaction through which committed CheckPoints and leases are read; None: no transaction."""
        self.ck.kv = self.leases.kv = kv

    def tried(self, group_id: GroupId, topic_id: TopicId, client: str, attempt_id: str) -> CheckPoint | None:
        """The CheckPoint of a Pop that a client repeats, or None. For LITE topics see lite_pop.py."""
        ck_id = self.attempts.get(attempt_key(group_id, topic_id, client, attempt_id))
        ck = None if ck_id is None else self.ck.get(ck_id)
        asked = (group_id, topic_id, client, attempt_id)
        return ck if ck is not None and (ck.group_id, ck.topic_id, ck.client, ck.attempt_id) == asked else None

    def torn(self, ck_id: int, member: int) -> bool:
        """Whether an owner has lost a member of a CheckPoint for good: entries tied to it are then free."""
        part = self.leases.get((ck_id, 0))
        return part is not None and bool(part.torn >> member & 1)

    def due_ms_of(self, ck: CheckPoint, part: Lease) -> int:
        """The deadline of a lease; for an owner's CheckPoint that of its owner, and 0 when that was removed."""
        if part.due_ms != NEVER:
            return part.due_ms
        key = self.owner_keys.get(ck.owner_id)
        return self.owners[key].lease_until_ms if key else 0

    def load(self, tx: Transaction) -> None:
        """The scan at start. Raises StartError, which names the row, when one cannot be read."""
        reader = RowReader(tx)
        try:
            self._load(tx, reader)
        except RowReader.ERRORS as error:
            raise reader.unreadable(error) from error

    def _load(self, tx: Transaction, reader: RowReader) -> None:
        self.tables.load(reader)
        for topic in self.topics.values():
            self._load_ends(tx, reader, topic)
        for where, offset in self.poff.items():
            self.passed.load(where[:2], self.passed.get(where[:2], 0) + offset)
        for group_id, topic_id in self.stat:
            self.topic_groups.load(topic_id, (*self.topic_groups.get(topic_id, ()), group_id))
        for key, owner in self.owners.items():
            self.owner_keys.load(owner.owner_id, key)
            self.owner_count.load(key[0], self.owner_count.get(key[0], 0) + 1)
        for token_key, token in self.tokens.items():
            self.owner_tokens.load(token.owner_id, (*self.owner_tokens.get(token.owner_id, ()), token_key))
        self.schedule_due = first_occurrence(self.schedules.values())
        unseen.load(self.topics, self.topic_stat, self.unseen)
        self._load_sizes(tx)
        self._load_checks(tx)
        reader.at = ("ck", b"")
        lease_sums.load(self, tx)
        self._load_waiting(reader)
        self._load_lites()

    def _load_ends(self, tx: Transaction, reader: RowReader, topic: Topic) -> None:
        """Loads both ends of each queue of a topic."""
        for queue in range(topic.queues):
            prefix = QUEUE_KEY.pack(topic.topic_id, queue)
            reader.at = ("queue", prefix)
            raw = tx.get("queue", prefix)
            least, most = QUEUE_ENDS.unpack(raw) if raw is not None else (0, 0)
            if last := tx.last("cq", prefix):
                most = max(most, CQ_KEY.unpack(last[0])[2] + len(last[1]) // CQ_ENTRY.size)
            self.queue_min.load((topic.topic_id, queue), least)
            self.queue_max.load((topic.topic_id, queue), most)
            self.total.load(topic.topic_id, self.total.get(topic.topic_id, 0) + most)

    def _load_sizes(self, tx: Transaction) -> None:
        """Computes the counters that a topic of an older store lacks: its size is the sum of its chunks."""
        for topic_id in self.topics:
            if topic_id not in self.topic_stat:
                sizes = (U32.unpack_from(value, U64.size)[0] for _, value in tx.scan("idx", U32.pack(topic_id)))
                self.topic_stat.load(topic_id, TopicStat(sum(sizes)))

    def _load_checks(self, tx: Transaction) -> None:
        """Loads the due time of the first half message of each topic, and of those that must be given up."""
        for lane in (0, *(topic_id for topic_id, stat in self.topic_stat.items() if stat.half)):
            if first := tx.first("hdue", U32.pack(lane)):
                self.checks.load(lane, HDUE_KEY.unpack(first[0])[1])

    def _load_waiting(self, reader: RowReader) -> None:
        """Loads the waiting entries of FIFO topics, by message group."""
        for key, value in reader.scan("fwait"):
            *where, message_group, offset = FWAIT_KEY.unpack(key)
            group = (*where, message_group)
            self.waiting.load(group, self.waiting.get(group, 0) + 1)
            *_, bound_ck, _, stopped = FWAIT_VALUE.unpack_from(value)
            if bound_ck:
                self.tied.load(group, self.tied.get(group, 0) + 1)
            if stopped:
                reason = bytes(value[FWAIT_VALUE.size :]).decode()
                self.stopped.load(group, (*self.stopped.get(group, ()), (offset, reason)))
        load_stopped(self)

    def _load_lites(self) -> None:
        """Loads the sums of topics over their lite topics."""
        for (parent, _), topic_id in self.lite_ids.items():
            where = (topic_id, 0)
            sums = self.lites.get(parent, Lites())
            messages = sums.messages + self.queue_max.get(where, 0) - self.queue_min.get(where, 0)
            self.lites.load(parent, Lites(sums.topics + 1, messages))
            for group_id in self.topic_groups.get(topic_id, ()):
                unread = self.total.get(topic_id, 0) - self.passed.get((group_id, topic_id), 0)
                self.unread.load((group_id, parent), self.unread.get((group_id, parent), 0) + unread)
