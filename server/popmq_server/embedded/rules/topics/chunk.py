"""Chunks: what the store has of the messages in the log, and the one module that writes it.

    log    position → the records of one commit and topic       cq    T Q offset → entries of the queue
    idx    T position → ranges of offsets, sorted names         bare  T position: a chunk that no queue refers to
    kept   position → a record whose chunk was dropped          pin   chunk → retry and waiting entries that point to it

A commit writes the staged messages of one topic as one chunk (≤ 1 MiB), one consume-queue value for each queue, and one
index block. log.py reads them. The position of a message in the log, one logical byte stream, is its address
everywhere.

Messages that are sent one by one would take a page each, or two. So a small chunk stays open: the next commits append
messages of the topic to it, in the same values, until it has OPEN_BYTES_MAX or is too old (_open_ms). Its positions are
reserved when it begins, so interleaved sends to several topics do not split it.

    log   0 ▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪ (T 1)   32,752 ▪▪▪▪▪▪ open (T 2)       65,504 ▪▪▪ open (T 1)

There is no key per message: measured, one random key each takes sends from 270,000/s to 39,000/s at a million entries.
So look-ups by message id or key use one sorted block per chunk.

See docs/decisions/0002-small-commits-share-a-chunk.md.
"""

import itertools
import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.rules.topics import lite_chunks
from popmq_server.embedded.rules.topics.log import Log
from popmq_server.embedded.state import topic_counts
from popmq_server.embedded.state.space import GROW, messages_bytes
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import (
    CQ_ENTRY,
    CQ_KEY,
    CQ_WRITTEN,
    TOPIC_AT,
    U32,
    U64,
)
from popmq_server.values.message import RECORD_HEAD_BYTES, record, records
from popmq_server.values.outgoing import Outgoing
from popmq_server.values.records import OpenChunk, Topic

#: A chunk is one LMDB value; a commit with more bytes for a topic writes several chunks.
CHUNK_BYTES_MAX = 1 << 20
#: Entries in one consume-queue value.
BLOCK_ENTRIES_MAX = 4096
#: A request of so many bytes is one piece: each of its messages has a head.
SMALL_BYTES = RECORD_HEAD_BYTES * BLOCK_ENTRIES_MAX
#: Bytes of a chunk that several commits share. LMDB stores a value of more than half a page in whole pages, with a
#: header of 16 bytes: this fills eight pages. Each commit rewrites the chunk, so it should not be much larger.
OPEN_BYTES_MAX = (32 << 10) - 16
#: How long a chunk stays open: a thousandth of the topic's keep time, within these limits, since retention drops whole
#: chunks, by their last message. Retention runs once a minute.
OPEN_MS_MIN, OPEN_MS_MAX, OPEN_SHARE = 60_000, 600_000, 1000

#: stored ms of the last message, bytes of the chunk, ranges; then (Q, first offset, count) each; then sorted
#: (hash [8], place [4]).
IDX_HEAD = struct.Struct(">QIH")
IDX_RANGE = struct.Struct(">HQI")
NAME_BYTES = 12


class PlacedMessages(NamedTuple):
    """Messages of one request, with their place in a queue. `bytes`: of their records."""

    queue: int
    first: int
    messages: tuple[Outgoing, ...]
    bytes: int


def staged(queue: int, first: int, messages: tuple[Outgoing, ...]) -> PlacedMessages:
    """Messages with the size of their records."""
    if len(messages) == 1:
        return PlacedMessages(queue, first, messages, len(messages[0].data) + RECORD_HEAD_BYTES)
    size = sum(map(len, [message.data for message in messages]))
    return PlacedMessages(queue, first, messages, size + RECORD_HEAD_BYTES * len(messages))


def pieces(requests: list[PlacedMessages]) -> Iterable[tuple[list[PlacedMessages], int]]:
    """Splits the staged messages of one topic into (piece, bytes) of at most CHUNK_BYTES_MAX and BLOCK_ENTRIES_MAX."""
    if len(requests) == 1 and requests[0].bytes <= SMALL_BYTES:
        return ((requests, requests[0].bytes),)
    return _pieces(requests)


