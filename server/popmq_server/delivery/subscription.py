"""A group in a topic: where it begins, and which filter it has.

    who names the group and the topic     position                       filter
    the first Pop                         where the group starts         its own, or every message: fixed from here on
    WaitAvailable, AttachOwner            where the group starts         left open for the first Pop
    a later Pop without a filter          goes on                        the one that is fixed
    a later Pop with the same filter      goes on                        the same, however it is written
    a later Pop with another filter       FILTER_CONFLICT, nothing happens
    the same with Pop.filter_wins         goes on                        its own, from here on: apache.rocketmq.v2
    SetFilter                             where the group starts, or goes on: what it has passed does not come back

Messages that do not match are passed over for the group for good, so consumers of one group that filter differently
would take messages from each other: the reference lets the last one win, here the other one is told.
"""

from collections.abc import Iterable

from popmq_server.commands import SetFilter
from popmq_server.errors import Refused, group_not_found, invalid, topic_not_found
from popmq_server.filters import filter as filters
from popmq_server.filters.filter import Filter
from popmq_server.model.records import Group, Stat, Subscription, Topic
from popmq_server.state.tx import Tx
from popmq_server.storage.keys import CQ_KEY, POFF_KEY, QUEUE_KEY, TOPIC_AT, U32, U64
from popmq_server.topics import index
from popmq_server.topics.log import entries

#: In State.queue_reads: a Pop that names no queue.
ALL_QUEUES = -1
#: "Every message", said by somebody; nothing at all is Subscription.filter_kind "".
EVERY_MESSAGE = ("tag", "*")
#: An offset that no queue reaches.
NOWHERE = 1 << 63


def resolve(tx: Tx, topic_name: str, group_name: str, lite_field: str = "topic") -> tuple[Group, Topic]:
    """The group and the topic of these names, or Refused; a LITE topic has no queues to read.

    The order of the checks is the same in every call: the topic, the group, its kind, the permission, the consume mode,
    the filter. A caller with several faults always learns of the same one first.
    """
    group, topic = tx.group(group_name), tx.topic(topic_name)
    if topic is None:
        raise topic_not_found(topic_name)
    if group is None:
        raise group_not_found(group_name)
    refuse_lite(topic, lite_field)
    return group, topic


def refuse_lite(topic: Topic, field: str = "topic") -> None:
    """Raises Refused for a topic whose messages are all in its lite topics."""
    if topic.type == "LITE":
        raise invalid(
            f"topic {topic.name!r} has type LITE: its messages are read by the names of its lite topics",
            field=field,
            action="pop it with lite_topics; nothing else reads it",
        )


def expect_mode(tx: Tx, group: Group, topic: Topic, mode: str) -> None:
    """Raises Refused WRONG_CONSUME_MODE when the group does not read the topic by `mode`, POP or PULL."""
    now = tx.state.subscriptions.get((group.group_id, topic.topic_id), Subscription()).mode
    if now != mode:
        raise Refused(
            "WRONG_CONSUME_MODE",
            f"group {group.name!r} reads topic {topic.name!r} by {now}, this request needs {mode}",
            field="group",
            action="ask QueryAssignment how the group reads, or switch it with SetConsumeMode",
        )


def filter_for(tx: Tx, group: Group, topic: Topic, asked: tuple[str, str] | None) -> Filter:
    """The filter of a request: its own if the group has none, else the group's, which must say the same.

    Changes nothing. Raises Refused FILTER_CONFLICT.
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
            f"popmq group update {group.name} --topic {topic.name} --filter …",
        )
    return own


def subscribe(tx: Tx, group: Group, topic: Topic, asked: tuple[str, str] | None, *, replace: bool = False) -> Filter:
    """The same, and fixed by this request if it is the first, or if it is to `replace` what there is.

    Refuses before it writes. Who waits with a filter that was replaced so is not told: he would replace it back.
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
    """Replaces the filter. Who waits with the old one is told at once, one after another."""
    group, topic = resolve(tx, command.topic, command.group)
    made = filters.make(*command.filter)
    bind(tx, group, topic)
    tx.wake(group.group_id, topic.topic_id)
    return _fix(tx, group, topic, made)


