"""Reads the queues and the retry topic of a group ahead, in bounded pieces: what waits, by fair key.

A Pop reads a piece first, so that it sees what was sent just before. When more is left, the event loop runs further
pieces between other commands until all is read (loop/broker.py): a key whose first message is behind a million others
need not wait for as many Pops.

    in the queue                        becomes
    not passed yet                      a node of its key, whatever its record says: the Pop verifies it
    passed (`taken`)                    nothing
    does not match the filter           passed by the next Pop, and counted
    a hole, left by retention           passed by the next Pop, and counted
"""

from popmq_server.embedded.operations import ReadAhead
from popmq_server.embedded.rules.delivery.fair import index as indexes
from popmq_server.embedded.rules.delivery.fair.index import DROPPED, FILTERED, FairIndex
from popmq_server.embedded.rules.topics import readers, registry
from popmq_server.embedded.rules.topics.log import Log, entries, over_hole, tagged
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import RQ_KEY, RQ_VALUE, TAKEN_BLOCK
from popmq_server.values.ids import GroupTopic, Taken
from popmq_server.values.records import Stat, Topic

#: Messages that a Pop reads ahead (some 3 ms), or twice as many as it may take; and a piece between other commands.
AHEAD_OF_POP, PIECE = 1000, 4000
#: Messages of one queue in a row, so that what was sent to several queues at one time is read together.
_SPAN = 256
_NO_STAT = Stat()


def go_on(tx: Tx, command: ReadAhead) -> bool:
    """Reads a piece for a group that pops; returns whether more can be read now. Wakes a Pop if a key may go."""
    group, topic = readers.group(tx, command.group), registry.topic(tx, command.topic)
    if group is None or topic is None:
        return False
    where = (group.group_id, topic.topic_id)
    index = indexes.of_group(tx.state, where)
    if index is None:
        return False
    readers.forget_if_aborted(tx, where)
    more = read_ahead(tx, where, topic, index, PIECE)
    index.let_go(tx.now_ms)
    if any(index.keys.first[root] for root in index.keys.roots.values()):
        tx.wake(*where)
    return more


def read_ahead(tx: Tx, where: GroupTopic, topic: Topic, index: FairIndex, count: int) -> bool:
    """Reads up to `count` messages ahead; returns whether more can be read now."""
    log = Log(tx.kv)
    count -= _read_retries(tx, where, index, log, count)
    behind = [queue for queue in range(topic.queues) if _is_behind(tx, where, topic, index, queue)]
    while behind and count > 0 and not index.full:
        for queue in behind[:]:
            count -= _read_queue(tx, where, topic, index, log, queue, min(_SPAN, max(count, 1)))
            if index.scanned[queue] >= tx.state.queue_max.get((topic.topic_id, queue), 0):
                behind.remove(queue)
            if count <= 0 or index.full:
                break
    return (bool(behind) or index.more_retries) and not index.full


def _is_behind(tx: Tx, where: GroupTopic, topic: Topic, index: FairIndex, queue: int) -> bool:
    """Whether a queue has messages that were not read. Begins to read a queue, and goes past dropped messages."""
    state, place = tx.state, (topic.topic_id, queue)
    least, most = state.queue_min.get(place, 0), state.queue_max.get(place, 0)
    at = state.poff.get((*where, queue), least)
    if queue not in index.scanned:
        index.scanned[queue] = index.base[queue] = max(at, least)
    if at < least:
        index.pass_later(queue, at, least - at, DROPPED)
        index.scanned[queue] = max(index.scanned[queue], least)
    return index.scanned[queue] < most


def _read_queue(tx: Tx, where: GroupTopic, topic: Topic, index: FairIndex, log: Log, queue: int, count: int) -> int:
    """Reads up to `count` entries of a queue; returns how many."""
    topic_id, start, wanted = topic.topic_id, index.scanned[queue], index.wanted
    stop = min(start + count, tx.state.queue_max.get((topic_id, queue), 0))
    if wanted.hashes is None:
        units = entries(tx.kv, topic_id, queue, start, stop - start)
        end = start + len(units)
    else:
        units, end = tagged(tx.kv, topic_id, queue, start, stop - start, wanted.hashes)
    if end == start:
        end = over_hole(tx.kv, topic_id, queue, start, tx.state.queue_max.get((topic_id, queue), 0))
        index.pass_later(queue, start, end - start, DROPPED)
        index.scanned[queue] = end
        return 1
    if not wanted.everything:
        units = _wanted(topic, index, log, queue, units, start, end)
    if taken := tx.state.taken.get((*where, queue)):
        units = [unit for unit in units if not _is_taken(taken, unit[0])]
    index.add_all(_keys_of(index, log, units), queue, units)
    index.scanned[queue] = end
    return end - start


def _wanted(
    topic: Topic, index: FairIndex, log: Log, queue: int, units: list[tuple[int, int, int]], start: int, end: int
) -> list[tuple[int, int, int]]:
    """The entries that match the filter, of those from `start` to `end`; the next Pop passes the others."""
    found, last = list[tuple[int, int, int]](), start
    for at, position, size in units:
        if at > last:
            index.pass_later(queue, last, at - last, FILTERED)
        last = at + 1
        if _is_unwanted(topic, index, log, position, size):
            index.pass_later(queue, at, 1, FILTERED)
        else:
            found.append((at, position, size))
    if end > last:
        index.pass_later(queue, last, end - last, FILTERED)
    return found


def _keys_of(index: FairIndex, log: Log, units: list[tuple[int, int, int]]) -> list[bytes]:
    """The fair keys of records, which are not verified."""
    if not index.fair.source:
        return [b""] * len(units)
    try:
        return index.read_keys(log.unverified_all(units))
    except (IndexError, ValueError):  # one is damaged
        return [_key_of(index, log, position, size) for _, position, size in units]


def _is_taken(taken: Taken, offset: int) -> int:
    return taken.get(offset // TAKEN_BLOCK, 0) >> offset % TAKEN_BLOCK & 1


def _is_unwanted(topic: Topic, index: FairIndex, log: Log, position: int, size: int) -> bool:
    """Whether a message can be read and does not match the filter."""
    read = log.fetch(topic.topic_id, position, size)
    return read is not None and not index.wanted.matches(read[1])


def _key_of(index: FairIndex, log: Log, position: int, size: int) -> bytes:
    """The fair key of a record, which is not verified: the empty key if it cannot be read."""
    if not index.fair.source:
        return b""
    try:
        return index.read_keys([log.unverified(position, size)])[0]
    except (IndexError, ValueError):  # damaged, or dropped: the Pop that takes it finds out
        return b""


def _read_retries(tx: Tx, where: GroupTopic, index: FairIndex, log: Log, count: int) -> int:
    """Reads up to `count` entries of the retry topic; returns how many."""
    most, seen, index.more_retries = tx.state.counters[""].rseq, 0, False
    if index.retries_from < most and tx.state.stat.get(where, _NO_STAT).retry:
        first = RQ_KEY.pack(*where, index.retries_from)
        for key, value in tx.kv.scan("rq", first[:8], first):
            if seen == count:
                index.more_retries = True
                return seen
            rseq = RQ_KEY.unpack(key)[2]
            index.retries_base = index.retries_base or rseq
            position, size, _, queue, *_ = RQ_VALUE.unpack_from(value)
            index.add(_key_of(index, log, position, size), queue, rseq - index.retries_base, size, retry=True)
            index.retries_from, seen = rseq + 1, seen + 1
    index.retries_from = most
    return seen
