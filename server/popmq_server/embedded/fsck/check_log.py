"""`popmq check` for the log and the queues: chunks, records, and the entries that point at them."""

import itertools
import zlib
from collections.abc import Iterator

from popmq_server.embedded.rules.sending import delay
from popmq_server.embedded.rules.topics.chunk import IDX_HEAD
from popmq_server.embedded.rules.topics.log import Log
from popmq_server.embedded.state.state import State
from popmq_server.embedded.store.keys import (
    CQ_ENTRY,
    CQ_KEY,
    QUEUE_KEY,
    TOPIC_AT,
    U32,
    U64,
)
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.values.message import (
    LENGTH_END,
    RECORD,
    RECORD_HEAD_BYTES,
    read_record,
)


def chunks(kv: Transaction, state: State) -> Iterator[str]:
    """Chunks follow each other without overlap, each has its index block, each record its checksum."""
    stop = 0
    indexed = {
        TOPIC_AT.unpack(key)[1]: (TOPIC_AT.unpack(key)[0], IDX_HEAD.unpack_from(value)[0])
        for key, value in kv.scan("idx")
    }
    bad = {U64.unpack_from(value)[0]: U32.unpack_from(value, 8)[0] for _, value in kv.scan("quar")}
    moved = kv.get("meta", delay.MOVES) is not None
    for key, chunk in kv.scan("log"):
        start = U64.unpack(key)[0]
        if start < stop:
            yield f"chunk {start} begins before its predecessor ends at {stop}"
        stop = start + len(chunk)
        if start not in indexed:
            yield f"chunk {start} has no index block"
            continue
        yield from _check_records(chunk, start, *indexed[start], bad, moved=moved)
    if stop > state.counters[""].position:
        yield f"the log ends at {stop}, the next position is {state.counters[''].position}"


def _check_records(
    chunk: memoryview, start: int, topic_id: int, last_ms: int, bad: dict[int, int], *, moved: bool
) -> Iterator[str]:
    """Each record of a chunk has its checksum, or is in quarantine with its size, and together they fill it.

    They lie as they were stored, and the index block says when the last one was; unless times were `moved` (rebase.py),
    which leaves those in the records as they were.
    """
    at, times = 0, list[int]()
    while at + RECORD_HEAD_BYTES <= len(chunk):
        version, length = divmod(RECORD.unpack_from(chunk, at)[1], LENGTH_END)
        size = bad.get(start + at) or RECORD_HEAD_BYTES + length
        read = read_record(chunk[at : at + size], topic_id)
        if read is None and start + at not in bad:
            why = _why_unread(chunk[at : at + size], version)
            yield f"the record at {start + at} {why}, and is not in quarantine"
        at += size
        if read is not None:
            times.append(read[0])
        elif at == len(chunk):
            times.append(last_ms)
    if at != len(chunk):
        yield f"the records of chunk {start} end at {start + at}, the chunk at {start + len(chunk)}"
    elif not moved and (times != sorted(times) or times[-1:] != [last_ms]):
        yield f"the messages of chunk {start} were not stored in their order, or its index block has another time"


def _why_unread(record: memoryview, version: int) -> str:
    """The reason: a record of a newer release has a valid checksum, but an unknown version."""
    if version and zlib.crc32(record[4:]) == RECORD.unpack_from(record)[0]:
        return f"has version {version}, which this release does not know"
    return "does not match its checksum"


def queues(kv: Transaction, state: State) -> Iterator[str]:
    """Blocks of a queue begin at its first readable offset and do not overlap."""
    log = Log(kv)
    yield from _foreign_blocks(kv, state)
    for topic in state.topics.values():
        for queue in range(topic.queues):
            least, at = state.queue_min[(topic.topic_id, queue)], None
            for key, block in kv.scan("cq", QUEUE_KEY.pack(topic.topic_id, queue)):
                first = CQ_KEY.unpack(key)[2]
                if at is None and first != least:
                    yield f"{topic.name} queue {queue} begins at {first}, its first readable offset is {least}"
                if at is not None and first < at:
                    yield f"{topic.name} queue {queue}: a block begins at {first}, its predecessor ends at {at}"
                at = first + len(block) // CQ_ENTRY.size
                yield from _check_block(kv, log, topic.name, topic.topic_id, queue, first, block)


def _foreign_blocks(kv: Transaction, state: State) -> Iterator[str]:
    """Blocks of queues that no topic has, except those of topics that are being removed, with their lite topics."""
    orphans = {topic_id for (parent_id, _), topic_id in state.lite_ids.items() if parent_id in state.purges}
    for key in kv.keys("cq"):
        topic_id, queue, first = CQ_KEY.unpack(key)
        topic = state.topics.get(topic_id)
        if topic_id not in state.purges and topic_id not in orphans and (topic is None or queue >= topic.queues):
            yield f"topic {topic_id} has no queue {queue}, of which a block begins at {first}"


def _check_block(
    kv: Transaction, log: Log, name: str, topic_id: int, queue: int, first: int, block: memoryview
) -> Iterator[str]:
    """Each entry of a consume queue points at a whole record of its topic."""
    for index, (position, size, _) in enumerate(CQ_ENTRY.iter_unpack(block)):
        where = f"{name} queue {queue} offset {first + index}"
        if log.fetch(topic_id, position, size) is not None:
            continue
        quarantined = kv.get("quar", CQ_KEY.pack(topic_id, queue, first + index)) is not None
        copied = kv.get("log", U64.pack(position)) is None and _has_kept_chunk(kv, topic_id, position)
        if not quarantined and not copied:
            yield f"{where} points at {position}, where there is no complete record of its topic"


def _has_kept_chunk(kv: Transaction, topic_id: int, position: int) -> bool:
    """Whether the chunk of a position went to `kept`: then only its live records are left, and there are some."""
    found = kv.floor("idx", TOPIC_AT.pack(topic_id, position), U32.pack(topic_id))
    if found is None or kv.get("log", found[0][4:]) is not None:
        return False
    stop = TOPIC_AT.unpack(found[0])[1] + IDX_HEAD.unpack_from(found[1])[1]
    return any(U64.unpack(key)[0] < stop for key in itertools.islice(kv.scan_keys("kept", b"", found[0][4:]), 1))
