"""Staged messages: stored, in no queue, until the batch that they belong to is committed.

    Stage ────────▶ staged, stage     the messages of one task for one topic: a stage, sent in numbered pieces
    CommitBatch ──▶ batch, publish    one small transaction for any number of messages: the batch is remembered, and
                                      its stages move to the list of those that publishing.py publishes
    DropStages, a commit of the same or a later batch, 24 h ──▶ publish, to be dropped

    staged   sink [16] + stage [16]         → number, T, batch, messages, bytes, last Stage ms; names, access key
    stage    number + piece + block         → crc32, then per message: delay ms, length, packed message
    publish  order                          → number, T, whether it is published or dropped
    batch    sink [16]                      → the last committed batch, its messages, when; name, origin, access key

A commit decides and does not move messages, so its cost depends on the number of stages only, and other clients never
wait for a large batch. The decision is durable when the commit is answered; readers see the messages piece by piece
soon after. A sink that is killed before the answer repeats the commit: a batch that is not greater than the last one
committed is a duplicate, and the stages that were sent for it again are dropped.

A sink belongs to the access key that used it first: the name is in its row of `batch`, and until the first commit in
its stages. Another key could otherwise commit a high batch number, and the next batches of the sink would be taken for
duplicates. Rows without an access key (of a broker without keys, of an earlier release) let the next key have the sink.

Why messages are stored a second time when they are published: chunks of the log are ordered by time, and retention
removes chunks that every group has passed, by position. A chunk that became visible later would lie before such a mark.

See docs/decisions/0042-commit-decides-publishing-follows.md.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple, cast

from popmq_server.contract.commands import (
    BatchCommitted,
    CommitBatch,
    DropStages,
    Stage,
    StageName,
)
from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.rules.retention.by_size import with_room
from popmq_server.embedded.rules.topics import quotas, registry
from popmq_server.embedded.rules.topics.topic import demand, expect
from popmq_server.embedded.rules.topics.walks import RowWalk
from popmq_server.embedded.state.space import GROW, messages_bytes, value_bytes
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import (
    PUBLISH_KEY,
    STAGE_KEY,
    U32,
    U64,
    hash16,
)
from popmq_server.errors import Refused, invalid, topic_not_found
from popmq_server.values import permission, topic_types
from popmq_server.values.message import Extra
from popmq_server.values.outgoing import Outgoing, pack_message, unpack_message
from popmq_server.values.records import Topic

#: The size of a block, the least that publishing moves at once, also when the store is nearly full.
BLOCK_MESSAGES_MAX = 250
BLOCK_BYTES_MAX = 256 << 10
#: How long a stage is kept after its last piece, if its batch is not committed.
STAGE_KEEP_MS = 24 * 3_600_000
#: How long the last batch of a sink is remembered. A sink that is stopped for longer may publish its last batch again.
BATCH_KEEP_MS = 90 * 86_400_000
#: Rows that one piece of `Tidying` looks at.
TIDY_ROWS = 1000

#: number, T, batch, messages, bytes, time of the last Stage.
STAGED = struct.Struct(">QIQIQQ")
STAGED_MS = 5
#: batch, messages, time of the commit.
BATCH = struct.Struct(">QQQ")
BATCH_MS = 2
#: number, T, whether it is published.
PUBLISH = struct.Struct(">QI?")
#: Between the names of a row and the access key: a byte that no UTF-8 text has.
KEY_MARK = b"\xff"
#: Between the name of a sink and the origin of its last batch.
ORIGIN_MARK = "\0"
_ENTRY = struct.Struct(">QI")
_NONE = Extra()


class StageRow(NamedTuple):
    """One stage; `messages` and `bytes` are those of all its pieces."""

    number: int
    topic_id: int
    batch: int
    messages: int
    bytes: int
    staged_ms: int


# ── Stage ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@with_room
def stage(tx: Tx, command: Stage) -> tuple[Refused | None, ...]:
    """Stores the valid messages of one piece."""
    topic = registry.topic(tx, command.topic)
    if topic is None or topic.is_own:
        raise topic_not_found(command.topic)
    if topic.type == "LITE":
        raise invalid(f"topic {topic.name!r} is LITE", field="topic", action="stage for a topic of another type")
    permission.check_send(topic)
    user = _user(tx, command)
    key = _key(command.sink, command.stage_id)
    existing = find(tx, key)
    if existing is not None and (existing.topic_id, existing.batch) != (topic.topic_id, command.batch):
        raise invalid(
            f"stage {command.stage_id!r} belongs to another topic or batch",
            field="stage_id",
            action="give each stage an id of its own",
        )
    entries = cast(tuple[Outgoing | Refused, ...], command.entries)
    refusals = tuple(_refusal(topic, entry) for entry in entries)
    good = [entry for entry, why in zip(entries, refusals, strict=True) if why is None]
    messages = [entry for entry in good if isinstance(entry, Outgoing)]
    if messages and not (existing and _has(tx, existing.number, command.piece)):
        _store(tx, topic, replace(command, access_key=user), existing, messages)
    return refusals


def _refusal(topic: Topic, entry: Outgoing | Refused) -> Refused | None:
    """Why a message is not staged, or None."""
    if isinstance(entry, Refused):
        return entry
    extra = entry.extra or _NONE
    if extra.transaction:
        return invalid("half messages are not staged", field="transaction", action="unset it: the batch is committed")
    return topic_types.refusal(topic, extra) or quotas.too_large(topic, entry)


def _has(tx: Tx, number: int, piece: int) -> bool:
    """Whether a piece of a stage is stored."""
    return tx.kv.get("stage", STAGE_KEY.pack(number, piece, 0)) is not None


def _store(tx: Tx, topic: Topic, command: Stage, existing: StageRow | None, messages: list[Outgoing]) -> None:
    """Writes the blocks of a piece, and the row of its stage. Raises Refused without having written."""
    quotas.check_send(tx, topic, tuple(messages))
    demand(tx, topic, messages)
    blocks = list(_blocks(messages))
    tx.room.demand(GROW, messages_bytes([value_bytes(len(raw)) for raw in blocks]))
    expect(tx, topic, messages)
    if topic.send_messages_per_s or topic.send_bytes_per_s:
        quotas.sent(tx, topic, messages)
    before = existing or StageRow(tx.next("stage_id"), topic.topic_id, command.batch, 0, 0, 0)
    if any(message.extra.ttl_ms for message in messages if message.extra is not None):
        registry.note_ttl(tx, topic)
    for index, raw in enumerate(blocks):
        tx.kv.put("stage", STAGE_KEY.pack(before.number, command.piece, index), raw)
    after = before._replace(
        messages=before.messages + len(messages), bytes=before.bytes + sum(map(len, blocks)), staged_ms=tx.now_ms
    )
    names = _names(f"{command.sink}\0{command.stage_id}", command.access_key)
    tx.kv.put("staged", _key(command.sink, command.stage_id), STAGED.pack(*after) + names)


def _blocks(messages: list[Outgoing]) -> Iterator[bytes]:
    """The values of `stage` for the messages of a piece, in order."""
    rows: list[bytes] = []
    size = 0
    for message in messages:
        packed = pack_message(message)
        if rows and (len(rows) == BLOCK_MESSAGES_MAX or size + len(packed) > BLOCK_BYTES_MAX):
            yield _checked(rows)
            rows, size = [], 0
        rows.append(_ENTRY.pack((message.extra or _NONE).delay_ms, len(packed)) + packed)
        size += len(packed)
    yield _checked(rows)


def _checked(rows: list[bytes]) -> bytes:
    raw = b"".join(rows)
    return U32.pack(zlib.crc32(raw)) + raw


def read_block(raw: bytes) -> list[Outgoing] | None:
    """The messages of a block; None if its checksum does not match."""
    if len(raw) < U32.size or zlib.crc32(raw[U32.size :]) != U32.unpack_from(raw)[0]:
        return None
    found, at = list[Outgoing](), U32.size
    while at < len(raw):
        delay_ms, length = _ENTRY.unpack_from(raw, at)
        at += _ENTRY.size + length
        message = unpack_message(raw[at - length : at])
        if delay_ms:
            message = message._replace(extra=(message.extra or _NONE)._replace(delay_ms=delay_ms))
        found.append(message)
    return found


# ── Commit, drop ─────────────────────────────────────────────────────────────────────────────────────────────────────


def commit(tx: Tx, command: CommitBatch) -> BatchCommitted:
    """Hands the stages of a batch to the publishing job, or finds that this was done before.

    An unknown stage, or one with another number of messages, fails the whole; nothing has changed then.
    """
    user, last = _user(tx, command), last_batch(tx, command.sink)
    if last is not None and command.batch <= last[0]:
        _check_origin(tx, command, last[0])
        _drop_others(tx, command, set())
        return BatchCommitted(last[1] if command.batch == last[0] else 0, True)
    found = [_find_whole(tx, command, place) for place in range(len(command.stages))]
    keys = [_key(command.sink, name.stage_id) for name in command.stages]
    if len(set(keys)) < len(keys):
        raise invalid("a stage is named twice", field="stages", action="name each stage once")
    messages = sum(one.messages for one in found)
    names = command.sink + (ORIGIN_MARK + command.origin if command.origin else "")
    row = BATCH.pack(command.batch, messages, tx.now_ms) + _names(names, user)
    tx.room.demand(GROW, messages_bytes([value_bytes(len(row))]))
    for key, one in zip(keys, found, strict=True):
        _hand_over(tx, key, one, publish=True)
    _drop_others(tx, command, set(keys))
    tx.kv.put("batch", hash16(command.sink), row)
    return BatchCommitted(messages, False)


def last_batch(tx: Tx, sink: str) -> tuple[int, int] | None:
    """(number, messages) of the last batch that a sink committed; None if there is none any more."""
    raw = tx.kv.get("batch", hash16(sink))
    return None if raw is None else BATCH.unpack_from(raw)[:2]


def _check_origin(tx: Tx, command: CommitBatch, last: int) -> None:
    """Raises Refused if another origin committed the last batch: its numbers say nothing about this one's messages."""
    raw = tx.kv.get("batch", hash16(command.sink))
    names = b"" if raw is None else bytes(raw[BATCH.size + len(command.sink.encode()) :])
    known = names.partition(KEY_MARK)[0].decode().removeprefix(ORIGIN_MARK)
    if known and command.origin not in ("", known):
        raise Refused(
            "ALREADY_EXISTS",
            f"batch {command.batch} of sink {command.sink!r} is not a repeat: batch {last} was committed by origin "
            f"{known!r}, this one comes from {command.origin!r}",
            field="origin",
            action="give each origin a sink of its own",
        )


