"""A message on its way into the store: its bytes, and the hashes by which the embedded engine finds it.

NewMessage (commands/messages.py) ──▶ loop/hashes.py ── Outgoing ──▶ log and index, or packed: delayed, half
"""

import hashlib
import struct
from collections.abc import Iterable
from typing import NamedTuple

from popmq_server.values.message import Extra


def hashes8(texts: Iterable[str]) -> list[bytes]:
    """`hash8` of each text."""
    blake2b = hashlib.blake2b
    return [blake2b(text.encode(), digest_size=8).digest() for text in texts]


def hash8(text: str) -> bytes:
    """The hash by which index blocks are sorted; also the tag hash of the consume queue."""
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


#: The eight-byte hash of a message id or key, for look-ups: of one text, and of several at once.
name_hash, name_hashes = hash8, hashes8
#: The hash of a message without a tag.
NO_TAG = bytes(8)


class Outgoing(NamedTuple):
    """A message to be stored, with its hashes.

    Sending uses only these fields: body and properties are opaque bytes in `data`.
    """

    data: bytes  # popmq.v1.Message
    tag_hash: bytes
    hashes: tuple[bytes, ...]  # of the message id and the keys, for look-ups
    message_id: str
    extra: Extra | None = None  # None for most: any queue, deliverable at once


_PACKED = struct.Struct(">8sBBIQHB")  # tag hash, hashes, flags, priority, due ms, lengths of id and message group


def pack_message(message: Outgoing) -> bytes:
    """Encodes a message that is stored outside the log (delayed, half); `unpack_message` is its inverse."""
    extra = message.extra or Extra()
    texts = message.message_id.encode(), extra.message_group.encode()
    head = _PACKED.pack(
        message.tag_hash,
        len(message.hashes),
        extra.transaction,
        extra.priority,
        extra.due_ms,
        len(texts[0]),
        len(texts[1]),
    )
    return b"".join((head, *message.hashes, *texts, message.data))


def unpack_message(raw: bytes) -> Outgoing:
    """Decodes a packed message. `delay_ms`, `check_after_ms` and `lite_topic` are not packed: callers store those they
    need.
    """
    tag, hashes, transaction, priority, due_ms, id_length, group_length = _PACKED.unpack_from(raw)
    ids = _PACKED.size + 8 * hashes
    names = tuple([raw[start : start + 8] for start in range(_PACKED.size, ids, 8)])
    group = ids + id_length
    data, extra = group + group_length, None
    if group_length or due_ms or priority or transaction:
        extra = Extra(raw[group:data].decode(), due_ms, 0, priority, bool(transaction))
    return Outgoing(raw[data:], tag, names, raw[ids:group].decode(), extra)


def packed_id_hash(raw: memoryview) -> bytes:
    """The hash of the message id of a packed message."""
    return bytes(raw[_PACKED.size : _PACKED.size + 8])


def packed_hashes(raw: memoryview) -> list[bytes]:
    """The hashes of the message id and the keys of a packed message, in this order: without a copy of the body."""
    count = _PACKED.unpack_from(raw)[1]
    return [bytes(raw[start : start + 8]) for start in range(_PACKED.size, _PACKED.size + 8 * count, 8)]


def packed_message_id(raw: memoryview) -> str:
    """The message id of a packed message, without a copy of the body: for lists."""
    _, hashes, _, _, _, id_length, _ = _PACKED.unpack_from(raw)
    start = _PACKED.size + 8 * hashes
    return bytes(raw[start : start + id_length]).decode(errors="replace")


def packed_data(raw: memoryview) -> memoryview:
    """The bytes of the message in a packed message, as a view: for previews."""
    _, hashes, _, _, _, id_length, group_length = _PACKED.unpack_from(raw)
    return raw[_PACKED.size + 8 * hashes + id_length + group_length :]


def tag_hash(tag: str) -> bytes:
    """Eight bytes for the consume queue; zeros = no tag. The filter compares the exact text."""
    return hash8(tag) if tag else NO_TAG
