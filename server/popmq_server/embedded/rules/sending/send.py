"""Send: stores a request's messages in a topic, once, however often the request is retried.

    Send ──▶ request number answered before?            ──▶ the first answer
         ──▶ plain messages: one queue, in order            (topic.enqueue)
         ──▶ the others: by message group, priority, time   (placing.Placing)

    several Sends of a commit batch, each of one plain message ──▶ one append for each queue (send_all)

A producer has one id and numbers its requests; dedup.py remembers each number with its answer.
"""

from collections.abc import Iterator
from itertools import count
from typing import cast

from popmq_server.contract.commands import Place, Send, Sent
from popmq_server.embedded.rules.sending import dedup, placing
from popmq_server.embedded.rules.sending.placing import Placing
from popmq_server.embedded.rules.topics import quotas, registry
from popmq_server.embedded.rules.topics.topic import demand, enqueue, expect, rotate
from popmq_server.embedded.state.tx import Tx
from popmq_server.errors import Refused, topic_not_found
from popmq_server.values import permission, topic_types
from popmq_server.values.outgoing import Outgoing
from popmq_server.values.records import Topic


def send(tx: Tx, command: Send, topic: Topic, kind: type[Placing]) -> Sent:
    """Stores the valid entries of a request; a repeated request number stores nothing. Raises Refused, NeedsRoom.

    `topic`: that of the request (`expect_topic`). `kind`: the class that places messages that are not plain.
    """
    if command.types:
        topic_types.check_types(topic, command.types)
    messages: tuple[Outgoing, ...] = command.valid  # type: ignore[assignment]  # hashed by loop/hashes.py
    key = dedup.key_of(command) if command.producer_id else b""
    if key and (first := dedup.first_answer(tx, key, topic, len(messages))) is not None:
        return first
    permission.check_send(topic)  # after the look-up: a request that was stored before still gets its answer
    if not messages:
        return Sent(0, 0, False)
    limited = topic.send_messages_per_s or topic.send_bytes_per_s or topic.bytes_max
    if limited:
        quotas.check_send(tx, topic, messages)
        demand(tx, topic, messages)
    if placing.is_plain(topic, messages):
        queue = rotate(tx, topic)
        sent = Sent(queue, enqueue(tx, topic, queue, messages), False)
    else:
        sent = Sent(0, 0, False, kind(tx, topic).place(messages))
    if limited:
        stored = _stored(messages, sent.places)
        expect(tx, topic, stored)
        quotas.sent(tx, topic, stored)
    if key:
        dedup.remember(tx, key, topic, len(messages), sent)
    return sent


def expect_topic(tx: Tx, name: str) -> Topic:
    """The topic to which messages may be sent. Raises Refused."""
    topic = registry.topic(tx, name)
    if topic is None or topic.is_own:
        raise topic_not_found(name)
    return topic


def send_all(tx: Tx, command: Send) -> list[Sent]:
    """Stores the messages of several requests, of one message each, as `send` would one by one.

    `command` has the messages of all of them, and no request number. Returns [] and changes nothing unless all messages
    are plain and the topic has no quota, no size limit and no refusal for them.
    """
    topic = registry.topic(tx, command.topic)
    if topic is None or not _takes_plain(topic, command.types) or {*map(type, command.entries)} != {Outgoing}:
        return []
    messages = cast(tuple[Outgoing, ...], command.entries)
    if not placing.is_plain(topic, messages):
        return []
    turn = rotate(tx, topic, len(messages))
    queues = [number % topic.queues for number in range(turn, turn + len(messages))]
    offsets: dict[int, Iterator[int]] = {}
    for start, queue in enumerate(queues[: topic.queues]):
        offsets[queue] = count(enqueue(tx, topic, queue, messages[start :: topic.queues]))
    return [Sent(queue, next(offsets[queue]), False) for queue in queues]


def _takes_plain(topic: Topic, types: frozenset[str]) -> bool:
    """Whether a topic takes plain messages without a check of each request."""
    limited = topic.send_messages_per_s or topic.send_bytes_per_s or topic.bytes_max
    refused = topic.is_own or not permission.allows_send(topic) or (types and types != {topic.type})
    return not limited and not refused


def _stored(messages: tuple[Outgoing, ...], places: tuple[Place | Refused, ...] | None) -> list[Outgoing]:
    """The messages that were new to the topic."""
    if places is None:
        return list(messages)
    pairs = zip(messages, places, strict=True)
    return [message for message, place in pairs if isinstance(place, Place) and not place.duplicate]
