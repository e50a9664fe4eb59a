"""Message formats: the fields of this protocol, and the fields of popmq.v1.Message that store them.

    topic, body, tag, keys, message_id, message_group, born_host, lite_topic, priority     the same
    user_properties             properties
    body_encoding GZIP          encoding GZIP, or ZLIB when its bytes begin like zlib's: both are GZIP here
    born_timestamp              born_ms
    delivery_timestamp          deliver_at_ms
    trace_context               trace_context.traceparent, unchecked
    orphaned_transaction…       check_after_ms
    message_type                follows from the others: `kind_of`

Checks have the order of the reference, so that a message with two faults gets the same code. Limits that only PopMQ
has (the number of keys) are checked after them, by the rules of popmq.v1. As in the reference, one tag, key or property
name has no limit of its own, only all of them have.

A body is never unpacked. Encodings without a name in this protocol (ZSTD, LZ4) are reported in the user property
`popmq-encoding`.
"""

import functools
import hashlib
import re
from typing import NamedTuple

from google.protobuf.timestamp_pb2 import Timestamp

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.v1 import popmq_pb2 as native
from popmq_server.contract.commands import NewMessage, PoppedRow
from popmq_server.protocols import entries
from popmq_server.protocols.rocketmq.status import Declined
from popmq_server.values import plain
from popmq_server.values.message import (
    BODY_BYTES_MAX,
    BORN_HOST_BYTES_MAX,
    MESSAGE_ID_BYTES_MAX,
    TAG_BYTES_MAX,
    TIME_MS_MAX,
    varint,
)
from popmq_server.values.plain import Plain, head

#: Limits of the reference that are tighter than PopMQ's.
PROPERTIES_MAX = 128
PROPERTIES_BYTES_MAX = 16 << 10
MESSAGE_GROUP_BYTES_MAX = 63
CHECK_AFTER_S_MAX = 3_600
ENCODING_PROPERTY = "popmq-encoding"

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_LITE_TOPIC = re.compile(r"[a-zA-Z0-9_-]{1,64}\Z")
#: Property names that the reference uses itself: there, a user's property would be taken for the system's.
_RESERVED_PROPERTY = re.compile(
    r"(TRACE_ON|MSG_REGION|KEYS|TAGS|WAIT|DELAY|RETRY_TOPIC|REAL_TOPIC|REAL_QID|TRAN_MSG|PGROUP|MIN_OFFSET|"
    r"MAX_OFFSET|BUYER_ID|ORIGIN_MESSAGE_ID|TRANSFER_FLAG|CORRECTION_FLAG|MQ2_FLAG|RECONSUME_TIME|UNIQ_KEY|"
    r"MAX_RECONSUME_TIMES|CONSUME_START_TIME|POP_CK|POP_CK_OFFSET|1ST_POP_TIME|TRAN_PREPARED_QUEUE_OFFSET|"
    r"DUP_INFO|EXTEND_UNIQ_INFO|INSTANCE_ID|CORRELATION_ID|REPLY_TO_CLIENT|TTL|ARRIVE_TIME|PUSH_REPLY_TIME|"
    r"CLUSTER|MSG_TYPE|INNER_MULTI_QUEUE_OFFSET|TIMER_DELAY_MS|TIMER_DELAY_SEC|TIMER_DELIVER_MS|TIMER_ENQUEUE_MS|"
    r"TIMER_DEQUEUE_MS|TIMER_ROLL_TIMES|TIMER_OUT_MS|TIMER_DEL_UNIQKEY|TIMER_DELAY_LEVEL|__BORNHOST|"
    r"BORN_TIMESTAMP|DLQ_ORIGIN_TOPIC|DLQ_ORIGIN_MESSAGE_ID|__CRC32#)\Z"
)
_ENCODINGS = {native.ENCODING_GZIP: pb.GZIP, native.ENCODING_ZLIB: pb.GZIP}
_TYPES = {
    pb.NORMAL: "NORMAL",
    pb.FIFO: "FIFO",
    pb.DELAY: "DELAY",
    pb.TRANSACTION: "TRANSACTION",
    pb.LITE: "LITE",
    pb.PRIORITY: "PRIORITY",
}
TYPE_NUMBERS = {name: number for number, name in _TYPES.items()}


