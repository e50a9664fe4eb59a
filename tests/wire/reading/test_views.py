"""What the broker reads and writes by hand is what the generated classes read and write."""

import random
from typing import Any

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from popmq_proto.store import store_pb2
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract.commands import (
    NewMessage,
    Popped,
    PoppedRow,
    Send,
    Sent,
)
from popmq_server.embedded.rules.delivery.deadletter import origin_bytes
from popmq_server.errors import Refused
from popmq_server.protocols.native import responses

#: Each view, and the message of the contract whose bytes it reads.
VIEWED = {"SendView": "SendRequest", "StageView": "StageRequest", "SettleView": "SettleRequest"}
NUMBERS = [0, 1, 127, 128, 16_383, 16_384, 2**31, 2**32 - 1]
LONG_NUMBERS = [*NUMBERS, 2**49, 2**63 - 1]


def shape(field: FieldDescriptor) -> tuple[str, bool, str]:
    """Name, whether repeated, and type; a message is what a view may hold as bytes."""
    kind = "bytes" if field.type == field.TYPE_MESSAGE else str(field.type)
    return field.name, field.is_repeated, "bytes" if field.type == field.TYPE_BYTES else kind


def fields(message: Descriptor) -> dict[int, tuple[str, bool, str]]:
    return {field.number: shape(field) for field in message.fields}


def test_every_view_is_compared() -> None:
    assert set(store_pb2.DESCRIPTOR.message_types_by_name) == set(VIEWED)


@pytest.mark.parametrize("view", VIEWED)
def test_a_view_has_the_numbers_and_types_of_the_contract(view: str) -> None:
    ours = fields(store_pb2.DESCRIPTOR.message_types_by_name[view])
    theirs = fields(pb.DESCRIPTOR.message_types_by_name[VIEWED[view]])
    assert ours == theirs


def row(pick: random.Random) -> PoppedRow:
    """What the engine knows of one delivery, with numbers at the borders of their encoding."""
    message = pb.Message(message_id="m" * pick.randint(0, 128), body=pick.randbytes(pick.choice([1, 127, 128, 20_000])))
    data = message.SerializeToString()
    numbers = (pick.choice(LONG_NUMBERS), pick.choice(NUMBERS), pick.choice(LONG_NUMBERS), pick.choice(NUMBERS))
    return (data, *numbers, b"h" * pick.choice([1, 28, 28, 28, 150]))


@pytest.mark.mechanism("S2.39")
def test_a_pop_answer_is_what_the_generated_class_would_write() -> None:
    pick = random.Random(3)
    rows = [row(pick) for _ in range(200)]
    answer = Popped(rows, 1_700_000_000_000, 1_700_000_060_000, 5, True, (200, True, 3, 4))
    read = pb.PopResponse.FromString(responses.popped(answer, pb.PopRequest()))
    assert len(read.deliveries) == len(rows)
    for delivery, (data, stored_ms, queue, offset, attempt, handle) in zip(read.deliveries, rows, strict=True):
        assert delivery == pb.Delivery(
            message=pb.Message.FromString(data),
            handle=handle.decode(),
            attempt=attempt,
            queue=queue,
            offset=offset,
            stored_ms=stored_ms,
        )
    assert (read.popped_ms, read.invisible_until_ms, read.rest) == (1_700_000_000_000, 1_700_000_060_000, 5)
    assert read.sealed == pb.Sealed(count=200, end=True, torn_stolen=3, torn_lost=4)
    assert read.replay


@pytest.mark.parametrize("duplicate", [False, True])
def test_a_send_answer_is_what_the_generated_class_would_write(duplicate: bool) -> None:
    ids = ["", "a", "é" * 64, "m" * 127, "m" * 128]
    refused = Refused("INVALID_FIELD", "why", field="messages[1].body", action="shorten it")
    entries: list[Any] = [NewMessage(b"", "", message_id) for message_id in ids]
    entries.insert(1, refused)
    read = pb.SendResponse.FromString(responses.sent(Send("t", tuple(entries)), Sent(2**16 - 1, 2**33, duplicate)))
    assert read.duplicate is duplicate
    assert read.results[1].error.field == "messages[1].body"
    stored = [result for result in read.results if not result.HasField("error")]
    assert [result.message_id for result in stored] == ids
    assert [(result.queue, result.offset) for result in stored] == [(2**16 - 1, 2**33 + place) for place in range(5)]


@pytest.mark.parametrize("seed", range(20))
def test_a_dead_letter_written_by_hand_is_read_by_the_generated_class(seed: int) -> None:
    pick = random.Random(seed)
    origin = pb.DeadLetter(
        topic="t" * pick.randint(1, 127),
        queue=pick.choice([0, 127, 128, 1023]),
        offset=pick.choice(LONG_NUMBERS),
        attempts=pick.choice([1, 17, 1000]),
        first_pop_ms=pick.choice(LONG_NUMBERS),
        last_client=pick.choice(["", "worker-1", "é" * 64]),
        reason=pick.choice(["", "lease expired", "x" * 4096, "\n\0"]),
        dead_ms=1_700_000_000_000,
    )
    by_hand = origin_bytes(*(getattr(origin, field.name) for field in pb.DeadLetter.DESCRIPTOR.fields))
    message = pb.Message(message_id="m", body=b"body", keys=["k"], properties={"a": "b"})
    read = pb.Message.FromString(message.SerializeToString() + by_hand)
    assert read.dead_letter == origin
    read.ClearField("dead_letter")
    assert read == message


def test_the_last_of_two_dead_letters_of_one_message_counts() -> None:
    """A dead letter that is popped from its dead-letter topic, and rejected there, tells of its second death."""
    first = origin_bytes("orders", 3, 9, 17, 1, "worker-1", "broken", 2)
    second = origin_bytes("%DLQ%billing", 0, 0, 1, 3, "", "", 4)
    read = pb.Message.FromString(pb.Message(body=b"b").SerializeToString() + first + second)
    assert read.dead_letter == pb.DeadLetter(topic="%DLQ%billing", attempts=1, first_pop_ms=3, dead_ms=4)
