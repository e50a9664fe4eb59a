"""Places messages by the type of their topic, where plain sends need more than the next queue.

    plain                     the next queue in turn, together with its request (topic.py does this itself)
    message group   FIFO      the queue of the group's hash: one group, one queue, one order
    priority        PRIORITY  the queue of its number; higher numbers go to the last queue
    lite topic      LITE      the one queue of the lite topic, created if it does not exist (lite_topics.py)
    delayed         any type but NORMAL: `sched`, until it is due (delay.py)
    half message    any type but NORMAL: `half`, until it is committed (transaction.py); then delayed or visible
    known id        topics with unique ids: stored once (unique.py)

A topic refuses entries that its type does not support; the other entries of the request are stored.
"""

from popmq_server.commands import Place
from popmq_server.errors import Refused, invalid
from popmq_server.lite import lite_topics
from popmq_server.model.message import Extra, check_lite_topic
from popmq_server.model.outgoing import Outgoing
from popmq_server.model.records import Topic
from popmq_server.sending import delay, transaction, unique
from popmq_server.state.tx import Tx
from popmq_server.storage.keys import U64, hash8
from popmq_server.topics import quotas, topic

_NONE = Extra()
#: For the action of a refusal: a topic type that allows the field.
_TYPE_FOR = {
    "message_group": "FIFO",
    "priority": "PRIORITY",
    "deliver_at_ms": "DELAY",
    "delay_ms": "DELAY",
    "transaction": "TRANSACTION",
}


def is_plain(found: Topic, messages: tuple[Outgoing, ...]) -> bool:
    """Whether a request needs nothing from this module: the fast path of most messages."""
    if found.type in ("FIFO", "PRIORITY", "LITE") or found.unique_ids_ms:
        return False
    if found.message_bytes_max and any(quotas.too_large(found, message) for message in messages):
        return False
    return {message.extra for message in messages} == {None}


def place(tx: Tx, found: Topic, messages: tuple[Outgoing, ...]) -> tuple[Place | Refused, ...]:
    """Stores the valid messages; returns the place of each, in order, or why it is refused."""
    places: list[Place | Refused] = []
    visible: list[tuple[int, Outgoing]] = []
    repeats: list[tuple[int, int]] = []
    ids = unique.Ids(tx, found)
    for number, message in enumerate(messages):
        done: Place | Refused | None = refusal(found, message.extra or _NONE) or quotas.too_large(found, message)
        done = done or _lite_quota(tx, found, message)
        if done is None and (first := ids.first(message, number)) != number:
            repeats.append((number, first))
            done = Place()
        done = done or ids.known(message)
        if done is None and (done := _kept(tx, found, message)) is not None:
            ids.remember(message, done)
        elif done is None:
            visible.append((number, message))
        places.append(done or Place())
    for number, stored in zip((number for number, _ in visible), append(tx, found, visible), strict=True):
        places[number] = stored
        ids.remember(messages[number], stored)
    for number, first in repeats:
        stored_once = places[first]
        places[number] = stored_once._replace(duplicate=True) if isinstance(stored_once, Place) else stored_once
    return tuple(places)


def refusal(found: Topic, extra: Extra) -> Refused | None:
    """Why the topic's type does not allow a message, or None."""
    if found.type == "LITE" or extra.lite_topic:
        return _lite_refusal(found, extra)
    wrong: tuple[str, str] | None = None
    if bool(extra.message_group) != (found.type == "FIFO"):
        wrong = (
            "message_group",
            "FIFO topics need one in every message" if found.type == "FIFO" else "needs a FIFO topic",
        )
    elif extra.priority and found.type != "PRIORITY":
        wrong = "priority", "needs a PRIORITY topic"
    elif found.type == "NORMAL" and (extra.due_ms or extra.delay_ms):
        wrong = "deliver_at_ms" if extra.due_ms else "delay_ms", "needs a topic of another type, e.g. DELAY"
    elif found.type == "NORMAL" and extra.transaction:
        wrong = "transaction", "needs a topic of another type, e.g. TRANSACTION"
    if wrong is None:
        return None
    why = f"topic {found.name!r} has type {found.type}: {wrong[0]} {wrong[1]}"
    return invalid(why, field=wrong[0], action=_cure(found, wrong[0]))