def _pieces(requests: list[PlacedMessages]) -> Iterator[tuple[list[PlacedMessages], int]]:
    piece: list[PlacedMessages] = []
    size = count = 0
    for request in requests:
        queue, first, messages, whole = request
        if size + whole <= CHUNK_BYTES_MAX and count + len(messages) <= BLOCK_ENTRIES_MAX:
            piece.append(request)
            size, count = size + whole, count + len(messages)
            continue
        start = 0
        for index, message in enumerate(messages):
            if count and (size + len(message.data) > CHUNK_BYTES_MAX or count == BLOCK_ENTRIES_MAX):
                if index > start:
                    piece.append(staged(queue, first + start, messages[start:index]))
                yield piece, size
                piece, size, count, start = [], 0, 0, index
            size += len(message.data) + RECORD_HEAD_BYTES
            count += 1
        piece.append(staged(queue, first + start, messages[start:]))
    yield piece, size


def demand(tx: Tx, messages: tuple[Outgoing, ...]) -> None:
    """Takes room for the bytes of messages before they are stored, or raises Refused (space.py)."""
    tx.room.demand(GROW, messages_bytes([len(message.data) for message in messages]))


def write(tx: Tx, topic_id: int, requests: list[PlacedMessages], size: int) -> None:
    """Writes one log value, one consume-queue value per queue, one index block; or appends to those of the open chunk.

    It assigns positions in the order of staging, so messages of one request are adjacent. One loop builds
    entries and names, since both need the position of the record, which is the sum of the lengths before it.
    """
    chunk, before = _chunk_for(tx, topic_id, size)
    parts: list[bytes] = []
    blocks: dict[int, tuple[int, list[bytes]]] = {}
    names: list[bytes] = []
    position = chunk.position + chunk.bytes
    for queue, first, messages, _ in requests:
        if queue in blocks:
            begin, entries = blocks[queue]
            if begin + len(entries) != first:
                follows = {"begin": begin, "entries": len(entries), "first": first}
                broken("queue_entries_follow", topic=topic_id, queue=queue, **follows)
        else:
            entries = []
            blocks[queue] = first, entries
        parts += records(topic_id, tx.now_ms, [message.data for message in messages])
        for data, tag, hashes, _, _ in messages:
            length = len(data) + RECORD_HEAD_BYTES
            entries.append(CQ_WRITTEN.pack(position, length, tag))
            place = (position - chunk.position).to_bytes(4, "big")
            for name in hashes:
                names.append(name + place)  # noqa: PERF401  a comprehension costs a call for each message
            position += length
    if position != chunk.position + chunk.bytes + size:
        broken("chunk_has_the_reserved_bytes", topic=topic_id, chunk=chunk, reserved=size, end=position)
    _put_chunk(tx, topic_id, chunk, before, parts, blocks, names)


def _chunk_for(tx: Tx, topic_id: int, size: int) -> tuple[OpenChunk, memoryview | None]:
    """The chunk for `size` bytes, and its records: the open chunk, or a new one, which stays open if it is small."""
    chunk = tx.state.open_chunks.get(topic_id)
    if chunk is not None and chunk.bytes + size <= OPEN_BYTES_MAX:
        age_ms = tx.now_ms - chunk.since_ms
        young = age_ms < OPEN_MS_MIN or age_ms < _open_ms(tx, topic_id)
        before = tx.kv.get("log", U64.pack(chunk.position)) if young else None
        if before is not None:  # retention may have dropped it
            if len(before) != chunk.bytes:
                broken("open_chunk_bytes", ("log", U64.pack(chunk.position)), bytes=len(before), known=chunk.bytes)
            tx.state.open_chunks[topic_id] = OpenChunk(chunk.position, chunk.bytes + size, chunk.since_ms)
            return chunk, before
    if size > OPEN_BYTES_MAX // 2:
        close(tx, topic_id)
        return OpenChunk(tx.next("position", size), 0, tx.now_ms), None
    chunk = OpenChunk(tx.next("position", OPEN_BYTES_MAX), 0, tx.now_ms)
    tx.state.open_chunks[topic_id] = chunk._replace(bytes=size)
    return chunk, None


