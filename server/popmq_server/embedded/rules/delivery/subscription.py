"""Subscriptions: the start position and the filter of a group in a topic.

    request                               position                       filter
    the first Pop                         start of the group             its own, or every message: fixed from here on
    WaitAvailable, AttachOwner            start of the group             left open for the first Pop
    a later Pop without a filter          unchanged                      the fixed one
    a later Pop with the same filter      unchanged                      the same, however it is written
    a later Pop with another filter       FILTER_CONFLICT, nothing changes
    the same with Pop.filter_wins         unchanged                      its own, from here on: apache.rocketmq.v2
    SetFilter                             start of the group, or unchanged: skipped messages do not come back

A group never gets messages that it skipped because they do not match. Consumers of one group with different filters
would therefore lose messages to each other. In Apache RocketMQ the last filter wins; PopMQ refuses a request with
another filter.

See docs/decisions/0030-filter-per-group-and-topic.md.
"""

import shlex
from collections.abc import Iterable

from popmq_server.contract.commands import SetFilter
from popmq_server.contract.commands.filtering import EVERY_MESSAGE
from popmq_server.embedded.rules.topics import index, readers, registry
from popmq_server.embedded.rules.topics.log import entries
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import (
    CQ_KEY,
    POFF_KEY,
    QUEUE_KEY,
    TOPIC_AT,
    U32,
    U64,
)
from popmq_server.errors import (
    Refused,
    group_not_found,
    invalid,
    topic_not_found,
)
from popmq_server.values.filters import filter as filters
from popmq_server.values.filters.filter import Filter
from popmq_server.values.ids import GroupTopic
from popmq_server.values.records import (
    Group,
    Subscription,
    Topic,
)

#: Key in State.queue_reads for a Pop that names no queue.
ALL_QUEUES = -1
#: An offset beyond the end of every queue.
NOWHERE = 1 << 63


def resolve(tx: Tx, topic_name: str, group_name: str, lite_field: str = "topic") -> tuple[Group, Topic]:
    """Returns the group and the topic, or raises Refused; a LITE topic has no queues to read.

    Every call validates in the same order: topic, group, topic type, permission, consume mode, filter. A request with
    several errors always gets the same one.
    """
    group, topic = readers.group(tx, group_name), registry.topic(tx, topic_name)
    if topic is None:
        raise topic_not_found(topic_name)
    if group is None:
        raise group_not_found(group_name)
    refuse_lite(topic, lite_field)
    return group, topic


def refuse_lite(topic: Topic, field: str = "topic") -> None:
    """Raises Refused for a LITE topic: all its messages are in its lite topics."""
    if topic.type == "LITE":
        raise invalid(
            f"topic {topic.name!r} has type LITE: its messages are read by the names of its lite topics",
            field=field,
            action="pop it with lite_topics",
        )


def expect_mode(tx: Tx, group: Group, topic: Topic, mode: str) -> None:
    """Raises Refused WRONG_CONSUME_MODE when the group does not read the topic by `mode`, POP or PULL."""
    now = tx.state.subscriptions.get((group.group_id, topic.topic_id), Subscription()).mode
    if now != mode:
        raise Refused(
            "WRONG_CONSUME_MODE",
            f"group {group.name!r} reads topic {topic.name!r} by {now}, this request needs {mode}",
            field="group",
            action=f"read it by {now}, or switch the group: popmq mode {topic.name} {group.name} {mode.lower()}",
        )


def assigned(tx: Tx, group: Group, topic: Topic, queue: int) -> tuple[int, ...]:
    """The queue of a Pop if its client has the queue for itself, by the share number; else empty, as in FIFO topics
    and with fair keys.
    """
    if queue < 0 or topic.type == "FIFO" or group.fair_keys is not None:
        return ()
    fixed = tx.state.subscriptions.get((group.group_id, topic.topic_id))
    return (queue,) if group.share_number or (fixed and fixed.share_number) else ()


def filter_for(tx: Tx, group: Group, topic: Topic, asked: tuple[str, str] | None) -> Filter:
    """The filter that applies to a request: the group's, or the request's own if the group has none.

    Changes nothing. Raises Refused FILTER_CONFLICT when both exist and differ.
    """
    fixed = tx.state.subscriptions.get((group.group_id, topic.topic_id), Subscription())
    if not fixed.filter_kind:
        return filters.make(*asked) if asked else filters.EVERYTHING
    own = filters.make(fixed.filter_kind, fixed.filter_text)
    if asked is not None and not own.same(wanted := filters.make(*asked)):
        raise Refused(
            "FILTER_CONFLICT",
            f"group {group.name!r} reads {own} of topic {topic.name!r}, this request asks for {wanted}",
            field="filter",
            action="use one filter in all consumers of a group, or replace it: "
            + _replacing(group.name, topic.name, wanted),
        )
    return own


def _replacing(group: str, topic: str, wanted: Filter) -> str:
    """The command that replaces a group's filter."""
    if wanted.kind == "sql92":
        return f"popmq group update {group} --sql {shlex.quote(f'{topic}={wanted.text}')}"
    return f"popmq group update {group} --filter {shlex.quote(f'{topic}={wanted.text or EVERY_MESSAGE[1]}')}"


