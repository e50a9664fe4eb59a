"""The broker's state: tables over the store.

`State` is a write-through image of the small tables of the store (positions, counters, owners); the large ones (log,
consume queue, retry entries) are read from LMDB when needed. CheckPoints and leases have tables like the others, but
their committed entries stay in the store (checkpoints.py). A `Tx` changes the state (tx.py).

At start one scan of the small tables, ck and due, and the two ends of each queue rebuild everything; history is never
read. Tables that the store does not have follow from others.

Each table is declared once (all_tables.py), with its rows and the roles of its key.

Derived values are tables too, so an aborted commit drops their changes with the others. `check.differences` compares
the tables of a running broker with those of a fresh start.
"""

import itertools
from collections.abc import Iterable, Iterator

from popmq_server.embedded.state import lease_sums, unseen
from popmq_server.embedded.state.all_tables import AllTables, lite_hash
from popmq_server.embedded.state.lease_sums import attempt_key
from popmq_server.embedded.state.lite_watch import Watches
from popmq_server.embedded.state.ready_groups import ReadyGroups, load_stopped
from popmq_server.embedded.store.checkpoint import CheckPoint, Lease
from popmq_server.embedded.store.keys import (
    CQ_ENTRY,
    CQ_KEY,
    FWAIT_KEY,
    FWAIT_VALUE,
    HDUE_KEY,
    NEVER,
    QUEUE_ENDS,
    QUEUE_KEY,
    STAT_KEY,
    SUB_OWNER,
    U32,
    U64,
)
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.embedded.store.row_formats import RowReader
from popmq_server.embedded.store.table import Undo
from popmq_server.embedded.store.tables import (
    GROUP,
    MESSAGE_GROUP,
    OWNER,
    QUEUE,
    TOPIC,
)
from popmq_server.values.ids import (
    GroupId,
    GroupTopic,
    MessageGroup,
    TopicId,
)
from popmq_server.values.records import (
    RETRY_QUEUE,
    Counters,
    Lites,
    Owner,
    Schedule,
    SweepWork,
    Topic,
    TopicStat,
)

_NO_SWEEP = SweepWork()


def first_occurrence(schedules: Iterable[Schedule]) -> int:
    """The earliest next occurrence of all schedules; 0: there is none."""
    return min((one.next_ms for one in schedules if one.next_ms), default=0)


