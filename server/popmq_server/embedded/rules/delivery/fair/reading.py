"""Reads the queues and the retry topic of a group ahead, in bounded pieces: what waits, by fair key.

A Pop reads a piece first, so that it sees what was sent just before. When more is left, the event loop runs further
pieces between other commands until all is read (loop/broker.py): a key whose first message is behind a million others
need not wait for as many Pops.

    in the queue                        becomes
    not passed yet                      a node of its key, whatever its record says: the Pop verifies it
    passed (`taken`)                    nothing
    does not match the filter           passed by the next Pop, and counted
    a hole, left by retention           passed by the next Pop, and counted

With a long backlog the end of each queue is read first, and then what is sent: a message need not wait until the
messages before it have been read.

    queue  ■ ■ ■ ■ · · · · · · · · · ■ ░ ■ ░ │ ← sends          ■ read   · not read yet   ░ left to `scanned`
                   ▲ scanned                 ▲ fresh_to

At the end a key gets what it has few of. The messages of a key with many stay in their order behind those that are not
read yet. `scanned` comes to the end later, reads what was left, and goes over what was read.
"""

from collections import Counter

from popmq_server.embedded.operations import ReadAhead
from popmq_server.embedded.rules.delivery.fair import index as indexes
from popmq_server.embedded.rules.delivery.fair.index import DROPPED, FILTERED, FairIndex
from popmq_server.embedded.rules.topics import readers, registry
from popmq_server.embedded.rules.topics.log import Log, entries, over_hole, tagged
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import RQ_KEY, RQ_VALUE, TAKEN_BLOCK
from popmq_server.values.ids import GroupTopic, Taken
from popmq_server.values.records import Stat, Topic

#: Messages that a Pop reads ahead, or twice as many as it may take; and a piece between other commands, which wait for
#: it: some 3 ms.
AHEAD_OF_POP, PIECE = 1000, 1000
#: Unread messages from which on the ends of the queues are read first; of them the last ones, in all queues together.
LONG_BACKLOG, FRESH_WINDOW = 8000, 2000
#: Messages that a key may have when one of it is read at the end of a queue.
FRESH_OF_KEY = 500
#: Messages of one queue in a row, so that what was sent to several queues at one time is read together.
_SPAN = 256
_NO_STAT = Stat()
_NOTHING: Taken = {}


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
    if index.may_go:
        tx.wake(*where)
    return more


