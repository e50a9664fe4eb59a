"""Offsets: where queues begin and end, a group's positions, and moving them.

    UpdateOffsets   PULL      a client commits; forward counts as acked, backward is read again
    ResetOffsets    both      an operator moves the group; its held messages in these queues are void
    CloneOffsets    both      the same, to the position of another group
    QueryOffsets              the ends, the committed offset, the first offset stored at or after a time

A group's committed offset is the next offset that it pops or pulls, the same number in both modes. In a retry topic it
is the first remaining entry: finished entries are removed, so it never goes back.

A reset is one transaction: it moves the positions and voids the group's held messages (invalidated.py). Later pieces
remove the voided messages, and the client's answer waits for the last piece. A sealed set of an owner loses voided
messages as torn, and never grows again.
"""

import logging
from collections.abc import Iterable

from popmq_server.contract.commands import CloneOffsets, OffsetsOfQueue, QueryOffsets, ResetOffsets, UpdateOffsets
from popmq_server.contract.commands.numbers import Rows
from popmq_server.embedded.operations import Moved, NextOffsets, Reset
from popmq_server.embedded.operations import Sweep as SweepCommand
from popmq_server.embedded.rules.delivery import invalidated, sweep
from popmq_server.embedded.rules.delivery.retry import RetryEntry, take
from popmq_server.embedded.rules.delivery.subscription import (
    ALL_QUEUES,
    begin_at,
    bind,
    expect_mode,
    note_use,
    offset_at,
    resolve,
)
from popmq_server.embedded.rules.topics import backlog, readers, registry
from popmq_server.embedded.rules.topics.topic_lifecycle import expect_creation
from popmq_server.embedded.state.events import Event
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import (
    RQ_KEY,
    RQ_VALUE,
    STAT_KEY,
    U64,
)
from popmq_server.errors import (
    Refused,
    invalid,
    no_queue,
    topic_not_found,
)
from popmq_server.values.ids import GroupId, GroupTopic
from popmq_server.values.message import RETRY_PREFIX
from popmq_server.values.records import Group, Topic

#: Entries of a retry topic that one command removes; the caller repeats the command for the rest.
ENTRIES_MAX = 4096
#: Positions of groups that one query looks at for the least committed offsets: some 5 ms.
POSITIONS_MAX = 8000
#: Queues that the log line of a reset names.
TOLD_MAX = 8


def retry_topic(tx: Tx, name: str) -> tuple[Group, Topic]:
    """The group and the topic of `%RETRY%group+topic`, or Refused."""
    group_name, _, topic_name = name.removeprefix(RETRY_PREFIX).partition("+")
    group, topic = readers.group(tx, group_name), registry.topic(tx, topic_name)
    if group is None or topic is None:
        missing = f"group create {group_name}" if group is None else f"topic create {topic_name}"
        raise Refused("TOPIC_NOT_FOUND", f"there is no topic {name!r}", field="topic", action=f"popmq {missing}")
    return group, topic


def own_retry_topic(tx: Tx, name: str, group_name: str) -> tuple[Group, Topic]:
    """The group and topic in the name of a retry topic. Refuses any other group; "" names none."""
    group, topic = retry_topic(tx, name)
    if group_name not in ("", group.name):
        raise invalid(
            f"{name!r} is the retry topic of group {group.name!r}, not of {group_name!r}",
            field="group",
            action=f"name the group {group.name!r}, or leave the group out",
        )
    return group, topic


def ends(tx: Tx, topic: Topic, queue: int) -> tuple[int, int]:
    """The first offset of a queue, and the offset of the next message."""
    where = (topic.topic_id, queue)
    return tx.state.queue_min.get(where, 0), tx.state.queue_max.get(where, 0)


def retry_ends(tx: Tx, group: Group, topic: Topic) -> tuple[int, int]:
    """The number of the first entry of a retry topic, and the next entry number to be assigned."""
    most = tx.state.counters[""].rseq
    first = tx.kv.first("rq", STAT_KEY.pack(group.group_id, topic.topic_id))
    return (RQ_KEY.unpack(first[0])[2] if first else most), most