def _find_whole(tx: Tx, command: CommitBatch, place: int) -> StageRow:
    """A stage of the commit. Raises Refused if messages of it are missing."""
    name = command.stages[place]
    found, topic = find(tx, _key(command.sink, name.stage_id)), registry.topic(tx, name.topic)
    if topic is None or found is None or (found.topic_id, found.batch) != (topic.topic_id, command.batch):
        raise _not_found(name, place, "it was dropped, it never existed, or its topic was purged or deleted")
    if found.messages != name.messages:
        raise _not_found(name, place, f"it has {found.messages} messages, {name.messages} were expected")
    return found


def _not_found(name: StageName, place: int, why: str) -> Refused:
    return Refused(
        "STAGE_NOT_FOUND",
        f"stage {name.stage_id!r} for topic {name.topic!r} is not complete: {why}",
        field=f"stages[{place}]",
        action="stage the batch again under new ids, and commit those",
    )


def drop(tx: Tx, command: DropStages) -> int:
    """Drops stages before their time; their messages go in pieces."""
    _user(tx, command)
    dropped = 0
    for name in command.stages:
        key = _key(command.sink, name.stage_id)
        found, topic = find(tx, key), registry.topic(tx, name.topic)
        if found is not None and topic is not None and found.topic_id == topic.topic_id:
            _hand_over(tx, key, found, publish=False)
            dropped += 1
    return dropped


