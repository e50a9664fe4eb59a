"""Half messages: stored, in no queue, until their transaction is committed or rolled back.

    Send {transaction} ──▶ begin ──▶ half ──┬─ EndTransaction commit ──▶ visible, or delayed      end_transaction.py
                                            ├─ EndTransaction rollback ─▶ removed
                                            ├─ a live producer is asked every 30 s                check_back.py
                                            └─ 15 checks without an end ──▶ TRANS_CHECK_MAX_TIME_TOPIC

    half    T + txn id        → stored ms, nonce, delay, counted checks, next check
    hmsg    T + txn id        → crc32, message         separate, since a check rewrites the row above and not this one
    hdue    T + due + txn id  → nothing                time of the next check
            0 + due + txn id  → T                      all checks are used up: time of the give-up
    tdone   bucket + txn id   → how it ended           for an hour, so that a repeated end gets the first answer

A transaction in none of these never existed, was given up, or ended over an hour ago: TRANSACTION_NOT_FOUND.

Checks are ordered per topic, not globally by time: half messages of topics without a live producer cost nothing,
however many there are, and an idle broker stays idle. `state.checks` holds the first due time of each topic.
"""

import itertools
import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from popmq_server.contract.commands import Ended, Place, queries
from popmq_server.contract.commands.numbers import CountedRows, HalfMessage, MessagePreview, Rows
from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.rules.topics import quarantine, registry
from popmq_server.embedded.state import topic_counts
from popmq_server.embedded.state.space import GROW, messages_bytes, value_bytes
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import (
    HALF_KEY,
    HDUE_KEY,
    TDONE_KEY,
    U32,
    following,
)
from popmq_server.errors import not_a_page, topic_not_found
from popmq_server.values import fields
from popmq_server.values.handles import (
    TransactionId,
    nonce,
    place_of,
    transaction_text,
)
from popmq_server.values.message import Extra
from popmq_server.values.outgoing import (
    Outgoing,
    pack_message,
    packed_data,
    packed_message_id,
    unpack_message,
)
from popmq_server.values.records import Topic, TopicStat

#: The reference's immunity time, its pause between two checks, and its number of checks before it gives up.
FIRST_CHECK_MS = 6_000
CHECK_EVERY_MS = 30_000
CHECKS_MAX = 15
#: Half messages that one piece of a list reads.
ROWS_AT_ONCE = 100
#: How long the outcome of a transaction is remembered.
DONE_KEEP_MS = 3_600_000
#: Outcomes that one piece of housekeeping drops.
FORGET_MAX = 1000
#: In `hdue`: the lane of half messages that wait for the give-up.
GIVEN_UP = 0

HALF = struct.Struct(">QQQHQ")
HALF_STORED, HALF_NEXT = 0, 4
#: commit, ended ms, nonce, queue, offset, length of the recall handle; then the handle, then the message id.
DONE = struct.Struct(">?QQIQB")
DONE_ENDED = 1


class Half(NamedTuple):
    """One half message without its bytes. `delay_ms` counts from the commit. `next_ms`: time of the next check."""

    topic_id: int
    txn_id: int
    stored_ms: int
    nonce: int
    delay_ms: int
    checks: int
    next_ms: int

    @property
    def transaction(self) -> TransactionId:
        return TransactionId(self.topic_id, self.txn_id, self.nonce)

    @property
    def key(self) -> bytes:
        return HALF_KEY.pack(self.topic_id, self.txn_id)

    @property
    def waits_for(self) -> int:
        """The lane of its next check: its topic, or GIVEN_UP once all checks are used up."""
        return GIVEN_UP if self.checks >= CHECKS_MAX else self.topic_id


def begin(tx: Tx, topic: Topic, message: Outgoing) -> Place:
    """Stores a half message until its transaction ends."""
    tx.room.demand(GROW, messages_bytes([value_bytes(len(message.data))]))
    extra = message.extra or Extra()
    next_ms = tx.now_ms + (extra.check_after_ms or FIRST_CHECK_MS)
    half = Half(topic.topic_id, tx.next("txn_id"), tx.now_ms, nonce(), extra.delay_ms, checks=0, next_ms=next_ms)
    packed = pack_message(message)
    tx.kv.put("hmsg", half.key, U32.pack(zlib.crc32(packed)) + packed)
    _put(tx, half)
    topic_counts.add(tx, topic.topic_id, half=1)
    return Place(transaction_id=transaction_text(half.transaction))


def find_half(tx: Tx, topic_id: int, txn_id: int) -> Half | None:
    """A half message whose transaction has not ended."""
    raw = tx.kv.get("half", HALF_KEY.pack(topic_id, txn_id))
    if raw is None:
        return None
    half, row = decode(topic_id, txn_id, raw), ("half", HALF_KEY.pack(topic_id, txn_id))
    if txn_id >= tx.state.counters[""].txn_id:
        broken("half_number_given", row, number=txn_id)
    if half.checks > CHECKS_MAX:
        broken("half_checks_bounded", row, checks=half.checks)
    return half