# ── Commits of groups that pull ──────────────────────────────────────────────────────────────────────────────────────


def update(tx: Tx, command: UpdateOffsets) -> Moved:
    """Moves committed offsets; of a retry topic, up to ENTRIES_MAX entries."""
    if command.topic.startswith(RETRY_PREFIX):
        return _update_retry(tx, command)
    group, topic = resolve(tx, command.topic, command.group)
    expect_creation(topic, command.topic_created_ms)
    expect_mode(tx, group, topic, "PULL")
    note_use(tx, (group.group_id, topic.topic_id))
    for queue, offset in command.offsets.items():
        check_offset(tx, topic, queue, offset, f"offsets[{queue}]")
    return Moved(sum(commit(tx, group, topic, queue, offset) for queue, offset in command.offsets.items()), False)


def check_offset(tx: Tx, topic: Topic, queue: int, offset: int, field: str) -> None:
    """Refuses a queue that the topic does not have, and an offset beyond its end."""
    if queue >= topic.queues:
        raise no_queue(topic.name, topic.queues, queue, field)
    if offset > (most := ends(tx, topic, queue)[1]):
        raise invalid(
            f"queue {queue} of topic {topic.name!r} ends at {most}, before {offset}",
            field=field,
            action=f"give an offset of at most {most}",
        )


def commit(tx: Tx, group: Group, topic: Topic, queue: int, offset: int) -> int:
    """Moves one committed offset, already validated; returns how many messages it moved past.

    An offset below the first one counts as the first one, where retention has put the group.
    """
    where = (group.group_id, topic.topic_id)
    least, _ = ends(tx, topic, queue)
    before = tx.state.poff.get((*where, queue), least)
    moved = max(offset, least) - before
    if moved > 0:
        readers.count(tx, where, acked=moved)
    elif moved < 0:
        readers.count(tx, where, start=moved)
    readers.pass_to(tx, (*where, queue), before + moved)
    return max(0, moved)


def _update_retry(tx: Tx, command: UpdateOffsets) -> Moved:
    """Finishes entries of a retry topic below the offset."""
    group, topic = own_retry_topic(tx, command.topic, command.group)
    expect_creation(topic, command.topic_created_ms)
    expect_mode(tx, group, topic, "PULL")
    where, most = (group.group_id, topic.topic_id), tx.state.counters[""].rseq
    note_use(tx, where)
    for queue, offset in command.offsets.items():
        if queue:
            raise no_queue(command.topic, 1, queue, f"offsets[{queue}]")
        if offset > most:
            raise invalid(
                f"the entries of {command.topic!r} end at {most}, before {offset}",
                field="offsets[0]",
                action=f"give an offset of at most {most}",
            )
    stop = STAT_KEY.pack(*where) + U64.pack(command.offsets[0])
    done: list[RetryEntry] = []
    for key, value in tx.kv.scan("rq", stop[:8]):
        if key >= stop or len(done) == ENTRIES_MAX:
            break
        entry = RetryEntry(key, *RQ_VALUE.unpack_from(value))
        if not invalidated.has_entry(tx.state, where, RQ_KEY.unpack(key)[2], entry.queue, entry.offset):
            done.append(entry)
    take(tx, where, done)
    readers.count(tx, where, acked=len(done))
    return Moved(len(done), len(done) == ENTRIES_MAX)


