"""Sums over leases, in memory: the transaction (tx.py) updates them, the scan at start counts them.

    held       G, T → messages leased, owned, in backoff     clients    G, client → messages leased to it
    in_flight  G, T, Q → leased messages, for the limit       pins       chunk → leased messages in it
    locks      G, T, message group → undone members           owned, loose, attempts, session_leases …

The scan at start reads the keys of `due` and the entries of `ck`. A CheckPoint of one message has the counted fields at
fixed offsets. The others are decoded: some 10 µs each, for up to a thousand messages.
"""

import itertools
import operator
from collections import Counter, defaultdict
from typing import TypeVar

from popmq_server.embedded.state import oldest_leased, session_ids
from popmq_server.embedded.state.all_tables import AllTables
from popmq_server.embedded.state.checkpoints import BATCH
from popmq_server.embedded.store import checkpoint
from popmq_server.embedded.store.checkpoint import (
    BACKOFF,
    FIFO,
    NAMED,
    SESSION,
    SINGLE,
    SINGLE_BYTES,
    CheckPoint,
    members_of,
)
from popmq_server.embedded.store.keys import SUB_OWNER, U64
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.values.ids import GroupId, MessageGroup, TopicId
from popmq_server.values.records import RETRY_QUEUE, HeldNumbers

K = TypeVar("K")
Sum = defaultdict[K, int]
Entry = tuple[bytes, bytes]


def _is_single(head: tuple[int, ...]) -> bool:
    """Whether a CheckPoint has one message, no owner and no message group: it then exists only while that is undone."""
    version, _, _, kind, owner_id, runs, chunks, _, members, *_ = head
    return (version, owner_id, runs, chunks, members) == (checkpoint.VERSION, 0, 1, 1, 1) and kind & ~SESSION != FIFO


def attempt_key(group_id: int, topic_id: int, client: str, attempt_id: str) -> int:
    """The key that finds the CheckPoint of a repeated Pop. Keys may collide, so callers compare the texts.

    A hash takes less memory than the texts: each lease of the SDK has a key. It covers the texts as stored, so the scan
    at start does not parse them.
    """
    return hash((group_id, topic_id, checkpoint.texts_of(attempt_id, client)))


#: The beginning of the texts of a CheckPoint without an attempt id.
_NO_ATTEMPT = b'["",'
_FIRST, _SECOND = operator.itemgetter(0), operator.itemgetter(1)


def shifted(held: HeldNumbers, kind: int, owner_id: int, count: int) -> HeldNumbers:
    """`held` plus `count` (may be negative) members of a CheckPoint."""
    ordinary, owned, backoff = held
    if owner_id:
        return HeldNumbers(ordinary, owned + count, backoff)
    if kind == BACKOFF:
        return HeldNumbers(ordinary, owned, backoff + count)
    return HeldNumbers(ordinary + count, owned, backoff)


def locked_counts(ck: CheckPoint, bits: int) -> dict[bytes, int]:
    """For each message group the number of members of `bits` that hold its lock; empty outside FIFO topics."""
    found: dict[bytes, int] = {}
    if ck.message_groups:
        for member in members_of(bits):
            message_group = ck.message_groups[member]
            found[message_group] = found.get(message_group, 0) + 1
    return found


def queue_counts(ck: CheckPoint, bits: int) -> list[tuple[int, int]]:
    """(queue or RETRY_QUEUE, number of members of `bits`), one for each run that has any."""
    return [(RETRY_QUEUE if run.size else run.queue, inside.bit_count()) for run, _, inside in ck.runs_with(bits)]


def load(state: AllTables, kv: Transaction) -> None:
    """The scan at start."""
    split: dict[int, list[int]] = {}
    for ck_id, sub in state.leases.load_keys(kv):
        if sub != SUB_OWNER:
            split.setdefault(ck_id, []).append(sub)
    for ck_id, subs in split.items():
        if (parts := len(subs) + ((ck_id, 0) in state.leases)) > 1:
            state.subs.load(ck_id, parts)
    sums, entries = _Sums(state), kv.copies("ck")
    while batch := list(itertools.islice(entries, BATCH)):
        for key, value in sums.add_singles(batch):
            ck = checkpoint.decode(U64.unpack(key)[0], memoryview(value))
            sums.add(kv, ck, split.get(ck.ck_id, ()))
    sums.tell()


