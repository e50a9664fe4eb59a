"""Quotas: limits of the send and pop rates of a topic, and of the message size.

                    rate × ms            a unit is a message, or a byte
    ──────────▶ ┌──────────────┐
                │ ≤ one second │ ──▶ Send: as many as it stores · Pop: as many as it delivers, for each group
                └──────────────┘

A full bucket has the units of one second. A larger request passes when the bucket is full, and leaves a debt: this
keeps the rate, and no request is refused forever. Units are counted in thousandths on the engine's clock, so a
refusal has the exact time after which the same request passes. Buckets are in memory: they are full after a restart,
and after a change of the quota.

A Pop that finds messages, but no unit, leases nothing and returns the time of the next unit. Such Pops wait apart
from others: sends do not wake them, and the broker wakes one at that time (broker.py).
"""

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.state.tx import Tx
from popmq_server.errors import Refused, invalid
from popmq_server.values.fields import BODY, fields
from popmq_server.values.outgoing import Outgoing
from popmq_server.values.records import Group, Topic

#: Kinds of buckets; the key of a bucket is (kind, T, G or 0).
SENT_MESSAGES, SENT_BYTES, POPPED_MESSAGES = 0, 1, 2
Key = tuple[int, int, int]
#: The rate quotas of a topic: a change of one resets all its buckets to full.
RATES = ("send_messages_per_s", "send_bytes_per_s", "pop_messages_per_s")


def _level(tx: Tx, key: Key, rate: int) -> int:
    """Available units in thousandths; below zero in debt."""
    bucket = tx.state.buckets.get(key)
    if bucket is not None and bucket[1] > tx.now_ms:
        broken("quota_counted_by_now", key=key, at_ms=bucket[1], now_ms=tx.now_ms)
    return rate * 1000 if bucket is None else min(rate * 1000, bucket[0] + rate * (tx.now_ms - bucket[1]))


def _take(tx: Tx, key: Key, rate: int, count: int) -> None:
    tx.state.buckets[key] = (_level(tx, key, rate) - count * 1000, tx.now_ms)


def _wait_ms(tx: Tx, key: Key, rate: int, count: int) -> int:
    """Time until `count` units may be taken; 0 = now."""
    return max(0, -((_level(tx, key, rate) - min(count, rate) * 1000) // rate))


def check_send(tx: Tx, topic: Topic, messages: tuple[Outgoing, ...]) -> None:
    """Raises Refused RATE_LIMITED if the quota has too few units; takes none."""
    if not (topic.send_messages_per_s or topic.send_bytes_per_s):
        return
    asked = (
        (SENT_MESSAGES, topic.send_messages_per_s, len(messages), "messages"),
        (SENT_BYTES, topic.send_bytes_per_s, sum(len(message.data) for message in messages), "bytes"),
    )
    waits = [
        (_wait_ms(tx, (kind, topic.topic_id, 0), rate, count), f"{rate} {what}")
        for kind, rate, count, what in asked
        if rate
    ]
    wait_ms, taken = max(waits)
    if wait_ms:
        raise _limited(f"topic {topic.name!r} takes {taken} a second", wait_ms)


def sent(tx: Tx, topic: Topic, stored: list[Outgoing]) -> None:
    """Takes units for the messages that a Send stored."""
    if topic.send_messages_per_s and stored:
        _take(tx, (SENT_MESSAGES, topic.topic_id, 0), topic.send_messages_per_s, len(stored))
    if topic.send_bytes_per_s and stored:
        size = sum(len(message.data) for message in stored)
        _take(tx, (SENT_BYTES, topic.topic_id, 0), topic.send_bytes_per_s, size)


def too_large(topic: Topic, message: Outgoing) -> Refused | None:
    """The refusal of a message with a larger body than its topic permits, or None. Short messages need no parsing."""
    if not 0 < topic.message_bytes_max < len(message.data):
        return None
    size = 0
    for field, length, _, _ in fields(message.data):
        if field == BODY:
            size = length
    if size <= topic.message_bytes_max:
        return None
    return invalid(
        f"the body has {size} bytes, topic {topic.name!r} takes at most {topic.message_bytes_max}",
        field="body",
        action="send less, or raise the topic's quota.message_bytes",
    )


def pop_room(tx: Tx, group: Group, topic: Topic) -> int | None:
    """How many messages the quota permits the group now; None = any number."""
    rate = topic.pop_messages_per_s
    return None if not rate else max(0, _level(tx, _popped(group, topic), rate) // 1000)


def popped(tx: Tx, group: Group, topic: Topic, messages: int) -> None:
    """Takes units for the messages that a Pop delivered."""
    if topic.pop_messages_per_s and messages:
        _take(tx, _popped(group, topic), topic.pop_messages_per_s, messages)


def next_ms(tx: Tx, group: Group, topic: Topic) -> int:
    """When the quota permits the group its next message, now or later; 0 = the topic has no such quota."""
    rate = topic.pop_messages_per_s
    return tx.now_ms + _wait_ms(tx, _popped(group, topic), rate, 1) if rate else 0


def no_quota(tx: Tx, group: Group, topic: Topic) -> Refused:
    """The refusal of a Pop that finds messages, but no unit."""
    why = f"topic {topic.name!r} gives group {group.name!r} {topic.pop_messages_per_s} messages a second"
    return _limited(why, next_ms(tx, group, topic) - tx.now_ms)


def _popped(group: Group, topic: Topic) -> Key:
    return (POPPED_MESSAGES, topic.topic_id, group.group_id)


def _limited(why: str, wait_ms: int) -> Refused:
    return Refused("RATE_LIMITED", why, field="topic", action="retry after retry_after_ms", retry_after_ms=wait_ms)


def forget_group(tx: Tx, group_id: int, topic_id: int) -> None:
    """Drops the group's bucket: if it returns to the topic later it begins with a full one."""
    tx.state.buckets.pop((POPPED_MESSAGES, topic_id, group_id))


def forget_sends(tx: Tx, topic_id: int) -> None:
    """Drops the buckets of a deleted topic; those of its groups go with their subscriptions."""
    for kind in (SENT_MESSAGES, SENT_BYTES):
        tx.state.buckets.pop((kind, topic_id, 0))


def forget(tx: Tx, topic_id: int) -> None:
    """Drops the buckets of a topic, after a change of its quota: new ones are full."""
    for key in list(tx.state.buckets):
        if key[1] == topic_id:
            tx.state.buckets.pop(key)