def _cure(found: Topic, field: str) -> str:
    """The action for a field that the topic's type requires or does not allow."""
    if found.type == "FIFO" and field == "message_group":
        return "set message_group, or send to a topic of another type"
    return f"unset {field}, or send to another topic: popmq topic create NAME --type {_TYPE_FOR[field]}"


def _lite_refusal(found: Topic, extra: Extra) -> Refused | None:
    """Messages of LITE topics name their lite topic and may not set any other type-specific field."""
    if found.type != "LITE":
        why = f"topic {found.name!r} has type {found.type}, it has no lite topics"
        return invalid(why, field="type", action="unset lite_topic, or send to a LITE topic")
    if any(extra._replace(lite_topic="")):
        why = f"topic {found.name!r} has type LITE: its messages have no message group, priority, delay or transaction"
        return invalid(
            why, field="type", action="set only lite_topic, or send to a topic of the type that has this field"
        )
    try:
        check_lite_topic(extra.lite_topic)
    except Refused as refused:
        return refused
    return None


def _lite_quota(tx: Tx, found: Topic, message: Outgoing) -> Refused | None:
    """Creates the lite topic of a message if needed; the refusal if the quota is used up."""
    if found.type != "LITE":
        return None
    made = lite_topics.ensure(tx, found, (message.extra or _NONE).lite_topic)
    return made if isinstance(made, Refused) else None


def _kept(tx: Tx, found: Topic, message: Outgoing) -> Place | None:
    """Stores a half or delayed message; returns its place, None for a visible message."""
    if message.extra is not None and message.extra.transaction:
        return transaction.begin(tx, found, message)
    return delay.keep(tx, found, message)


def append(tx: Tx, found: Topic, messages: list[tuple[int, Outgoing]]) -> list[Place]:
    """Makes messages visible, those of one queue together; returns their places in the given order."""
    if found.type == "LITE":
        return _append_lite(tx, found, messages)
    turn = -1
    queues: dict[int, list[int]] = {}
    for rank, (_, message) in enumerate(messages):
        extra = message.extra or _NONE
        if found.type == "FIFO":
            queue = queue_of(extra.message_group, found.queues)
        elif found.type == "PRIORITY":
            queue = min(extra.priority, found.queues - 1)
        else:
            queue = turn = turn if turn >= 0 else topic.rotate(tx, found)
        queues.setdefault(queue, []).append(rank)
    places = [Place()] * len(messages)
    for queue, ranks in queues.items():
        first = topic.append(tx, found, queue, tuple(messages[rank][1] for rank in ranks))
        for step, rank in enumerate(ranks):
            places[rank] = Place(queue, first + step)
    return places


def _append_lite(tx: Tx, found: Topic, messages: list[tuple[int, Outgoing]]) -> list[Place]:
    """The same for lite topics, which exist by now: each has one queue."""
    names: dict[str, list[int]] = {}
    for rank, (_, message) in enumerate(messages):
        names.setdefault((message.extra or _NONE).lite_topic, []).append(rank)
    places = [Place()] * len(messages)
    for name, ranks in names.items():
        child = lite_topics.find(tx, found, name)
        assert child is not None
        first = topic.append(tx, child, 0, tuple(messages[rank][1] for rank in ranks))
        for step, rank in enumerate(ranks):
            places[rank] = Place(0, first + step)
    return places


def queue_of(message_group: str, queues: int) -> int:
    """The queue of a message group. It stays the same for the topic's life: a FIFO topic's queue count is fixed."""
    return int(U64.unpack(hash8(message_group))[0]) % queues