class DeliveredRow(NamedTuple):
    """A message as the engine delivers it; without a lease `handle` is ""."""

    data: bytes
    stored_ms: int
    queue: int
    offset: int
    attempt: int
    handle: str = ""


def new_message(message: pb.Message) -> tuple[NewMessage, str]:
    """Validates a message; returns it as it is stored, and the type of topic that it needs.

    Raises Declined, in the order of the reference's checks.
    """
    return _plain(message) or (_checked(message), kind_of(message))


def _plain(message: pb.Message) -> tuple[NewMessage, str] | None:
    """`new_message` for a message that has only an id, a tag, a body and an origin, as most have; None for any other,
    and for one that the checks may refuse: this costs a quarter of the way through all checks.
    """
    system, body = message.system_properties, message.body
    tag, message_id, host, has = system.tag, system.message_id, system.born_host, system.HasField
    if (
        message.user_properties
        or system.keys
        or system.message_type == pb.TRANSACTION
        or has("delivery_timestamp")
        or has("priority")
        or has("message_group")
        or has("trace_context")
        or has("lite_topic")
        or has("orphaned_transaction_recovery_duration")
        or system.body_encoding == pb.GZIP
        or not 0 < len(body) <= BODY_BYTES_MAX
        or not (message_id.strip() and message_id.isascii() and len(message_id) <= MESSAGE_ID_BYTES_MAX)
        or 4 * len(host) > BORN_HOST_BYTES_MAX  # a character has up to four bytes
        or 4 * len(tag) > TAG_BYTES_MAX
    ):
        return None
    if tag:
        _check_words(system)
        entries.check_tag(tag)
    born_ms, name = time_ms(system.born_timestamp), message_id.encode()
    raw = plain.write(name, body, tag, born_ms, host)
    return NewMessage(raw, tag, message_id, (), None, Plain(name, body, tag.encode(), born_ms, host.encode())), "NORMAL"


def _checked(message: pb.Message) -> NewMessage:
    """Checks a message; returns it as it is stored. Raises Declined."""
    system = message.system_properties
    _check_body(message.body)
    _check_words(system)
    if system.orphaned_transaction_recovery_duration.ToMilliseconds() > CHECK_AFTER_S_MAX * 1000:
        raise Declined(pb.BAD_REQUEST, "orphaned_transaction_recovery_duration is over 1 h")
    _check_properties(message)
    if not system.message_id.strip():
        raise Declined(pb.ILLEGAL_MESSAGE_ID, "message_id is blank: clients make one for each message")
    stored = _stored(message)
    return entries.new_message(stored.SerializeToString(), stored, word_bytes_max=PROPERTIES_BYTES_MAX)


def kind_of(message: pb.Message) -> str:
    """The type of topic that a message needs, derived from its fields as in the reference."""
    system = message.system_properties
    if system.message_type == pb.TRANSACTION:
        return "TRANSACTION"
    if system.HasField("delivery_timestamp"):
        return "DELAY"
    if system.message_group:
        return "FIFO"
    if system.HasField("priority"):
        return "PRIORITY"
    return "LITE" if system.lite_topic else "NORMAL"


def time_ms(time: Timestamp) -> int:
    """A client's timestamp in ms, clamped to the valid range: protobuf's own conversion raises for times outside it."""
    ms = time.seconds * 1000 + time.nanos // 1_000_000
    return ms if 0 <= ms <= TIME_MS_MAX else min(max(0, ms), TIME_MS_MAX)


def _check_body(body: bytes) -> None:
    if not body:
        raise Declined(pb.MESSAGE_BODY_EMPTY, "the body is empty")
    if len(body) > BODY_BYTES_MAX:
        raise Declined(
            pb.MESSAGE_BODY_TOO_LARGE, f"the body has {len(body)} bytes, at most {BODY_BYTES_MAX} are allowed"
        )