def _open_ms(tx: Tx, topic_id: int) -> int:
    """How long a chunk of a topic stays open; a lite topic has the keep time of its parent."""
    topic = tx.state.topics.get(tx.state.parent_of(topic_id) or topic_id)
    return 0 if topic is None else min(OPEN_MS_MAX, max(OPEN_MS_MIN, topic.keep_ms // OPEN_SHARE))


def close(tx: Tx, topic_id: int) -> None:
    """Closes the open chunk of a topic: later messages go into another one."""
    tx.state.open_chunks.pop(topic_id)


def _put_chunk(
    tx: Tx,
    topic_id: int,
    chunk: OpenChunk,
    before: memoryview | None,
    parts: list[bytes],
    blocks: dict[int, tuple[int, list[bytes]]],
    names: list[bytes],
) -> None:
    """Puts records, and (first offset, entries) of each queue and names, appended to those that the chunk has.

    `before`: the records that it has, None for a new one.
    """
    kv, idx_key = tx.kv, TOPIC_AT.pack(topic_id, chunk.position)
    ranges: dict[int, tuple[int, int]] = {}
    raw = b"".join(parts)
    size = chunk.bytes + len(raw)
    parent_id = topic_counts.add_bytes(tx, topic_id, len(raw))
    if before is None:
        tx.state.fresh_blocks += 1
        if parent_id:
            lite_chunks.put(tx, parent_id, chunk.position, topic_id)
        kv.put("log", U64.pack(chunk.position), raw)
    else:
        kv.extend("log", U64.pack(chunk.position), before, raw)
        names += _block(_stored(tx, "idx", idx_key), chunk, ranges)
    for queue, (first, entries) in blocks.items():
        value = b"".join(entries)
        if queue not in ranges:
            kv.put("cq", CQ_KEY.pack(topic_id, queue, first), value)
            ranges[queue] = first, len(entries)
            continue
        begin, count = ranges[queue]
        if begin + count != first:
            broken("open_chunk_continues_its_queues", ("idx", idx_key), queue=queue, first=first, range=ranges[queue])
        key = CQ_KEY.pack(topic_id, queue, begin)
        known = _stored(tx, "cq", key)
        if len(known) != count * CQ_ENTRY.size:
            broken("open_chunk_entries", ("cq", key), bytes=len(known), entries=count)
        kv.extend("cq", key, known, value)
        ranges[queue] = begin, count + len(entries)
    names.sort()
    packed = [IDX_HEAD.pack(tx.now_ms, size, len(ranges))]
    for queue, span in ranges.items():
        packed.append(IDX_RANGE.pack(queue, *span))
    kv.put("idx", idx_key, b"".join((*packed, *names)))


def _stored(tx: Tx, name: str, key: bytes) -> memoryview:
    """A value of the open chunk."""
    raw = tx.kv.get(name, key)
    if raw is None:
        broken("chunk_has_its_rows", (name, key))
    return raw


def _block(view: memoryview, chunk: OpenChunk, ranges: dict[int, tuple[int, int]]) -> list[bytes]:
    """Decodes the index block of an open chunk: names with their places; adds (first offset, count) of each queue."""
    raw = bytes(view)
    _, size, count = IDX_HEAD.unpack_from(raw)
    if size != chunk.bytes:
        broken("open_chunk_bytes", chunk=chunk.position, indexed=size, known=chunk.bytes)
    stop = IDX_HEAD.size + count * IDX_RANGE.size
    for queue, first, entries in IDX_RANGE.iter_unpack(raw[IDX_HEAD.size : stop]):
        ranges[queue] = first, entries
    return [raw[at : at + NAME_BYTES] for at in range(stop, len(raw), NAME_BYTES)]


def append_bare(tx: Tx, topic: Topic, messages: tuple[Outgoing, ...]) -> list[tuple[int, int]]:
    """Stores messages in chunks that no queue refers to; returns the (position, size) of each, for the entries.

    It writes them at once, since an entry needs the position. Look-ups do not find them: they are copies of messages
    that have a place in a queue. Retention drops such a chunk once no entry points into it (retention.py).
    """
    places: list[tuple[int, int]] = []
    if not messages:  # an empty chunk would have the position of the next one
        return places
    demand(tx, messages)
    close(tx, topic.topic_id)  # positions of a topic increase with the store time
    for piece, size in pieces([staged(0, 0, messages)]):
        chunk = OpenChunk(tx.next("position", size), 0, tx.now_ms)
        position, parts = chunk.position, list[bytes]()
        for message in piece[0].messages:
            parts += record(topic.topic_id, tx.now_ms, message.data)
            places.append((position, len(message.data) + RECORD_HEAD_BYTES))
            position += places[-1][1]
        _put_chunk(tx, topic.topic_id, chunk, None, parts, {}, [])
        tx.kv.put("bare", TOPIC_AT.pack(topic.topic_id, chunk.position), b"")
    return places


def drop(tx: Tx, topic: Topic, position: int, size: int, ranges: Iterable[tuple[int, int, int]]) -> None:
    """Removes a chunk, its indexes, its entries of queues, and its records in `kept`."""
    tx.kv.delete("log", U64.pack(position))
    tx.kv.delete("idx", TOPIC_AT.pack(topic.topic_id, position))
    lite_chunks.remove(tx, topic.parent_id, position)
    topic_counts.add(tx, topic.topic_id, bytes=-size)
    read = (key for key, _ in tx.kv.scan("kept", b"", U64.pack(position)))  # a damaged record is not dropped
    _drop_kept(tx, read, position + size)
    bare = True
    for queue, first, _ in ranges:
        tx.kv.delete("cq", CQ_KEY.pack(topic.topic_id, queue, first))
        bare = False
    if bare:
        tx.kv.delete("bare", TOPIC_AT.pack(topic.topic_id, position))


def drop_records(tx: Tx, parent_id: int, position: int, size: int) -> int:
    """Removes the records of a deleted topic's chunk, their pins, and those in `kept`; returns how many these are.

    `parent_id`: that of a lite topic. The caller removes the keys that begin with the topic.
    """
    stored = tx.kv.get("log", U64.pack(position)) is not None
    tx.kv.delete("log", U64.pack(position))
    tx.kv.delete("pin", U64.pack(position))
    lite_chunks.remove(tx, parent_id, position)
    return 0 if stored else _drop_kept(tx, tx.kv.scan_keys("kept", b"", U64.pack(position)), position + size)


def _drop_kept(tx: Tx, keys: Iterator[bytes], end: int) -> int:
    """Removes the first records in `kept` of these, up to a position; returns their number."""
    stale = list(itertools.takewhile(lambda key: U64.unpack(key)[0] < end, keys))
    for key in stale:
        tx.kv.delete("kept", key)
    return len(stale)


def keep(tx: Tx, position: int, live: dict[int, int]) -> None:
    """Copies the records of a chunk that are in use (position → size) to `kept`, and removes the others with it."""
    head = U64.pack(position)
    raw = _stored(tx, "log", head)
    for at, size in live.items():
        if not 0 <= at - position <= len(raw) - size:
            broken("kept_record_in_its_chunk", chunk=position, record=at, bytes=size, chunk_bytes=len(raw))
    copies = [(at, head + raw[at - position : at - position + size]) for at, size in sorted(live.items())]
    for at, value in copies:
        tx.kv.put("kept", U64.pack(at), value)
    tx.kv.delete("log", head)


def pin(tx: Tx, position: int, count: int) -> None:
    """Adds to the number of retry and waiting entries that point into a chunk; a pinned chunk is not dropped."""
    key = U64.pack(position)
    tx.state.searched.discard(position)
    raw = tx.kv.get("pin", key)
    left = (U32.unpack(raw)[0] if raw is not None else 0) + count
    if left < 0:
        broken("chunk_entries_counted", ("pin", key), left=left)
    if left:
        tx.kv.put("pin", key, U32.pack(left))
    elif raw is not None:
        tx.kv.delete("pin", key)


def pin_records(tx: Tx, positions: Iterable[int], sign: int) -> None:
    """The same for entries that point to the records at these positions, one each; their chunks may be gone."""
    log, chunks = Log(tx.kv), dict[int, int]()
    for position in positions:
        chunk = log.chunk_of(position)
        chunks[chunk] = chunks.get(chunk, 0) + sign
    for chunk, count in chunks.items():
        if chunk >= 0:
            pin(tx, chunk, count)


def pins(tx: Tx, position: int) -> tuple[int, int]:
    """(leased messages in a chunk, entries outside the queues that point into it)."""
    raw = tx.kv.get("pin", U64.pack(position))
    return tx.state.pins.get(position, 0), 0 if raw is None else int(U32.unpack(raw)[0])
