"""The texts by which clients name deliveries, delayed messages and transactions later. Opaque above the engine.

    handle           base64 of: version [1] · ck_id [8] · member [2] · nonce [8] · check [2]      28 characters
    recall handle    base64 of: version [1] · fields of the key · nonce [8] · check [3]           44
    transaction id   the same                                                                     32

A handle identifies one delivery: member `member` of CheckPoint `ck_id`. It contains no time, topic or offset, so it
stays valid after renewals and restarts. The nonce is stored with the lease or message and makes the text unguessable.
The check distinguishes a damaged text, which is a bug of the caller, from one whose lease or message no longer exists,
which is normal. Each kind has a different length, so a text is never read as one of another kind.
"""

import binascii
import os
import struct
import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from popmq_server.errors import Refused, bad_handle, not_a_page

_VERSION = 1
_CHECK_BYTES = 3
_HANDLE, _HANDLE_WHOLE = struct.Struct(">BQHQ"), struct.Struct(">BQHQH")
_HANDLE_HEAD, _HANDLE_TAIL = struct.Struct(">BQ"), struct.Struct(">HQ")
_HANDLE_CHARACTERS = 28


class Handle(NamedTuple):
    """Identifies one delivery."""

    ck_id: int
    member: int
    nonce: int


class RecallHandle(NamedTuple):
    """Identifies a delayed message by its full key in `sched`, so a recall is one look-up."""

    topic_id: int
    clock: int
    due_ms: int
    number: int
    nonce: int


class TransactionId(NamedTuple):
    """Identifies a half message."""

    topic_id: int
    txn_id: int
    nonce: int


_RECALL = struct.Struct(">BIBQQQ")
_TRANSACTION = struct.Struct(">BIQQ")


def nonce() -> int:
    """Eight random bytes from the system."""
    return int.from_bytes(os.urandom(8), "big")


def recall_text(handle: RecallHandle) -> str:
    """44 characters; `read_recall` is the inverse."""
    return _text(_RECALL.pack(_VERSION, *handle))


def read_recall(text: str) -> RecallHandle | None:
    """The handle, or None for a text that `recall_text` cannot have returned."""
    fields = _read(text, _RECALL)
    return None if fields is None else RecallHandle(*fields)


def transaction_text(transaction: TransactionId) -> str:
    """32 characters; `read_transaction` is the inverse."""
    return _text(_TRANSACTION.pack(_VERSION, *transaction))


def read_transaction(text: str) -> TransactionId | None:
    """The transaction id, or None for a text that `transaction_text` cannot have returned."""
    fields = _read(text, _TRANSACTION)
    return None if fields is None else TransactionId(*fields)


def _text(raw: bytes) -> str:
    return binascii.b2a_base64(raw + _check(raw), newline=False).decode()


def _read(text: str, layout: struct.Struct) -> tuple[int, ...] | None:
    """The fields after the version, or None. Strict, so each handle has exactly one text."""
    if len(text) != (layout.size + _CHECK_BYTES) // 3 * 4:
        return None
    try:
        raw = binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        return None
    if len(raw) != layout.size + _CHECK_BYTES or raw[layout.size :] != _check(raw[: layout.size]):
        return None
    version, *fields = layout.unpack_from(raw)
    return tuple(fields) if version == _VERSION else None


def _check(raw: bytes) -> bytes:
    return (zlib.crc32(raw) & 0xFFFFFF).to_bytes(_CHECK_BYTES, "big")


def make_handle(ck_id: int, member: int, nonce: int) -> str:
    """The handle of one member; `read_handle` is its inverse."""
    raw = _HANDLE.pack(_VERSION, ck_id, member, nonce)
    return binascii.b2a_base64(raw + _short_check(raw), newline=False).decode()


def make_handles(ck_id: int, members: Iterable[int], nonce: int) -> list[bytes]:
    """The handles of members of one CheckPoint. A handle has no padding, so base64 encodes all of them at once."""
    head = _HANDLE_HEAD.pack(_VERSION, ck_id)
    crc, pack, crc32 = zlib.crc32(head), _HANDLE_TAIL.pack, zlib.crc32
    parts: list[bytes] = []
    for member in members:
        tail = pack(member, nonce)
        parts += (head, tail, (crc32(tail, crc) & 0xFFFF).to_bytes(2, "big"))
    raw = b"".join(parts)
    text = binascii.b2a_base64(raw, newline=False)
    return [text[at : at + _HANDLE_CHARACTERS] for at in range(0, len(text), _HANDLE_CHARACTERS)]


def read_handles(texts: Sequence[str]) -> list[Handle] | None:
    """Decodes all handles of a request at once; None if one of them is not valid: `read_handle` then tells which."""
    if not texts:
        return []
    try:
        raw = binascii.a2b_base64("".join(texts), strict_mode=True)
    except (binascii.Error, ValueError):
        return None
    if len(raw) != _HANDLE_WHOLE.size * len(texts) or {*map(len, texts)} != {_HANDLE_CHARACTERS}:
        return None
    handles, crc32 = [], zlib.crc32
    for at, (version, ck_id, member, nonce, check) in enumerate(_HANDLE_WHOLE.iter_unpack(raw)):
        start = at * _HANDLE_WHOLE.size
        if version != _VERSION or check != crc32(raw[start : start + _HANDLE.size]) & 0xFFFF:
            return None
        handles.append(Handle(ck_id, member, nonce))
    return handles


def read_handle(text: str, field: str = "handles") -> Handle:
    """Decodes a handle. Raises Refused INVALID_HANDLE for a text that `make_handle` cannot have returned.

    A damaged handle is a bug of the caller. A valid handle whose lease no longer exists is normal and not refused here.
    """
    if len(text) != _HANDLE_CHARACTERS:
        raise bad_handle(field, f"a handle has {_HANDLE_CHARACTERS} characters, this one has {len(text)}")
    try:
        raw = binascii.a2b_base64(text, strict_mode=True)
    except (binascii.Error, ValueError):
        raise bad_handle(field, "this is not a handle") from None
    if raw[19:] != _short_check(raw[:19]) or raw[0] != _VERSION:
        raise bad_handle(field, "this handle is damaged: its check does not match")
    _, ck_id, member, nonce = _HANDLE.unpack_from(raw)
    return Handle(ck_id, member, nonce)


def each_handle(texts: Sequence[str]) -> list[Handle | Refused]:
    """Decodes the handles of a request one by one; a text that is not one becomes its Refused."""
    found: list[Handle | Refused] = []
    for index, text in enumerate(texts):
        try:
            found.append(read_handle(text, f"handles[{index}]"))
        except Refused as refused:
            found.append(refused)
    return found


def _short_check(raw: bytes) -> bytes:
    return (zlib.crc32(raw) & 0xFFFF).to_bytes(2, "big")


def place_of(token: str, *sizes: int) -> bytes:
    """The key in a page token, at which a list continues; b"" at the beginning. `sizes`: valid sizes, empty = any.

    Raises Refused for a token that no list has returned.
    """
    try:
        key = bytes.fromhex(token)
    except ValueError:
        raise not_a_page(token) from None
    if key and sizes and len(key) not in sizes:
        raise not_a_page(token)
    return key