def decode(topic_id: int, txn_id: int, raw: bytes | memoryview) -> Half:
    """Decodes a value of `half`."""
    return Half(topic_id, txn_id, *HALF.unpack(raw))


def read(raw: bytes | memoryview) -> Outgoing | None:
    """Decodes a value of `hmsg`; None if its checksum does not match."""
    if len(raw) < U32.size or zlib.crc32(raw[U32.size :]) != U32.unpack_from(raw)[0]:
        return None
    return unpack_message(bytes(raw[U32.size :]))


def change(tx: Tx, half: Half, checks: int, next_ms: int) -> Half:
    """Stores the new number of checks and the time of the next one."""
    changed = half._replace(checks=checks, next_ms=next_ms)
    _unschedule(tx, half)
    _put(tx, changed)
    return changed


def message_of(tx: Tx, half: Half) -> Outgoing | None:
    """The message as it will be committed; None if its checksum does not match."""
    raw = tx.kv.get("hmsg", half.key)
    message = None if raw is None else read(raw)
    if message is None:
        return None
    extra = (message.extra or Extra())._replace(transaction=False, delay_ms=half.delay_ms)
    return message._replace(extra=extra if any(extra) else None)


def message_id_of(tx: Tx, half: Half) -> str:
    """The message id, without copying the message."""
    raw = tx.kv.get("hmsg", half.key)
    return "" if raw is None else packed_message_id(raw[U32.size :])


def _preview(tx: Tx, half: Half) -> MessagePreview | None:
    """Returns the part of the message that a list shows, without copying the message."""
    raw = tx.kv.get("hmsg", half.key)
    return None if raw is None else preview_of(raw[U32.size :])


def remove(tx: Tx, half: Half) -> None:
    """Removes a half message from the store."""
    tx.kv.delete("half", half.key)
    tx.kv.delete("hmsg", half.key)
    _unschedule(tx, half)
    if half.topic_id in tx.state.topics:
        topic_counts.add(tx, half.topic_id, half=-1)


def set_aside(tx: Tx, half: Half) -> None:
    """Moves an unreadable half message to quarantine, which reports it, so that it does not block others."""
    raw = tx.kv.get("hmsg", half.key)
    quarantine.set_aside_pending(tx, half.topic_id, half.txn_id, b"" if raw is None else bytes(raw))
    remove(tx, half)


def _put(tx: Tx, half: Half) -> None:
    tx.kv.put("half", half.key, HALF.pack(*half[2:]))
    lane = half.waits_for
    value = U32.pack(half.topic_id) if lane == GIVEN_UP else b""
    tx.kv.put("hdue", HDUE_KEY.pack(lane, half.next_ms, half.txn_id), value)
    first_ms = tx.state.checks.get(lane)
    if first_ms is None or half.next_ms < first_ms:
        tx.state.checks[lane] = half.next_ms


def _unschedule(tx: Tx, half: Half) -> None:
    """Deletes its key from `hdue`; if it was the lane's first, finds the new first due time."""
    lane = half.waits_for
    key = HDUE_KEY.pack(lane, half.next_ms, half.txn_id)
    if not tx.kv.delete("hdue", key):
        broken("half_has_its_next_check", ("hdue", key), topic=half.topic_id, number=half.txn_id)
    if tx.state.checks.get(lane) == half.next_ms:
        first = tx.kv.first("hdue", U32.pack(lane))
        if first is None:
            tx.state.checks.pop(lane)
        else:
            tx.state.checks[lane] = HDUE_KEY.unpack(first[0])[1]


def due(tx: Tx, lane: int, count: int) -> list[Half]:
    """Up to `count` due half messages of a topic (or GIVEN_UP), soonest first."""
    found: list[tuple[int, int]] = []
    for key, value in tx.kv.scan("hdue", U32.pack(lane)):
        _, due_ms, txn_id = HDUE_KEY.unpack(key)
        if due_ms > tx.now_ms or len(found) == count:
            break
        found.append((lane or U32.unpack(value)[0], txn_id))
    return [half for where in found if (half := find_half(tx, *where)) is not None]


def older(tx: Tx, topic_id: int, before_ms: int, count: int) -> list[Half]:
    """Up to `count` half messages of a topic stored by `before_ms`, oldest first: their ids ascend with time."""
    rows = itertools.islice(tx.kv.scan("half", U32.pack(topic_id)), count)
    halves = (decode(topic_id, HALF_KEY.unpack(key)[1], value) for key, value in rows)
    return list(itertools.takewhile(lambda half: half.stored_ms <= before_ms, halves))


def topics_with_any(tx: Tx, start: int, count: int) -> list[int]:
    """Up to `count` ids, from `start` on, of existing topics with half messages: one step of a cursor for each."""
    found, cursor = list[int](), tx.kv.cursor("half")
    more = cursor.set_range(U32.pack(start))
    while more and len(found) < count:
        topic_id, _ = HALF_KEY.unpack(cursor.key())
        if topic_id in tx.state.topics:
            found.append(topic_id)
        more = cursor.set_range(U32.pack(topic_id + 1))
    return found


