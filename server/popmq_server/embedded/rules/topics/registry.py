"""The registry: which topics, lite topics and groups exist, by id and by name, and which are being removed.

    topics, groups       id → settings                      ids, lite_ids   name → id
    purges               id → kind of a deleted one whose rows are not all removed (operate/purge.py)
    moving, lagging      topics to which groups have to be moved, or past dropped chunks (readers.py)

This is the one module that writes these tables. Ids are never reused.
"""

from collections.abc import Iterable

from popmq_server.contract.commands import CreateTopic
from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.state import topic_counts
from popmq_server.embedded.state.tx import Tx
from popmq_server.values.ids import TopicId
from popmq_server.values.limits import KEEP_MS_MAX
from popmq_server.values.message import GIVE_UP_TOPIC, dead_letter_topic, results_topic
from popmq_server.values.records import Group, Topic, TopicStat

#: Kinds in `purges`: of a topic, a group; of a lite topic, before the id of its parent; of a purged topic while groups
#: have to be moved from it, before the id of the new topic.
TOPIC, GROUP, LITE, PURGED = "topic", "group", "lite", "purged"


# ── Topics ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def topic(tx: Tx, name: str) -> Topic | None:
    """A topic by name, as this transaction sees it. For groups: readers.group."""
    topic_id = tx.state.ids.get(("t", name))
    if topic_id is None:
        return None
    found = tx.state.topics.get(topic_id)
    if found is None or found.name != name:
        broken("topic_has_its_name", ("name", b"t" + name.encode()), name=name, topic=topic_id)
    return found


def topics(tx: Tx, names: Iterable[str]) -> list[Topic]:
    """Those topics of these names that exist."""
    return [found for name in names if (found := topic(tx, name)) is not None]


def new_topic(tx: Tx, settings: CreateTopic) -> Topic:
    """Makes a topic. `created_ms` distinguishes it from earlier ones of its name, so two never have the same."""
    created_ms = max(tx.now_ms, tx.state.deleted_ms + 1)
    return add_topic(tx, Topic(topic_id=TopicId(tx.new_id()), created_ms=created_ms, **vars(settings)))


def ensure_dead_letter_topic(tx: Tx, group: Group) -> Topic:
    """`%DLQ%group`, created with its group, or again if it was deleted; retention keeps its unfinished messages.

    It has one queue, so dead letters keep their order and operators read them from the first on.
    """
    name = dead_letter_topic(group.name)
    return topic(tx, name) or new_topic(tx, CreateTopic(name, 1, False, KEEP_MS_MAX))


def ensure_results_topic(tx: Tx, group: Group) -> Topic:
    """`%RESULT%group`, made when the group begins to keep results, or again if it was deleted. By age: nobody has to
    read them.
    """
    name = results_topic(group.name)
    return topic(tx, name) or new_topic(tx, CreateTopic(name, 1, True, group.results_keep_ms))


def ensure_give_up_topic(tx: Tx) -> Topic:
    """The topic for half messages that were given up after all checks."""
    return topic(tx, GIVE_UP_TOPIC) or new_topic(tx, CreateTopic(GIVE_UP_TOPIC, 1, False, KEEP_MS_MAX))


def add_topic(tx: Tx, topic: Topic) -> Topic:
    """Makes a topic known, by its name; a lite topic by that of its parent and its own."""
    if topic.topic_id in tx.state.topics or topic.topic_id in tx.state.purges:
        broken("topic_id_new", topic=topic.topic_id)
    if topic.queues < 1:
        broken("topic_has_queues", topic=topic.topic_id, queues=topic.queues)
    tx.state.topics[topic.topic_id] = topic
    if topic.parent_id:
        if (topic.parent_id, topic.lite_topic) in tx.state.lite_ids:
            broken("lite_topic_name_free", topic=topic.topic_id, parent=topic.parent_id)
        tx.state.lite_ids[(topic.parent_id, topic.lite_topic)] = topic.topic_id
    else:
        if tx.state.ids.get(("t", topic.name), 0) in tx.state.topics:
            broken("topic_name_free", topic=topic.topic_id, name=topic.name)
        tx.state.ids[("t", topic.name)] = topic.topic_id
    return topic


def change_topic(tx: Tx, topic: Topic) -> Topic:
    """Gives an existing topic other settings, or notes since when a lite topic is idle."""
    if (before := tx.state.topics.get(topic.topic_id)) is None or topic.queues < before.queues:
        broken("queues_stay", topic=topic.topic_id, queues=topic.queues, before=before and before.queues)
    tx.state.topics[topic.topic_id] = topic
    return topic


def note_ttl(tx: Tx, topic: Topic) -> Topic:
    """Notes that messages of a topic may expire: from now on its pops look at the ttl of each."""
    return topic if topic.expires else change_topic(tx, topic._replace(expires=True))


