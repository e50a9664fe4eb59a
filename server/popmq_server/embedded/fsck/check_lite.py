"""`popmq check` for lite topics: each has its parent and its name, and the counters of a parent are their sums."""

from collections import Counter
from collections.abc import Iterator

from popmq_server.embedded.rules.topics import lite_chunks
from popmq_server.embedded.rules.topics.chunk import IDX_HEAD
from popmq_server.embedded.state.state import State
from popmq_server.embedded.store.keys import TOPIC_AT, U32
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.values.ids import GroupTopic
from popmq_server.values.records import Stat

#: Counters of the present. Other counters of a parent include lite topics that were removed.
_GAUGES = ("retry", "waiting")


def check(kv: Transaction, state: State) -> Iterator[str]:
    """Every broken invariant, as sentences; leaves out topics that are being removed."""
    for (parent_id, name), topic_id in state.lite_ids.items():
        topic, parent = state.topics.get(topic_id), state.topics.get(parent_id)
        if topic is None or (topic.parent_id, topic.lite_topic) != (parent_id, name):
            yield f"the lite topic {name!r} of topic {parent_id} has no record"
        if parent is None and parent_id not in state.purges:
            yield f"the lite topic {name!r} belongs to topic {parent_id}, which is gone"
        if parent is not None and parent.type != "LITE":
            yield f"the lite topic {name!r} belongs to topic {parent.name}, whose type is {parent.type}"
    for topic in state.topics.values():
        if topic.parent_id and state.lite_ids.get((topic.parent_id, topic.lite_topic)) != topic.topic_id:
            yield f"the lite topic {topic.lite_topic!r} of topic {topic.name} cannot be found by its name"
    yield from _check_chunks(kv, state)
    yield from _check_sums(kv, state)


def _check_chunks(kv: Transaction, state: State) -> Iterator[str]:
    """The index of a LITE topic has the chunks of its lite topics, also of those that are being removed: no others."""
    found = dict[int, tuple[int, int]]()  # position → parent, lite topic
    for key, value in kv.scan("lidx"):
        parent_id, position = TOPIC_AT.unpack(key)
        found[position] = parent_id, U32.unpack(value)[0]
    for view in kv.keys("idx"):
        topic_id, position = TOPIC_AT.unpack(view)
        entry, parent_id = found.pop(position, None), state.parent_of(topic_id)
        wanted = (parent_id, topic_id) if parent_id else None
        if topic_id not in state.purges and entry != wanted and (entry or lite_chunks.is_complete(kv)):
            yield f"chunk {position} of topic {topic_id}: the index of its LITE topic has {entry}, it must be {wanted}"
    for position, (parent_id, topic_id) in found.items():
        if not {parent_id, topic_id} & {*state.purges}:
            yield f"the index of LITE topic {parent_id} has chunk {position} of {topic_id}, which is gone"


def _check_sums(kv: Transaction, state: State) -> Iterator[str]:
    """Gauges and bytes of a LITE topic are those of its lite topics."""
    size: Counter[int] = Counter()
    sums: dict[GroupTopic, Counter[str]] = {}
    for topic in state.topics.values():
        if topic.parent_id in state.topics:
            blocks = kv.scan("idx", U32.pack(topic.topic_id))
            size[topic.parent_id] += sum(IDX_HEAD.unpack_from(value)[1] for _, value in blocks)
            for group_id in state.topic_groups.get(topic.topic_id, ()):
                found = sums.setdefault((group_id, topic.parent_id), Counter())
                stat = state.stat[(group_id, topic.topic_id)]
                found.update({name: getattr(stat, name) for name in stat._fields})
    for parent in state.topics.values():
        if parent.type != "LITE" or parent.parent_id:
            continue
        if state.topic_stat[parent.topic_id].bytes != size[parent.topic_id]:
            counted = state.topic_stat[parent.topic_id].bytes
            yield f"topic {parent.name}: its lite topics have {size[parent.topic_id]} bytes, counted {counted}"
        for group_id in state.topic_groups.get(parent.topic_id, ()):
            where = (group_id, parent.topic_id)
            yield from _check_group(parent.name, state.stat[where], sums.pop(where, Counter()))
    for group_id, topic_id in sums:
        if group_id in state.groups:
            yield f"group {group_id} reads a lite topic of topic {topic_id}, but has not named that"


def _check_group(name: str, stat: Stat, found: Counter[str]) -> Iterator[str]:
    for field in stat._fields:
        counted = getattr(stat, field)
        if field in _GAUGES and counted != found[field]:
            yield f"a group in {name}: its lite topics have {found[field]} ({field}), counted {counted}"
        if field not in (*_GAUGES, "start") and counted < found[field]:
            yield f"a group in {name}: its lite topics have counted {found[field]} ({field}), the topic {counted}"


def leave_out_orphans(state: State) -> None:
    """Drops lite topics of a deleted parent from the state: they are being removed, so they are not checked."""
    for topic_id in list(state.topics):
        if not state.alive(topic_id):
            state.topics.pop(topic_id)