def _drop_others(tx: Tx, command: CommitBatch, kept: set[bytes]) -> None:
    """Drops the stages that failed tasks, or an earlier try, made for this batch or for earlier ones."""
    rows = [(key, _read(raw)) for key, raw in tx.kv.scan("staged", hash16(command.sink)) if key not in kept]
    for key, one in rows:
        if one.batch <= command.batch:
            _hand_over(tx, key, one, publish=False)


def _hand_over(tx: Tx, key: bytes, one: StageRow, *, publish: bool) -> None:
    """Moves a stage to the list of the publishing job, which works in the order of the commits."""
    if one.number >= tx.state.counters[""].stage_id:
        broken("stage_number_given", ("staged", key), number=one.number)
    if not tx.kv.delete("staged", key):
        broken("stage_leaves_once", ("staged", key), number=one.number)
    tx.kv.put("publish", PUBLISH_KEY.pack(tx.next("stage_id")), PUBLISH.pack(one.number, one.topic_id, publish))


def remove_blocks(tx: Tx, key: bytes, number: int, blocks: Iterable[bytes]) -> None:
    """Removes blocks of a stage that is published or dropped; after the last one, its place in the list."""
    for block in blocks:
        if not tx.kv.delete("stage", block):
            broken("stage_block_was_there", ("stage", block), number=number)
    if next(tx.kv.scan_keys("stage", pieces_of(number)), None) is None:
        tx.kv.delete("publish", key)


