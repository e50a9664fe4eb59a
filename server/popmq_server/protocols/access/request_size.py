"""How large a request may be, and of how many elements: checked before it is parsed.

A parser makes an object of each element, and an element may have two bytes: 20 MiB of these stop the event loop for
seconds.

    up to FREE_BYTES               parsed at once, in 20 ms at most
    more                           its elements are counted, until there are more than any valid request has
    more than its kind may have    refused

Counted are the fields of a request and of its parts. The fields of a message in a Send are not: a Send has at most
16 MiB of them, and a valid one may have half a million.
"""

import functools

from google.protobuf.descriptor import Descriptor
from google.protobuf.message import Message

from popmq_proto.v1.popmq_pb2 import AckRequest
from popmq_server.errors import invalid

#: A larger request is counted. An Ack of 4,096 handles of the embedded engine has less.
FREE_BYTES = 128 << 10
#: The largest valid request without messages and reasons, a Heartbeat with 4,096 topics, has half of it.
BYTES_MAX = 1 << 20
#: RedriveDeadLetters may name 4,096 offsets and 4,096 ids.
ELEMENTS_MAX = 10_000
#: Requests with up to 4,096 names of stages and topics.
_LARGER = {"CommitBatchRequest": 2 << 20, "DropStagesRequest": 2 << 20}
#: Requests with bodies or results, reasons of 4 KiB, or the stacks of a client: only the transport limits them.
_UNLIMITED = frozenset(
    (
        *("SendView", "StageView", "SettleView", "SendMessageRequest"),
        *("AckRequest", "StoreResultsRequest", "ChangeInvisibleTimeRequest", "SendBackRequest", "TelemetryCommand"),
    )
)
#: Requests whose elements are opaque bytes, which cost a tenth of an object. Below this size the elements are not
#: counted, so that a usual Send pays nothing.
_OPAQUE, _OPAQUE_FREE_BYTES = frozenset(("SendView", "StageView", "SettleView")), 2 << 20
#: The keys of the lists of an Ack, its handles and results. Each occurs at least as often as its list has entries, and
#: in no text: so a look at the bytes passes an Ack of 4,096 handles of 150 characters; their count takes 8 ms.
_HANDLES, _HANDLES_KEY = "AckRequest", bytes([AckRequest.HANDLES_FIELD_NUMBER << 3 | 2])
_RESULTS_KEY = bytes([AckRequest.RESULTS_FIELD_NUMBER << 3 | 2])
#: Bytes of a varint.
_VARINT_MAX = 10

#: Wire key of each field whose message has lists at any depth → the Parts of that message.
Parts = dict[int, "Parts"]


def check(kind: type[Message], raw: bytes, name: str = "") -> None:
    """Raises Refused for a request that is too large, or has too many elements. `kind`: its class.

    `name`: what the refusal calls it. Only for requests above FREE_BYTES: the others need no check.
    """
    descriptor = kind.DESCRIPTOR
    known, called = descriptor.name, name or descriptor.full_name
    bytes_max = _LARGER.get(known, BYTES_MAX)
    if len(raw) > bytes_max and known not in _UNLIMITED:
        raise invalid(
            f"the request has {len(raw)} bytes, at most {bytes_max} are allowed in a {called}",
            action="make it smaller, or divide it into several requests",
        )
    if known in _OPAQUE and len(raw) <= _OPAQUE_FREE_BYTES:
        return
    if known == _HANDLES and raw.count(_HANDLES_KEY) + raw.count(_RESULTS_KEY) <= ELEMENTS_MAX:
        return
    parts = _parts(descriptor)
    if parts is not None and _too_many(raw, parts):
        raise invalid(
            f"the request has more than {ELEMENTS_MAX} elements, which no valid {called} has",
            action="divide it into several requests",
        )


@functools.cache
def _parts(descriptor: Descriptor) -> Parts | None:
    """The parts of a kind of request that have lists; None if it has no list at all."""
    fields = descriptor.fields
    single = [field for field in fields if field.message_type is not None and not field.is_repeated]
    found = {field.number << 3 | 2: _parts(field.message_type) for field in single}
    parts = {key: part for key, part in found.items() if part is not None}
    return parts if parts or any(field.is_repeated for field in fields) else None


def _too_many(raw: bytes, parts: Parts) -> bool:
    try:
        return _left(raw, parts, ELEMENTS_MAX) < 0
    except IndexError:  # cut off, or no protobuf: the parser refuses it
        return False


def _left(raw: bytes, parts: Parts, left: int) -> int:
    """How many elements may follow this part, when `left` may be in it and after it; below 0: it has too many."""
    at, end = 0, len(raw)
    while at < end and left >= 0:
        left -= 1
        key, at = (raw[at], at + 1) if raw[at] < 0x80 else _varint(raw, at)
        wire = key & 7
        if wire == 2:
            if (size := raw[at]) < 0x80:
                at += 1
            elif (high := raw[at + 1]) < 0x80:
                size, at = size & 0x7F | high << 7, at + 2
            else:
                size, at = _varint(raw, at)
            if key in parts:
                left = _left(raw[at : at + size], parts[key], left)
            at += size
        elif wire == 0:
            _, at = _varint(raw, at)
        elif wire in (1, 5):
            at += 8 if wire == 1 else 4
    return left


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """(value, where it ends). Raises IndexError for one that is cut off or has no end."""
    value = 0
    for place in range(_VARINT_MAX):
        byte = raw[at + place]
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise IndexError
