"""Columns that are joined from stored bytes are what decoding each message would give, however it was written."""

from collections.abc import Collection
from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.protocols.native.columns import COLUMNS, columns, columns_of
from popmq_server.values.message import read_head, record

BODY = b"\x12\x03abc"
ID = b"\x0a\x01m"
KEYS = b"\x22\x01k\x22\x01l"

#: Messages as other programs may write them: all are valid protobuf. Stored ones have an id.
WRITTEN = {
    "in the order of the fields": ID + BODY + b"\x1a\x01t" + KEYS + b"\x2a\x06\x0a\x01a\x12\x01b\x60\x05",
    "id behind the body": BODY + ID,
    "id at the end": BODY + KEYS + ID,
    "body at the end": ID + KEYS + BODY,
    "body first of all": BODY + b"\x60\x07" + ID,
    "two bodies, of which the last holds": ID + b"\x12\x01x" + BODY,
    "two ids, of which the last holds": b"\x0a\x02no" + BODY + ID,
    "a body of two bytes' length": ID + b"\x12\xac\x02" + b"\0" * 300 + KEYS,
    "a long body": ID + b"\x12\x80\x80\x01" + b"\x12" * 16384 + b"\x60\x09",
    "the longest id and the longest body": b"\x0a\x7f"
    + b"i" * 127
    + b"\x12\x80\x80\x80\x02"
    + b"\0" * (4 << 20)
    + KEYS,
    "a body as long as a length of one byte allows": ID + b"\x12\x7f" + b"\x12" * 127 + KEYS,
    "a body as long as a length of two bytes allows": ID + b"\x12\xff\x7f" + b"\x12" * 16383 + KEYS,
    "an id of two bytes' length": b"\x0a\x80\x01" + b"i" * 128 + BODY + KEYS,
    "a message group, a priority and an encoding": ID + BODY + KEYS + b"\x32\x01g" + b"\x40\x09" + b"\x50\x04",
    "a dead letter": ID + BODY + KEYS + b"\x7a\x05\x0a\x01t\x20\x02",
    "a field that is not known": ID + BODY + b"\xf8\x07\x01" + KEYS,
}


def decoded(data: bytes, names: Collection[str]) -> pb.Columns:
    """The slow way, by the contract alone."""
    message = pb.Message.FromString(data)
    fields: dict[str, Any] = {
        "message_id": [message.message_id],
        "body": [message.body],
        "tag": [message.tag],
        "key": [*message.keys[:1]] or [""],
        "born_ms": [message.born_ms],
        "properties": [pb.Properties(entries=message.properties)],
        "dead_letter": [message.dead_letter],
        "keys": [pb.Keys(keys=message.keys)],
        "message_group": [message.message_group],
        "priority": [message.priority],
        "encoding": [message.encoding],
        "queue": [3],
        "offset": [7],
        "stored_ms": [8],
        "attempt": [1],
    }
    return pb.Columns(**{name: fields[name] for name in names})


@pytest.mark.parametrize("how", WRITTEN)
def test_columns_are_the_decoded_message_however_it_was_written(how: str) -> None:
    data = WRITTEN[how]
    for names in (COLUMNS, COLUMNS - {"body"}, {"message_id"}, {"body"}, {"tag", "key"}, {"born_ms"}, {"queue"}):
        made = pb.Columns.FromString(columns([(data, 8, 3, 7, 1)], [], names))
        assert made == decoded(data, names), names


@pytest.mark.parametrize("how", WRITTEN)
def test_a_message_that_is_read_without_its_body_has_everything_else(how: str) -> None:
    data = WRITTEN[how]
    read = read_head(memoryview(b"".join(record(9, 8, data))), 9)
    assert read is not None
    names = COLUMNS - {"body"}
    assert pb.Columns.FromString(columns([(read[1], 8, 3, 7, 1)], [], names)) == decoded(data, names)


def test_a_damaged_body_is_found_even_when_only_the_head_is_read() -> None:
    raw = bytearray(b"".join(record(9, 8, ID + BODY)))
    assert read_head(memoryview(raw), 9) == (8, ID)
    raw[-1] ^= 1
    assert read_head(memoryview(raw), 9) is None
    assert read_head(memoryview(raw[:10]), 9) is None


def test_a_request_that_names_no_columns_is_sent_none_that_its_client_may_not_know() -> None:
    assert columns_of(pb.PullRequest(format=pb.FORMAT_COLUMNS)) == COLUMNS - {
        *("dead_letter", "keys", "message_group", "priority", "encoding")
    }
    assert columns_of(pb.PullRequest(format=pb.FORMAT_COLUMNS, columns=["dead_letter"])) == {"dead_letter"}
