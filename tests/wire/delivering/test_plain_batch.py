"""A batch of plain messages is validated field by field at once; the outcome is that of each message on its own."""

import random

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract.commands import NewMessage, Sent
from popmq_server.errors import Refused
from popmq_server.protocols import entries
from popmq_server.protocols.native import native, responses

IDS = ["a", "m-1", "x" * 127, "x" * 128, "x" * 129, "x" * 300, "é" * 10, "é" * 70, ""]
TAGS = ["", "", "red", "a" * 64, "a" * 65, "two words", "ü", "|"]
SIZES = [1, 2, 127, 128, 129, 16_383, 16_384, 0]
TIMES = [0, 1, (1 << 35) - 1, 1 << 35, 1_800_000_000_000, (1 << 42) - 1, 1 << 42, -1]
KEYS = [["key"], ["a", "b"], ["é" * 64], ["k" * 129], ["", "a"]]
PROPERTIES = [{"a": "b"}, {"a": ""}, {"é": "ü"}, {"": "b"}, {"a": "b" * 300}, {"n" * 129: "b"}, {"a": "", "b": ""}]
RARE = [{"priority": 3}, {"message_group": "g"}, {"delay_ms": 5}, {"encoding": pb.ENCODING_GZIP}, {"priority": -1}]
PLAIN = pb.Message(message_id="m-1", body=b"body")
#: A field of a later release: its bytes are never those of the usual fields, so every field is looked at.
LATER = b"\xfa\x3f\x03new"


def outcome(entry: object) -> object:
    """What matters of an entry; the place in the request is part of a refusal's field only."""
    if isinstance(entry, Refused):
        return entry.code, str(entry), entry.field.rpartition(".")[2]
    return entry


def alone(raw: bytes) -> object:
    """The outcome of one message of which every field is looked at."""
    try:
        judged = entries.new_message(raw + LATER, pb.Message.FromString(raw + LATER))
        return judged._replace(data=raw)
    except Refused as refused:
        return outcome(refused)


def sent(messages: list[pb.Message]) -> list[object]:
    whole = pb.SendRequest(topic="t", messages=messages).SerializeToString(deterministic=True)
    return [outcome(entry) for entry in native.read_send(whole).entries]


def some(chance: random.Random, wild: bool) -> pb.Message:
    """A message; a wild one may have any id, tag, size, time, and other fields."""
    if not wild:
        body = b"b" * chance.choice(SIZES[:-1])
        return pb.Message(message_id=f"m-{chance.random()}", body=body, born_ms=chance.choice([0, TIMES[4]]))
    made = pb.Message(message_id=chance.choice(IDS[:-1]), tag=chance.choice(TAGS), body=b"b" * chance.choice(SIZES))
    made.born_ms = chance.choice(TIMES)
    for fields in ([{"keys": keys} for keys in KEYS], [{"properties": each} for each in PROPERTIES], RARE):
        if chance.random() < 0.2:
            made.MergeFrom(pb.Message(**chance.choice(fields)))  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize("seed", range(80))
def test_each_message_of_a_batch_is_judged_as_if_it_came_alone(seed: int) -> None:
    chance = random.Random(seed)
    wild = chance.choice([0.0, 0.1, 1.0])
    messages = [some(chance, chance.random() < wild) for _ in range(chance.choice([1, 3, 4, 5, 40]))]
    # A map of properties has its names in any order, and in another one in each copy, unless it is asked for sorted.
    assert sent(messages) == [alone(message.SerializeToString(deterministic=True)) for message in messages]


@pytest.mark.parametrize(
    "other",
    [
        pb.Message(message_id="k", body=b"x", keys=["a", "b"]),
        pb.Message(message_id="k", body=b"x", properties={"a": "b"}),
        pb.Message(message_id="k", body=b"x", message_group="g"),
        pb.Message(message_id="k", body=b"x", priority=3),
        pb.Message(message_id="k", body=b"x", delay_ms=5_000),
        pb.Message(message_id="k", body=b"x", encoding=pb.ENCODING_GZIP),
        pb.Message(message_id="k", tag="no good", body=b"x"),
        pb.Message(message_id="k"),
        pb.Message(message_id="x" * 129, body=b"x"),
    ],
)
def test_one_message_that_is_not_plain_changes_nothing_for_the_others(other: pb.Message) -> None:
    batch = [PLAIN] * 8
    assert sent([*batch[:4], other, *batch[4:]]) == [
        *sent(batch[:4]),
        alone(other.SerializeToString()),
        *sent(batch[4:]),
    ]


def test_a_message_with_a_field_of_a_later_release_keeps_its_bytes() -> None:
    later = PLAIN.SerializeToString() + LATER
    whole = pb.SendRequest(topic="t").SerializeToString() + 5 * (b"\x12" + bytes([len(later)]) + later)
    given = native.read_send(whole).entries
    assert [entry.data for entry in given if isinstance(entry, NewMessage)] == [later] * 5


def test_a_field_is_seen_where_a_property_leaves_out_its_empty_value() -> None:
    """Encoders may: the two bytes of the priority are then as many as those of the value would be."""
    raw = PLAIN.SerializeToString() + b"\x2a\x03\x0a\x01a" + pb.Message(priority=3).SerializeToString()
    judged = entries.new_message(raw, pb.Message.FromString(raw))
    assert judged.extra is not None
    assert judged.extra.priority == 3


@pytest.mark.parametrize("first", [0, 127, 16_380])
@pytest.mark.parametrize("queue", [0, 300])
def test_the_answer_names_each_message_in_its_place(first: int, queue: int) -> None:
    messages = [PLAIN, pb.Message(), *(pb.Message(message_id="i" * n, body=b"b") for n in (1, 127, 128))]
    command = native.read_send(pb.SendRequest(topic="t", messages=messages).SerializeToString())
    results = pb.SendResponse.FromString(responses.sent(command, Sent(queue, first, False))).results
    stored = [result for result in results if not result.HasField("error")]
    assert [result.HasField("error") for result in results] == [False, True, False, False, False]
    assert [result.message_id for result in stored] == ["m-1", "i", "i" * 127, "i" * 128]
    assert [(result.queue, result.offset) for result in stored] == [(queue, first + place) for place in range(4)]
