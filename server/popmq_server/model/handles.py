"""Opaque handles of delayed messages and transactions, which a client sends back later.

    base64 of: version [1] · fields of the key · nonce [8] · check [3]

As in the handle of a delivery (message.py), the nonce is stored with the message and makes the handle unguessable. The
check distinguishes a damaged handle, which is a bug of the caller, from one whose message no longer exists, which is
normal. Each kind has a different length, so a handle is never read as one of another kind.
"""

import binascii
import os
import struct
import zlib
from typing import NamedTuple

_VERSION = 1
_CHECK_BYTES = 3


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
