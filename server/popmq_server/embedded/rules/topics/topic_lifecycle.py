"""Topics: create, change, delete. Ids are never reused: a topic created again under an old name has no old state.

A deleted name is removed at once; purge.py removes its ranges in the store later, PURGE_KEYS_MAX keys per transaction.

Creating a topic that exists with the same settings succeeds, so a program can create what it needs at each start.
What may change is in contract/changes.py; consumer groups are in consumer_groups.py.
"""

from dataclasses import replace
from typing import Any

from popmq_server.contract.changes import check_topic_changes, expect_same
from popmq_server.contract.commands import CreatedTopic, CreateTopic, DeleteTopic, UpdateTopic
from popmq_server.embedded.rules.topics import quotas, registry
from popmq_server.embedded.rules.topics.topic import end_queues, flush, mark_full
from popmq_server.embedded.state.tx import Tx
from popmq_server.errors import Refused, topic_not_found
from popmq_server.values.limits import KEEP_MS_DEFAULT
from popmq_server.values.records import Topic


def create_topic(tx: Tx, command: CreateTopic) -> CreatedTopic:
    """Creates a topic. Refused if it exists with other settings: only an update changes settings."""
    if command.keep_ms is None:
        command = replace(command, keep_ms=KEEP_MS_DEFAULT)
    existing = registry.topic(tx, command.name)
    if existing is not None:
        expect_same("topic", existing, command)
        return CreatedTopic(existing, True)
    return CreatedTopic(registry.new_topic(tx, command), False)


def update_topic(tx: Tx, command: UpdateTopic) -> Topic:
    """Changes settings. New queues are empty, and every group begins at their first offset."""
    topic = registry.topic(tx, command.name)
    if topic is None:
        raise topic_not_found(command.name, "topic.name")
    check_topic_changes(topic, command)
    by_age, keep_ms = command.retention or (topic.by_age, topic.keep_ms)
    changed = topic._replace(
        queues=command.queues or topic.queues, by_age=by_age, keep_ms=keep_ms, **dict[str, Any](command.changes)
    )
    if any(getattr(changed, rate) != getattr(topic, rate) for rate in quotas.RATES):
        quotas.forget(tx, topic.topic_id)
    if changed.bytes_max:
        mark_full(tx, topic.topic_id)
    registry.change_topic(tx, changed)
    tx.wake(None, topic.topic_id)
    tx.arrive(topic.topic_id, None)
    return changed


def expect_creation(topic: Topic, created_ms: int) -> None:
    """Refuses offsets of an earlier topic of this name: there they mean other messages. 0 = not compared."""
    if created_ms and created_ms != topic.created_ms:
        raise Refused(
            "TOPIC_NOT_FOUND",
            f"topic {topic.name!r} was deleted and created again: these offsets are of the one before",
            field="topic_created_ms",
            action="begin at the first message, or at an offset that the topic has now",
        )


def delete_topic(tx: Tx, command: DeleteTopic) -> None:
    """Removes the name and schedules the purge; wakes parked Pops, which are then refused."""
    topic = registry.topic(tx, command.name)
    if topic is None:
        raise topic_not_found(command.name, "name")
    flush(tx)  # messages staged for it would otherwise be written after its removal
    tx.wake(None, topic.topic_id)
    tx.arrive(topic.topic_id, None)
    end_queues(tx, topic)
    registry.delete_topic(tx, topic)