def _fix(tx: Tx, group: Group, topic: Topic, made: Filter) -> Subscription:
    where = (group.group_id, topic.topic_id)
    kind, text = EVERY_MESSAGE if made.everything else (made.kind, made.text)
    fixed = tx.state.subscriptions.get(where, Subscription())._replace(filter_kind=kind, filter_text=text)
    tx.state.subscriptions[where] = fixed
    return fixed


def bind(tx: Tx, group: Group, topic: Topic, start: tuple[str, int] | None = None) -> None:
    """Fixes where a group starts in a topic, when it names the topic for the first time.

    At the first naming, not at the first message: what is sent between the two is not skipped. Queues that a topic
    gets later begin at their first offset for everybody.
    """
    where = (group.group_id, topic.topic_id)
    if not topic.parent_id:
        tx.state.last_read[where] = tx.now_ms
    if where in tx.state.stat:
        return
    tx.state.topic_groups[topic.topic_id] = (*tx.state.topic_groups.get(topic.topic_id, ()), group.group_id)
    tx.count_unread(where, tx.state.total.get(topic.topic_id, 0))
    begins = starts(tx, group, topic, start)
    for queue, offset in begins.items():
        tx.pass_to((*where, queue), offset)
        begin_at(tx, where, queue, offset)
    tx.state.stat[where] = Stat(start=sum(begins.values()))


def note_read(tx: Tx, where: tuple[int, int], queues: Iterable[int]) -> None:
    """A group asks for messages of these queues now. In memory: an empty Pop writes nothing (S0.10)."""
    reads = tx.state.queue_reads.setdefault(where, {})
    for queue in queues:
        reads[queue] = tx.now_ms


def starts(tx: Tx, group: Group, topic: Topic, start: tuple[str, int] | None = None) -> dict[int, int]:
    """Where a group would start in each queue, if it named the topic now for the first time."""
    kind, since_ms = start or (group.start_from, group.start_ms)
    found = {}
    for queue in range(topic.queues):
        least = tx.state.queue_min.get((topic.topic_id, queue), 0)
        most = tx.state.queue_max.get((topic.topic_id, queue), 0)
        offset = {"EARLIEST": least, "LATEST": most}.get(kind)
        found[queue] = offset_at(tx, topic.topic_id, queue, since_ms, least, most) if offset is None else offset
    return found


def begin_at(tx: Tx, where: tuple[int, int], queue: int, offset: int, *, skips: bool = False) -> None:
    """Notes where a group began, or was put: `why` tells of what is before it that the group never had it.

    `skips`: also of what was there before the first message that is left.
    """
    key = POFF_KEY.pack(*where, queue)
    if offset > (0 if skips else tx.state.queue_min.get((where[1], queue), 0)):
        tx.kv.put("begin", key, U64.pack(offset))
    elif tx.kv.get("begin", key) is not None:
        tx.kv.delete("begin", key)


def begun_at(tx: Tx, where: tuple[int, int], queue: int) -> int:
    """The offset at which a group began in a queue; 0 for the first that there was."""
    raw = tx.kv.get("begin", POFF_KEY.pack(*where, queue))
    return 0 if raw is None else int(U64.unpack(raw)[0])


def offset_at(tx: Tx, topic_id: int, queue: int, since_ms: int, low: int, high: int) -> int:
    """The first offset stored at or after a time: store times never fall within a queue, so halving finds it.

    Of a damaged message the time is that of its chunk. Where retention left a hole, what is behind it speaks for it:
    what is held before a hole may be as young as asked for.
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
    """The first offset of a queue from `offset` on that is there, and when it was stored."""
    unit = entries(tx.kv, topic_id, queue, offset, 1)
    if not unit:
        behind = next(tx.kv.scan("cq", QUEUE_KEY.pack(topic_id, queue), CQ_KEY.pack(topic_id, queue, offset)), None)
        unit = [] if behind is None else entries(tx.kv, topic_id, queue, CQ_KEY.unpack(behind[0])[2], 1)
    block = tx.kv.floor("idx", TOPIC_AT.pack(topic_id, unit[0][1]), U32.pack(topic_id)) if unit else None
    if block is None:
        return NOWHERE, 0
    return unit[0][0], index.stored_ms(tx.kv, topic_id, *unit[0][1:], block[1])
