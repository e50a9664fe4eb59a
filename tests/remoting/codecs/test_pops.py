"""Handles of popped messages, what a pop's answer says about them, and acks of many."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popmq_remoting.errors import BadFormat
from popmq_remoting.pops import acks, handles, infos
from popmq_remoting.pops.acks import PopAck
from popmq_remoting.pops.handles import PopHandle
from popmq_remoting.requests import popping
from popmq_remoting.wire.command import Response
from tests.remoting.writers import stored_message

longs = st.integers(0, (1 << 63) - 1)
kinds = st.sampled_from("012")
brokers = st.text("abc-_.019", min_size=1, max_size=20)
handle_values = st.builds(
    PopHandle, longs, longs, longs, st.integers(0, 999), kinds, brokers, st.integers(0, 64), longs
)
HANDLE = PopHandle(100, 5_000, 60_000, 3, "0", "broker-a", 2, 104)


@given(handle_values)
def test_a_handle_is_read_as_it_was_written(handle: PopHandle) -> None:
    assert handles.read(handle.text()) == handle


def test_a_handle_is_eight_words_and_the_proxys_ninth_is_left_out() -> None:
    assert HANDLE.text() == "100 5000 60000 3 0 broker-a 2 104"
    assert handles.read(HANDLE.text() + " 777") == HANDLE
    assert HANDLE.lapses_ms == 65_000


@given(st.text(max_size=60) | st.text("0123 ab-", max_size=60))
def test_any_text_is_a_handle_or_a_typed_refusal(text: str) -> None:
    try:
        handles.read(text)
    except BadFormat:
        return


@pytest.mark.parametrize(
    "text", ["", "1 2 3 4 0 b 6", "1 2 3 4 3 b 6 7", "x 2 3 4 0 b 6 7", "1 2 3 4 0  6 7", "1 2 3 4 0 b 6 7 8 9"]
)
def test_what_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(BadFormat):
        handles.read(text)


@pytest.mark.parametrize(("kind", "topic"), [("0", "t"), ("1", "%RETRY%g_t"), ("2", "%RETRY%g+t")])
def test_an_ack_names_the_topic_that_the_message_really_came_from(kind: str, topic: str) -> None:
    request = popping.ack("t", "g", HANDLE._replace(kind=kind))
    assert request.fields["topic"] == topic
    assert request.fields["offset"] == "104"


def test_a_renewal_of_a_normal_delivery_makes_another_handle_and_of_an_ordered_one_none() -> None:
    answer = Response(0, fields={"popTime": "9000", "invisibleTime": "30000", "reviveQid": "5"})
    assert popping.changed(answer, HANDLE) == PopHandle(104, 9_000, 30_000, 5, "0", "broker-a", 2, 104)
    ordered = HANDLE._replace(revive_queue=999)
    assert popping.changed(answer, ordered) == ordered


def test_a_renewal_that_is_answered_without_numbers_came_too_late() -> None:
    assert popping.changed(Response(0), HANDLE._replace(revive_queue=999)) is None


def answer_of(body: bytes, **fields: str) -> Response:
    return Response(
        0, "", {"popTime": "5000", "invisibleTime": "60000", "reviveQid": "3", "restNum": "9"} | fields, body
    )


def test_messages_get_their_handles_from_the_answer_by_kind_and_queue() -> None:
    body = b"".join(
        (
            stored_message("t", queue_id=0, queue_offset=7),
            stored_message("t", queue_id=1, queue_offset=4),
            stored_message("t", queue_id=0, queue_offset=9),
        )
    )
    answer = answer_of(body, startOffsetInfo="0 0 7;0 1 4", msgOffsetInfo="0 0 7,9;0 1 4")
    rows, pop_ms, rest, _ = popping.popped(answer, "broker-a")
    assert [row.handle.text() for row in rows] == [
        "7 5000 60000 3 0 broker-a 0 7",
        "4 5000 60000 3 0 broker-a 1 4",
        "7 5000 60000 3 0 broker-a 0 9",
    ]
    assert [row.attempt for row in rows] == [1, 1, 1]
    assert (pop_ms, rest) == (5_000, 9)


def test_a_retried_message_brings_its_handle_with_it() -> None:
    raw = stored_message("t", properties=b"POP_CK\x0112 5000 60000 3 2 broker-a 0 12\x02", reconsume_times=2)
    (row,) = popping.popped(answer_of(raw, startOffsetInfo="2 0 12", msgOffsetInfo="2 0 12"), "broker-a").rows
    assert row.handle.topic("t", "g") == "%RETRY%g+t"
    assert row.attempt == 3


def test_attempts_of_ordered_messages_are_counted_by_the_broker_for_each_message_or_queue() -> None:
    body = stored_message("t", queue_offset=12) + stored_message("t", queue_offset=13)
    answer = answer_of(
        body, reviveQid="999", startOffsetInfo="0 0 12", msgOffsetInfo="0 0 12,13", orderCountInfo="0 qo0%12 3;0 0 1"
    )
    assert [row.attempt for row in popping.popped(answer, "b").rows] == [4, 2]


def test_a_pop_that_was_made_too_long_ago_by_the_brokers_clock_is_told_from_an_empty_one() -> None:
    said = Response(210, "the broker[10.0.0.1] pop message is timeout too much")
    assert popping.popped(said, "b").is_too_old


@pytest.mark.parametrize("code", [19, 210])
def test_a_pop_without_messages_has_none_whatever_its_header_says(code: int) -> None:
    assert popping.popped(Response(code), "b") == popping.PopOutcome([], 0, 0)


@pytest.mark.parametrize(
    ("starts", "offsets"),
    [("", ""), ("0 0 7", "0 0 "), ("0 0 7", "0 1 7"), ("0 0 7;0 0 8", "0 0 7"), ("0 0", "0 0 7"), ("0 0 x", "0 0 7")],
)
def test_an_answer_that_does_not_say_where_a_message_is_is_refused(starts: str, offsets: str) -> None:
    answer = answer_of(stored_message("t", queue_offset=7), startOffsetInfo=starts, msgOffsetInfo=offsets)
    with pytest.raises(BadFormat):
        popping.popped(answer, "b")


def acked(entry: dict[str, str | int]) -> set[int]:
    """The offsets of a batch ack's entry, read as Java reads a bit set."""
    raw = base64.b64decode(str(entry["b"]))
    return {int(entry["so"]) + bit for bit in range(8 * len(raw)) if raw[bit // 8] >> bit % 8 & 1}


def test_many_acks_are_bits_behind_the_start_of_their_check_point() -> None:
    many = [
        PopAck("t", "g", HANDLE),
        PopAck("t", "g", HANDLE._replace(queue_offset=100)),
        PopAck("t", "g", HANDLE._replace(pop_ms=6_000)),
    ]
    found = json.loads(acks.batch_body("broker-a", many))
    assert found["brokerName"] == "broker-a"
    first, second = found["acks"]
    assert first == {
        "c": "g",
        "t": "t",
        "r": "0",
        "so": 100,
        "q": 2,
        "rq": 3,
        "pt": 5_000,
        "it": 60_000,
        "b": base64.b64encode(b"\x11").decode(),
    }
    assert second["pt"] == 6_000


@given(st.sets(st.integers(0, 4_095), min_size=1, max_size=40))
def test_each_acked_offset_is_in_the_body_and_no_other(distances: set[int]) -> None:
    many = [PopAck("t", "g", HANDLE._replace(queue_offset=100 + distance)) for distance in distances]
    (entry,) = json.loads(acks.batch_body("broker-a", many))["acks"]
    assert acked(entry) == {100 + distance for distance in distances}


@pytest.mark.parametrize(
    "forged",
    [HANDLE._replace(queue_offset=99), HANDLE._replace(queue_offset=100 + (1 << 40)), HANDLE._replace(broker="b")],
)
def test_a_handle_that_no_broker_gave_makes_no_large_body(forged: PopHandle) -> None:
    with pytest.raises(BadFormat):
        acks.batch_body("broker-a", [PopAck("t", "g", forged)])


@given(st.text("0123456789 ;,qo%", max_size=60))
def test_any_info_is_read_or_a_typed_refusal(text: str) -> None:
    for read in (infos.read_starts, infos.read_offsets):
        try:
            read(text)
        except BadFormat:
            continue
