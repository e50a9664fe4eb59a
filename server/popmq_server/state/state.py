"""The broker's state: tables over the store.

`State` is a write-through image of the small tables of the store (positions, counters, owners); the large ones (log,
consume queue, retry entries) are read from LMDB when needed. CheckPoints and leases have tables like the others, but
their committed entries stay in the store (checkpoints.py). A `Tx` changes the state (tx.py).

At start one scan of the small tables, ck and due, and the two ends of each queue rebuild everything; history is never
read. "follows" marks tables that the store does not have: they follow from others.

    table          key → value                                                stored in
    topics, groups id → settings                                              topic, group
    ids            ("t" or "g", name) → id                                    name
    lite_ids       parent T, lite topic → id                                  name
    lites          parent T → how many lite topics, and their messages        follows
    unread         G, parent T → messages of lite topics not popped yet       follows
    purges         id → kind of a deleted topic or group not yet removed      purge
    queue_min      T, Q → first readable offset                               queue
    queue_max      T, Q → next offset                                         follows from cq
    poff           G, T, Q → next offset to pop                               poff
    stat           G, T → counters                                            stat
    subscriptions  G, T → filter, consume mode                                sub
    sweeps         G, T → remaining work of a reset or consume mode switch    sweep
    topic_stat     T → counters of the topic                                  tstat
    ck             ck_id → CheckPoint                                         ck
    leases         ck_id, sub → Lease; owner id, SUB_OWNER → its own key      due
    owners, tokens G, hash → Owner; G, T, hash → Token                        own, tok
    total, passed  T, and G, T → sums of queue_max and of poff                follow
    held, owned    G, T, and owner → messages under leases                    follow from ck and due
    in_flight      G, T, Q → the same for ordinary pops, for the limit        follows
    subs           ck_id → parts of its lease, where there are several        follows
    unburied       ck_id, sub → members whose dead letter finds no room       nowhere: the revive finds them again
    pins           chunk → leased messages in it                              follows
    loose          owner → its messages in the retry topic, tied              follows
    clients        G, client → messages leased to it                          follows
    group_pins, span_chunks, spans    the same by group and topic: oldest_leased.py   follow
    attempts       hash of G, T, client, attempt id → ck_id                   follows from ck
    lite_attempts  hash of G, parent T, client, attempt id → ck_ids           the same
    session_leases, session_spans    client → ck_ids of leases bound to its session: session_ids.py   follow
    checks         T (0: given up) → due time of its first half message       follows from hdue
    waiting, tied  G, T, message group → entries in fwait, and tied to owners follow from fwait
    stopped        G, T, message group → (offset, reason) of what stopped it  follows from fwait
    locks          G, T, message group → undone members, owner, part          follows from ck and due
    turns          G, T → order of its queues, least recently served first    nowhere: turns.py
    buckets        kind, T, G → tokens of a quota, and as of when             nowhere: full after a restart
    open_chunks    T → the chunk that small commits share (topic.py)          nowhere: a restart begins new ones

Derived values are tables too, so an aborted commit drops their changes with the others. `check.differences` compares
the tables of a running broker with those of a fresh start.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

from popmq_server.model.checkpoint import CheckPoint, Lease
from popmq_server.model.ids import GroupId, GroupQueue, GroupTopic, MessageGroup, TopicId, TopicQueue
from popmq_server.model.records import (
    IN_FLIGHT_MAX,
    SUBSCRIPTION_EXPIRY_MS,
    Counters,
    Group,
    Held,
    Lites,
    OpenChunk,
    Owner,
    Stat,
    Subscription,
    Sweep,
    Token,
    Topic,
    TopicStat,
    Void,
)
from popmq_server.state import lease_sums
from popmq_server.state.checkpoints import CheckPoints, Leases
from popmq_server.state.lease_sums import attempt_key
from popmq_server.state.lite_watch import Watches
from popmq_server.state.ready_groups import Lines
from popmq_server.state.turns import Turns
from popmq_server.state.undo import Undo
from popmq_server.storage.keys import (
    CQ_ENTRY,
    CQ_KEY,
    FWAIT_KEY,
    FWAIT_VALUE,
    HDUE_KEY,
    I64,
    NEVER,
    POFF_KEY,
    QUEUE_ENDS,
    QUEUE_KEY,
    STAT_KEY,
    U32,
    U64,
    hash8,
)
from popmq_server.storage.lmdb import Transaction
from popmq_server.storage.rows import RowReader, every_field, read_row, store_rows, without_defaults
from popmq_server.storage.table import Table

_COUNTERS = b"counters"
#: Key prefix of the names of lite topics, before the id of their parent.
LITE_NAME = b"l"
#: Defaults for fields that a group of an older store lacks.
_OLDER_GROUP = {
    "fifo": False,
    "in_flight_max": IN_FLIGHT_MAX,
    "stop_on_failure": False,
    "lite_exclusive": False,
    "consume_enable": True,
    "subscription_expiry_ms": SUBSCRIPTION_EXPIRY_MS,
}


def _put_packed(name: str, pack: Callable[..., bytes], width: Callable[[Any], bytes]) -> Callable[..., None]:
    """A store function for a table whose keys pack into fixed fields."""

    def store(tx: Transaction, key: Any, _: Any, value: Any) -> None:
        raw = pack(*key)
        if value is None:
            tx.delete(name, raw)
        else:
            tx.put(name, raw, width(value))

    return store


def _stat_bytes(stat: Stat | TopicStat) -> bytes:
    """Signed: `start` goes below zero when a PULL group sends back messages that it has not committed."""
    return b"".join(map(I64.pack, stat))


def _numbers(raw: bytes | memoryview, count: int) -> list[int]:
    """`count` numbers; a store of an older format has fewer, the missing ones are zero."""
    return [I64.unpack_from(raw, 8 * place)[0] if 8 * place < len(raw) else 0 for place in range(count)]


def _pair_key(key: tuple[int, int]) -> bytes:
    return STAT_KEY.pack(*key)


def _owner_key(key: tuple[int, bytes]) -> bytes:
    return U32.pack(key[0]) + key[1]


def _token_key(key: tuple[int, int, bytes]) -> bytes:
    return STAT_KEY.pack(key[0], key[1]) + key[2]


def _owner_fields(owner: Owner) -> dict[str, Any]:
    """The fields of an owner without its hash, which its key has."""
    return owner._asdict() | {"key": ""}


class State:
    """All tables. `transactional` lists them in the order in which they are flushed."""

    def __init__(self) -> None:
        self.topics: Table[int, Topic] = Table(store_rows("topic", Topic, U32.pack, without_defaults))
        self.groups: Table[int, Group] = Table(store_rows("group", Group, U32.pack, every_field))
        self.ids: Table[tuple[str, str], int] = Table(_store_name)
        self.lite_ids: Table[tuple[TopicId, str], TopicId] = Table(_store_lite_name)
        self.purges: Table[int, str] = Table(_put_packed_id("purge", str.encode))
        self.queue_min: Table[TopicQueue, int] = Table(self._store_queue_ends)
        self.poff: Table[GroupQueue, int] = Table(_put_packed("poff", POFF_KEY.pack, U64.pack))
        self.stat: Table[GroupTopic, Stat] = Table(_put_packed("stat", STAT_KEY.pack, _stat_bytes))
        self.subscriptions: Table[GroupTopic, Subscription] = Table(
            store_rows("sub", Subscription, _pair_key, every_field)
        )
        self.sweeps: Table[GroupTopic, Sweep] = Table(store_rows("sweep", Sweep, _pair_key, every_field))
        self.topic_stat: Table[int, TopicStat] = Table(_put_packed_id("tstat", _stat_bytes))
        self.ck = CheckPoints()
        self.leases = Leases(self.ck)
        self.owners: Table[tuple[int, bytes], Owner] = Table(store_rows("own", Owner, _owner_key, _owner_fields))
        self.tokens: Table[tuple[int, int, bytes], Token] = Table(store_rows("tok", Token, _token_key, every_field))
        self.counters: Table[str, Counters] = Table(_store_counters)
        # Memory only: these follow from the tables above, or from the ends of the queues.
        #: Sums over the queues: next offsets of a topic, next offsets to pop of a group in a topic. Their difference is
        #: the group's backlog, without a walk over the queues.
        self.total: Table[int, int] = Table()
        self.passed: Table[GroupTopic, int] = Table()
        self.queue_max: Table[TopicQueue, int] = Table()
        self.topic_groups: Table[int, tuple[GroupId, ...]] = Table()
        self._follow_leases()
        self.checks: Table[int, int] = Table()
        self.waiting: Table[MessageGroup, int] = Table()
        self.tied: Table[MessageGroup, int] = Table()
        self.locks: Table[MessageGroup, tuple[int, int, int]] = Table()
        self.stopped: Table[MessageGroup, tuple[tuple[int, str], ...]] = Table()
        #: Undo log for state that is not a table.
        self.undo = Undo()
        self.lines = Lines(self.waiting, self.locks, self.stopped, self.undo)
        self.lites: Table[int, Lites] = Table()
        self.unread: Table[GroupTopic, int] = Table()
        self.lite_attempts: Table[int, tuple[int, ...]] = Table()
        self.watches = Watches(self.watched_id, self.deliverable, self.undo)
        self.owner_keys: Table[int, tuple[int, bytes]] = Table()
        self.owner_tokens: Table[int, tuple[tuple[int, int, bytes], ...]] = Table()
        #: Index blocks written since the last search for blocks to merge (index_merge.py).
        self.fresh_blocks = 0
        #: The turns of queues in pops and in sends; a restart resets them.
        self.turns: Table[GroupTopic, Turns] = Table()
        self.send_turns: dict[int, int] = {}
        #: The next position of pops in a retry topic that a reset made void, with its voids: invalidated.py.
        self.void_begins: dict[GroupTopic, tuple[tuple[Void, ...], bytes]] = {}
        #: Tokens of quotas by (kind, T, G), in thousandths, and as of when: quotas.py. A restart fills them.
        self.buckets: Table[tuple[int, int, int], tuple[int, int]] = Table()
        #: Names of topics with a live producer that can answer check backs (check_back.py); set by the event loop.
        self.listened: frozenset[str] = frozenset()
        #: Chunks whose pointers are being searched, without a new lease or pin since: kept.py.
        self.searched: set[int] = set()
        self._begin_in_memory()
        self.transactional: list[Table[Any, Any]] = [table for table in vars(self).values() if isinstance(table, Table)]
        self.counters.load("", Counters())

    def _follow_leases(self) -> None:
        """Creates the tables that follow from CheckPoints and leases: lease_sums.py."""
        self.held: Table[GroupTopic, Held] = Table()
        self.in_flight: Table[GroupQueue, int] = Table()
        self.owned: Table[int, int] = Table()
        self.subs: Table[int, int] = Table()
        self.pins: Table[int, int] = Table()
        self.group_pins: Table[tuple[int, int, int], int] = Table()
        self.span_chunks: Table[tuple[int, int, int], tuple[int, ...]] = Table()
        self.spans: Table[GroupTopic, tuple[int, ...]] = Table()
        #: Position of a walk over CheckPoints: of a removal by (id,), of a sweep by (G, T). A restart begins again.
        self.walked: Table[tuple[int, ...], int] = Table()
        self.attempts: Table[int, int] = Table()
        self.session_leases: Table[tuple[str, int], tuple[int, ...]] = Table()
        self.session_spans: Table[tuple[str], tuple[int, ...]] = Table()
        self.loose: Table[int, int] = Table()
        self.clients: Table[tuple[int, str], int] = Table()

    def _begin_in_memory(self) -> None:
        """Creates the state that a restart drops. `trims`, `looked`, `trimmed`, `firsts`: size_limit.py, which restores
        them within a minute.
        """
        # Members of expired leases with no attempt left, whose dead letter finds no room; and their number by group and
        # topic. After a restart they are unknown until the revive meets them again.
        self.unburied, self.unburied_count = Table[tuple[int, int], int](), Table[tuple[int, int], int]()
        self.trims: dict[int, int] = {}
        self.looked: dict[int, int] = {}
        self.trimmed: dict[int, int] = {}
        self.firsts: dict[int, int] = {}
        #: The chunk of a topic that small commits share: topic.py.
        self.open_chunks: Table[int, OpenChunk] = Table()
        #: When a group last asked to read a topic, ms: expiry.py.
        self.last_read: dict[GroupTopic, int] = {}
        #: The same by queue, of pops and pulls: subscription.note_read.
        self.queue_reads: dict[GroupTopic, dict[int, int]] = {}

    def _store_queue_ends(self, tx: Transaction, key: TopicQueue, _: int | None, least: int | None) -> None:
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
        """The deadline of a lease; for an owner's CheckPoint that of its owner, and 0 when the owner is gone."""
        if part.due_ms != NEVER:
            return part.due_ms
        key = self.owner_keys.get(ck.owner_id)
        return self.owners[key].lease_until_ms if key else 0

    def load(self, tx: Transaction) -> None:
        """The scan at start. Raises StartError, which names the row, when one cannot be read."""
        rows = RowReader(tx)
        try:
            self._load(tx, rows)
        except RowReader.ERRORS as error:
            raise rows.unreadable(error) from error

    def _load(self, tx: Transaction, rows: RowReader) -> None:
        if (raw := tx.get("meta", _COUNTERS)) is not None:
            count = len(Counters._fields)
            older = Counters(*_numbers(raw, count))
            self.counters.load("", older._replace(sched_id=older.sched_id or 1, txn_id=older.txn_id or 1))
        self._load_names(rows)
        for _, value in rows.scan("topic"):
            self._load_topic(tx, Topic(**read_row(Topic, value)))
        for key, value in rows.scan("group"):
            fields = _OLDER_GROUP | read_row(Group, value)
            self.groups.load(U32.unpack(key)[0], Group(**fields | {"delays_ms": tuple(fields["delays_ms"])}))
        for key, value in rows.scan("purge"):
            self.purges.load(U32.unpack(key)[0], bytes(value).decode())
        for key, value in rows.scan("poff"):
            where, offset = POFF_KEY.unpack(key), U64.unpack(value)[0]
            self.poff.load(where, offset)
            self.passed.load(where[:2], self.passed.get(where[:2], 0) + offset)
        for key, value in rows.scan("stat"):
            self.load_stat(STAT_KEY.unpack(key), Stat(*_numbers(value, len(Stat._fields))))
        for key, value in rows.scan("sub"):
            self.subscriptions.load(STAT_KEY.unpack(key), Subscription(**read_row(Subscription, value)))
        for key, value in rows.scan("sweep"):
            self.sweeps.load(STAT_KEY.unpack(key), _sweep(read_row(Sweep, value)))
        self._load_topic_stats(tx, rows)
        self._load_checks(tx)
        self._load_owners(rows)
        rows.at = ("ck", b"")
        lease_sums.load(self, tx)
        self._load_waiting(rows)
        self._load_lites()

    def _load_names(self, rows: RowReader) -> None:
        """Loads the names. Those of lite topics have their parent's id, so they are not found once that is deleted."""
        for key, value in rows.scan("name"):
            if key[:1] == LITE_NAME:
                self.lite_ids.load((U32.unpack_from(key, 1)[0], key[5:].decode()), U32.unpack(value)[0])
            else:
                self.ids.load((chr(key[0]), key[1:].decode()), U32.unpack(value)[0])

    def _load_topic(self, tx: Transaction, topic: Topic) -> None:
        """Loads a topic and both ends of each queue."""
        self.topics.load(topic.topic_id, topic)
        for queue in range(topic.queues):
            prefix = QUEUE_KEY.pack(topic.topic_id, queue)
            raw = tx.get("queue", prefix)
            least, most = QUEUE_ENDS.unpack(raw) if raw is not None else (0, 0)
            if last := tx.last("cq", prefix):
                most = max(most, CQ_KEY.unpack(last[0])[2] + len(last[1]) // CQ_ENTRY.size)
            self.queue_min.load((topic.topic_id, queue), least)
            self.queue_max.load((topic.topic_id, queue), most)
            self.total.load(topic.topic_id, self.total.get(topic.topic_id, 0) + most)

    def _load_topic_stats(self, tx: Transaction, rows: RowReader) -> None:
        """Loads the counters. A topic of an older store has none: its size is the sum of its chunks."""
        for key, value in rows.scan("tstat"):
            self.topic_stat.load(U32.unpack(key)[0], TopicStat(*_numbers(value, len(TopicStat._fields))))
        for topic_id in self.topics:
            if topic_id not in self.topic_stat:
                sizes = (U32.unpack_from(value, U64.size)[0] for _, value in tx.scan("idx", U32.pack(topic_id)))
                self.topic_stat.load(topic_id, TopicStat(sum(sizes)))

    def _load_checks(self, tx: Transaction) -> None:
        """Loads the due time of the first half message of each topic, and of those that must be given up."""
        for lane in (0, *(topic_id for topic_id, stat in self.topic_stat.items() if stat.half)):
            if first := tx.first("hdue", U32.pack(lane)):
                self.checks.load(lane, HDUE_KEY.unpack(first[0])[1])

    def load_stat(self, where: GroupTopic, stat: Stat) -> None:
        """Loads counters. A group belongs to a topic as soon as it has counters there."""
        self.stat.load(where, stat)
        self.topic_groups.load(where[1], (*self.topic_groups.get(where[1], ()), where[0]))

    def _load_owners(self, rows: RowReader) -> None:
        """Loads owners, then their tokens, in the order of their keys."""
        for key, value in rows.scan("own"):
            owner = Owner(**read_row(Owner, value) | {"key": key[4:]})
            self.owners.load((owner.group_id, owner.key), owner)
            self.owner_keys.load(owner.owner_id, (owner.group_id, owner.key))
        for key, value in rows.scan("tok"):
            token = Token(**read_row(Token, value))
            token_key = (*STAT_KEY.unpack(key[:8]), key[8:])
            self.tokens.load(token_key, token)
            self.owner_tokens.load(token.owner_id, (*self.owner_tokens.get(token.owner_id, ()), token_key))

    def _load_waiting(self, rows: RowReader) -> None:
        """Loads the waiting entries of FIFO topics, by message group."""
        for key, value in rows.scan("fwait"):
            *where, message_group, offset = FWAIT_KEY.unpack(key)
            group = (*where, message_group)
            self.waiting.load(group, self.waiting.get(group, 0) + 1)
            *_, bound_ck, _, stopped = FWAIT_VALUE.unpack_from(value)
            if bound_ck:
                self.tied.load(group, self.tied.get(group, 0) + 1)
            if stopped:
                reason = bytes(value[FWAIT_VALUE.size :]).decode()
                self.stopped.load(group, (*self.stopped.get(group, ()), (offset, reason)))

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


def _put_packed_id(name: str, width: Callable[[Any], bytes]) -> Callable[..., None]:
    def store(tx: Transaction, key: int, _: Any, value: Any) -> None:
        if value is None:
            tx.delete(name, U32.pack(key))
        else:
            tx.put(name, U32.pack(key), width(value))

    return store


def _store_name(tx: Transaction, key: tuple[str, str], _: int | None, value: int | None) -> None:
    raw = key[0].encode() + key[1].encode()
    if value is None:
        tx.delete("name", raw)
    else:
        tx.put("name", raw, U32.pack(value))


def _store_lite_name(tx: Transaction, key: tuple[int, str], _: int | None, value: int | None) -> None:
    raw = LITE_NAME + U32.pack(key[0]) + key[1].encode()
    if value is None:
        tx.delete("name", raw)
    else:
        tx.put("name", raw, U32.pack(value))


#: The hash of a lite topic's name: the key of its one message group.
lite_hash = functools.lru_cache(maxsize=65536)(hash8)
_NO_SWEEP = Sweep()


def _store_counters(tx: Transaction, _: str, __: Any, value: Counters) -> None:
    tx.put("meta", _COUNTERS, b"".join(map(U64.pack, value)))


def _sweep(fields: dict[str, Any]) -> Sweep:
    voids = (Void(ck_id, rseq, *map(tuple, offsets)) for ck_id, rseq, *offsets in fields["voids"])
    return Sweep(**fields | {"voids": tuple(voids)})
