"""Plain messages beside the generated class: the same fields, and nothing else is taken for one."""

from hypothesis import given
from hypothesis import strategies as st

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.values import plain

SHORT = st.text(max_size=30)
IDS = st.text(min_size=1, max_size=30)
TIMES = st.integers(0, (1 << 53) - 1)
BODIES = st.sampled_from((1, 127, 128, 16_383, 16_384, 300_000)).map(bytes) | st.binary(min_size=1, max_size=300)


@given(IDS, BODIES, SHORT, TIMES, SHORT)
def test_a_plain_message_is_written_as_the_generated_class_writes_it_and_read_again(
    message_id: str, body: bytes, tag: str, born_ms: int, host: str
) -> None:
    data = plain.write(message_id.encode(), body, tag, born_ms, host)
    generated = pb.Message(message_id=message_id, body=body, tag=tag, born_ms=born_ms, born_host=host)
    assert data == generated.SerializeToString(deterministic=True)
    assert plain.read(data) == (message_id.encode(), body, tag.encode(), born_ms, host.encode())


#: Each gives a message one field that a plain one does not have.
OTHERS = st.sampled_from(
    (
        pb.Message(keys=["k"]),
        pb.Message(properties={"a": "b"}),
        pb.Message(message_group="g"),
        pb.Message(deliver_at_ms=1),
        pb.Message(priority=1),
        pb.Message(transaction=True),
        pb.Message(encoding=pb.ENCODING_GZIP),
        pb.Message(trace_context=pb.TraceContext(traceparent="t")),
        pb.Message(delay_ms=1),
        pb.Message(dead_letter=pb.DeadLetter(topic="t")),
        pb.Message(lite_topic="l"),
        pb.Message(check_after_ms=1_000),
    )
)


@given(st.builds(pb.Message, message_id=SHORT, body=st.binary(max_size=200), tag=SHORT, born_ms=TIMES), OTHERS)
def test_a_message_with_any_other_field_is_not_plain(message: pb.Message, other: pb.Message) -> None:
    message.MergeFrom(other)
    assert plain.read(message.SerializeToString(deterministic=True)) is None


@given(IDS, st.binary(min_size=1, max_size=50), st.text(min_size=1, max_size=9), TIMES.filter(bool))
def test_fields_in_another_order_or_twice_are_not_plain(message_id: str, body: bytes, tag: str, born_ms: int) -> None:
    first, rest = plain.write(message_id.encode(), body), plain.write(b"", b"", tag, born_ms)[4:]
    assert plain.read(first + rest) is not None
    for damaged in (rest + first, first + rest + rest, first + first, first[2 + len(message_id.encode()) :] + rest):
        assert plain.read(damaged) is None


def test_texts_of_128_bytes_and_more_are_left_to_generated_code() -> None:
    assert plain.read(plain.write(b"i" * 128, b"body")) is None
    assert plain.read(plain.write(b"i", b"body", tag="t" * 128)) is None
    assert plain.read(plain.write(b"i", b"body", born_host="h" * 128)) is None
    assert plain.read(b"") is None
