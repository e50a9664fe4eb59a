"""`popmq check` for redriven letters, the chunks of redriven messages, and the index that look-ups walk."""

from collections import Counter
from collections.abc import Iterator

from popmq_server import deadletter
from popmq_server.index import WIDE_HEAD, WIDE_NAME
from popmq_server.state import State
from popmq_server.storage.keys import CQ_KEY, TOPIC_AT, U32
from popmq_server.storage.lmdb import Transaction
from popmq_server.topic import IDX_HEAD, IDX_RANGE, Log, entries

#: The queue of a redriven message in `place_of`: what no queue names has its position for an offset.
REDRIVEN = -1


def place_of(kv: Transaction, topic_id: int, position: int, queue: int, offset: int) -> tuple[int, int]:
    """What a message may be held as once: its place in its queue, or as a redriven one the place of its record."""
    found = kv.floor("bare", TOPIC_AT.pack(topic_id, position), U32.pack(topic_id))
    if found is None:
        return queue, offset
    block = kv.get("idx", found[0])
    size = IDX_HEAD.unpack_from(block)[1] if block is not None else 0
    return (REDRIVEN, position) if position < TOPIC_AT.unpack(found[0])[1] + size else (queue, offset)


def check(kv: Transaction, state: State) -> Iterator[str]:
    """Every broken invariant, as sentences; nothing of what is being removed."""
    yield from _check_gone(kv, state)
    yield from _check_chunks(kv, state)
    for topic_id in state.topics:
        yield from _check_wide(kv, topic_id)


def _check_gone(kv: Transaction, state: State) -> Iterator[str]:
    """A mark stands for a dead letter in its queue, or for one that was there until its chunk left a hole."""
    counted: Counter[int] = Counter()
    log = Log(kv)
    for key, _ in kv.scan("gone"):
        topic_id, queue, offset = CQ_KEY.unpack(key)
        topic = state.topics.get(topic_id)
        if topic is None:
            continue
        counted[topic_id] += 1
        where = f"{topic.name} queue {queue} offset {offset} is marked as redriven"
        if not state.queue_min.get((topic_id, queue), 0) <= offset < state.queue_max.get((topic_id, queue), 0):
            yield f"{where}, but is not in its queue"
        for _, position, size in entries(kv, topic_id, queue, offset, 1):
            read = log.fetch(topic_id, position, size)
            if read is not None and deadletter.opened(read[1]) is None:
                yield f"{where}, but is no dead letter"
    for topic_id, stat in state.topic_stat.items():
        if topic_id in state.topics and stat.redriven != counted[topic_id]:
            yield f"{state.topics[topic_id].name}: {counted[topic_id]} letters redriven, counted {stat.redriven}"


def _check_chunks(kv: Transaction, state: State) -> Iterator[str]:
    """Chunks that no queue names are known as such, else nobody would drop them."""
    bare = {key for key, _ in kv.scan("bare")}
    for key, value in kv.scan("idx"):
        topic_id, position = TOPIC_AT.unpack(key)
        ranges = IDX_HEAD.unpack_from(value)[2]
        if topic_id in state.topics and (ranges == 0) != (key in bare):
            yield f"chunk {position} has {ranges} queues, and is {'' if key in bare else 'not '}known to have none"
        bare.discard(key)
    for topic_id, position in map(TOPIC_AT.unpack, bare):
        if topic_id in state.topics:
            yield f"chunk {position} is known to have no queue, but is not there"


def _check_wide(kv: Transaction, topic_id: int) -> Iterator[str]:
    """A wide block has the names of the index blocks that it speaks of, or none, sorted; and they follow each other."""
    end = 0
    for key, value in kv.scan("widx", U32.pack(topic_id)):
        start, stop = TOPIC_AT.unpack(key)[1], WIDE_HEAD.unpack_from(value)[0]
        if start < end:
            yield f"the wide index block at {start} begins before its predecessor ends at {end}"
        end = stop
        names = list(WIDE_NAME.iter_unpack(value[WIDE_HEAD.size :]))
        if names and names != sorted(names):
            yield f"the wide index block at {start} is not sorted"
        if names and not set(_names(kv, topic_id, start, stop)) <= set(names):
            yield f"the wide index block at {start} lacks names of its chunks"


def _names(kv: Transaction, topic_id: int, start: int, stop: int) -> Iterator[tuple[bytes, int]]:
    """(hash, position) of each name of the index blocks between two positions."""
    for key, value in kv.scan("idx", U32.pack(topic_id), TOPIC_AT.pack(topic_id, start)):
        position = TOPIC_AT.unpack(key)[1]
        if position >= stop:
            return
        raw = value[IDX_HEAD.size + IDX_HEAD.unpack_from(value)[2] * IDX_RANGE.size :]
        for place in range(0, len(raw), 12):
            yield bytes(raw[place : place + 8]), position + U32.unpack_from(raw, place + 8)[0]
