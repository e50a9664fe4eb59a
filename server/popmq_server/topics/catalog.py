"""Topics and groups: create, change, delete. Ids are never reused: a topic created again under an old name has no old
state.

A deleted name is removed at once; purge.py removes its ranges in the store later, PURGE_KEYS_MAX keys per transaction.

Creating a topic or group that exists with the same settings succeeds, so a program can create what it needs at each
start. A group is bound to a topic, and gets its start position there, when it first names the topic (subscription.py).
"""

from typing import Any

from popmq_server.commands import CreateGroup, CreateTopic, DeleteGroup, DeleteTopic, UpdateGroup, UpdateTopic
from popmq_server.errors import Refused, group_not_found, invalid, topic_not_found
from popmq_server.model.checkpoint import Lease
from popmq_server.model.ids import GroupId, TopicId
from popmq_server.model.limits import DELAYS_MS_DEFAULT, INVISIBLE_MS_DEFAULT, KEEP_MS_MAX, MAX_ATTEMPTS_DEFAULT
from popmq_server.model.message import GIVE_UP_TOPIC, dead_letter_topic
from popmq_server.model.records import Group, Topic
from popmq_server.state.tx import Tx
from popmq_server.storage.keys import STAT_KEY, SUB_OWNER, U32
from popmq_server.topics import quotas
from popmq_server.topics.topic import flush


def create_topic(tx: Tx, command: CreateTopic) -> tuple[Topic, bool]:
    """Returns (topic, whether it existed). A topic with other settings is refused: only an update changes settings."""
    existing = tx.topic(command.name)
    if existing is not None:
        _expect_same("topic", existing, command)
        return existing, True
    return _new_topic(tx, command), False


def _expect_same(what: str, existing: Topic | Group, wanted: CreateTopic | CreateGroup) -> None:
    """Raises Refused for a topic or group that exists with other settings."""
    if differing := _differing(existing, wanted):
        raise Refused(
            "ALREADY_EXISTS",
            f"{what} {wanted.name!r} exists with other settings: {differing}",
            field=f"{what}.name",
            action=f"update it, or name another; what it has: popmq {what} describe {wanted.name}",
        )


def _differing(existing: Topic | Group, wanted: CreateTopic | CreateGroup) -> str:
    """The settings in which a creation differs from the existing topic or group, as a text; "" if there are none."""
    pairs = [(field, getattr(existing, field), getattr(wanted, field)) for field in wanted._fields]
    return ", ".join(f"{field} is {has}, not {wants}" for field, has, wants in pairs if has != wants)


def _new_topic(tx: Tx, settings: CreateTopic) -> Topic:
    topic = Topic(topic_id=TopicId(tx.next("entity")), created_ms=tx.now_ms, **settings._asdict())
    tx.state.topics[topic.topic_id] = topic
    tx.state.ids[("t", topic.name)] = topic.topic_id
    return topic


def ensure_dead_letter_topic(tx: Tx, group: Group) -> Topic:
    """`%DLQ%group`, created with its group; retention keeps its unfinished messages, as in every topic.

    It has one queue, so dead letters keep their order and operators read them from the first on.
    """
    name = dead_letter_topic(group.name)
    return tx.topic(name) or _new_topic(tx, CreateTopic(name, 1, False, KEEP_MS_MAX))


def ensure_give_up_topic(tx: Tx) -> Topic:
    """The topic for half messages that were given up after all checks."""
    return tx.topic(GIVE_UP_TOPIC) or _new_topic(tx, CreateTopic(GIVE_UP_TOPIC, 1, False, KEEP_MS_MAX))


def update_topic(tx: Tx, command: UpdateTopic) -> Topic:
    """Changes settings. New queues are empty, and every group begins at their first offset."""
    topic = tx.topic(command.name)
    if topic is None:
        raise topic_not_found(command.name, "topic.name")
    if command.queues and command.queues < topic.queues:
        raise invalid(
            f"topic {topic.name!r} has {topic.queues} queues; their number can only grow", field="topic.queues"
        )
    if command.type not in ("", topic.type):
        raise invalid(f"topic {topic.name!r} has type {topic.type}, which does not change", field="topic.type")
    if topic.type == "LITE" and command.queues not in (0, topic.queues):
        raise invalid(f"topic {topic.name!r} is LITE: each of its lite topics has one queue", field="topic.queues")
    if topic.type == "FIFO" and command.queues not in (0, topic.queues):
        raise invalid(
            f"topic {topic.name!r} is FIFO: its {topic.queues} queues stay, since message groups are tied to them",
            field="topic.queues",
        )
    if topic.type != "LITE" and "lite_ttl_ms" in dict(command.changes):
        raise invalid(f"topic {topic.name!r} has type {topic.type}, it has no lite topics", field="topic.lite")
    by_age, keep_ms = command.retention or (topic.by_age, topic.keep_ms)
    changed = topic._replace(
        queues=command.queues or topic.queues, by_age=by_age, keep_ms=keep_ms, **dict[str, Any](command.changes)
    )
    if any(getattr(changed, rate) != getattr(topic, rate) for rate in quotas.RATES):
        quotas.forget(tx, topic.topic_id)
    if changed.bytes_max:
        tx.state.trims.setdefault(topic.topic_id, 0)
    tx.state.topics[topic.topic_id] = changed
    tx.wake(None, topic.topic_id)
    tx.arrive(topic.topic_id, None)
    return changed


