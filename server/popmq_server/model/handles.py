"""Opaque texts for things that a client must name later: a delayed message, a transaction.

    base64 of: version [1] · what names the thing · nonce [8] · check [3]

Like the handle of a delivery (message.py): the nonce is stored with the thing and makes the text unguessable, the check
tells a damaged text, which is a bug of its caller, from one whose thing is gone, which is everyday life. The number of
letters differs with what is named, so no text passes for one of another kind.
"""

import binascii
import os
import struct
import zlib
from typing import NamedTuple

_VERSION = 1
_CHECK_BYTES = 3


class RecallHandle(NamedTuple):
    """Names one delayed message: all of its key in `sched`, so that a recall is one look-up."""

    topic_id: int
    clock: int
    due_ms: int
    number: int
    nonce: int


class TransactionId(NamedTuple):
    """Names one half message."""

    topic_id: int
    txn_id: int
    nonce: int


_RECALL = struct.Struct(">BIBQQQ")
_TRANSACTION = struct.Struct(">BIQQ")


def nonce() -> int:
    """Eight bytes that nobody can guess."""
    return int.from_bytes(os.urandom(8), "big")


def recall_text(handle: RecallHandle) -> str:
    """44 letters; `read_recall` is the inverse."""
    return _text(_RECALL.pack(_VERSION, *handle))


def read_recall(text: str) -> RecallHandle | None:
    """None for what `recall_text` cannot have made."""
    fields = _read(text, _RECALL)
    return None if fields is None else RecallHandle(*fields)


def transaction_text(transaction: TransactionId) -> str:
    """32 letters; `read_transaction` is the inverse."""
    return _text(_TRANSACTION.pack(_VERSION, *transaction))


def read_transaction(text: str) -> TransactionId | None:
    """None for what `transaction_text` cannot have made."""
    fields = _read(text, _TRANSACTION)
    return None if fields is None else TransactionId(*fields)


def _text(raw: bytes) -> str:
    return binascii.b2a_base64(raw + _check(raw), newline=False).decode()


def _read(text: str, layout: struct.Struct) -> tuple[int, ...] | None:
    """The fields after the version, or None. Strict, so that one thing has one text."""
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