def subscribe(tx: Tx, group: Group, topic: Topic, asked: tuple[str, str] | None, *, replace: bool = False) -> Filter:
    """Like `filter_for`, but fixes the filter if the group has none, or if `replace` is set and it differs.

    Binds the group, too. Refuses before it writes. Parked Pops with a replaced filter are not woken here: they would
    replace it back.
    """
    fixed = tx.state.subscriptions.get((group.group_id, topic.topic_id), Subscription())
    if replace and asked is not None:
        wanted = filters.make(*asked)
        changed = not filters.make(fixed.filter_kind, fixed.filter_text).same(wanted)
    else:
        wanted, changed = filter_for(tx, group, topic, asked), False
    if changed or not fixed.filter_kind:
        _fix(tx, group, topic, wanted)
    bind(tx, group, topic)
    return wanted


def set_filter(tx: Tx, command: SetFilter) -> Subscription:
    """Replaces the filter; then the parked calls of the group look again (broker.py:AFTERWARDS)."""
    group, topic = resolve(tx, command.topic, command.group)
    wanted = filters.make(*command.filter)
    bind(tx, group, topic)
    return _fix(tx, group, topic, wanted)


def _fix(tx: Tx, group: Group, topic: Topic, wanted: Filter) -> Subscription:
    where = (group.group_id, topic.topic_id)
    kind, text = EVERY_MESSAGE if wanted.everything else (wanted.kind, wanted.text)
    return readers.fix_filter(tx, where, kind, text)


def bind(tx: Tx, group: Group, topic: Topic, start: tuple[str, int] | None = None) -> None:
    """Fixes the start position of a group in a topic when a request names both for the first time.

    Messages sent between this request and the first delivery are not skipped. Queues that are added to the topic later
    begin at their first offset for every group.
    """
    where = (group.group_id, topic.topic_id)
    if not topic.parent_id:
        note_use(tx, where)
    if where in tx.state.stat:
        return
    begins = starts(tx, group, topic, start)
    readers.enter(tx, where, begins)
    for queue, offset in begins.items():
        begin_at(tx, where, queue, offset)


def note_use(tx: Tx, where: GroupTopic) -> None:
    """Notes that a group reads a topic now: its subscription is not idle."""
    tx.state.last_read[where] = tx.now_ms


def note_read(tx: Tx, where: GroupTopic, queues: Iterable[int]) -> None:
    """Records when the group last read these queues. In memory only: an empty Pop writes nothing."""
    reads = tx.state.queue_reads.setdefault(where, {})
    for queue in queues:
        reads[queue] = tx.now_ms


def starts(tx: Tx, group: Group, topic: Topic, start: tuple[str, int] | None = None) -> dict[int, int]:
    """The offset in each queue at which a group would start if it named the topic now for the first time."""
    kind, since_ms = start or (group.start_from, group.start_ms)
    found = {}
    for queue in range(topic.queues):
        least = tx.state.queue_min.get((topic.topic_id, queue), 0)
        most = tx.state.queue_max.get((topic.topic_id, queue), 0)
        offset = {"EARLIEST": least, "LATEST": most}.get(kind)
        found[queue] = offset_at(tx, topic.topic_id, queue, since_ms, least, most) if offset is None else offset
    return found


def begin_at(tx: Tx, where: GroupTopic, queue: int, offset: int, *, skips: bool = False) -> None:
    """Stores the offset at which a group began or to which it was moved; `why` reports earlier ones as "before start".

    `skips`: store it even when the queue has no messages before it.
    """
    key = POFF_KEY.pack(*where, queue)
    if offset > (0 if skips else tx.state.queue_min.get((where[1], queue), 0)):
        tx.kv.put("begin", key, U64.pack(offset))
    elif tx.kv.get("begin", key) is not None:
        tx.kv.delete("begin", key)


def begun_at(tx: Tx, where: GroupTopic, queue: int) -> int:
    """The offset at which a group began in a queue; 0 when none is stored."""
    raw = tx.kv.get("begin", POFF_KEY.pack(*where, queue))
    return 0 if raw is None else int(U64.unpack(raw)[0])


def offset_at(tx: Tx, topic_id: int, queue: int, since_ms: int, low: int, high: int) -> int:
    """The first offset stored at or after a time: a binary search, since store times never decrease within a queue.

    A damaged message has the time of its chunk. An offset in a hole that retention left has the time of the first
    message after the hole: messages before a hole may be as young as `since_ms`.
    """
    found = high
    while low < high:
        middle = (low + high) // 2
        at, stored_ms = _first_from(tx, topic_id, queue, middle)
        if at >= high:
            high = middle
        elif stored_ms >= since_ms:
            found, high = at, middle
        else:
            low = at + 1
    return found


def _first_from(tx: Tx, topic_id: int, queue: int, offset: int) -> tuple[int, int]:
    """The first existing offset of a queue from `offset` on, and its store time."""
    unit = entries(tx.kv, topic_id, queue, offset, 1)
    if not unit:
        after = next(tx.kv.scan("cq", QUEUE_KEY.pack(topic_id, queue), CQ_KEY.pack(topic_id, queue, offset)), None)
        unit = [] if after is None else entries(tx.kv, topic_id, queue, CQ_KEY.unpack(after[0])[2], 1)
    block = tx.kv.floor("idx", TOPIC_AT.pack(topic_id, unit[0][1]), U32.pack(topic_id)) if unit else None
    if block is None:
        return NOWHERE, 0
    return unit[0][0], index.stored_ms(tx.kv, topic_id, *unit[0][1:], block[1])
