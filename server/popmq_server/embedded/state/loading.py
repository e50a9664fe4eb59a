"""The scan at start: fills the tables of a state from the store, and computes those that follow from others.

It reads the small tables, ck and due, and the two ends of each queue; never history. A CheckPoint of one message has
the counted fields at fixed offsets. The others are decoded: some 10 µs each, for up to a thousand messages.
"""

import itertools
import operator
from collections import Counter, defaultdict
from typing import TypeVar

from popmq_server.embedded.invariants.broken import BrokenInvariant, BrokenStore
from popmq_server.embedded.state import topic_counts
from popmq_server.embedded.state.all_tables import AllTables
from popmq_server.embedded.state.checkpoints import BATCH
from popmq_server.embedded.state.leases import CHUNK_BITS, SESSION_BITS, shifted
from popmq_server.embedded.state.ready_groups import load_stopped
from popmq_server.embedded.state.state import State, first_occurrence
from popmq_server.embedded.store import checkpoint, sorted_numbers
from popmq_server.embedded.store.checkpoint import (
    BACKOFF,
    FIFO,
    NAMED,
    SESSION,
    SINGLE,
    SINGLE_BYTES,
    CheckPoint,
)
from popmq_server.embedded.store.keys import (
    CQ_ENTRY,
    CQ_KEY,
    FWAIT_KEY,
    FWAIT_VALUE,
    HDUE_KEY,
    QUEUE_ENDS,
    QUEUE_KEY,
    SUB_OWNER,
    U32,
    U64,
)
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.embedded.store.row_formats import RowReader
from popmq_server.values.ids import GroupId, MessageGroup, TopicId
from popmq_server.values.records import RETRY_QUEUE, HeldNumbers, Lites, Topic, TopicStat


def load(state: State, tx: Transaction) -> None:
    """Loads all tables. Raises StartError, which names the row, when one cannot be read."""
    reader = RowReader(tx)
    try:
        _load(state, tx, reader)
    except BrokenInvariant as broken:
        raise BrokenStore(broken) from broken
    except RowReader.ERRORS as error:
        raise reader.unreadable(error) from error


def _load(state: State, tx: Transaction, reader: RowReader) -> None:
    state.tables.load(reader)
    for topic in state.topics.values():
        _load_ends(state, tx, reader, topic)
        if topic.moving_from:
            state.moving[topic.topic_id] = topic.moving_from
        if topic.lagging:
            state.lagging[topic.topic_id] = True
    for where, offset in state.poff.items():
        state.passed.load(where[:2], state.passed.get(where[:2], 0) + offset)
    for where, blocks in state.taken.items():
        ahead = sum(bits.bit_count() for bits in blocks.values())
        state.passed.load(where[:2], state.passed.get(where[:2], 0) + ahead)
    readers: dict[int, list[GroupId]] = {}
    for group_id, topic_id in state.stat:
        readers.setdefault(topic_id, []).append(group_id)
    state.topic_groups.load_all({topic_id: tuple(groups) for topic_id, groups in readers.items()})
    for key, owner in state.owners.items():
        state.owner_keys.load(owner.owner_id, key)
        state.owner_count.load(key[0], state.owner_count.get(key[0], 0) + 1)
    for token_key, token in state.tokens.items():
        state.owner_tokens.load(token.owner_id, (*state.owner_tokens.get(token.owner_id, ()), token_key))
    state.schedule_due = first_occurrence(state.schedules.values())
    topic_counts.load(state)
    _load_sizes(state, tx)
    _load_checks(state, tx)
    reader.at = ("ck", b"")
    _load_leases(state, tx)
    _load_waiting(state, reader)
    _load_lites(state)