class _Sums:
    """Counts CheckPoints in plain dictionaries; `tell` loads the sums into the tables."""

    def __init__(self, state: AllTables) -> None:
        self.state = state
        #: G, T, kind, owner, queue or RETRY_QUEUE.
        self.held: Sum[tuple[GroupId, TopicId, int, int, int]] = defaultdict(int)
        self.pins: Sum[oldest_leased.Pinned] = defaultdict(int)  # G, T, chunk
        self.clients: Sum[tuple[int, str]] = defaultdict(int)
        self.locks: dict[MessageGroup, tuple[int, int, int]] = {}
        self.loose: Sum[int] = defaultdict(int)
        self.attempts: dict[int, int] = {}
        self.lite_attempts: defaultdict[int, list[int]] = defaultdict(list)
        self.sessions: defaultdict[str, list[int]] = defaultdict(list)

    def add_singles(self, batch: list[Entry]) -> list[Entry]:
        """Counts the CheckPoints of one message; returns the others, whose heads do not have all fields.

        It works column by column: a Counter over `iter_unpack` executes no Python code per lease.
        """
        heads = b"".join([value[:SINGLE_BYTES] for _, value in batch])
        counts, others = Counter(SINGLE.iter_unpack(heads)), list[Entry]()
        if not all(map(_is_single, counts)):
            single = list(map(_is_single, SINGLE.iter_unpack(heads)))
            others = [entry for entry, is_single in zip(batch, single, strict=True) if not is_single]
            batch = list(itertools.compress(batch, single))
            heads = b"".join([value[:SINGLE_BYTES] for _, value in batch])
            counts = Counter(SINGLE.iter_unpack(heads))
        for (_, group_id, topic_id, kind, _, _, _, queue, _, size, chunk), count in counts.items():
            self.held[group_id, topic_id, kind & ~SESSION, 0, RETRY_QUEUE if size else queue] += count
            self.pins[group_id, topic_id, chunk] += count
        self._name_singles(batch, heads, {head[1:4] for head in counts})
        return others

    def _name_singles(self, batch: list[Entry], heads: bytes, kinds: set[tuple[int, ...]]) -> None:
        """Indexes CheckPoints of one message, except backoff, by client and attempt. `kinds`: their G, T, kind."""
        if any(kind == BACKOFF for _, _, kind in kinds):
            wanted = [kind != BACKOFF for _, _, kind in NAMED.iter_unpack(heads)]
            batch = list(itertools.compress(batch, wanted))
            heads = b"".join([value[:SINGLE_BYTES] for _, value in batch])
        texts = [value[SINGLE_BYTES:] for _, value in batch]
        ids = [ck_id for (ck_id,) in U64.iter_unpack(b"".join([key for key, _ in batch]))]
        clients = checkpoint.clients_in(texts)
        named = list(kinds) * len(batch) if len(kinds) == 1 else list(NAMED.iter_unpack(heads))
        for (group_id, client), count in Counter(zip(map(_FIRST, named), clients, strict=True)).items():
            self.clients[group_id, client] += count
        groups, topics = map(_FIRST, named), map(_SECOND, named)
        tried = zip(map(hash, zip(groups, topics, texts, strict=True)), ids, strict=True)
        if _NO_ATTEMPT in b"".join(texts):
            self.attempts.update(itertools.compress(tried, [not text.startswith(_NO_ATTEMPT) for text in texts]))
        else:
            self.attempts.update(tried)
        if any(kind & SESSION or self.state.parent_of(topic_id) for _, topic_id, kind in kinds):
            for row in zip(ids, named, clients, texts, strict=True):
                self._name(*row)

    def _name(self, ck_id: int, named: tuple[int, int, int], client: str, texts: bytes) -> None:
        """Indexes one CheckPoint: by its client, if the lease is bound to the session, and by its attempt."""
        group_id, topic_id, kind = named
        if kind & SESSION:
            self.sessions[client].append(ck_id)
        if not texts.startswith(_NO_ATTEMPT):
            self.attempts[hash((group_id, topic_id, texts))] = ck_id
            if parent := self.state.parent_of(topic_id):
                self.lite_attempts[hash((group_id, parent, texts))].append(ck_id)

    def add(self, kv: Transaction, ck: CheckPoint, subs: list[int] | tuple[()]) -> None:
        """Counts any CheckPoint by its parts, as Tx.hold does."""
        bits = sum(1 << sub - 1 for sub in subs)
        if (whole := self.state.leases.whole(kv, ck)) is not None:
            bits |= whole.undone & ~whole.released
            self.loose[ck.owner_id] += whole.released.bit_count()
        where = (ck.group_id, ck.topic_id)
        for queue, count in queue_counts(ck, bits):
            self.held[*where, ck.kind, ck.owner_id, queue] += count
        for chunk, count in ck.pinned(bits).items():
            self.pins[*where, chunk] += count
        for message_group, count in locked_counts(ck, bits).items():
            before = self.locks.get((*where, message_group), (0, 0, 0))[0]
            self.locks[*where, message_group] = (before + count, ck.owner_id, ck.part)
        if ck.kind != BACKOFF:
            self.clients[ck.group_id, ck.client] += bits.bit_count()
        kind = ck.kind | SESSION if ck.session else ck.kind
        self._name(ck.ck_id, (*where, kind), ck.client, checkpoint.texts_of(ck.attempt_id, ck.client, ck.reason))

    def tell(self) -> None:
        """Loads the sums into the tables."""
        state = self.state
        for (group_id, topic_id, kind, owner_id, queue), count in self.held.items():
            for where in ((group_id, topic_id), (group_id, state.parent_of(topic_id))):
                if where[1]:
                    state.held.load(where, shifted(state.held.get(where, HeldNumbers()), kind, owner_id, count))
            if owner_id:
                state.owned.load(owner_id, state.owned.get(owner_id, 0) + count)
            elif kind != BACKOFF:
                place = (group_id, topic_id, queue)
                state.in_flight.load(place, state.in_flight.get(place, 0) + count)
        state.loose.load_all({owner_id: count for owner_id, count in self.loose.items() if owner_id})
        self._tell_pins()
        state.clients.load_all(self.clients)
        state.locks.load_all(self.locks)
        state.attempts.load_all(self.attempts)
        state.lite_attempts.load_all({key: tuple(sorted(ids)) for key, ids in self.lite_attempts.items()})
        session_ids.load(state, self.sessions)

    def _tell_pins(self) -> None:
        """Leased messages by chunk, and by group and topic; those of a lite topic count for its parent too."""
        pins: Sum[int] = defaultdict(int)
        above: Sum[oldest_leased.Pinned] = defaultdict(int)
        for (group_id, topic_id, chunk), count in self.pins.items():
            pins[chunk] += count
            if parent := self.state.parent_of(topic_id):
                above[group_id, parent, chunk] += count
        self.state.pins.load_all(pins)
        oldest_leased.load(self.state, self.pins | above)
