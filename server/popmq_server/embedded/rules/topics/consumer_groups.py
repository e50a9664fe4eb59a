"""Consumer groups: create, change, delete. Ids are never reused, as those of topics.

A group is created with its dead letter topic, and deleted with it; as long as it keeps results, it has a topic for
them. It is bound to a topic, and gets its start position there, when it first names the topic (subscription.py). A
deleted name is removed at once, its rows later (purge.py).
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from popmq_server.contract.changes import expect_same
from popmq_server.contract.commands import CreatedGroup, CreateGroup, DeleteGroup, DeleteTopic, UpdateGroup
from popmq_server.embedded.rules.topics import readers, registry
from popmq_server.embedded.rules.topics.topic_lifecycle import delete_topic
from popmq_server.embedded.state import owners
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import STAT_KEY, U32
from popmq_server.errors import Refused, group_not_found, invalid
from popmq_server.values.ids import GroupId, TopicId
from popmq_server.values.limits import DELAYS_MS_DEFAULT, INVISIBLE_MS_DEFAULT, MAX_ATTEMPTS_DEFAULT
from popmq_server.values.message import dead_letter_topic, results_topic
from popmq_server.values.records import IN_FLIGHT_MAX, SNOOZES_MAX, SUBSCRIPTION_EXPIRY_MS, FairKeys, Group

#: The values of settings that a request leaves unset.
DEFAULTS = {
    "in_flight_max": IN_FLIGHT_MAX,
    "subscription_expiry_ms": SUBSCRIPTION_EXPIRY_MS,
    "snoozes_max": SNOOZES_MAX,
    "fair_keys": None,
}


def create_group(tx: Tx, command: CreateGroup) -> CreatedGroup:
    """Creates a group. Refused if it exists with other settings."""
    command = replace(command, **_with_defaults(vars(command)))
    existing = readers.group(tx, command.name)
    if existing is not None:
        expect_same("group", existing, command)
        return CreatedGroup(existing, True)
    group = Group(GroupId(0), **vars(command), created_ms=tx.now_ms)
    check_fair_keys(tx, group, ())
    group = group._replace(group_id=GroupId(tx.new_id()))
    registry.add_group(tx, group)
    registry.ensure_dead_letter_topic(tx, group)
    _keep_results(tx, group)
    return CreatedGroup(group, False)


def _keep_results(tx: Tx, group: Group) -> None:
    """Makes the topic for results as its group says now, or deletes it with what it has."""
    if group.results_keep_ms:
        topic = registry.ensure_results_topic(tx, group)
        if topic.keep_ms != group.results_keep_ms:
            registry.change_topic(tx, topic._replace(keep_ms=group.results_keep_ms))
    elif registry.topic(tx, results_topic(group.name)) is not None:
        delete_topic(tx, DeleteTopic(results_topic(group.name)))


def _with_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings, with the engine's defaults for those that are unset."""
    return {name: DEFAULTS[name] if value is None else value for name, value in settings.items()}


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
    ).group


def update_group(tx: Tx, command: UpdateGroup) -> Group:
    """Applies changes that the protocols have validated; existing leases keep their deadlines."""
    group = readers.group(tx, command.name)
    if group is None:
        raise group_not_found(command.name, "group.name")
    changed = group._replace(**_with_defaults(command.changes))
    if changed.fair_keys is None and group.fair_keys is not None:
        changed = changed._replace(fair_keys=FairKeys())  # it may have passed messages out of order
    topics = _topics_of(tx, group.group_id)
    if changed.fair_keys is not None:
        check_fair_keys(tx, changed, topics)
    registry.change_group(tx, changed)
    if changed.results_keep_ms != group.results_keep_ms:
        _keep_results(tx, changed)
    for topic_id in topics:
        if changed.fair_keys != group.fair_keys:
            readers.drop_index(tx, (group.group_id, topic_id))
        tx.wake(group.group_id, topic_id)  # more may be leased now
        if changed.consume_enable != group.consume_enable:
            tx.arrive(topic_id, None)  # wakes parked pulls of the group
    if group.exclusive_owner and not changed.exclusive_owner:
        owners.open_to_others(tx, group.group_id)
    return changed


def check_fair_keys(tx: Tx, group: Group, topics: Iterable[TopicId]) -> None:
    """Raises Refused if fair keys do not go with a group's other settings, or with how it reads its topics.

    Owners seal ranges of queues, PULL commits one offset for each, a share number gives queues to clients: none of
    these can pass messages out of order. What is configured later is refused there: delivery/fair/choice.py.
    """
    if group.fair_keys is None or not group.fair_keys.on:
        return
    if group.share_number:
        raise _conflict(group, "it has a share number", "set its share number to 0")
    if group.exclusive_owner or tx.state.owner_count.get(group.group_id):
        raise _conflict(group, "it has owners", "name another group")
    for topic_id in topics:
        topic, fixed = tx.state.topics.get(topic_id), tx.state.subscriptions.get((group.group_id, topic_id))
        if topic is None or topic.parent_id:
            continue
        if fixed is not None and (fixed.pulls or fixed.share_number):
            how = "by PULL" if fixed.pulls else "with a share number"
            action = f"popmq mode {topic.name} {group.name} pop"
            raise _conflict(group, f"it reads topic {topic.name!r} {how}", action)
        if topic.type in ("FIFO", "LITE"):
            raise _conflict(group, f"it reads topic {topic.name!r}, of type {topic.type}", "name another group")


def _conflict(group: Group, why: str, action: str) -> Refused:
    return invalid(f"group {group.name!r} cannot take turns by fair key: {why}", field="group.fair_keys", action=action)


def _topics_of(tx: Tx, group_id: GroupId) -> list[TopicId]:
    """The topics that a group has named: from the store, and from this transaction."""
    stored = [TopicId(STAT_KEY.unpack(key)[1]) for key in tx.kv.scan_keys("stat", U32.pack(group_id))]
    return stored + [where[1] for where, stat in tx.state.stat.changed_items() if where[0] == group_id and stat]


def delete_group(tx: Tx, command: DeleteGroup) -> None:
    """Removes the name, deletes the dead letter topic, and schedules the purge."""
    group = readers.group(tx, command.name)
    if group is None:
        raise group_not_found(command.name, "name")
    for topic_id in _topics_of(tx, group.group_id):
        tx.wake(group.group_id, topic_id)
    tx.state.watches.reset(group.name)
    registry.delete_group(tx, group)
    for own in registry.topics(tx, (dead_letter_topic(group.name), results_topic(group.name))):
        delete_topic(tx, DeleteTopic(own.name))
