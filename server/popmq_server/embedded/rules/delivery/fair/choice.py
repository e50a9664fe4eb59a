"""Which pops take turns by fair key, and what a group with fair keys may not do.

    fair keys on                 turns by key; in its dead-letter topic order, since operators read that
    off, but messages were       turns with one key, the empty one, without limits: in order of the queues, past what
    passed out of order          was passed. Then as if it had never had fair keys
    never on                     as before: no code of this package runs

FIFO and LITE topics take turns by message group and lite topic. Owners seal ranges of queues, PULL commits one offset
for each, and a share number gives queues to clients: none of these can pass messages out of order. Each is refused by
the request that comes second, fair keys or the other one.
"""

from popmq_server.embedded.rules.delivery.fair.fair_pick import FairPick
from popmq_server.embedded.rules.topics import readers
from popmq_server.embedded.state.tx import Tx
from popmq_server.errors import Refused, invalid
from popmq_server.values.records import Group, Topic

__all__ = ["FairPick", "check", "is_by_key", "refuse_owners", "refuse_pull", "refuse_type"]


def is_by_key(tx: Tx, group: Group, topic: Topic) -> bool:
    """Whether pops of a group take turns by key in a topic: FairPick."""
    if topic.type in ("FIFO", "LITE") or topic.is_dead_letter or group.fair_keys is None:
        return False
    return group.fair_keys.on or readers.ahead_in(tx.state, (group.group_id, topic.topic_id), topic)


def check(tx: Tx, group: Group, topic: Topic, queues: tuple[int, ...]) -> None:
    """Raises Refused for a Pop that fair keys do not allow."""
    refuse_type(group, topic)
    if queues and is_by_key(tx, group, topic):
        raise invalid(
            f"group {group.name!r} takes turns by fair key, which are of all queues together",
            field="queues",
            action="leave queues out",
        )


def refuse_type(group: Group, topic: Topic, field: str = "group") -> None:
    """Raises Refused for a FIFO or LITE topic, if the group takes turns by key."""
    if group.fair_keys is not None and group.fair_keys.on and topic.type in ("FIFO", "LITE"):
        what = "message group" if topic.type == "FIFO" else "lite topic"
        raise invalid(
            f"topic {topic.name!r} has type {topic.type}, with turns by {what}; group {group.name!r} has fair keys",
            field=field,
            action="read it by a group without fair keys",
        )


def refuse_owners(tx: Tx, group: Group, topic: Topic | None = None) -> None:
    """Raises Refused for owners and their tokens."""
    fair = group.fair_keys
    ahead = (
        topic is not None and fair is not None and readers.ahead_in(tx.state, (group.group_id, topic.topic_id), topic)
    )
    if fair is not None and (fair.on or ahead):
        raise _apart(group, "owners seal ranges of queues in their order", ahead and not fair.on)


def refuse_pull(tx: Tx, group: Group, topic: Topic, share_number: int) -> None:
    """Raises Refused for the consume mode PULL, and for a share number."""
    fair = group.fair_keys
    if fair is None:
        return
    ahead = readers.ahead_in(tx.state, (group.group_id, topic.topic_id), topic)
    if fair.on or ahead:
        what = "a share number gives queues to clients" if share_number else "PULL commits one offset for each queue"
        raise _apart(group, what, ahead and not fair.on)


def _apart(group: Group, other: str, still: bool) -> Refused:
    if still:
        return invalid(
            f"group {group.name!r} had fair keys, and has passed messages out of order; {other}",
            field="group",
            action="pop until it has passed the messages before them, or reset its offsets",
        )
    return invalid(
        f"group {group.name!r} takes turns by fair key; {other}",
        field="group",
        action=f"name another group, or turn its fair keys off: popmq group update {group.name} --no-fair-keys",
    )