# ── Outcomes ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def remember(tx: Tx, half: Half, commit: bool, ended: Ended) -> None:
    """Stores how a transaction ended, with the answer for repeated requests.

    A bucket spans DONE_KEEP_MS: a look-up reads two buckets, and the oldest outcomes come first in `tdone`.
    """
    handle = ended.place.recall_handle.encode()
    head = DONE.pack(commit, tx.now_ms, half.nonce, ended.place.queue, ended.place.offset, len(handle))
    key = TDONE_KEY.pack(tx.now_ms // DONE_KEEP_MS, half.txn_id)
    if tx.kv.get("tdone", key) is not None:
        broken("transaction_ends_once", ("tdone", key))
    tx.kv.put("tdone", key, b"".join((head, handle, ended.message_id.encode())))


def ended(tx: Tx, transaction: TransactionId) -> tuple[bool, Ended] | None:
    """(committed, the first answer) of a transaction that ended within the last hour."""
    bucket = tx.now_ms // DONE_KEEP_MS
    for at in (bucket, bucket - 1):
        raw = tx.kv.get("tdone", TDONE_KEY.pack(at, transaction.txn_id))
        if raw is None:
            continue
        commit, ended_ms, given, queue, offset, handle_size = DONE.unpack_from(raw)
        if given == transaction.nonce and tx.now_ms - ended_ms < DONE_KEEP_MS:
            texts = bytes(raw[DONE.size :])
            return commit, Ended(texts[handle_size:].decode(), Place(queue, offset, texts[:handle_size].decode()))
    return None


def forget(tx: Tx) -> bool:
    """Drops one piece of outdated outcomes; returns whether there may be more."""
    stop = TDONE_KEY.pack(max(0, tx.now_ms // DONE_KEEP_MS - 1), 0)
    old = [key for key in itertools.islice(tx.kv.scan_keys("tdone"), FORGET_MAX) if key < stop]
    for key in old:
        tx.kv.delete("tdone", key)
    return len(old) == FORGET_MAX


# ── Lists, and removal with a deleted topic ──────────────────────────────────────────────────────────────────────────


def listed(tx: Tx, query: queries.Transactions) -> CountedRows[HalfMessage]:
    """(open half messages, topic by topic and in each oldest first; the total number, or 0).

    In the order of their keys, so that a page costs its rows however many topics have half messages.
    """
    topic = registry.topic(tx, query.topic)
    if query.topic and topic is None:
        raise topic_not_found(query.topic)
    after = place_of(query.after, HALF_KEY.size)
    if topic and after and HALF_KEY.unpack(after)[0] != topic.topic_id:
        raise not_a_page(query.after)
    rows, last = Rows[HalfMessage](), b""
    for looks, (key, value) in enumerate(_of_topic(tx, topic, after) if topic else _of_all(tx, after)):
        if len(rows) == query.count or looks == ROWS_AT_ONCE:
            rows.after = last.hex()
            break
        last = key
        topic_id, txn_id = HALF_KEY.unpack(key)
        if (of := tx.state.topics.get(topic_id)) is not None:
            half = decode(topic_id, txn_id, value)
            texts = of.name, message_id_of(tx, half), transaction_text(half.transaction)
            shown = _preview(tx, half) if query.previews else None
            rows.append(HalfMessage(*texts, half.stored_ms, half.checks, half.next_ms, shown))
    total = tx.state.topic_stat.get(topic.topic_id, TopicStat()).half if topic else tx.state.unseen.get("half", 0)
    return CountedRows(rows, 0 if query.after else total)


def _of_topic(tx: Tx, topic: Topic, after: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """The entries of `half` of a topic after a key."""
    return tx.kv.scan("half", U32.pack(topic.topic_id), following(after) if after else b"")


def _of_all(tx: Tx, after: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """All entries of `half` after a key; of a deleted topic, which may still have many, only the first."""
    cursor = tx.kv.cursor("half")
    more = cursor.set_range(following(after) if after else b"\0")
    while more:
        key = bytes(cursor.key())
        yield key, tx.kv.value_of("half", key, cursor.value())
        topic_id, _ = HALF_KEY.unpack(key)
        more = cursor.next() if topic_id in tx.state.topics else cursor.set_range(U32.pack(topic_id + 1))


def drop(tx: Tx, topic_id: int, messages_max: int) -> int:
    """Removes up to `messages_max` half messages of a deleted topic; returns how many more may be removed."""
    found = itertools.islice(tx.kv.scan("half", U32.pack(topic_id)), messages_max)
    halves = [decode(topic_id, HALF_KEY.unpack(key)[1], value) for key, value in found]
    for half in halves:
        remove(tx, half)
    return messages_max - len(halves)


def preview_of(packed: memoryview) -> MessagePreview | None:
    """The preview of a packed message, whose body is not copied; None if its bytes are damaged."""
    try:
        return MessagePreview(*fields.preview(packed_data(packed)))
    except (IndexError, ValueError, struct.error):
        return None