def delete_topic(tx: Tx, topic: Topic) -> None:
    """Removes a topic and its name; its rows are removed in pieces."""
    tx.state.undo.save(tx.state, "deleted_ms")
    tx.state.deleted_ms = max(tx.state.deleted_ms, topic.created_ms)
    tx.state.ids.pop(("t", topic.name))
    _remove(tx, topic, TOPIC)


def begin_again(tx: Tx, old: Topic) -> Topic:
    """Replaces a topic by one with its name and settings, to which its groups have to be moved."""
    new = old._replace(topic_id=TopicId(tx.new_id()), moving_from=old.topic_id)
    _remove(tx, old, f"{PURGED} {new.topic_id}")
    _set_moving(tx, new.topic_id, old.topic_id)
    return add_topic(tx, new)


def groups_moved(tx: Tx, new: Topic) -> None:
    """Notes that all groups have been moved to where a purged topic began again: the rows of the old one may go."""
    tx.state.purges[new.moving_from] = TOPIC
    _set_moving(tx, new.topic_id, TopicId(0))
    tx.state.topics[new.topic_id] = new._replace(moving_from=TopicId(0))


def give_up_moving(tx: Tx, old_id: int) -> None:
    """Notes that the groups of a purged topic are moved nowhere: what replaced it was deleted too."""
    tx.state.purges[old_id] = TOPIC


def retire(tx: Tx, topic: Topic) -> None:
    """Removes a lite topic and its name, and subtracts its counts from its parent's; its rows may go in pieces."""
    state, where = tx.state, (topic.topic_id, 0)
    state.lite_ids.pop((topic.parent_id, topic.lite_topic))
    stored = state.queue_max.get(where, 0) - state.queue_min.get(where, 0)
    topic_counts.add_lites(tx, topic.parent_id, -1, -stored)
    topic_counts.add(tx, topic.parent_id, bytes=-state.topic_stat.get(topic.topic_id, TopicStat()).bytes)
    set_lagging(tx, topic.topic_id, False)
    state.topics.pop(topic.topic_id)
    state.purges[topic.topic_id] = f"{LITE} {topic.parent_id}"


def forget_orphan(tx: Tx, parent_id: TopicId, name: str, topic_id: TopicId) -> None:
    """Removes a lite topic whose parent is removed, from all tables."""
    tx.state.forget_lite_topic(topic_id)
    tx.state.lite_ids.pop((parent_id, name))


def _remove(tx: Tx, topic: Topic, kind: str) -> None:
    topic_counts.leave_out(tx, topic)
    _set_moving(tx, topic.topic_id, TopicId(0))
    set_lagging(tx, topic.topic_id, False)
    tx.state.topics.pop(topic.topic_id)
    tx.state.purges[topic.topic_id] = kind


def removed(tx: Tx, entity_id: int) -> None:
    """Notes that all rows of a deleted topic or group are removed."""
    if entity_id in tx.state.topics or entity_id in tx.state.groups:
        broken("removed_is_gone", entity=entity_id)
    tx.state.purges.pop(entity_id)


def _set_moving(tx: Tx, topic_id: TopicId, old_id: TopicId) -> None:
    """Notes from which purged topic groups have to be moved to a topic; 0 = they have all been moved."""
    moving, undo = tx.state.moving, tx.state.undo
    if before := moving.pop(topic_id, TopicId(0)):
        undo.note(moving.__setitem__, topic_id, before)
    if old_id:
        moving[topic_id] = old_id
        undo.note(moving.pop, topic_id, None)


def set_lagging(tx: Tx, topic_id: TopicId, lags: bool) -> None:
    """Notes whether groups have to be moved past dropped chunks of a topic."""
    lagging, undo = tx.state.lagging, tx.state.undo
    if lags == (topic_id in lagging):
        return
    if lags:
        lagging[topic_id] = True
        undo.note(lagging.pop, topic_id, None)
    else:
        lagging.pop(topic_id)
        undo.note(lagging.__setitem__, topic_id, True)
    if (topic := tx.state.topics.get(topic_id)) is not None:
        tx.state.topics[topic_id] = topic._replace(lagging=lags)


# ── Groups ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def add_group(tx: Tx, group: Group) -> Group:
    if group.group_id in tx.state.groups or group.group_id in tx.state.purges:
        broken("group_id_new", group=group.group_id)
    if tx.state.ids.get(("g", group.name), 0) in tx.state.groups:
        broken("group_name_free", group=group.group_id, name=group.name)
    tx.state.groups[group.group_id] = group
    tx.state.ids[("g", group.name)] = group.group_id
    return group


def change_group(tx: Tx, group: Group) -> Group:
    """Gives an existing group other settings."""
    tx.state.groups[group.group_id] = group
    return group


def delete_group(tx: Tx, group: Group) -> None:
    """Removes a group and its name; its rows are removed in pieces."""
    tx.state.ids.pop(("g", group.name))
    tx.state.groups.pop(group.group_id)
    tx.state.purges[group.group_id] = GROUP