def delete_topic(tx: Tx, command: DeleteTopic) -> None:
    """Removes the name and schedules the purge; wakes parked Pops, which are then refused."""
    topic = tx.topic(command.name)
    if topic is None:
        raise topic_not_found(command.name, "name")
    flush(tx)  # messages staged for it would otherwise be written after its removal
    tx.wake(None, topic.topic_id)
    tx.arrive(topic.topic_id, None)
    tx.state.ids.pop(("t", topic.name))
    tx.drop_topic(topic)
    tx.state.purges[topic.topic_id] = "topic"


def create_group(tx: Tx, command: CreateGroup) -> tuple[Group, bool]:
    """Returns (group, whether it existed). A group with other settings is refused."""
    existing = tx.group(command.name)
    if existing is not None:
        _expect_same("group", existing, command)
        return existing, True
    group = Group(GroupId(tx.next("entity")), *command, tx.now_ms)
    tx.state.groups[group.group_id] = group
    tx.state.ids[("g", group.name)] = group.group_id
    ensure_dead_letter_topic(tx, group)
    return group, False


def create_default_group(tx: Tx, name: str) -> Group:
    """A group with the default settings."""
    return create_group(
        tx,
        CreateGroup(
            name=name,
            max_attempts=MAX_ATTEMPTS_DEFAULT,
            delays_ms=DELAYS_MS_DEFAULT,
            invisible_ms=INVISIBLE_MS_DEFAULT,
            share_number=0,
            start_from="EARLIEST",
            start_ms=0,
            exclusive_owner=False,
        ),
    )[0]


def update_group(tx: Tx, command: UpdateGroup) -> Group:
    """Applies changes that the API has validated; existing leases keep their deadlines."""
    group = tx.group(command.name)
    if group is None:
        raise group_not_found(command.name, "group.name")
    changed = group._replace(**command.changes)
    tx.state.groups[group.group_id] = changed
    for group_id, topic_id in tx.state.stat:
        if group_id == group.group_id:  # more may be leased now
            tx.wake(group_id, topic_id)
            if changed.consume_enable != group.consume_enable:
                tx.arrive(topic_id, None)  # wakes held pulls of the group
    if group.exclusive_owner and not changed.exclusive_owner:
        _open_to_others(tx, group)
    return changed


def _open_to_others(tx: Tx, group: Group) -> None:
    """Schedules the release of messages held by owners whose lease expired while the group was exclusive."""
    for key, owner in list(tx.state.owners.items()):
        if key[0] == group.group_id and owner.released:
            tx.state.owners[key] = owner._replace(released=False)
            tx.state.leases[(owner.owner_id, SUB_OWNER)] = Lease(owner.lease_until_ms, 0)


def _topics_of(tx: Tx, group_id: GroupId) -> list[TopicId]:
    """The topics that a group has named: from the store, and from this transaction."""
    stored = [TopicId(STAT_KEY.unpack(key)[1]) for key, _ in tx.kv.scan("stat", U32.pack(group_id))]
    return stored + [where[1] for where, stat in tx.state.stat.changed_items() if where[0] == group_id and stat]


def delete_group(tx: Tx, command: DeleteGroup) -> None:
    """Removes the name, deletes the dead letter topic, and schedules the purge."""
    group = tx.group(command.name)
    if group is None:
        raise group_not_found(command.name, "name")
    for topic_id in _topics_of(tx, group.group_id):
        tx.wake(group.group_id, topic_id)
    tx.state.watches.reset(group.name)
    tx.state.ids.pop(("g", group.name))
    tx.state.groups.pop(group.group_id)
    tx.state.purges[group.group_id] = "group"
    if tx.topic(dead_letter_topic(group.name)) is not None:
        delete_topic(tx, DeleteTopic(dead_letter_topic(group.name)))
