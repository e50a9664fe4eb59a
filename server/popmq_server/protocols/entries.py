"""The messages of a Send, Stage or Settle → what is stored: validates every limit of a message that needs no state.

a batch of plain messages   checked field by field, all at once: an id, a body, perhaps a tag, a time, and nothing else
any other                   each message on its own; an invalid one becomes its entry's refusal
"""

import functools
import hashlib
import os
from collections.abc import Collection, Sequence
from typing import cast

from google.protobuf.message import DecodeError

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract.commands import NewMessage
from popmq_server.errors import Refused, invalid, not_one_of
from popmq_server.values.filters import tag as tags
from popmq_server.values.message import (
    BODY_BYTES_MAX,
    BORN_HOST_BYTES_MAX,
    CHECK_AFTER_MS_MAX,
    CHECK_AFTER_MS_MIN,
    KEY_BYTES_MAX,
    KEYS_MAX,
    LITE_TOPIC_BYTES_MAX,
    MESSAGE_GROUP_BYTES_MAX,
    MESSAGE_ID_BYTES_MAX,
    PRIORITY_MAX,
    PROPERTIES_BYTES_MAX,
    PROPERTIES_MAX,
    TAG_BYTES_MAX,
    TIME_MS_MAX,
    TTL_MS_MAX,
    Extra,
    check_range,
    check_text,
)

#: The largest relative delay.
DELAY_MS_MAX = 100 * 365 * 86_400_000
_ENCODING_MAX = max(pb.Encoding.values())
#: Bytes of a plain message beside its id and its body, if both are short.
_HEADS = 4
#: Bytes of `born_ms`, of any time between 1971 and 2109.
_BORN_BYTES, _BORN_MS_MIN, _BORN_MS_END = 7, 1 << 35, 1 << 42
#: Fewer messages are validated one by one: it costs less.
_BATCH_MIN = 4
#: What has `messages`.
Kind = type[pb.SendRequest] | type[pb.StageRequest] | type[pb.SettleSend]
_TRACEPARENT_BYTES_MAX, _TRACESTATE_BYTES_MAX = 512, 512


def validated(
    kind: Kind, whole: bytes, raws: Sequence[bytes], origin: str, number: int
) -> tuple[NewMessage | Refused, ...]:
    """Each message validated, or why it is refused. `origin`, `number`: see `_made_id`."""
    messages = _messages(kind, whole, raws)
    if len(raws) >= _BATCH_MIN and (plain := _plain(raws, messages)) is not None:
        return plain
    entries: list[NewMessage | Refused] = []
    for index, (raw, message) in enumerate(zip(raws, messages, strict=True)):
        try:
            entries.append(new_message(raw, message, (origin, number, index)))
        except Refused as refused:
            refused.field = f"messages[{index}].{refused.field}" if refused.field else f"messages[{index}]"
            entries.append(refused)
    return tuple(entries)


def _plain(raws: Sequence[bytes], messages: Sequence[pb.Message | None]) -> tuple[NewMessage, ...] | None:
    """Validates a batch at once, field by field, if all its messages are plain: an id, a body, perhaps a tag, a time.

    None if one of them is not, or is invalid: each is then validated on its own.
    """
    given = cast(list[pb.Message], list(messages))
    if not all(given):
        return None
    ids = [message.message_id for message in given]
    tags = [message.tag for message in given]
    sizes = [len(message.body) for message in given]
    # If the lengths of these fields add up to the length of the message, no other field is set. None of them may be
    # empty: the bytes of an absent field's head could then be those of another field. Longer ids have longer heads.
    lengths = zip(sizes, map(len, ids), strict=True)
    known = [_HEADS + (size >= 128) + (size >= 16384) + size + name for size, name in lengths]
    if any(tags):
        known = [size + (len(tag) + 2 if tag else 0) for size, tag in zip(known, tags, strict=True)]
    born = [message.born_ms for message in given]
    if all(_BORN_MS_MIN <= ms < _BORN_MS_END for ms in {*born}):
        known = [size + _BORN_BYTES for size in known]
    if known != [*map(len, raws)] or not all(ids) or not all(sizes) or max(sizes) > BODY_BYTES_MAX:
        return None
    try:
        for tag in {*tags} if any(tags) else ():
            check_tag(tag)
    except Refused:
        return None
    return tuple(map(NewMessage, raws, tags, ids))