def _load_ends(state: State, tx: Transaction, reader: RowReader, topic: Topic) -> None:
    """Loads both ends of each queue of a topic."""
    for queue in range(topic.queues):
        prefix = QUEUE_KEY.pack(topic.topic_id, queue)
        reader.at = ("queue", prefix)
        raw = tx.get("queue", prefix)
        least, most = QUEUE_ENDS.unpack(raw) if raw is not None else (0, 0)
        if last := tx.last("cq", prefix):
            most = max(most, CQ_KEY.unpack(last[0])[2] + len(last[1]) // CQ_ENTRY.size)
        state.queue_min.load((topic.topic_id, queue), least)
        state.queue_max.load((topic.topic_id, queue), most)
        state.total.load(topic.topic_id, state.total.get(topic.topic_id, 0) + most)


def _load_sizes(state: State, tx: Transaction) -> None:
    """Computes the counters that a topic of an older store lacks: its size is the sum of its chunks."""
    for topic_id in state.topics:
        if topic_id not in state.topic_stat:
            sizes = (U32.unpack_from(value, U64.size)[0] for _, value in tx.scan("idx", U32.pack(topic_id)))
            state.topic_stat.load(topic_id, TopicStat(sum(sizes)))


def _load_checks(state: State, tx: Transaction) -> None:
    """Loads the due time of the first half message of each topic, and of those that must be given up."""
    for lane in (0, *(topic_id for topic_id, stat in state.topic_stat.items() if stat.half)):
        if first := tx.first("hdue", U32.pack(lane)):
            state.checks.load(lane, HDUE_KEY.unpack(first[0])[1])


def _load_waiting(state: State, reader: RowReader) -> None:
    """Loads the waiting entries of FIFO topics, by message group."""
    for key, value in reader.scan("fwait"):
        *where, message_group, offset = FWAIT_KEY.unpack(key)
        group = (*where, message_group)
        state.waiting.load(group, state.waiting.get(group, 0) + 1)
        *_, bound_ck, _, stopped = FWAIT_VALUE.unpack_from(value)
        if bound_ck:
            state.tied.load(group, state.tied.get(group, 0) + 1)
        if stopped:
            reason = bytes(value[FWAIT_VALUE.size :]).decode()
            state.stopped.load(group, (*state.stopped.get(group, ()), (offset, reason)))
    load_stopped(state)
    state.ready_groups.load()


def _load_lites(state: State) -> None:
    """Loads the sums of topics over their lite topics."""
    for (parent, _), topic_id in state.lite_ids.items():
        where = (topic_id, 0)
        sums = state.lites.get(parent, Lites())
        messages = sums.messages + state.queue_max.get(where, 0) - state.queue_min.get(where, 0)
        state.lites.load(parent, Lites(sums.topics + 1, messages))
        for group_id in state.topic_groups.get(topic_id, ()):
            unread = state.total.get(topic_id, 0) - state.passed.get((group_id, topic_id), 0)
            state.unread.load((group_id, parent), state.unread.get((group_id, parent), 0) + unread)


# ── Leases ───────────────────────────────────────────────────────────────────────────────────────────────────────────

K = TypeVar("K")
Sum = defaultdict[K, int]
Entry = tuple[bytes, bytes]


def _is_single(head: tuple[int, ...]) -> bool:
    """Whether a CheckPoint has one message, no owner and no message group: it then exists only while that is undone."""
    version, _, _, kind, owner_id, runs, chunks, _, members, *_ = head
    return (version, owner_id, runs, chunks, members) == (checkpoint.VERSION, 0, 1, 1, 1) and kind & ~SESSION != FIFO


#: The beginning of the texts of a CheckPoint without an attempt id.
_NO_ATTEMPT = b'["",'
_FIRST, _SECOND = operator.itemgetter(0), operator.itemgetter(1)


def _load_leases(state: AllTables, kv: Transaction) -> None:
    """Loads the keys of `due` and counts the entries of `ck`."""
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
        self.pins: Sum[tuple[int, int, int]] = defaultdict(int)  # G, T, chunk
        self.clients: Sum[tuple[int, str]] = defaultdict(int)
        self.locks: dict[MessageGroup, tuple[int, int, int]] = {}
        self.keys: Sum[tuple[int, int, bytes]] = defaultdict(int)  # G, T, hash of a fair key
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
        """Counts any CheckPoint by its parts, as leases.hold does."""
        bits = sum(1 << sub - 1 for sub in subs)
        if (whole := self.state.leases.whole(kv, ck)) is not None:
            bits |= whole.undone & ~whole.released
            self.loose[ck.owner_id] += whole.released.bit_count()
        where = (ck.group_id, ck.topic_id)
        for queue, count in ck.by_queue(bits).items():
            self.held[*where, ck.kind, ck.owner_id, queue] += count
        for chunk, count in ck.by_chunk(bits).items():
            self.pins[*where, chunk] += count
        for message_group, count in ck.by_message_group(bits).items():
            before = self.locks.get((*where, message_group), (0, 0, 0))[0]
            self.locks[*where, message_group] = (before + count, ck.owner_id, ck.part)
        for fair_key, count in ck.by_fair_key(bits).items():
            self.keys[*where, fair_key] += count
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
        state.key_leases.load_all(self.keys)
        state.attempts.load_all(self.attempts)
        state.lite_attempts.load_all({key: tuple(sorted(ids)) for key, ids in self.lite_attempts.items()})
        sessions = {(client,): ck_ids for client, ck_ids in self.sessions.items()}
        sorted_numbers.load(state.session_leases, state.session_spans, sessions, SESSION_BITS)

    def _tell_pins(self) -> None:
        """Leased messages by chunk, and by group and topic; those of a lite topic count for its parent too."""
        pins: Sum[int] = defaultdict(int)
        above: Sum[tuple[int, int, int]] = defaultdict(int)
        for (group_id, topic_id, chunk), count in self.pins.items():
            pins[chunk] += count
            if parent := self.state.parent_of(topic_id):
                above[group_id, parent, chunk] += count
        self.state.pins.load_all(pins)
        counted = self.pins | above
        chunks: dict[tuple[int, int], list[int]] = {}
        for group_id, topic_id, position in counted:
            chunks.setdefault((group_id, topic_id), []).append(position)
        self.state.group_pins.load_all(counted)
        sorted_numbers.load(self.state.span_chunks, self.state.spans, chunks, CHUNK_BITS)