class State(AllTables):
    """All tables, and what follows from them. `transactional` lists the tables in the order of their flush."""

    def __init__(self) -> None:
        super().__init__()
        #: Undo log for state that is not a table.
        self.undo = Undo()
        self.ready_groups = ReadyGroups(self.waiting, self.locks, self.stopped, self.undo)
        self.watches = Watches(self.watched_id, self.deliverable, self.undo)
        #: The earliest next occurrence of all schedules; 0: there is none. Not a table, since every commit reads it.
        self.schedule_due = 0
        #: The latest `created_ms` of a topic that this process has deleted: see topic_lifecycle.py.
        self.deleted_ms = 0
        #: When this process began to serve the store.
        self.started_ms = 0
        #: Index blocks written since the last search for blocks to merge (index.py).
        self.fresh_blocks = 0
        #: Names of topics with a live producer that can answer check backs. A Listen command sets it, on the writer
        #: thread (check_back.py).
        self.listened: frozenset[str] = frozenset()
        #: Chunks whose pointers are being searched, without a new lease or pin since: kept.py.
        self.searched: set[int] = set()
        self.transactional = self.tables.transactional()
        self.counters.load("", Counters())

    def set_moving(self, topic_id: TopicId, old_id: TopicId) -> None:
        """Notes from which purged topic groups have to be moved to a topic; 0 = they have all been moved."""
        before = self.moving.pop(topic_id, TopicId(0))
        if before:
            self.undo.note(self.moving.__setitem__, topic_id, before)
        if old_id:
            self.moving[topic_id] = old_id
            self.undo.note(self.moving.pop, topic_id, None)

    def set_lagging(self, topic_id: TopicId, lags: bool) -> None:
        """Notes whether groups have to be moved past dropped chunks of a topic."""
        if lags == (topic_id in self.lagging):
            return
        if lags:
            self.lagging[topic_id] = True
            self.undo.note(self.lagging.pop, topic_id, None)
        else:
            self.lagging.pop(topic_id)
            self.undo.note(self.lagging.__setitem__, topic_id, True)
        if (topic := self.topics.get(topic_id)) is not None:
            self.topics[topic_id] = topic._replace(lagging=lags)

    def note_dead_blocked(self, ck: CheckPoint, sub: int, bits: int) -> None:
        """Sets the members of a part whose dead letters wait for room."""
        key = (ck.ck_id, sub)
        change = bits.bit_count() - self.dead_blocked.get(key, 0).bit_count()
        if bits:
            self.dead_blocked[key] = bits
        else:
            self.dead_blocked.pop(key)
        for topic_id in filter(None, (ck.topic_id, self.parent_of(ck.topic_id))):
            where = (ck.group_id, topic_id)
            if left := self.dead_blocked_count.get(where, 0) + change:
                self.dead_blocked_count[where] = left
            else:
                self.dead_blocked_count.pop(where)

    def move_subscription(self, old: GroupTopic, new: GroupTopic, ends: int) -> None:
        """Moves a group's counters, filter and tokens from a purged topic to the one that replaces it.

        `ends`: the sum of its positions there. The counters stay; its start moves past unfinished messages. Each token
        stays sealed, and has no messages.
        """
        stat = self.stat[old]
        done = stat.acked + stat.dead + stat.dropped + stat.quarantined + stat.filtered
        self.stat[new] = stat._replace(retry=0, waiting=0, start=ends - done)
        if (subscription := self.subscriptions.get(old)) is not None:
            self.subscriptions[new] = subscription
        for key in self._tokens_of(old) if self.owner_count.get(old[0]) else ():
            token, kept = self.tokens[key], (*new, key[2])
            self.tokens[kept] = token._replace(ck_id=0)
            keys = self.owner_tokens.get(token.owner_id, ())
            self.owner_tokens[token.owner_id] = tuple(kept if one == key else one for one in keys)

    def _tokens_of(self, where: GroupTopic) -> list[tuple[int, int, bytes]]:
        """The tokens of a group in a topic: from the store, and from this transaction."""
        assert self.ck.kv is not None
        stored = ((*where, key[STAT_KEY.size :]) for key, _ in self.ck.kv.scan("tok", STAT_KEY.pack(*where)))
        made = (key for key, _ in self.tokens.changed_items() if key[:2] == where)
        return [key for key in dict.fromkeys((*stored, *made)) if key in self.tokens]

    def forget_topic(self, topic_id: TopicId) -> None:
        """Removes a deleted topic from all tables. Its leases and subscriptions must have ended."""
        queues = itertools.takewhile(lambda queue: (topic_id, queue) in self.queue_max, itertools.count())
        self.tables.forget_keys({TOPIC: (topic_id,), QUEUE: tuple(queues)}, TOPIC)

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

    def forget_subscription(self, where: GroupTopic, queues: Iterable[int]) -> None:
        """Removes the entries of a group in a topic from all tables; `queues`: those that the group has entries of.

        Its leases, tokens and waiting entries must have ended.
        """
        for span in self.stopped_spans.get(where, ()):
            self.stopped_numbers.pop((*where, span))
        self.tables.forget_keys({GROUP: where[:1], TOPIC: where[1:], QUEUE: queues}, GROUP, TOPIC)
        self.ready_groups.forget(where)

    def forget_message_group(self, key: MessageGroup) -> None:
        """Removes a message group of a deleted topic or group, none of whose messages is leased."""
        for table in (self.waiting, self.tied, self.stopped):
            if key in table:
                table.pop(key)

    def forget_group(self, group_id: GroupId) -> None:
        """Removes a deleted group from all tables. Its leases, subscriptions and owners must have ended."""
        self.tables.forget_keys({GROUP: (group_id,)}, GROUP)

    def forget_owner(self, owner: Owner) -> None:
        """Removes an owner and its lease. Its tokens must have been removed, or be removed with its group."""
        self.tables.forget_keys({OWNER: (owner.owner_id,)}, OWNER)
        self.owners.pop((owner.group_id, owner.key))
        self.count_owner(owner.group_id, -1)
        self.leases.pop((owner.owner_id, SUB_OWNER))

    def count_owner(self, group_id: int, change: int) -> None:
        """Adds to the number of owners of a group."""
        if count := self.owner_count.get(group_id, 0) + change:
            self.owner_count[group_id] = count
        else:
            self.owner_count.pop(group_id)

    def named_topics(self) -> Iterator[Topic]:
        """All topics except lite topics, which may be many."""
        return (self.topics[topic_id] for (kind, _), topic_id in self.ids.items() if kind == "t")

    def alive(self, topic_id: int) -> bool:
        """Whether a topic exists, and the parent of a lite topic too."""
        topic = self.topics.get(topic_id)
        return topic is not None and (not topic.parent_id or topic.parent_id in self.topics)

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
            if topic.moving_from:
                self.moving[topic.topic_id] = topic.moving_from
            if topic.lagging:
                self.lagging[topic.topic_id] = True
        for where, offset in self.poff.items():
            self.passed.load(where[:2], self.passed.get(where[:2], 0) + offset)
        readers: dict[int, list[GroupId]] = {}
        for group_id, topic_id in self.stat:
            readers.setdefault(topic_id, []).append(group_id)
        self.topic_groups.load_all({topic_id: tuple(groups) for topic_id, groups in readers.items()})
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
        self.ready_groups.load()

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