def _messages(kind: Kind, whole: bytes, raws: Sequence[bytes]) -> Sequence[pb.Message | None]:
    """Decodes the messages of a request: all at once is six times faster than one by one (0.06 µs each, measured)."""
    try:
        return kind.FromString(whole).messages
    except DecodeError:
        return [_message(raw) for raw in raws]


def _message(raw: bytes) -> pb.Message | None:
    """Decodes one message; None for malformed bytes, so that the other messages of the request are still processed."""
    try:
        return pb.Message.FromString(raw)
    except DecodeError:
        return None


def new_message(
    raw: bytes, message: pb.Message | None, origin: tuple[str, int, int] = ("", 0, 0), word_bytes_max: int = 0
) -> NewMessage:
    """Validates a message: keeps its bytes, and reads the fields that an engine needs. `origin`: see `_made_id`.

    `word_bytes_max`: of the tag, a key or a property name, instead of the limits of popmq.v1. A generated id is
    appended as one more field: in protobuf that is the same message with the id set.
    """
    if message is None:
        raise invalid("the bytes are not a popmq.v1.Message", field="", action="encode it with stubs of the contract")
    message_id, tag = message.message_id, message.tag
    size = len(message.body)
    if not 0 < size <= BODY_BYTES_MAX:
        raise invalid(f"the body has {size} bytes, it must have 1–{BODY_BYTES_MAX}", field="body")
    # Most messages have an id, a tag, a body and a time: if these explain the whole length, no other field is set.
    known = 2 + (size >= 128) + (size >= 16384) + size
    known += (len(message_id) + 2 if message_id else 0) + (len(tag) + 2 if tag else 0)
    known += _BORN_BYTES if _BORN_MS_MIN <= message.born_ms < _BORN_MS_END else 0
    extra = _check_rare(message, len(raw) - known, word_bytes_max or KEY_BYTES_MAX) if len(raw) != known else None
    if not message_id:
        message_id = _made_id(message.body, *origin)
        raw += b"\x0a\x20" + message_id.encode()
    cached = not word_bytes_max or 4 * len(tag) <= TAG_BYTES_MAX  # a character has at most four bytes
    check_tag(tag) if cached else _check_tag(tag, word_bytes_max)
    return NewMessage(raw, tag, message_id, tuple(message.keys[:]) if len(message.keys) else (), extra)


def _made_id(body: bytes, producer_id: str, request_number: int, place: int) -> str:
    """32 hex digits: random, or derived from a numbered request, so that a repeat of the request gets the same id."""
    if not producer_id:
        return os.urandom(16).hex()
    made = hashlib.blake2b(f"{producer_id} {request_number} {place} ".encode(), digest_size=16)
    made.update(body)
    return made.hexdigest()


@functools.lru_cache(maxsize=4096)
def check_tag(tag: str) -> None:
    """Raises Refused for an invalid tag. Tags are few, so each valid one is checked once.

    Exceptions are not cached: an invalid tag is checked again.
    """
    _check_tag(tag, TAG_BYTES_MAX)


def _check_tag(tag: str, bytes_max: int) -> None:
    """Checks a tag without the cache, which long tags would fill. Raises Refused."""
    check_text(tag, "tag", bytes_max)
    if why := tags.fault(tag):
        raise invalid(f"the tag {tag!r} {why}", field="tag", action="tags are single words")


def _check_keys(keys: Collection[str], bytes_max: int) -> int:
    """At most KEYS_MAX keys of 1–`bytes_max` bytes. Returns how many bytes of the message are keys, not too many."""
    if len(keys) > KEYS_MAX:
        raise invalid(f"{len(keys)} keys, at most {KEYS_MAX} are allowed", field="keys")
    for index, key in enumerate(keys):
        check_text(key, f"keys[{index}]", bytes_max, required=True)
    return sum(map(len, keys)) + 2 * len(keys)


