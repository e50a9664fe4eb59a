"""`popmq check` for redriven dead letters, the chunks of redriven messages, and the index that look-ups walk."""

from collections import Counter
from collections.abc import Iterator

from popmq_server.embedded.fsck import check_rows
from popmq_server.embedded.rules.delivery import deadletter, lease_history
from popmq_server.embedded.rules.topics import readers
from popmq_server.embedded.rules.topics.chunk import IDX_HEAD, IDX_RANGE
from popmq_server.embedded.rules.topics.index import WIDE_HEAD, WIDE_NAME
from popmq_server.embedded.rules.topics.log import Log, entries, is_readable
from popmq_server.embedded.state.state import State
from popmq_server.embedded.store.keys import (
    CQ_KEY,
    FWAIT_KEY,
    FWAIT_VALUE,
    POFF_KEY,
    RQ_VALUE,
    STAT_KEY,
    TOPIC_AT,
    U32,
    U64,
)
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.values.ids import GroupId, GroupTopic, TopicId
from popmq_server.values.records import Subscription

#: The queue of a redriven message in `place_of`: no queue names it, so its position serves as its offset.
REDRIVEN = -1


def place_of(kv: Transaction, topic_id: int, position: int, queue: int, offset: int) -> tuple[int, int]:
    """The identity of a held message: its place in its queue, or for a redriven one the place of its record."""
    found = kv.floor("bare", TOPIC_AT.pack(topic_id, position), U32.pack(topic_id))
    if found is None:
        return queue, offset
    block = kv.get("idx", found[0])
    size = IDX_HEAD.unpack_from(block)[1] if block is not None else 0
    return (REDRIVEN, position) if position < TOPIC_AT.unpack(found[0])[1] + size else (queue, offset)


def check(kv: Transaction, state: State) -> Iterator[str]:
    """Every broken invariant, as sentences; leaves out topics and groups that are being removed."""
    yield from _check_gone(kv, state)
    yield from _check_redriven(kv, state)
    yield from _check_chunks(kv, state)
    for topic_id in state.topics:
        yield from _check_wide(kv, topic_id)


def _check_gone(kv: Transaction, state: State) -> Iterator[str]:
    """A mark belongs to a dead letter in its queue, or to one that was there until its chunk left a hole.

    Marks before the first offset no longer count; they stay until all groups are past them.
    """
    counted: Counter[int] = Counter()
    log = Log(kv)
    for key in kv.scan_keys("gone"):
        topic_id, queue, offset = CQ_KEY.unpack(key)
        topic = state.topics.get(topic_id)
        if topic is None:
            continue
        if offset < state.queue_min.get((topic_id, queue), 0) and topic.lagging:
            continue
        counted[topic_id] += 1
        where = f"{topic.name} queue {queue} offset {offset} is marked as redriven"
        if not state.queue_min.get((topic_id, queue), 0) <= offset < state.queue_max.get((topic_id, queue), 0):
            yield f"{where}, but is not in its queue"
        for _, position, size in entries(kv, topic_id, queue, offset, 1):
            read = log.fetch(topic_id, position, size)
            if read is not None and deadletter.opened(read[1]) is None:
                yield f"{where}, but is not a dead letter"
    for topic_id, stat in state.topic_stat.items():
        if topic_id in state.topics and stat.redriven != counted[topic_id]:
            yield f"{state.topics[topic_id].name}: {counted[topic_id]} dead letters redriven, counted {stat.redriven}"


def _check_redriven(kv: Transaction, state: State) -> Iterator[str]:
    """A message that was redriven is held by its group, or unread in its queue, or history tells how it ended.

    Nothing is said where a group may be done with a message without a row of history: by a filter, by its age, by an
    offset, or because an operator moved the group past it.
    """
    for topic_id, queue, row in check_rows.history_rows_of(kv):
        where, offset = (GroupId(row.group_id), TopicId(topic_id)), row.first
        if row.how != lease_history.REDRIVEN or not _tells_all(state, where):
            continue
        if not entries(kv, topic_id, queue, offset, 1):  # its chunk is gone, and perhaps the later rows
            continue
        begun = kv.get("begin", POFF_KEY.pack(*where, queue))
        if begun is not None and U64.unpack(begun)[0] > offset:
            continue
        others = [one for one in lease_history.rows(kv, topic_id, queue, offset) if one.group_id == row.group_id]
        # A later lease has a later number, but perhaps an earlier time: a clock that was ahead was set right between.
        later = any(one.ck_id > row.ck_id or one.ended_ms >= row.ended_ms for one in others if one != row)
        passed = readers.has_passed(state, (*where, queue), offset)
        unread = not passed and is_readable(kv, topic_id, queue, offset)
        if not later and not unread and (queue, offset) not in _held(kv, state, where):
            name = f"group {state.groups[row.group_id].name} in {state.topics[topic_id].name}"
            yield f"{name}: queue {queue} offset {offset} was redriven, and is neither held nor finished"


def _tells_all(state: State, where: GroupTopic) -> bool:
    """Whether history has a row of everything that a group finished in a topic."""
    stat, how = state.stat.get(where), state.subscriptions.get(where, Subscription())
    if stat is None or where[0] not in state.groups or where[1] not in state.topics or where in state.sweeps:
        return False
    return not (how.pulled or stat.filtered or stat.expired or stat.dropped or stat.quarantined)


def _held(kv: Transaction, state: State, where: GroupTopic) -> set[tuple[int, int]]:
    """(queue, offset) of all that a group has in CheckPoints, done members too, in its retry topic, or waiting."""
    found: set[tuple[int, int]] = set()
    for ck in state.ck.values():
        if (ck.group_id, ck.topic_id) == where:
            found |= {(run.queue, offset) for run in ck.runs for offset in run.offsets}
    prefix = STAT_KEY.pack(*where)
    found |= {RQ_VALUE.unpack_from(value)[3:5] for _, value in kv.scan("rq", prefix)}
    waiting = ((FWAIT_VALUE.unpack_from(value)[3], FWAIT_KEY.unpack(key)[3]) for key, value in kv.scan("fwait", prefix))
    return found | set(waiting)


def _check_chunks(kv: Transaction, state: State) -> Iterator[str]:
    """Chunks that no queue names are marked as such, and each belongs to a topic: otherwise no job would drop them."""
    bare = set(kv.scan_keys("bare"))
    known = {*state.topics, *state.purges, *state.lite_ids.values()}
    for key, value in kv.scan("idx"):
        topic_id, position = TOPIC_AT.unpack(key)
        if topic_id not in known:
            yield f"chunk {position} belongs to topic {topic_id}, which is gone"
        ranges = IDX_HEAD.unpack_from(value)[2]
        if topic_id in state.topics and (ranges == 0) != (key in bare):
            yield f"chunk {position} has {ranges} queues, and is {'' if key in bare else 'not '}known to have none"
        bare.discard(key)
    for topic_id, position in map(TOPIC_AT.unpack, bare):
        if topic_id in state.topics:
            yield f"chunk {position} is known to have no queue, but is not there"


def _check_wide(kv: Transaction, topic_id: int) -> Iterator[str]:
    """A wide block has the sorted names of the index blocks that it covers, or no names. Wide blocks do not overlap."""
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
        for at in range(0, len(raw), 12):
            yield bytes(raw[at : at + 8]), position + U32.unpack_from(raw, at + 8)[0]
