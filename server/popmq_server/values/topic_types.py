"""Which messages a topic takes, by its type. Rules of every engine."""

from popmq_server.errors import Refused, invalid
from popmq_server.values.message import Extra, check_lite_topic
from popmq_server.values.records import Topic

#: For the action of a refusal: a topic type that allows the field.
_TYPE_FOR = {
    "message_group": "FIFO",
    "priority": "PRIORITY",
    "deliver_at_ms": "DELAY",
    "delay_ms": "DELAY",
    "transaction": "TRANSACTION",
}


def check_types(topic: Topic, types: frozenset[str]) -> None:
    """Refuses messages of another type than the topic's, if the caller named types."""
    if types and types != {topic.type}:
        kinds = ", ".join(sorted(types))
        raise invalid(
            f"topic {topic.name!r} is of type {topic.type}, these messages are for {kinds}",
            field="type",
            action=f"send to a topic of that type: popmq topic create NAME --type {min(types)}",
        )


def refusal(topic: Topic, extra: Extra) -> Refused | None:
    """Why the topic's type does not allow a message, or None."""
    if topic.type == "LITE" or extra.lite_topic:
        return _lite_refusal(topic, extra)
    wrong: tuple[str, str] | None = None
    if bool(extra.message_group) != (topic.type == "FIFO"):
        wrong = "message_group", "is missing" if topic.type == "FIFO" else "needs a FIFO topic"
    elif extra.priority and topic.type != "PRIORITY":
        wrong = "priority", "needs a PRIORITY topic"
    elif topic.type == "NORMAL" and (extra.due_ms or extra.delay_ms):
        wrong = "deliver_at_ms" if extra.due_ms else "delay_ms", "needs a topic of another type, e.g. DELAY"
    elif topic.type == "NORMAL" and extra.transaction:
        wrong = "transaction", "needs a topic of another type, e.g. TRANSACTION"
    if wrong is None:
        return None
    why = f"topic {topic.name!r} has type {topic.type}: {wrong[0]} {wrong[1]}"
    return invalid(why, field=wrong[0], action=_cure(topic, wrong[0]))


def _cure(topic: Topic, field: str) -> str:
    """The action for a field that the topic's type requires or does not allow."""
    if topic.type == "FIFO" and field == "message_group":
        return "set message_group, or send to a topic of another type"
    return f"unset {field}, or send to another topic: popmq topic create NAME --type {_TYPE_FOR[field]}"


def _lite_refusal(topic: Topic, extra: Extra) -> Refused | None:
    """Messages of LITE topics name their lite topic and may not set any other type-specific field."""
    if topic.type != "LITE":
        why = f"topic {topic.name!r} has type {topic.type}, it has no lite topics"
        return invalid(why, field="type", action="unset lite_topic, or send to a LITE topic")
    if any(extra._replace(lite_topic="", ttl_ms=0)):
        why = f"topic {topic.name!r} has type LITE: its messages have no message group, priority, delay or transaction"
        return invalid(
            why, field="type", action="set only lite_topic, or send to a topic of the type that has this field"
        )
    try:
        check_lite_topic(extra.lite_topic)
    except Refused as refused:
        return refused
    return None