def read_ahead(tx: Tx, where: GroupTopic, topic: Topic, index: FairIndex, count: int, *, backlog: bool = True) -> bool:
    """Reads up to `count` messages ahead; returns whether more can be read now.

    What returns, what is sent, and the backlog have their shares, so that none of these waits until another is read.
    Without `backlog` it is read only as long as it is short.
    """
    log = Log(tx.kv)
    count -= _read_retries(tx, where, index, log, -(-count // 2))
    unread = {queue: left for queue in range(topic.queues) if (left := _unread(tx, where, topic, index, queue)) > 0}
    if unread:
        _begin_at_the_end(tx, topic, index, unread)
        most = count // 2 if backlog else count
        count -= _read_in_turns(tx, where, topic, index, log, [*index.fresh_to], most, True)
        if backlog or not index.fresh_to:
            _read_in_turns(tx, where, topic, index, log, [*unread], count, False)
    tops, first = tx.state.queue_max, topic.topic_id
    fresh = any(at < tops.get((first, queue), 0) for queue, at in index.fresh_to.items())
    behind = any(index.scanned[queue] < tops.get((first, queue), 0) for queue in unread)
    return ((behind or index.more_retries) and not index.full) or (fresh and not index.full_of_fresh)


def _unread(tx: Tx, where: GroupTopic, topic: Topic, index: FairIndex, queue: int) -> int:
    """The messages of a queue that were not read. Begins to read a queue, and goes past dropped messages."""
    state, place = tx.state, (topic.topic_id, queue)
    least, most = state.queue_min.get(place, 0), state.queue_max.get(place, 0)
    at = state.poff.get((*where, queue), least)
    if queue not in index.scanned:
        index.scanned[queue] = index.base[queue] = max(at, least)
    if at < least:
        index.pass_later(queue, at, least - at, DROPPED)
        index.reach(queue, max(index.scanned[queue], least))
    return most - index.scanned[queue]


def _begin_at_the_end(tx: Tx, topic: Topic, index: FairIndex, unread: dict[int, int]) -> None:
    """Begins to read queues at their ends too, if much is unread. Not in the first piece: the oldest come first.

    All queues with unread messages then, since any of them may have the next message of a key: those with few from
    where `scanned` is.
    """
    if index.fresh_to or (sum(unread.values()) > LONG_BACKLOG and index.has_begun):
        for queue, left in unread.items():
            if queue not in index.fresh_to:
                few = left <= LONG_BACKLOG // topic.queues
                window = left if few else min(left, FRESH_WINDOW // len(unread))
                index.fresh_to[queue] = tx.state.queue_max[topic.topic_id, queue] - window
                index.fresh[queue] = {}


def _read_in_turns(
    tx: Tx, where: GroupTopic, topic: Topic, index: FairIndex, log: Log, queues: list[int], count: int, fresh: bool
) -> int:
    """Reads up to some `count` messages of queues, a span of each in turn; returns how many. `fresh`: at their ends.

    It begins after the queue of the last span, so that each has its turn whatever the others get.
    """
    read, at = 0, index.fresh_to if fresh else index.scanned
    queues.sort(key=lambda queue: (queue <= index.last_read[fresh], queue))
    while queues and read < count:
        for queue in queues[:]:
            if index.full_of_fresh if fresh else index.full:
                return read
            end = tx.state.queue_max.get((topic.topic_id, queue), 0)
            if at.get(queue, end) < end:
                read += _read_queue(tx, where, topic, index, log, queue, min(_SPAN, max(count - read, 1)), fresh)
                index.last_read[fresh] = queue
            if at.get(queue, end) >= end:
                queues.remove(queue)
            if read >= count:
                break
    return read


def _read_queue(
    tx: Tx, where: GroupTopic, topic: Topic, index: FairIndex, log: Log, queue: int, count: int, fresh: bool
) -> int:
    """Reads up to `count` entries of a queue; returns how many."""
    topic_id, start, wanted = topic.topic_id, (index.fresh_to if fresh else index.scanned)[queue], index.wanted
    most = tx.state.queue_max.get((topic_id, queue), 0)
    stop = min(start + count, most)
    if wanted.hashes is None:
        units = entries(tx.kv, topic_id, queue, start, stop - start)
        end = start + len(units)
    else:
        units, end = tagged(tx.kv, topic_id, queue, start, stop - start, wanted.hashes)
    read, passed = end - start, FILTERED
    if not read:
        end, read, passed = over_hole(tx.kv, topic_id, queue, start, most), 1, DROPPED
    found = units if wanted.everything else [unit for unit in units if not _is_unwanted(topic, index, log, unit)]
    if not fresh:
        _pass_between(index, queue, found, start, end, passed)
    if found:  # a hole may be long
        seen = tx.state.taken.get((*where, queue), _NOTHING), index.fresh.get(queue, _NOTHING)
        if known := _bits(seen[0], start, end) | _bits(seen[1], start, end):
            found = [unit for unit in found if not known >> unit[0] - start & 1]
    keys = _keys_of(index, log, found)
    if fresh:
        _add_fresh(index, queue, keys, found)
        index.fresh_to[queue] = end
    else:
        index.add_all(keys, queue, found)
        index.reach(queue, end)
    return read


def _add_fresh(index: FairIndex, queue: int, keys: list[bytes], units: list[tuple[int, int, int]]) -> None:
    """Adds those messages of the end of a queue whose keys have few."""
    added, blocks, chosen = Counter[bytes](), index.fresh[queue], list[int]()
    for at, key in enumerate(keys):
        if index.waiting_of(key, queue) + added[key] < FRESH_OF_KEY:
            added[key] += 1
            chosen.append(at)
            block, bit = divmod(units[at][0], TAKEN_BLOCK)
            blocks[block] = blocks.get(block, 0) | 1 << bit
    index.add_all([keys[at] for at in chosen], queue, [units[at] for at in chosen])


def _pass_between(
    index: FairIndex, queue: int, units: list[tuple[int, int, int]], start: int, end: int, why: str
) -> None:
    """Lets the next Pop pass what is between units, from `start` to `end`."""
    if len(units) == end - start:
        return
    last = start
    for at in [*(at for at, _, _ in units), end]:
        if at > last:
            index.pass_later(queue, last, at - last, why)
        last = at + 1


def _keys_of(index: FairIndex, log: Log, units: list[tuple[int, int, int]]) -> list[bytes]:
    """The fair keys of records, which are not verified."""
    if not index.fair.source:
        return [b""] * len(units)
    try:
        return index.read_keys(log.unverified_all(units))
    except (IndexError, ValueError):  # one is damaged
        return [_key_of(index, log, position, size) for _, position, size in units]


def _bits(blocks: Taken, start: int, end: int) -> int:
    """The bits of the offsets from `start` to `end`."""
    found = 0
    for block in range(start // TAKEN_BLOCK, (end - 1) // TAKEN_BLOCK + 1) if blocks else ():
        begin, bits = block * TAKEN_BLOCK - start, blocks.get(block, 0)
        found |= bits << begin if begin > 0 else bits >> -begin
    return found & (1 << end - start) - 1


def _is_unwanted(topic: Topic, index: FairIndex, log: Log, unit: tuple[int, int, int]) -> bool:
    """Whether a message can be read and does not match the filter."""
    _, position, size = unit
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
