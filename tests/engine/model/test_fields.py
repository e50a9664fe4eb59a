"""Stored bytes of messages, read by hand and by the generated class: both say the same."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.values import fields

texts = st.text(max_size=200)
messages = st.builds(
    pb.Message,
    message_id=texts,
    body=st.binary(max_size=300),
    tag=texts,
    keys=st.lists(texts, max_size=3),
    properties=st.dictionaries(texts, texts, max_size=4),
    message_group=texts,
    deliver_at_ms=st.integers(0, 2**63 - 1),
    priority=st.integers(0, 1023),
    transaction=st.booleans(),
    delay_ms=st.integers(0, 2**63 - 1),
    born_ms=st.integers(0, 2**63 - 1),
)


@pytest.mark.slow
@given(messages)
def test_every_field_is_read_as_the_generated_class_reads_it(message: pb.Message) -> None:
    data = message.SerializeToString()
    assert fields.text(data, fields.MESSAGE_ID) == message.message_id
    assert fields.raw(data, fields.MESSAGE_GROUP) == message.message_group.encode()
    assert fields.texts(data, fields.KEYS) == list(message.keys)
    assert fields.properties(data) == dict(message.properties)
    assert fields.integer(data, fields.DELIVER_AT_MS) == message.deliver_at_ms
    assert fields.integer(data, fields.DELAY_MS) == message.delay_ms


@pytest.mark.slow
@given(messages, messages)
def test_the_last_value_of_a_repeated_scalar_field_counts(first: pb.Message, second: pb.Message) -> None:
    data = first.SerializeToString() + second.SerializeToString()
    read = pb.Message.FromString(data)
    assert fields.text(data, fields.TAG) == read.tag
    assert fields.raw(data, fields.MESSAGE_GROUP) == read.message_group.encode()
    assert fields.properties(data) == dict(read.properties)


@pytest.mark.slow
@given(messages, st.sampled_from([fields.MESSAGE_ID, fields.PROPERTIES, fields.BODY, fields.PRIORITY]))
def test_a_field_is_taken_out_and_the_others_stay(message: pb.Message, number: int) -> None:
    left = pb.Message.FromString(fields.without(message.SerializeToString(), number))
    message.ClearField(pb.Message.DESCRIPTOR.fields_by_number[number].name)
    assert left == message


@pytest.mark.slow
@given(messages, st.floats(), st.integers(0, 2**32 - 1))
def test_fixed_widths_are_stepped_over(message: pb.Message, eight: float, four: int) -> None:
    """The contract has none today; a later one may."""
    strange = b"\xf1\x01" + bytes(8) + b"\xf5\x01" + four.to_bytes(4, "little")
    data = strange + message.SerializeToString()
    assert fields.text(data, fields.MESSAGE_ID) == message.message_id
    assert fields.raw(data, fields.MESSAGE_GROUP) == message.message_group.encode()
