"""What may be created again and what may change, of a topic or group that exists: rules of every engine.

A program creates what it needs at each start: with equal settings that succeeds. Only an update changes settings.
"""

from popmq_server.contract.commands import CreateGroup, CreateTopic, UpdateTopic
from popmq_server.errors import Refused, invalid
from popmq_server.values.records import FairKeys, Group, Topic


def expect_same(what: str, existing: Topic | Group, wanted: CreateTopic | CreateGroup) -> None:
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
    pairs = [(field, getattr(existing, field), getattr(wanted, field)) for field in vars(wanted)]
    if isinstance(existing, Group) and existing.fair_keys == FairKeys():  # they were turned off
        pairs = [(field, None if field == "fair_keys" else has, wants) for field, has, wants in pairs]
    return ", ".join(f"{field} is {has}, not {wants}" for field, has, wants in pairs if has != wants)


def check_topic_changes(topic: Topic, command: UpdateTopic) -> None:
    """Refuses what cannot change in a topic with messages. Raises Refused."""
    if command.queues and command.queues < topic.queues:
        raise invalid(
            f"topic {topic.name!r} has {topic.queues} queues; their number can only grow",
            field="topic.queues",
            action="ask for more queues, or create another topic",
        )
    if command.type not in ("", topic.type):
        raise invalid(
            f"topic {topic.name!r} has type {topic.type}, which does not change",
            field="topic.type",
            action=f"leave the type out, or create another topic of type {command.type}",
        )
    if topic.type == "LITE" and command.queues not in (0, topic.queues):
        raise invalid(
            f"topic {topic.name!r} is LITE: each of its lite topics has one queue",
            field="topic.queues",
            action="leave the number of queues out",
        )
    if topic.type == "FIFO" and command.queues not in (0, topic.queues):
        raise invalid(
            f"topic {topic.name!r} is FIFO: its {topic.queues} queues stay, since message groups are tied to them",
            field="topic.queues",
            action="leave the number of queues out, or create another topic",
        )
    if topic.type != "LITE" and "lite_ttl_ms" in dict(command.changes):
        raise invalid(
            f"topic {topic.name!r} has type {topic.type}, it has no lite topics",
            field="topic.lite",
            action="leave `lite` out",
        )