def _check_properties(message: pb.Message, name_bytes_max: int) -> int:
    """At most PROPERTIES_MAX properties of PROPERTIES_BYTES_MAX in all; names have the limits of keys.

    Returns how many bytes of the message are properties, not too many.
    """
    if len(message.properties) > PROPERTIES_MAX:
        raise invalid(f"{len(message.properties)} properties, at most {PROPERTIES_MAX} are allowed", field="properties")
    total = empty = 0
    for name in message.properties:  # `items` takes twice as long
        value, size = message.properties[name], len(name.encode())
        if not 0 < size <= name_bytes_max:
            raise invalid(
                f"the name of a property has {size} bytes, it must have 1–{name_bytes_max}",
                field="properties",
                action="shorten it" if size else "name every property",
            )
        total += size + len(value.encode())
        empty += not value
    if total > PROPERTIES_BYTES_MAX:
        raise invalid(
            f"the properties have {total} bytes, at most {PROPERTIES_BYTES_MAX} are allowed", field="properties"
        )
    return total + 6 * len(message.properties) - 2 * empty


def _check_rare(message: pb.Message, size: int, word_bytes_max: int) -> Extra | None:
    """Validates the fields that most messages leave unset; returns those that need another path than a plain send.

    `size`: bytes of these fields. Once keys and properties explain them, no other field is set.
    """
    check_text(message.message_id, "message_id", MESSAGE_ID_BYTES_MAX)
    if len(message.keys):
        size -= _check_keys(message.keys[:], word_bytes_max)
    if size and len(message.properties):
        size -= _check_properties(message, word_bytes_max)
    if not size:
        return None
    _check_origin(message)
    return _extra(message)


def _extra(message: pb.Message) -> Extra | None:
    """Validates the fields that only some types of topics allow; the engine compares them with the topic."""
    check_text(message.message_group, "message_group", MESSAGE_GROUP_BYTES_MAX)
    check_range(message.deliver_at_ms, "deliver_at_ms", 0, TIME_MS_MAX)
    check_range(message.delay_ms, "delay_ms", 0, DELAY_MS_MAX)
    check_range(message.priority, "priority", 0, PRIORITY_MAX)
    if message.deliver_at_ms and message.delay_ms:
        raise invalid("deliver_at_ms and delay_ms are both set", field="delay_ms", action="set one of them")
    check_range(message.check_after_ms, "check_after_ms", CHECK_AFTER_MS_MIN, CHECK_AFTER_MS_MAX, 0)
    if message.check_after_ms and not message.transaction:
        raise invalid(
            "only half messages are asked about", field="check_after_ms", action="set transaction, or unset it"
        )
    extra = Extra(
        message.message_group,
        message.deliver_at_ms,
        message.delay_ms,
        message.priority,
        message.transaction,
        message.check_after_ms,
        message.lite_topic,
        check_range(message.ttl_ms, "ttl_ms", 0, TTL_MS_MAX),
    )
    return extra if any(extra) else None


def _check_origin(message: pb.Message) -> None:
    """Validates the message's origin fields, and refuses those that only the broker sets."""
    if message.HasField("dead_letter"):
        raise invalid("dead_letter is set by the broker", field="dead_letter", action="leave it unset")
    if message.HasField("trace_context"):
        check_text(message.trace_context.traceparent, "trace_context.traceparent", _TRACEPARENT_BYTES_MAX)
        check_text(message.trace_context.tracestate, "trace_context.tracestate", _TRACESTATE_BYTES_MAX)
    if not 0 <= message.encoding <= _ENCODING_MAX:
        raise not_one_of("encoding", message.encoding, pb.Encoding.keys())
    check_text(message.born_host, "born_host", BORN_HOST_BYTES_MAX)
    check_text(message.lite_topic, "lite_topic", LITE_TOPIC_BYTES_MAX)
    if message.born_ms < 0:
        raise invalid("born_ms is negative", field="born_ms")
