"""Delayed messages: `sched` holds messages that are not visible yet, ordered by due time.

    Send, commit ──▶ keep ──▶ due already?  ─ yes ─▶ visible at once (placing.py)
                               │ no
                               ▼
        sched    clock + due + id + T → crc32, stored ms, nonce, message        tsched   T + clock + due + id → hash
                  │                            │
               recall: deleted              release_delayed.py: appended to its queue and deleted in one transaction
               reschedule: under another key, with another handle

Due times up to 2^63 - 1 ms are exact: the key holds the full time, no timer wheel and no delay level rounds it.
Delayed messages use no memory and no time at start; the next due time is one read of the first key.

There are two clocks. A time that the sender named (deliver_at_ms) is wall time: it is due when both the broker's clock
and the wall clock have reached it, so a step of the wall clock, before a restart or at run time, delivers nothing
early. A delay (delay_ms) is a duration: it runs on the broker's clock alone, like leases, so a wall clock that is set
back by an hour does not hold it up.

`tsched` costs one small key per message. It serves the list, the removal and the count of one topic's messages.

See docs/decisions/0028-delayed-messages.md.
"""

import heapq
import itertools
import json
import struct
import zlib
from collections.abc import Iterator

from popmq_server.contract.commands import Place, Recall, Reschedule, Rescheduled, queries
from popmq_server.contract.commands.numbers import CountedRows, DelayedMessage, Rows
from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.rules.sending import unique
from popmq_server.embedded.rules.sending.transaction import preview_of
from popmq_server.embedded.rules.topics import quarantine, registry
from popmq_server.embedded.state import topic_counts
from popmq_server.embedded.state.space import GROW, messages_bytes, value_bytes
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import SCHED_KEY, TSCHED_KEY, U32
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.errors import Refused, invalid, topic_not_found
from popmq_server.values.handles import (
    RecallHandle,
    nonce,
    place_of,
    read_recall,
    recall_text,
)
from popmq_server.values.outgoing import (
    Outgoing,
    hash8,
    pack_message,
    packed_data,
    packed_hashes,
    packed_message_id,
    unpack_message,
)
from popmq_server.values.records import Topic, TopicStat

#: The clocks that a due time is compared with: both (deliver_at_ms), or the broker's own (delay_ms).
CLOCKS = BOTH_CLOCKS, OUR_CLOCK = 0, 1

#: stored ms, nonce. A crc32 over these and the packed message comes before them, the packed message after.
_HEAD = struct.Struct(">QQ")
#: In `meta`: by how many ms each rebase moved due times back.
MOVES = b"moves"
_HEAD_AT, _MESSAGE_AT = U32.size, U32.size + _HEAD.size


#: due, id, T: a key of `sched` without its clock.
_BY_DUE = struct.Struct(">QQI")
#: Delayed messages that one piece of a list reads.
ROWS_AT_ONCE = 100
#: The same of one that asks for an id or a key, whose hashes are compared.
LOOKS_AT_ONCE = 2_000
#: (key, value) in `sched`.
Entry = tuple[bytes, memoryview]


def due_by(tx: Tx, clock: int) -> int:
    """The current time of a clock: messages due at or before it are due."""
    return tx.now_ms if clock == OUR_CLOCK else min(tx.now_ms, tx.wall_ms)


def keep(tx: Tx, topic: Topic, message: Outgoing) -> Place | None:
    """Stores a message until it is due. None if it is due already, for example at a time in the past."""
    extra = message.extra
    if extra is None or not (extra.due_ms or extra.delay_ms):
        return None
    clock, due_ms = (BOTH_CLOCKS, extra.due_ms) if extra.due_ms else (OUR_CLOCK, tx.now_ms + extra.delay_ms)
    if due_ms <= due_by(tx, clock):
        return None
    tx.room.demand(GROW, messages_bytes([value_bytes(len(message.data))]))
    handle = RecallHandle(topic.topic_id, clock, due_ms, tx.next("sched_id"), nonce())
    _put(tx, handle, tx.now_ms, pack_message(message), message.message_id)
    topic_counts.add(tx, topic.topic_id, delayed=1)
    return Place(recall_handle=recall_text(handle))


def _put(tx: Tx, handle: RecallHandle, stored_ms: int, packed: bytes, message_id: str) -> None:
    body = _HEAD.pack(stored_ms, handle.nonce) + packed
    tx.kv.put("sched", _key(handle), U32.pack(zlib.crc32(body)) + body)
    tx.kv.put("tsched", TSCHED_KEY.pack(*handle[:4]), hash8(message_id))


def _key(handle: RecallHandle) -> bytes:
    return SCHED_KEY.pack(handle.clock, handle.due_ms, handle.number, handle.topic_id)