def _check_words(system: pb.SystemProperties) -> None:
    """Checks tag, keys, message group and lite topic."""
    tag = system.tag
    if tag and (not tag.strip() or "|" in tag or _CONTROL.search(tag)):
        raise Declined(pb.ILLEGAL_MESSAGE_TAG, f"the tag {tag[:40]!r} is blank, or has a | or a control character")
    for key in system.keys:
        if not key.strip() or _CONTROL.search(key):
            raise Declined(pb.ILLEGAL_MESSAGE_KEY, f"the key {key[:40]!r} is blank or has a control character")
    group = system.message_group
    if group and (not group.strip() or len(group.encode()) > MESSAGE_GROUP_BYTES_MAX or _CONTROL.search(group)):
        raise Declined(
            pb.ILLEGAL_MESSAGE_GROUP,
            f"the message group {group[:40]!r} is blank, too long or has control characters",
        )
    if system.HasField("lite_topic") and not _LITE_TOPIC.match(system.lite_topic):
        raise Declined(
            pb.ILLEGAL_LITE_TOPIC,
            f"the lite topic {system.lite_topic[:40]!r} is invalid: at most 64 letters, digits, '-' and '_'",
        )


def _check_properties(message: pb.Message) -> None:
    system, properties = message.system_properties, message.user_properties
    if len(properties) > PROPERTIES_MAX:
        raise Declined(
            pb.MESSAGE_PROPERTIES_TOO_LARGE, f"{len(properties)} properties, at most {PROPERTIES_MAX} are allowed"
        )
    total = len(system.tag.encode()) + sum(len(key.encode()) for key in system.keys)
    for name, value in properties.items():
        if _RESERVED_PROPERTY.match(name):
            raise Declined(pb.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the property {name} is reserved")
        if not name or _CONTROL.search(name) or _CONTROL.search(value):
            raise Declined(
                pb.ILLEGAL_MESSAGE_PROPERTY_KEY, f"the property {name[:40]!r} is empty or has a control character"
            )
        total += len(name.encode()) + len(value.encode())
    if total > PROPERTIES_BYTES_MAX:
        raise Declined(
            pb.MESSAGE_PROPERTIES_TOO_LARGE,
            f"the properties, tag and keys have {total} bytes, at most {PROPERTIES_BYTES_MAX} are allowed",
        )


def _stored(message: pb.Message) -> native.Message:
    """The message as a popmq.v1.Message; empty fields stay unset, so that equal messages have equal bytes."""
    system = message.system_properties
    stored = native.Message(
        message_id=system.message_id,
        body=message.body,
        tag=system.tag,
        keys=system.keys,
        properties=dict(message.user_properties),
        message_group=system.message_group,
        priority=system.priority,
        transaction=system.message_type == pb.TRANSACTION,
        born_ms=time_ms(system.born_timestamp),
        born_host=system.born_host,
        lite_topic=system.lite_topic,
    )
    if system.body_encoding == pb.GZIP:
        stored.encoding = native.ENCODING_ZLIB if message.body[:1] == b"\x78" else native.ENCODING_GZIP
    if system.HasField("delivery_timestamp"):
        stored.deliver_at_ms = max(1, time_ms(system.delivery_timestamp))
    if system.trace_context:
        stored.trace_context.traceparent = system.trace_context
    if stored.transaction and (after_ms := system.orphaned_transaction_recovery_duration.ToMilliseconds()):
        stored.check_after_ms = max(1_000, after_ms)
    return stored


def response(row: PoppedRow, handle: bytes, topic: bytes, topic_type: str) -> bytes | None:
    """A ReceiveMessageResponse with a plain message, encoded by hand from its stored bytes; None for any other message.

    It has what `delivered` gives such a message, at a quarter of the cost. `handle` is length_prefixed, `topic` is the
    field of the topic, as an encoded Message has it.

    Message: 1 topic · 3 system_properties · 4 body. SystemProperties: 1 tag · 3 message_id · 4 body_digest ·
    5 body_encoding · 6 message_type · 7 born_timestamp · 8 born_host · 9 store_timestamp · 12 receipt_handle ·
    13 queue_id · 14 queue_offset · 16 delivery_attempt.
    """
    data, stored_ms, queue, offset, attempt, _ = row
    stored = None if topic_type == "PRIORITY" else plain.read(data)
    if stored is None:
        return None
    name, body, tag, born_ms, host = stored
    digest = hashlib.md5(body, usedforsecurity=False).hexdigest().upper().encode()
    system = b"".join(
        (
            head(b"\x0a", len(tag)) + tag if tag else b"",
            head(b"\x1a", len(name)),
            name,
            _DIGEST,
            digest,
            _PLAIN,
            _timestamp(b"\x3a", min(born_ms or stored_ms, TIME_MS_MAX)),
            head(b"\x42", len(host)) + host if host else b"",
            _timestamp(b"\x4a", stored_ms),
            b"\x62",
            handle,
            head(b"\x68", queue) if queue else b"",
            b"\x70",
            varint(offset),
            head(b"\x80\x01", attempt),
        )
    )
    system_head, body_head = head(b"\x1a", len(system)), head(b"\x22", len(body))
    size = len(topic) + len(system_head) + len(system) + len(body_head) + len(body)
    return b"".join((head(b"\x12", size), topic, system_head, system, body_head, body))


#: The key and length of body_digest, its type MD5, and the key and length of its 32 characters; IDENTITY and NORMAL.
_DIGEST, _PLAIN = b"\x22\x24\x08" + bytes((pb.MD5,)) + b"\x12\x20", bytes((0x28, pb.IDENTITY, 0x30, pb.NORMAL))


@functools.lru_cache(maxsize=4096)
def _timestamp(field: bytes, time_ms: int) -> bytes:
    """A field with a Timestamp: 1 seconds · 2 nanos."""
    seconds, ms = divmod(time_ms, 1000)
    raw = (b"\x08" + varint(seconds) if seconds else b"") + (b"\x10" + varint(ms * 1_000_000) if ms else b"")
    return field + bytes((len(raw),)) + raw


def delivered(row: DeliveredRow, topic: pb.Resource, topic_type: str) -> pb.Message:
    """A stored message in this protocol's format. `topic_type`: the type of the topic that it was read from."""
    stored = native.Message.FromString(row.data)
    system = pb.SystemProperties(
        keys=stored.keys,
        message_id=stored.message_id,
        body_digest=pb.Digest(
            type=pb.MD5, checksum=hashlib.md5(stored.body, usedforsecurity=False).hexdigest().upper()
        ),
        body_encoding=_ENCODINGS.get(stored.encoding, pb.IDENTITY),
        message_type=_type_of(stored, topic_type),
        born_host=stored.born_host,
        queue_id=row.queue,
        queue_offset=row.offset,
        delivery_attempt=row.attempt,
    )
    system.born_timestamp.FromMilliseconds(min(stored.born_ms or row.stored_ms, TIME_MS_MAX))
    system.store_timestamp.FromMilliseconds(row.stored_ms)
    if row.handle:
        system.receipt_handle = row.handle
    _add_rare(system, stored)
    message = pb.Message(
        topic=topic, user_properties=dict(stored.properties), system_properties=system, body=stored.body
    )
    if stored.encoding not in (native.ENCODING_UNSPECIFIED, *_ENCODINGS):
        message.user_properties[ENCODING_PROPERTY] = native.Encoding.Name(stored.encoding).removeprefix("ENCODING_")
    return message


def _add_rare(system: pb.SystemProperties, stored: native.Message) -> None:
    """Sets the fields whose presence has a meaning."""
    if stored.tag:
        system.tag = stored.tag
    if stored.message_group:
        system.message_group = stored.message_group
    if stored.lite_topic:
        system.lite_topic = stored.lite_topic
    if system.message_type == pb.PRIORITY:
        system.priority = stored.priority
    if stored.deliver_at_ms:
        system.delivery_timestamp.FromMilliseconds(min(stored.deliver_at_ms, TIME_MS_MAX))
    elif stored.delay_ms:
        system.delivery_timestamp.FromMilliseconds(system.store_timestamp.ToMilliseconds())  # visible since then
    if stored.trace_context.traceparent:
        system.trace_context = stored.trace_context.traceparent
    if stored.HasField("dead_letter"):
        system.dead_letter_queue.topic = stored.dead_letter.topic
        system.dead_letter_queue.message_id = stored.message_id


def _type_of(stored: native.Message, topic_type: str) -> pb.MessageType:
    if stored.transaction:
        return pb.TRANSACTION
    if stored.lite_topic:
        return pb.LITE
    if stored.deliver_at_ms or stored.delay_ms:
        return pb.DELAY
    if stored.message_group:
        return pb.FIFO
    return pb.PRIORITY if topic_type == "PRIORITY" or stored.priority else pb.NORMAL
