"""A message that was not processed → what is stored for a further attempt, or as its dead letter, or of that again.

sent_back      for the retry topic of a group that pulls: the message, where it was, and why it came back
dead_letter    the message as its producer sent it, and why, whence and when it died
redriven       the message as its producer sent it, for one group
"""

from collections.abc import Mapping
from typing import NamedTuple

from popmq_remoting.codes import SysFlag
from popmq_remoting.messages import properties
from popmq_remoting.messages.stored import StoredMessage
from popmq_server.cluster.messages import own
from popmq_server.cluster.messages.to_broker import BrokerMessage

#: What the producer said, beside the properties of the user's and the gateways'.
_KEPT = frozenset(("UNIQ_KEY", "TAGS", "KEYS", "__SHARDINGKEY", "TRACE_CONTEXT", "__BORNHOST", "_SYS_MSG_PRIORITY_"))
_COMPRESSION = int(SysFlag.COMPRESSED) | 7 << 8


class Death(NamedTuple):
    """Where a message was, and why it is delivered no more. `topic`: as brokers call it."""

    topic: str
    queue: int
    offset: int
    attempts: int
    first_pop_ms: int
    client: str
    reason: str
    dead_ms: int


def dead_letter(stored: StoredMessage, found: Mapping[str, str], death: Death) -> BrokerMessage:
    """What is sent to the dead-letter topic of the group. `found`: the properties of the message.

    The reason is cut where the properties would have no room for it. Raises BadFormat for a message of another program
    whose properties leave none for the origin either: its broker can only move it without one (36).
    """
    kept = _of_producer(stored, found)
    kept |= {
        "DLQ_ORIGIN_TOPIC": death.topic,
        "DLQ_ORIGIN_MESSAGE_ID": kept["UNIQ_KEY"],
        own.ORIGIN_QUEUE: str(death.queue),
        own.ORIGIN_OFFSET: str(death.offset),
        own.DEAD_ATTEMPTS: str(death.attempts),
        own.FIRST_POP: str(death.first_pop_ms),
        own.DEAD_MS: str(death.dead_ms),
    }
    for name, text in ((own.CLIENT, death.client), (own.REASON, death.reason)):
        _put_what_fits(kept, name, text)
    return _message(stored, found, kept)


class Failure(NamedTuple):
    """Where a message was first, by the number of its queue, and who failed to process it. `due_ms` 0: at once."""

    queue: int
    offset: int
    first_pop_ms: int
    client: str
    reason: str
    due_ms: int


def sent_back(stored: StoredMessage, found: Mapping[str, str], failure: Failure) -> BrokerMessage:
    """What is sent to a retry topic. Raises BadFormat for a message whose properties leave no room."""
    kept = _of_producer(stored, found)
    kept |= {
        own.ORIGIN_QUEUE: str(failure.queue),
        own.ORIGIN_OFFSET: str(failure.offset),
        own.FIRST_POP: str(failure.first_pop_ms),
    }
    if failure.due_ms:
        kept["TIMER_DELIVER_MS"] = str(failure.due_ms)
    for name, text in ((own.CLIENT, failure.client), (own.REASON, failure.reason)):
        _put_what_fits(kept, name, text)
    return _message(stored, found, kept)


def redriven(stored: StoredMessage, found: Mapping[str, str], group: str) -> BrokerMessage:
    """What is sent to the topic of the message again. `group`: as PopMQ calls it. Raises BadFormat as `sent_back`."""
    return _message(stored, found, _of_producer(stored, found) | {own.REDRIVEN_FOR: group})


def _of_producer(stored: StoredMessage, found: Mapping[str, str]) -> dict[str, str]:
    """The properties of the message as its producer sent it."""
    kept = {name: value for name, value in found.items() if name in _KEPT or own.is_of_the_user(name)}
    kept |= {name: found[name] for name in (own.TRACE_STATE, own.ENCODING) if name in found}
    kept.setdefault("UNIQ_KEY", stored.offset_id)
    return kept


def _message(stored: StoredMessage, found: Mapping[str, str], kept: dict[str, str]) -> BrokerMessage:
    born_ms = own.number(found, own.BORN, stored.born_ms)
    return BrokerMessage(stored.body, kept, properties.write(kept), stored.sys_flag & _COMPRESSION, born_ms, False)


def _put_what_fits(kept: dict[str, str], name: str, text: str) -> None:
    room = own.PROPERTIES_BYTES_MAX + _ROOM - len(properties.write(kept | {name: ""}).encode())
    raw = text.replace("\x01", " ").replace("\x02", " ").encode()[: max(0, room)]
    if raw:
        kept[name] = raw.decode(errors="ignore")


#: Bytes that a dead letter may take from the room for brokers' properties: popped and retried less, it needs half.
_ROOM = 512
