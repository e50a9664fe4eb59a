"""Permissions that operators set: sending to a topic, reading it, reading by a group. They apply to all callers.

    Topic.permission      READ_WRITE   READ_ONLY    WRITE_ONLY   NO_ACCESS    Group.consume_enable false
    Send                  yes          FORBIDDEN    yes          FORBIDDEN    yes
    Pop, Pull,            yes          yes          FORBIDDEN    FORBIDDEN    FORBIDDEN
    WaitAvailable

All other operations continue for accepted messages: delayed messages are released, half messages are committed or
rolled back, leases are acked or expire, messages are sent back, retried, moved to the dead letter topic and redriven.
Peek, Browse and other inspection commands need no permission: they are for operators.

See docs/decisions/0032-permissions.md.
"""

from popmq_server.errors import Refused
from popmq_server.values.records import Group, Topic

_WRITABLE, _READABLE = ("READ_WRITE", "WRITE_ONLY"), ("READ_WRITE", "READ_ONLY")


def allows_send(topic: Topic) -> bool:
    """Whether the topic permits sends."""
    return topic.permission in _WRITABLE


def check_send(topic: Topic) -> None:
    """Raises Refused FORBIDDEN if the topic does not permit sends."""
    if not allows_send(topic):
        raise _forbidden_topic(topic, "send to")


def check_topic_read(topic: Topic) -> None:
    """Raises Refused FORBIDDEN if the topic does not permit reads."""
    if topic.permission not in _READABLE:
        raise _forbidden_topic(topic, "read")


def check_read(group: Group | None, topic: Topic) -> None:
    """Raises Refused FORBIDDEN if the topic or the group does not permit reads. None: a reader without a group."""
    check_topic_read(topic)
    if group is not None and not group.consume_enable:
        raise Refused(
            "FORBIDDEN",
            f"group {group.name!r} may not read: its consume_enable is off",
            field="group",
            action=f"popmq group update {group.name} --consume-enable",
        )


def _forbidden_topic(topic: Topic, what: str) -> Refused:
    return Refused(
        "FORBIDDEN",
        f"the permission of topic {topic.name!r} is {topic.permission}: no client may {what} it",
        field="topic",
        action=f"popmq topic update {topic.name} --permission READ_WRITE",
    )