def note_move(kv: Transaction, by_ms: int) -> None:
    """Records that due times of our clock moved back: handles issued before hold the old times (rebase.py)."""
    kv.put("meta", MOVES, json.dumps([*_moves(kv), by_ms]).encode())


def _moves(kv: Transaction) -> list[int]:
    raw = kv.get("meta", MOVES)
    return [] if raw is None else list(json.loads(bytes(raw)))


def _key_now(kv: Transaction, handle: RecallHandle) -> bytes:
    """The current key of a delayed message; a rebase may have moved its due time after its handle was issued."""
    key = _key(handle)
    if handle.clock == BOTH_CLOCKS or kv.get("sched", key) is not None:
        return key
    moves = _moves(kv)
    for first in range(len(moves)):  # a message stored after a move was not affected by it
        moved = _key(handle._replace(due_ms=max(0, handle.due_ms - sum(moves[first:]))))
        if kv.get("sched", moved) is not None:
            return moved
    return key


def read(raw: bytes) -> Outgoing | None:
    """Decodes a value of `sched`; None if its checksum does not match."""
    if len(raw) < _MESSAGE_AT or zlib.crc32(raw[_HEAD_AT:]) != U32.unpack_from(raw)[0]:
        return None
    return unpack_message(raw[_MESSAGE_AT:])


def message_id_of(raw: memoryview) -> str:
    """The message id in a value of `sched`, without copying the message."""
    return packed_message_id(raw[_MESSAGE_AT:])


def stored_ms_of(raw: memoryview) -> int:
    """When a delayed message was stored, from its value in `sched`."""
    return int(_HEAD.unpack_from(raw, _HEAD_AT)[0])


def remove(tx: Tx, key: bytes) -> None:
    """Removes a delayed message from the store. The caller updates the topic's count."""
    clock, due_ms, number, topic_id = SCHED_KEY.unpack(key)
    if number >= tx.state.counters[""].sched_id:
        broken("delayed_number_given", ("sched", key), number=number)
    if not tx.kv.delete("sched", key):
        broken("delayed_is_stored", ("sched", key))
    if not tx.kv.delete("tsched", TSCHED_KEY.pack(topic_id, clock, due_ms, number)):
        broken("delayed_is_listed", ("sched", key), topic=topic_id)


def recall(tx: Tx, command: Recall) -> str:
    """Removes a delayed message before it is due; returns its message id.

    Recalls run before periodic maintenance, so a recall in the commit batch of the due time wins. A deleted or purged
    topic has no messages to recall: MESSAGE_NOT_FOUND.
    """
    topic, handle, key, kept = _find(tx, command)
    message_id = packed_message_id(memoryview(kept)[_MESSAGE_AT:])
    if read(kept) is None:
        quarantine.set_aside_pending(tx, topic.topic_id, handle.number, kept)
    remove(tx, key)
    topic_counts.add(tx, topic.topic_id, delayed=-1)
    unique.forget(tx, topic, message_id, command.handle)
    return message_id


def reschedule(tx: Tx, command: Reschedule) -> Rescheduled:
    """Moves a delayed message to another time, with another handle: a former one may still be somewhere.

    One that is due already, and not yet visible, is moved too. A time in the past is due at once.
    """
    topic, _, key, kept = _find(tx, command)
    if read(kept) is None:
        raise Refused(
            "MESSAGE_NOT_FOUND",
            "the stored bytes of this delayed message are damaged",
            field="recall_handle",
            action="recall it, and send it again",
        )
    clock, due_ms = (BOTH_CLOCKS, command.due_ms) if command.due_ms else (OUR_CLOCK, tx.now_ms + command.delay_ms)
    tx.room.demand(GROW, messages_bytes([value_bytes(len(kept))]))
    moved = RecallHandle(topic.topic_id, clock, due_ms, tx.next("sched_id"), nonce())
    message_id = packed_message_id(memoryview(kept)[_MESSAGE_AT:])
    remove(tx, key)
    _put(tx, moved, stored_ms_of(memoryview(kept)), kept[_MESSAGE_AT:], message_id)
    unique.rename(tx, topic, message_id, command.handle, recall_text(moved))
    return Rescheduled(message_id, recall_text(moved), due_ms)


def _find(tx: Tx, command: Recall | Reschedule) -> tuple[Topic, RecallHandle, bytes, bytes]:
    """The topic, the handle, and the key and value in `sched` of the delayed message. Raises Refused."""
    topic, handle = registry.topic(tx, command.topic), read_recall(command.handle)
    if topic is None:
        raise topic_not_found(command.topic)
    if handle is None:
        raise invalid(
            "this is not a valid recall handle",
            field="recall_handle",
            action="pass the recall handle unchanged, as Send returned it",
        )
    if handle.topic_id != topic.topic_id and (other := tx.state.topics.get(handle.topic_id)) is not None:
        raise invalid(
            f"this recall handle is of topic {other.name!r}, not of {topic.name!r}",
            field="recall_handle",
            action=f"name the topic {other.name!r}",
        )
    key = _key_now(tx.kv, handle)
    raw = tx.kv.get("sched", key) if handle.topic_id == topic.topic_id else None
    if raw is None or _HEAD.unpack_from(raw, _HEAD_AT)[1] != handle.nonce:
        raise Refused(
            "MESSAGE_NOT_FOUND",
            f"topic {topic.name!r} has no such delayed message: it was delivered, or recalled before",
            field="recall_handle",
            action="treat it as sent: it cannot be recalled any more",
        )
    return topic, handle, key, bytes(raw)