# ── Queries ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def query(tx: Tx, command: QueryOffsets | NextOffsets) -> Rows[OffsetsOfQueue]:
    """Answers for each queue of a topic, or the one queue of a retry topic. Does not fix the group's start.

    Looks at some groups for the least committed offsets, from the last one to the first: those that leave the topic
    meanwhile do not make it skip any.
    """
    if command.topic.startswith(RETRY_PREFIX):
        return _query_retry(tx, command)
    topic = registry.topic(tx, command.topic)
    if topic is None:
        raise topic_not_found(command.topic)
    group = resolve(tx, command.topic, command.group)[0] if command.group else None
    where = (group.group_id if group else GroupId(0), topic.topic_id)
    groups, found = tx.state.topic_groups.get(topic.topic_id, ()), list[OffsetsOfQueue]()
    stop = int((isinstance(command, NextOffsets) and command.after) or len(groups))
    start = max(0, stop - max(1, POSITIONS_MAX // topic.queues))
    bytes_of = backlog.sizing(tx.state, topic)
    for queue in range(topic.queues):
        least, most = ends(tx, topic, queue)
        committed = tx.state.poff.get((*where, queue), least) if where in tx.state.stat else -1
        since = -1
        if command.since_ms is not None:
            since = offset_at(tx, topic.topic_id, queue, command.since_ms, least, most)
        numbers = (
            least_committed(tx, topic, queue, groups[start:stop]),
            read_ms(tx, where, queue),
            bytes_of(most - max(committed, least)) if committed >= 0 or group is None else 0,
        )
        found.append(OffsetsOfQueue(queue, least, most, committed, since, *numbers, topic.created_ms))
    return Rows(found, str(start) if start else "")


def least_committed(tx: Tx, topic: Topic, queue: int, groups: Iterable[GroupId]) -> int:
    """The least committed offset of groups that have named a topic; -1 = there is none."""
    least, poff = ends(tx, topic, queue)[0], tx.state.poff
    known = (group_id for group_id in groups if group_id in tx.state.groups)
    offsets = (poff.get((group_id, topic.topic_id, queue), least) for group_id in known)
    return min((max(offset, least) for offset in offsets), default=-1)


def read_ms(tx: Tx, where: GroupTopic, queue: int) -> int:
    """When a group last asked for messages of a queue, alone or among all; 0 = not since the start."""
    reads = tx.state.queue_reads.get(where, {})
    return max(reads.get(queue, 0), reads.get(ALL_QUEUES, 0))


def _query_retry(tx: Tx, command: QueryOffsets | NextOffsets) -> Rows[OffsetsOfQueue]:
    """One queue, from the first remaining entry to the number of the next one."""
    group, topic = own_retry_topic(tx, command.topic, command.group)
    if command.since_ms is not None:
        raise invalid(
            "the entries of a retry topic are not in the order of their time",
            field="timestamp_ms",
            action="leave the time out: the answer has the first and the next offset",
        )
    least, most = retry_ends(tx, group, topic)
    known = bool(command.group) and (group.group_id, topic.topic_id) in tx.state.stat
    committed = least if known else -1
    return Rows([OffsetsOfQueue(0, least, most, committed, -1, topic_created_ms=topic.created_ms)])


# ── Operators move a group ───────────────────────────────────────────────────────────────────────────────────────────


def reset(tx: Tx, command: ResetOffsets) -> Reset:
    """Moves a group in all queues or in some; voids its held messages in these."""
    group, topic = resolve(tx, command.topic, command.group)
    wanted = dict(command.offsets or {})
    for queue, offset in wanted.items():
        field = f"offsets[{queue}]"
        check_offset(tx, topic, queue, offset, field)
        if offset < (least := ends(tx, topic, queue)[0]):
            raise invalid(
                f"queue {queue} of topic {topic.name!r} begins at {least}, after {offset}",
                field=field,
                action=f"give an offset of at least {least}",
            )
    bind(tx, group, topic, command.to)
    if command.to is not None:
        wanted = {queue: _start(tx, topic, queue, *command.to) for queue in range(topic.queues)}
    return put_at(tx, group, topic, wanted, skips=command.to is not None and command.to[0] == "LATEST")


def clone(tx: Tx, command: CloneOffsets) -> Reset:
    """Moves a group to the position of another group; leased messages and retries of that group stay with it."""
    group, topic = resolve(tx, command.topic, command.group)
    source = resolve(tx, command.topic, command.from_group)[0] if readers.group(tx, command.from_group) else None
    if source is None:
        raise Refused(
            "GROUP_NOT_FOUND",
            f"there is no group {command.from_group!r}",
            field="from_group",
            action=f"popmq group create {command.from_group}",
        )
    where = (source.group_id, topic.topic_id)
    if where not in tx.state.stat:
        raise invalid(
            f"group {source.name!r} has no position in topic {topic.name!r}",
            field="from_group",
            action="name a group that has read the topic, or reset the offsets instead",
        )
    wanted = {}
    for queue in range(topic.queues):
        least = ends(tx, topic, queue)[0]
        wanted[queue] = max(least, tx.state.poff.get((*where, queue), least))
    bind(tx, group, topic)
    moved = put_at(tx, group, topic, wanted)
    return moved if group.fair_keys is None else _pass_the_same(tx, source, group, topic, moved)


def _pass_the_same(tx: Tx, source: Group, group: Group, topic: Topic, moved: Reset) -> Reset:
    """Lets a group with fair keys pass what another one passed beyond its position. Without them it reads these."""
    where = (group.group_id, topic.topic_id)
    for queue in range(topic.queues):
        passed = readers.copy_taken(tx, (source.group_id, topic.topic_id, queue), (*where, queue))
        readers.count(tx, where, start=passed)
    return moved._replace(offsets={queue: tx.state.poff.get((*where, queue), 0) for queue in moved.offsets})


def _start(tx: Tx, topic: Topic, queue: int, kind: str, since_ms: int) -> int:
    """The offset of a StartFrom in one queue."""
    least, most = ends(tx, topic, queue)
    found = {"EARLIEST": least, "LATEST": most}.get(kind)
    return offset_at(tx, topic.topic_id, queue, since_ms, least, most) if found is None else found


def put_at(tx: Tx, group: Group, topic: Topic, wanted: dict[int, int], *, skips: bool = False) -> Reset:
    """Moves the group to `wanted` and voids everything it held in these queues.

    The counters cover what the group has passed since its start, so the start moves with the position. `skips`: it goes
    past all messages; in an empty queue the position alone does not tell this.
    """
    where = (group.group_id, topic.topic_id)
    _tell_moved(tx, group, topic, wanted)
    for queue, offset in wanted.items():
        before = tx.state.poff.get((*where, queue), 0) + readers.forget_taken(tx, (*where, queue))
        readers.count(tx, where, start=offset - before)
        readers.pass_to(tx, (*where, queue), offset)
        begin_at(tx, where, queue, offset, skips=skips)
    bounds = tuple(0 if queue in wanted else -1 for queue in range(topic.queues))
    firsts = [-1 if skips else ends(tx, topic, queue)[0] for queue in range(topic.queues)]
    # A reset to the first message of a queue keeps also those held messages that the queue no longer has.
    stays = tuple(0 if wanted.get(queue, 0) <= first else wanted[queue] for queue, first in enumerate(firsts))
    sweep.void(tx, where, bounds, stays)
    tx.wake(*where)
    left = sweep.step(tx, where)
    return Reset({queue: tx.state.poff.get((*where, queue), 0) for queue in range(topic.queues)}, left)


def _tell_moved(tx: Tx, group: Group, topic: Topic, wanted: dict[int, int]) -> None:
    """Logs an operator's reset: it explains later why messages came again, or never."""
    poff = tx.state.poff
    befores = {queue: poff.get((group.group_id, topic.topic_id, queue), 0) for queue in wanted}
    moved = {queue: (befores[queue], offset) for queue, offset in wanted.items() if befores[queue] != offset}
    if moved:
        first = sorted(moved.items())[:TOLD_MAX]
        shown = ", ".join(f"queue {queue} {before} → {after}" for queue, (before, after) in first)
        more = f" and {len(moved) - TOLD_MAX} queues more" if len(moved) > TOLD_MAX else ""
        text = f"the offsets of group {group.name!r} in topic {topic.name!r} were reset: {shown}{more}"
        messages = sum(abs(after - before) for before, after in moved.values())
        tx.tell(Event("offset_reset", group.name, topic.name, messages, text, logging.INFO))


def go_on(tx: Tx, command: SweepCommand) -> bool:
    """Runs one more piece of a reset or a switch; returns whether there is more."""
    group, topic = readers.group(tx, command.group), registry.topic(tx, command.topic)
    return group is not None and topic is not None and sweep.step(tx, (group.group_id, topic.topic_id))
