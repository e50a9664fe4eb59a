"""What the broker knows: tables over the store, and the unit of work that changes them.

`State` is a write-through image of the small half of the store (positions, counters, CheckPoints, owners); the large
half (log, consume queue, retry entries) is read from LMDB when needed. `Tx` is one group commit in the making: one LMDB
transaction, the layers of all tables, the messages staged for the log, and who will have to be woken after the commit.

At start one scan of ck, due, own, tok and a look at the ends of each queue rebuild everything; history is never read.

    table          key → value                                                stored in
    topics, groups id → settings                                              topic, group
    ids            ("t" or "g", name) → id                                    name
    purges         id → what of a deleted topic or group is still there       purge
    queue_min      T, Q → first readable offset                               queue
    queue_max      T, Q → next offset                                         follows from cq
    poff           G, T, Q → next offset to pop                               poff
    stat           G, T → counters                                            stat
    ck             ck_id → CheckPoint                                         ck
    leases         ck_id, sub → Lease; owner id, SUB_OWNER → its own key      due
    owners, tokens G, hash → Owner; G, T, hash → Token                        own, tok
    total, passed  T, and G, T → sums of queue_max and of poff                follow
    held, owned    G, T, and owner → messages under leases                    follow from ck and due
    in_flight      G, T, Q → the same for ordinary pops: what is limited      follows
    subs           ck_id → parts of its lease; with the last one it goes      follows
    pins           chunk → leased messages in it                              follows
    loose          owner → its messages in the retry topic, tied              follows
    attempts       G, T, client, attempt id → ck_id                           follows from ck

What follows is kept in tables all the same, so that an aborted commit takes it back with the rest. `check.differences`
compares every table of a living broker with those of a fresh start.
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from popmq_server import checkpoint
from popmq_server.checkpoint import BACKOFF, CheckPoint, Lease
from popmq_server.message import DEAD_LETTER_PREFIX
from popmq_server.storage.keys import (
    CQ_ENTRY,
    CQ_KEY,
    DUE_KEY,
    POFF_KEY,
    QUEUE_ENDS,
    QUEUE_KEY,
    STAT_KEY,
    SUB_OWNER,
    U32,
    U64,
)
from popmq_server.storage.lmdb import Store, Transaction
from popmq_server.storage.table import Table

#: Leased messages of a group in one queue, for ordinary pops.
IN_FLIGHT_MAX = 10_000
#: What was popped from the retry topic counts as leased from this queue: else messages that nobody acks would go round
#: and make place for ever new ones.
RETRY_QUEUE = 0xFFFF


class Topic(NamedTuple):
    """Settings of a topic; times in ms.

    `by_age`: retention counts from the time of storing, read or not; else from when every group has moved past.
    """

    topic_id: int
    name: str
    queues: int
    by_age: bool
    keep_ms: int
    created_ms: int
    type: str = "NORMAL"

    @property
    def is_dead_letter(self) -> bool:
        return self.name.startswith(DEAD_LETTER_PREFIX)


class Group(NamedTuple):
    """Settings of a group; times in ms. The fields are those of commands.CreateGroup, which explains them."""

    group_id: int
    name: str
    max_attempts: int
    delays_ms: tuple[int, ...]
    invisible_ms: int
    share_number: int
    start_from: str  # EARLIEST, LATEST, TIMESTAMP
    start_ms: int
    exclusive_owner: bool
    created_ms: int


class Stat(NamedTuple):
    """Counters of one group in one topic, moved in the transaction that moves the messages."""

    retry: int = 0  # entries in the retry topic
    acked: int = 0
    dead: int = 0
    expired: int = 0
    quarantined: int = 0
    start: int = 0  # sum of the offsets at which the group began: what it has passed since is in one of the others


class Held(NamedTuple):
    """How many messages of a group in a topic are under a lease; follows from `ck` and `due`."""

    ordinary: int = 0
    owned: int = 0
    backoff: int = 0


class Owner(NamedTuple):
    """A durable reader of a group: see owner.py.

    `released`: its lease ended and what it held is in the retry topic (or, in an exclusive group, just unattended).
    """

    owner_id: int
    group_id: int
    key: bytes  # hash16 of its name
    name: str
    generation: int
    lease_until_ms: int
    acked_epoch: int
    last_seen_ms: int
    released: bool


class Token(NamedTuple):
    """A sealed pop of an owner.

    `ck_id` 0: the set is empty, and stays so. `end`: there was nothing more for this epoch when it was sealed.
    """

    owner_id: int
    epoch: int
    part: int
    chunk: int
    ck_id: int
    members: int
    end: bool


class Counters(NamedTuple):
    """Numbers that only grow."""

    position: int = 0  # of the next record
    ck_id: int = 1
    rseq: int = 1
    entity: int = 1  # topics, groups, owners
    saved_ms: int = 0


_COUNTERS = b"counters"


def _put_packed(name: str, pack: Callable[..., bytes], width: Callable[[Any], bytes]) -> Callable[..., None]:
    """A store function for a table whose keys pack into fixed fields."""

    def store(tx: Transaction, key: Any, _: Any, value: Any) -> None:
        raw = pack(*key)
        if value is None:
            tx.delete(name, raw)
        else:
            tx.put(name, raw, width(value))

    return store


def _json(value: Any) -> bytes:
    return json.dumps(value._asdict(), ensure_ascii=False).encode()


def _stat_bytes(stat: Stat) -> bytes:
    return b"".join(map(U64.pack, stat))


def _raw_key(group_id: int, tail: bytes) -> bytes:
    return U32.pack(group_id) + tail


def _token_key(group_id: int, topic_id: int, tail: bytes) -> bytes:
    return STAT_KEY.pack(group_id, topic_id) + tail


class State:
    """All tables. `transactional` lists them in the order in which they are flushed."""

    def __init__(self) -> None:
        self.topics: Table[int, Topic] = Table(_put_packed_id("topic", _json))
        self.groups: Table[int, Group] = Table(_put_packed_id("group", _json))
        self.ids: Table[tuple[str, str], int] = Table(_store_name)
        self.purges: Table[int, str] = Table(_put_packed_id("purge", str.encode))
        self.queue_min: Table[tuple[int, int], int] = Table(self._store_queue_ends)
        self.poff: Table[tuple[int, int, int], int] = Table(_put_packed("poff", POFF_KEY.pack, U64.pack))
        self.stat: Table[tuple[int, int], Stat] = Table(_put_packed("stat", STAT_KEY.pack, _stat_bytes))
        self.ck: Table[int, CheckPoint] = Table(checkpoint.store_checkpoint)
        self.leases: Table[tuple[int, int], Lease] = Table(self._store_lease)
        self.owners: Table[tuple[int, bytes], Owner] = Table(_put_packed("own", _raw_key, _json_owner))
        self.tokens: Table[tuple[int, int, bytes], Token] = Table(_put_packed("tok", _token_key, _json))
        self.counters: Table[str, Counters] = Table(_store_counters)
        # Memory only: follow from the tables above, or from the ends of the queues.
        #: Sums over the queues: next offsets of a topic, next offsets to pop of a group in a topic. Their difference is
        #: what the group has not popped yet, without a walk over the queues.
        self.total: Table[int, int] = Table()
        self.passed: Table[tuple[int, int], int] = Table()
        self.queue_max: Table[tuple[int, int], int] = Table()
        self.topic_groups: Table[int, tuple[int, ...]] = Table()
        self.held: Table[tuple[int, int], Held] = Table()
        self.in_flight: Table[tuple[int, int, int], int] = Table()
        self.owned: Table[int, int] = Table()
        self.subs: Table[int, int] = Table()
        self.pins: Table[int, int] = Table()
        self.attempts: Table[tuple[int, int, str, str], int] = Table()
        self.loose: Table[int, int] = Table()
        self.owner_keys: Table[int, tuple[int, bytes]] = Table()
        self.owner_tokens: Table[int, tuple[tuple[int, int, bytes], ...]] = Table()
        # Turns of rotation: lost at a restart and moved by aborted commits, which harms nothing.
        self.send_turns: dict[int, int] = {}
        self.pop_turns: dict[tuple[int, int], int] = {}
        self.transactional: list[Table[Any, Any]] = [table for table in vars(self).values() if isinstance(table, Table)]
        self.counters.load("", Counters())

    def _store_lease(self, tx: Transaction, key: tuple[int, int], before: Lease | None, now: Lease | None) -> None:
        """A part that moves leaves its old key in the revive topic."""
        ck_id, sub = key
        if before is not None and (now is None or now.due_ms != before.due_ms):
            tx.delete("due", DUE_KEY.pack(before.due_ms, ck_id, sub))
        if now is not None:
            value = b"" if sub == SUB_OWNER else checkpoint.encode_lease(sub, now, self.ck[ck_id].members)
            tx.put("due", DUE_KEY.pack(now.due_ms, ck_id, sub), value)

    def _store_queue_ends(self, tx: Transaction, key: tuple[int, int], _: int | None, least: int | None) -> None:
        """The end is told by the last block, unless retention dropped that one and an earlier one is still held."""
        if least is None:
            tx.delete("queue", QUEUE_KEY.pack(*key))
        else:
            tx.put("queue", QUEUE_KEY.pack(*key), QUEUE_ENDS.pack(least, self.queue_max.get(key, least)))

    def load(self, tx: Transaction) -> None:
        """The scan at start."""
        if (raw := tx.get("meta", _COUNTERS)) is not None:
            self.counters.load("", Counters(*(U64.unpack_from(raw, 8 * place)[0] for place in range(5))))
        for key, value in tx.scan("name"):
            self.ids.load((chr(key[0]), key[1:].decode()), U32.unpack(value)[0])
        for _, value in tx.scan("topic"):
            self._load_topic(tx, Topic(**json.loads(bytes(value))))
        for key, value in tx.scan("group"):
            fields = json.loads(bytes(value))
            self.groups.load(U32.unpack(key)[0], Group(**fields | {"delays_ms": tuple(fields["delays_ms"])}))
        for key, value in tx.scan("purge"):
            self.purges.load(U32.unpack(key)[0], bytes(value).decode())
        for key, value in tx.scan("poff"):
            where, offset = POFF_KEY.unpack(key), U64.unpack(value)[0]
            self.poff.load(where, offset)
            self.passed.load(where[:2], self.passed.get(where[:2], 0) + offset)
        for key, value in tx.scan("stat"):
            numbers = (U64.unpack_from(value, 8 * place)[0] for place in range(len(Stat._fields)))
            self.load_stat(STAT_KEY.unpack(key), Stat(*numbers))
        self._load_owners(tx)
        self._load_leases(tx)

    def _load_topic(self, tx: Transaction, topic: Topic) -> None:
        """Looks at both ends of each queue."""
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

    def load_stat(self, where: tuple[int, int], stat: Stat) -> None:
        """A group in a topic exists as soon as it has counters there."""
        self.stat.load(where, stat)
        self.topic_groups.load(where[1], (*self.topic_groups.get(where[1], ()), where[0]))

    def _load_owners(self, tx: Transaction) -> None:
        """Owners, then their tokens, in the order of their keys."""
        for key, value in tx.scan("own"):
            fields = json.loads(bytes(value))
            owner = Owner(**fields | {"key": key[4:]})
            self.owners.load((owner.group_id, owner.key), owner)
            self.owner_keys.load(owner.owner_id, (owner.group_id, owner.key))
        for key, value in tx.scan("tok"):
            token = Token(**json.loads(bytes(value)))
            token_key = (*STAT_KEY.unpack(key[:8]), key[8:])
            self.tokens.load(token_key, token)
            self.owner_tokens.load(token.owner_id, (*self.owner_tokens.get(token.owner_id, ()), token_key))

    def _load_leases(self, tx: Transaction) -> None:
        """CheckPoints, then their parts; the gauges follow."""
        for key, value in tx.scan("ck"):
            ck = checkpoint.decode(U64.unpack(key)[0], value)
            self.ck.load(ck.ck_id, ck)
            if ck.attempt_id:
                self.attempts.load((ck.group_id, ck.topic_id, ck.client, ck.attempt_id), ck.ck_id)
        for key, value in tx.scan("due"):
            due_ms, ck_id, sub = DUE_KEY.unpack(key)
            if sub == SUB_OWNER:
                self.leases.load((ck_id, sub), Lease(due_ms, 0))
                continue
            ck = self.ck[ck_id]
            lease = checkpoint.decode_lease(due_ms, sub, value, ck.members)
            self.leases.load((ck_id, sub), lease)
            self.subs.load(ck_id, self.subs.get(ck_id, 0) + 1)
            self._load_held(ck, lease)

    def _load_held(self, ck: CheckPoint, lease: Lease) -> None:
        """Counts one part into the gauges, as Tx.hold does for a living one."""
        bits = lease.undone & ~lease.released
        where = (ck.group_id, ck.topic_id)
        for chunk, count in ck.pinned(bits).items():
            self.pins.load(chunk, self.pins.get(chunk, 0) + count)
        self.held.load(where, shifted(self.held.get(where, Held()), ck, bits.bit_count()))
        if ck.owner_id:
            self.owned.load(ck.owner_id, self.owned.get(ck.owner_id, 0) + bits.bit_count())
            self.loose.load(ck.owner_id, self.loose.get(ck.owner_id, 0) + lease.released.bit_count())
        elif ck.kind != BACKOFF:
            for queue, count in queue_counts(ck, bits):
                self.in_flight.load((*where, queue), self.in_flight.get((*where, queue), 0) + count)


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


def _store_counters(tx: Transaction, _: str, __: Any, value: Counters) -> None:
    tx.put("meta", _COUNTERS, b"".join(map(U64.pack, value)))


def _json_owner(owner: Owner) -> bytes:
    return json.dumps(owner._asdict() | {"key": ""}, ensure_ascii=False).encode()


def shifted(held: Held, ck: CheckPoint, count: int) -> Held:
    """`held` with `count` (may be negative) members of `ck` more."""
    if ck.owner_id:
        return held._replace(owned=held.owned + count)
    if ck.kind == BACKOFF:
        return held._replace(backoff=held.backoff + count)
    return held._replace(ordinary=held.ordinary + count)


def queue_counts(ck: CheckPoint, bits: int) -> list[tuple[int, int]]:
    """(queue or RETRY_QUEUE, members of `bits`) pairs, one for each run that has any."""
    return [(RETRY_QUEUE if run.size else run.queue, inside.bit_count()) for run, _, inside in ck.runs_with(bits)]


class Tx:
    """One group commit in the making. Handlers take it first; nothing outlives it but what `commit` merges."""

    __slots__ = ("kv", "now_ms", "staged", "staged_count", "state", "woken")

    def __init__(self, state: State, store: Store, now_ms: int) -> None:
        """Begins an LMDB transaction; `now_ms` is the time of everything in this commit."""
        self.state = state
        self.kv = store.begin()
        self.now_ms = now_ms
        #: Messages on their way into the log, by topic: topic.py.
        self.staged: dict[int, list[Any]] = {}
        self.staged_count = 0
        #: (group name or None for all groups, topic name): something there became deliverable.
        self.woken: set[tuple[str | None, str]] = set()

    @property
    def dirty(self) -> int:
        """Grows with everything that an abort would have to undo."""
        return self.kv.writes + self.staged_count + Table.changes

    def next(self, field: str, count: int = 1) -> int:
        """Takes `count` numbers of a counter; the first of them.

        Numbers are never given out twice, also when what they named is gone: a handle of an old CheckPoint must not
        fit a new one.
        """
        counters = self.state.counters[""]
        first: int = getattr(counters, field)
        self.state.counters[""] = counters._replace(**{field: first + count})
        return first

    def topic(self, name: str) -> Topic | None:
        """A topic by name, as this transaction sees it."""
        topic_id = self.state.ids.get(("t", name))
        return None if topic_id is None else self.state.topics[topic_id]

    def group(self, name: str) -> Group | None:
        """A group by name, as this transaction sees it."""
        group_id = self.state.ids.get(("g", name))
        return None if group_id is None else self.state.groups[group_id]

    def wake(self, group_id: int | None, topic_id: int) -> None:
        """After the commit one parked Pop of the group (None: of each group) in the topic is to look again."""
        topic = self.state.topics.get(topic_id)
        group = self.state.groups.get(group_id) if group_id is not None else None
        if topic is not None and (group_id is None or group is not None):
            self.woken.add((group.name if group else None, topic.name))

    def count(self, where: tuple[int, int], **changes: int) -> None:
        """Moves counters of one group in one topic."""
        stat = self.state.stat[where]
        self.state.stat[where] = stat._replace(
            **{name: getattr(stat, name) + change for name, change in changes.items()}
        )

    def hold(self, ck: CheckPoint, bits: int, sign: int) -> None:
        """Members of `ck` come under its lease (sign 1) or leave it (sign -1): every gauge that follows.

        One place for all of them, so that they cannot drift apart: what a lease gains here it loses here.
        """
        state, where = self.state, (ck.group_id, ck.topic_id)
        state.held[where] = shifted(state.held.get(where, Held()), ck, sign * bits.bit_count())
        if ck.owner_id:
            state.owned[ck.owner_id] = state.owned.get(ck.owner_id, 0) + sign * bits.bit_count()
        elif ck.kind != BACKOFF:
            for queue, count in queue_counts(ck, bits):
                before = state.in_flight.get((*where, queue), 0)
                state.in_flight[(*where, queue)] = before + sign * count
                if sign < 0 and before >= IN_FLIGHT_MAX:
                    self.wake(*where)
        for chunk, count in ck.pinned(bits).items():
            state.pins[chunk] = state.pins.get(chunk, 0) + sign * count

    def pass_to(self, where: tuple[int, int, int], offset: int) -> None:
        """A group moves on in a queue."""
        before = self.state.poff.get(where, 0)
        if offset != before or where not in self.state.poff:
            self.state.poff[where] = offset
            self.state.passed[where[:2]] = self.state.passed.get(where[:2], 0) + offset - before

    def loosen(self, owner_id: int, count: int) -> None:
        """Moves the number of an owner's members that stand in the retry topic, tied to their CheckPoint."""
        self.state.loose[owner_id] = self.state.loose.get(owner_id, 0) + count

    def set_lease(self, ck: CheckPoint, sub: int, lease: Lease | None) -> None:
        """Puts or removes one part of a CheckPoint's lease; with the last part the CheckPoint goes.

        `subs` counts the parts, so nobody has to look whether others are left.
        """
        state, key = self.state, (ck.ck_id, sub)
        had = key in state.leases
        if lease is not None:
            state.leases[key] = lease
            if not had:
                state.subs[ck.ck_id] = state.subs.get(ck.ck_id, 0) + 1
        elif had:
            state.leases.pop(key)
            left = state.subs[ck.ck_id] - 1
            if left:
                state.subs[ck.ck_id] = left
            else:
                self._drop(ck)

    def _drop(self, ck: CheckPoint) -> None:
        self.state.subs.pop(ck.ck_id)
        self.state.ck.pop(ck.ck_id)
        if ck.attempt_id:
            self.state.attempts.pop((ck.group_id, ck.topic_id, ck.client, ck.attempt_id))

    def flush(self) -> None:
        """Writes what the tables changed. Once, right before the commit.

        The order is that of the tables in State: CheckPoints before their leases, which look at them for the number
        of members.
        """
        for table in self.state.transactional:
            if table.changed:
                table.flush(self.kv)

    def merge(self) -> None:
        """What was committed becomes what everybody sees."""
        for table in self.state.transactional:
            if table.changed:
                table.merge()

    def abort(self) -> None:
        """Nothing happened: the transaction and all layers are dropped."""
        self.kv.abort()
        for table in self.state.transactional:
            table.drop()