def _key(sink: str, stage_id: str) -> bytes:
    return hash16(sink) + hash16(stage_id)


def find(tx: Tx, key: bytes) -> StageRow | None:
    """A stage whose batch is not committed."""
    raw = tx.kv.get("staged", key)
    return None if raw is None else _read(raw)


def _read(raw: bytes | memoryview) -> StageRow:
    return StageRow(*STAGED.unpack_from(raw))


# ── Access keys ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _user(tx: Tx, command: Stage | CommitBatch | DropStages) -> str:
    """The access key that the sink belongs to, the caller's if it is new. Raises Refused if it is another one."""
    sink = hash16(command.sink)
    known = _access_key(tx.kv.get("batch", sink), BATCH.size)
    if not known and (staged := next(tx.kv.scan("staged", sink), None)) is not None:
        known = _access_key(staged[1], STAGED.size)
    if known and command.access_key not in ("", known) and not command.any_sink:
        raise Refused(
            "PERMISSION_DENIED",
            f"the sink {command.sink!r} belongs to another access key",
            field="sink",
            action="name the sink otherwise, or call with the access key that used it first",
        )
    return known or command.access_key


def _names(names: str, access_key: str) -> bytes:
    """The end of a row."""
    return names.encode() + (KEY_MARK + access_key.encode() if access_key else b"")


def _access_key(raw: bytes | memoryview | None, at: int) -> str:
    """The access key in a row whose names begin `at`; empty if there is none."""
    return "" if raw is None else bytes(raw[at:]).partition(KEY_MARK)[2].decode()


# ── Bounds ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Tidying:
    """Drops stages that no sink committed in time, and forgets sinks that stopped: walks both tables, in pieces."""

    def __init__(self) -> None:
        self._staged = RowWalk("staged", TIDY_ROWS, _read)
        self._batches = RowWalk("batch", TIDY_ROWS, BATCH.unpack_from)

    def run(self, tx: Tx) -> bool:
        """One piece; returns whether there is more to look at."""
        for key, one in self._staged.piece(tx):
            if one.topic_id not in tx.state.topics or tx.now_ms - one.staged_ms >= STAGE_KEEP_MS:
                _hand_over(tx, key, one, publish=False)
        for key, batch in self._batches.piece(tx):
            if tx.now_ms - batch[BATCH_MS] >= BATCH_KEEP_MS:
                tx.kv.delete("batch", key)
        return bool(self._staged.place or self._batches.place)


def pieces_of(number: int) -> bytes:
    """The prefix of the blocks of a stage."""
    return U64.pack(number)
