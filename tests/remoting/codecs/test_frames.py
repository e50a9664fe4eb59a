"""Frames and headers: what is written is read, in any pieces, and damage is a typed refusal."""

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popmq_remoting.errors import BadFormat, BrokerRefused
from popmq_remoting.wire import frames
from popmq_remoting.wire.command import Command, Response, request
from popmq_remoting.wire.frames import ANSWER_BYTES_MAX, FRAME_BYTES_MAX, CommandReader
from tests.remoting.writers import binary_header, frame

shorts, ints = st.integers(-(1 << 15), (1 << 15) - 1), st.integers(-(1 << 31), (1 << 31) - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
fields = st.dictionaries(texts, texts, max_size=5)


def read(data: bytes) -> list[Command]:
    return list(CommandReader().feed(data))


def test_a_request_is_written_as_the_format_says() -> None:
    raw = frames.write(200050, 7, 0, {"topic": "t", "order": "true"}, b"body")
    total, word = struct.unpack_from(">II", raw)
    assert total == len(raw) - 4
    assert word >> 24 == 0
    assert json.loads(raw[8 : 8 + word]) == {
        "code": 200050,
        "language": "PYTHON",
        "version": 479,
        "opaque": 7,
        "flag": 0,
        "extFields": {"topic": "t", "order": "true"},
    }
    assert raw[8 + word :] == b"body"


@given(ints, ints, st.integers(0, 3), fields, st.binary(max_size=50), texts)
def test_a_command_is_read_as_it_was_written(
    code: int, opaque: int, flag: int, extra: dict[str, str], body: bytes, remark: str
) -> None:
    (command,) = read(frames.write(code, opaque, flag, extra, body, remark))
    assert command == Command(code, opaque, flag, remark, extra, body, version=479)


@given(shorts, ints, st.integers(0, 3), fields.filter(lambda found: "" not in found), st.binary(max_size=50), texts)
def test_a_binary_header_is_read_as_it_was_written(
    code: int, opaque: int, flag: int, extra: dict[str, str], body: bytes, remark: str
) -> None:
    (command,) = read(frame(1, binary_header(code, opaque, flag, remark, extra), body))
    assert command == Command(code, opaque, flag, remark, extra, body, version=479)


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=6), st.lists(st.integers(1, 60), max_size=12))
def test_frames_are_found_in_pieces_of_any_size(bodies: list[bytes], sizes: list[int]) -> None:
    data = b"".join(frames.write(1, number, 0, {}, body) for number, body in enumerate(bodies))
    reader, at = CommandReader(), 0
    found: list[Command] = []
    for size in [*sizes, len(data)]:
        found += reader.feed(data[at : at + size])
        at += size
    assert [command.body for command in found] == bodies
    assert not reader.waits


@given(st.binary(max_size=200))
def test_any_bytes_are_commands_or_a_typed_refusal(data: bytes) -> None:
    try:
        read(data)
    except BadFormat:
        return


@given(st.integers(0, 1), st.binary(max_size=80))
def test_any_header_is_a_command_or_a_typed_refusal(encoding: int, header: bytes) -> None:
    try:
        read(frame(encoding, header))
    except BadFormat:
        return


def test_commands_before_the_damage_are_handed_over() -> None:
    reader = CommandReader()
    found = reader.feed(frames.write(1, 5, 1, {}, b"") + frame(0, b"no json"))
    assert next(found).opaque == 5
    with pytest.raises(BadFormat):
        next(found)


@pytest.mark.parametrize(
    ("total", "header"),
    [(261 << 20, 10), (ANSWER_BYTES_MAX - 3, 10), (3, 0), (10, 7), (0xFFFFFFFF, 1)],
)
def test_a_frame_that_is_too_large_or_shorter_than_its_header_is_refused_at_its_first_bytes(
    total: int, header: int
) -> None:
    with pytest.raises(BadFormat):
        read(struct.pack(">II", total, header))


def test_the_largest_frame_that_brokers_accept_is_written_and_a_larger_one_refused() -> None:
    overhead = len(frames.write(1, 1, 0, {}, b""))
    assert len(frames.write(1, 1, 0, {}, bytes(FRAME_BYTES_MAX - overhead))) == FRAME_BYTES_MAX
    with pytest.raises(BadFormat):
        frames.write(1, 1, 0, {}, bytes(FRAME_BYTES_MAX - overhead + 1))


@pytest.mark.parametrize(
    "header",
    [
        b"[1]",
        b'{"code":"7"}',
        b'{"code":true}',
        b'{"opaque":4294967296}',
        b'{"extFields":[]}',
        b'{"extFields":{"a":{}}}',
        b'{"remark":7}',
        b"[" * 10_000,
        b'{"code":' + b"9" * 5_000 + b"}",
    ],
)
def test_a_header_of_another_form_is_refused(header: bytes) -> None:
    with pytest.raises(BadFormat):
        read(frame(0, header))


def test_numbers_and_truths_among_the_fields_are_read_as_text_and_nulls_left_out() -> None:
    (command,) = read(frame(0, b'{"code":0,"flag":1,"remark":null,"extFields":{"a":1,"b":true,"c":null},"unknown":[]}'))
    assert command.fields == {"a": "1", "b": "true"}
    assert command.remark == ""
    assert command.is_answer


def test_values_of_a_request_travel_as_text() -> None:
    asked = request(11, b"x", queueId=-1, order=True, subscription="*", commitOffset=None)
    assert asked.fields == {"queueId": "-1", "order": "true", "subscription": "*"}


def test_a_field_that_is_missing_or_no_number_is_a_typed_refusal() -> None:
    answer = Response(0, fields={"n": "12", "bad": "1x", "long": "9" * 30})
    assert answer.number("n") == 12
    assert answer.number("none", 5) == 5
    for name in ("none", "bad", "long"):
        with pytest.raises(BadFormat):
            answer.number(name)


def test_a_code_that_was_not_expected_is_raised_with_its_remark() -> None:
    assert Response(10).expect(0, 10).code == 10
    with pytest.raises(BrokerRefused, match="17: no topic") as caught:
        Response(17, "no topic").expect()
    assert (caught.value.code, caught.value.maybe_done) == (17, False)
