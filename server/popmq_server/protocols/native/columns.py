"""FORMAT_COLUMNS: the rows of an answer as columns, joined from stored bytes.

    stored message   0a n id · 12 n body · tag, keys, properties, times …
    answer           0a n id · 12 n body · tag, key, properties, time       for each message
                     · queues, offsets, times …                             for all of them

Protobuf parsers accept the entries of a repeated field at any place, and `message_id` and `body` have the same keys in
Message and in Columns: so the first bytes of a stored message are copied into the answer unchanged. The fields after
the body are encoded once for all messages that have equal ones. A message whose fields are in another order, which no
known client writes, is decoded as a whole.
"""

from collections.abc import Collection, Sequence
from typing import Any

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract.commands import ReadRow
from popmq_server.errors import invalid, not_one_of
from popmq_server.values.message import message_parts

#: Columns that are sent only if a request names them: readers may be older than they are.
_ON_DEMAND = frozenset(("dead_letter", "keys", "message_group", "priority", "encoding"))
#: Columns that are fields of the message.
_OF_MESSAGES = _ON_DEMAND | {"message_id", "body", "tag", "key", "born_ms", "properties"}

#: All columns that can be asked for. Handles are not among them: without one a message cannot be acked.
COLUMNS = frozenset(field.name for field in pb.Columns.DESCRIPTOR.fields) - {"handle"}
#: The columns for a request that names none.
USUAL_COLUMNS = COLUMNS - _ON_DEMAND


def check_format(request: pb.PopRequest | pb.PullRequest) -> None:
    """Refuses an unknown format, and `without_body` for FORMAT_ROWS, since a row must contain its body."""
    if request.format not in (pb.FORMAT_ROWS, pb.FORMAT_COLUMNS):
        raise not_one_of("format", request.format, ("FORMAT_ROWS", "FORMAT_COLUMNS"))
    if request.without_body and request.format != pb.FORMAT_COLUMNS:
        raise invalid(
            "without_body requires FORMAT_COLUMNS", field="without_body", action="set format, or unset without_body"
        )
    if request.columns and request.format != pb.FORMAT_COLUMNS:
        raise invalid("columns requires FORMAT_COLUMNS", field="columns", action="set format, or unset columns")
    columns_of(request)


def columns_of(request: pb.PopRequest | pb.PullRequest) -> frozenset[str]:
    """The columns that a request asks for; without names, the usual ones. Raises Refused."""
    unknown = sorted(set(request.columns) - COLUMNS)
    if unknown:
        raise not_one_of("columns", repr(unknown[0][:40]), sorted(COLUMNS))
    named = frozenset(request.columns) or USUAL_COLUMNS
    return named - {"body"} if request.without_body else named


def columns(rows: Sequence[ReadRow], handles: list[str], names: Collection[str]) -> bytes:
    """A Columns with the columns of `names`; the others stay empty."""
    data, stored_ms, queue, offset, attempt = zip(*rows, strict=True) if rows else ((),) * 5
    known: dict[str, Sequence[Any]] = {"queue": queue, "offset": offset, "stored_ms": stored_ms, "attempt": attempt}
    lists = {name: values for name, values in known.items() if name in names}
    parts = [] if _OF_MESSAGES.isdisjoint(names) else _of_messages(data, names)
    parts.append(pb.Columns(**lists, handle=handles).SerializeToString())
    return b"".join(parts)


def _of_messages(data: Sequence[bytes], names: Collection[str]) -> list[bytes | memoryview]:
    """Two pieces of the answer for each message: its id and body, and the other fields that the request asks for."""
    with_id, with_body = "message_id" in names, "body" in names
    known: dict[bytes, bytes | None] = {}
    parts: list[bytes | memoryview] = []
    for message in data:
        body, end = message_parts(message)
        rest = message[end:]
        piece = known[rest] if rest in known else known.setdefault(rest, _tail(rest, names))
        if piece is None:
            parts.append(_piece(pb.Message.FromString(message), names))
        elif not with_body:
            parts += (message[:body] if with_id else b"", piece)
        elif with_id and not rest:
            parts += (message, piece)  # the whole message
        else:
            parts += (memoryview(message)[0 if with_id else body : end], piece)
    return parts


def _tail(rest: bytes, names: Collection[str]) -> bytes | None:
    """The fields after the body, encoded; None if the id or a body is among them."""
    tail = pb.Message.FromString(rest)
    if tail.message_id or tail.body:
        return None
    return _piece(tail, frozenset(names) - {"message_id", "body"})


def _piece(message: pb.Message, names: Collection[str]) -> bytes:
    """The columns of one message that are fields of it."""
    fields: dict[str, Any] = {  # arguments of Columns, of several types
        "message_id": message.message_id,
        "body": message.body,
        "tag": message.tag,
        "key": message.keys[0] if message.keys else "",
        "born_ms": message.born_ms,
        "properties": pb.Properties(entries=message.properties),
        "dead_letter": message.dead_letter,
        "keys": pb.Keys(keys=message.keys),
        "message_group": message.message_group,
        "priority": message.priority,
        "encoding": message.encoding,
    }
    return pb.Columns(**{name: [value] for name, value in fields.items() if name in names}).SerializeToString()