def pending(kv: Transaction, clock: int, start: bytes = b"") -> Iterator[Entry]:
    """Delayed messages of one clock, soonest first, from a key on. Do not put while it runs."""
    return kv.scan("sched", bytes((clock,)), start)


def by_due(entry: Entry) -> bytes:
    """Sort key, due time and number: merges the entries of both clocks into one order."""
    return entry[0][1:]


def listed(tx: Tx, query: queries.Delayed) -> CountedRows[DelayedMessage]:
    """(delayed messages due before `until_ms` (0 = no bound), soonest first; the total number, or 0)."""
    name = query.topic
    topics = tx.state.topics
    topic = registry.topic(tx, name)
    if name and topic is None:
        raise topic_not_found(name)
    after = place_of(query.after, _BY_DUE.size)
    found, last, size = Rows[DelayedMessage](), b"", 0
    looks_max = LOOKS_AT_ONCE if query.message_id or query.key else ROWS_AT_ONCE
    entries = _of_topic(tx.kv, topic, after) if topic else _of_all(tx.kv, after)
    for looks, (key, value) in enumerate(entries):
        clock, due_ms, number, topic_id = SCHED_KEY.unpack(key)
        if query.until_ms and due_ms >= query.until_ms:
            break
        if len(found) == query.count or looks == looks_max or (found and size + len(value) > query.bytes_max > 0):
            found.after = last.hex()
            break
        last = key[1:]
        if topic_id in topics and _is_wanted(query, value[_MESSAGE_AT:]):
            stored_ms, given = _HEAD.unpack_from(value, _HEAD_AT)
            handle = recall_text(RecallHandle(topic_id, clock, due_ms, number, given))
            message_id = packed_message_id(value[_MESSAGE_AT:])
            row = DelayedMessage(topics[topic_id].name, message_id, due_ms, handle, stored_ms)
            if query.bytes_max:
                size += len(value)
                row = row._replace(data=bytes(packed_data(value[_MESSAGE_AT:])))
            found.append(row._replace(preview=preview_of(value[_MESSAGE_AT:])) if query.previews else row)
    return CountedRows(found, 0 if query.after else total(tx, topic))


def _is_wanted(query: queries.Delayed, packed: memoryview) -> bool:
    """Whether a packed message has the id and the key that a list asks for, by their hashes."""
    if not query.message_id and not query.key:
        return True
    message_id, *keys = packed_hashes(packed)
    return (not query.message_id or message_id == hash8(query.message_id)) and (
        not query.key or hash8(query.key) in keys
    )


def _of_all(kv: Transaction, after: bytes) -> Iterator[Entry]:
    """All entries of `sched` after (due time, number, topic), soonest first."""
    ranges = (kv.scan("sched", bytes((clock,)), bytes((clock,)) + after + b"\0"[: len(after)]) for clock in CLOCKS)
    return heapq.merge(*ranges, key=by_due)


def _of_topic(kv: Transaction, topic: Topic, after: bytes) -> Iterator[Entry]:
    """One topic's entries of `sched` after (due time, number), soonest first."""
    prefixes = [U32.pack(topic.topic_id) + bytes((clock,)) for clock in CLOCKS]
    start = after[: -U32.size] + b"\0" if after else b""
    ranges = (kv.scan("tsched", prefix, prefix + start) for prefix in prefixes)
    for key, _ in heapq.merge(*ranges, key=lambda entry: entry[0][5:]):
        value = kv.get("sched", key[4:] + key[:4])
        if value is not None:
            yield key[4:] + key[:4], value


def total(tx: Tx, topic: Topic | None) -> int:
    """The number of delayed messages of one topic, or of all existing topics."""
    if topic is None:
        return tx.state.unseen.get("delayed", 0)
    return tx.state.topic_stat.get(topic.topic_id, TopicStat()).delayed


def drop(tx: Tx, topic_id: int, messages_max: int) -> int:
    """Removes up to `messages_max` delayed messages of a deleted topic; returns how many more may be removed."""
    keys = list(itertools.islice(tx.kv.scan_keys("tsched", U32.pack(topic_id)), messages_max))
    for key in keys:
        remove(tx, key[4:] + key[:4])
    return messages_max - len(keys)
