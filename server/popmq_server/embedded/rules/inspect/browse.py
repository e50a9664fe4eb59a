"""Browse: reads messages by position; takes no lease and changes nothing.

    topic, %DLQ%group           by offset in one queue; skips redriven dead letters and unreadable messages
    %RETRY%group+topic          by entry number, oldest entry first; reads the messages that the entries point to
    %RETRY%group+FIFO topic     waiting messages by queue and offset; an entry's number is its queue × 2^47 + its offset
                                (a group that pulls has entries as in other topics)

A page ends when it has the requested messages or bytes, a page of a queue also after LOOKS_MAX steps. `next_offset` is
where the next page begins.

See docs/decisions/0010-retry-topics-are-views.md.
"""

import heapq

from popmq_server.contract.commands import queries
from popmq_server.contract.commands.numbers import Page
from popmq_server.embedded.rules.delivery import deadletter, fifo
from popmq_server.embedded.rules.pulling.offsets import retry_topic
from popmq_server.embedded.rules.topics import registry
from popmq_server.embedded.rules.topics.log import Log, entries, over_hole
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import (
    RQ_KEY,
    RQ_VALUE,
    STAT_KEY,
    U64,
)
from popmq_server.errors import no_queue, topic_not_found
from popmq_server.values.message import RETRY_PREFIX
from popmq_server.values.records import Group, Subscription, Topic

#: Messages and holes that one page of a queue reads.
LOOKS_MAX = 10_000
#: The part of an entry's number that is the offset, in a FIFO retry topic.
OFFSET_BITS = 47


def browse(tx: Tx, query: queries.Browse) -> Page:
    """A page of a topic's queue from an offset on, or of a retry topic from an entry number on."""
    name, queue = query.topic, query.queue
    bounds = query.offset, query.messages_max, query.bytes_max, query.rest_bytes
    if name.startswith(RETRY_PREFIX):
        group, topic = retry_topic(tx, name)
        how = tx.state.subscriptions.get((group.group_id, topic.topic_id), Subscription())
        read = _waiting if topic.in_order and not how.pulls else _retries
        return read(tx, group, topic, *bounds[:3])
    found = registry.topic(tx, name)
    if found is None:
        raise topic_not_found(name)
    if queue >= found.queues:
        raise no_queue(name, found.queues, queue, "queue")
    return _queue(tx, found, queue, *bounds)


def _queue(tx: Tx, topic: Topic, queue: int, offset: int, messages_max: int, bytes_max: int, rest: int) -> Page:
    where = (topic.topic_id, queue)
    least, most = tx.state.queue_min.get(where, 0), tx.state.queue_max.get(where, 0)
    log, at, looks = Log(tx.kv), max(offset, least), LOOKS_MAX
    may_be_gone = deadletter.has_gone(tx, topic.topic_id)
    rows: list[tuple[bytes, int, int, int, int]] = []
    while at < most and len(rows) < messages_max and looks > 0:
        units = entries(tx.kv, *where, at, min(messages_max - len(rows), looks))
        looks -= len(units) or 1
        if not units:
            at = over_hole(tx.kv, *where, at, most)
        for found, position, size in units:
            if size > bytes_max and (rows or 0 < rest < size):
                return Page(rows, at, least, most, full=True)
            at = found + 1
            if may_be_gone and deadletter.is_gone(tx.kv, *where, found):
                continue
            if (read := log.fetch(topic.topic_id, position, size)) is not None:
                rows.append((read[1], read[0], queue, found, 0))
                bytes_max -= size
    return Page(rows, at, least, most, full=len(rows) == messages_max)


def _retries(tx: Tx, group: Group, topic: Topic, rseq: int, messages_max: int, bytes_max: int) -> Page:
    """Entries of a retry topic from a number on."""
    prefix = STAT_KEY.pack(group.group_id, topic.topic_id)
    log, at = Log(tx.kv), rseq
    rows: list[tuple[bytes, int, int, int, int]] = []
    first = tx.kv.first("rq", prefix)
    for key, value in tx.kv.scan("rq", prefix, prefix + U64.pack(rseq)):
        position, size, attempts, queue, offset, *_ = RQ_VALUE.unpack_from(value)
        if len(rows) == messages_max or (rows and size > bytes_max):
            break
        bytes_max -= size
        at = RQ_KEY.unpack(key)[2] + 1
        if (read := log.fetch(topic.topic_id, position, size)) is not None:
            rows.append((read[1], read[0], queue, offset, attempts))
    return Page(rows, at, RQ_KEY.unpack(first[0])[2] if first else 0, tx.state.counters[""].rseq)


def _waiting(tx: Tx, group: Group, topic: Topic, number: int, messages_max: int, bytes_max: int) -> Page:
    """The waiting messages of a FIFO topic, by queue and offset.

    The keys are sorted by message group, so it reads all of them: at most some WAITING_MAX (fifo_pick.py).
    """
    where = (group.group_id, topic.topic_id)
    log, at = Log(tx.kv), number
    waiting = [fifo.waiting_of(key, value) for key, value in tx.kv.scan("fwait", fifo.prefix_of(where))]
    numbered = [(entry.queue << OFFSET_BITS | entry.offset, entry) for entry in waiting]
    rows: list[tuple[bytes, int, int, int, int]] = []
    following = heapq.nsmallest(messages_max, (pair for pair in numbered if pair[0] >= number))
    for found, entry in following:
        if rows and entry.size > bytes_max:
            break
        bytes_max -= entry.size
        at = found + 1
        if (read := log.fetch(topic.topic_id, entry.position, entry.size)) is not None:
            rows.append((read[1], read[0], entry.queue, entry.offset, entry.attempts))
    least = min((pair[0] for pair in numbered), default=0)
    return Page(rows, at, least, max((pair[0] + 1 for pair in numbered), default=0))
