"""Pop, as the contract says it: how much, from where, in which form, and what a repeated one answers."""

from typing import Any

import grpc
import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_proto.v1 import popmq_pb2_grpc as rpc
from popmq_server.clock import FakeClock
from popmq_server.embedded_broker import EmbeddedBroker
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, handles


def numbers(count: int, start: int = 0) -> list[bytes]:
    return [str(number).encode() for number in range(start, start + count)]


def test_an_empty_answer_is_not_an_error(either_shop: Stubs, clock: FakeClock) -> None:
    answer = either_shop.pop()
    assert answer == pb.PopResponse(popped_ms=clock.now_ms())


@pytest.mark.slow
def test_a_pop_takes_32_messages_by_default_and_up_to_4096_when_asked(shop: Stubs) -> None:
    shop.send(*numbers(4096))
    shop.send(*numbers(100, 4096))
    assert len(shop.pop().deliveries) == 32
    assert len(shop.pop(max_messages=1).deliveries) == 1
    answer = shop.pop(max_messages=4096, max_bytes=16 << 20)
    assert len(answer.deliveries) == 4096
    assert answer.rest == 4196 - 32 - 1 - 4096


@pytest.mark.embedded("a count of bytes in an answer")
@pytest.mark.slow
def test_an_answer_has_three_mebibytes_unless_asked_for_more(shop: Stubs) -> None:
    message = pb.Message(body=b"x" * (1 << 20))
    shop.broker.Send(pb.SendRequest(topic=TOPIC, messages=[message] * 12), timeout=CALL_S)
    assert len(shop.pop().deliveries) == 2, "the third does not fit, with its id and its frame"
    assert len(shop.pop(max_bytes=16 << 20).deliveries) == 10


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 100, 800, 5_000, 1_000_000])
def test_an_answer_of_default_size_is_taken_by_stubs_with_their_default_limit(
    shop: Stubs, broker: EmbeddedBroker, size: int
) -> None:
    messages = [pb.Message(body=b"x" * size, message_id="m" * 128)] * min(4096, (15 << 20) // (size + 200))
    shop.broker.Send(pb.SendRequest(topic=TOPIC, messages=messages), timeout=CALL_S)
    with grpc.insecure_channel(broker.endpoint) as channel:
        stock: Any = rpc.BrokerStub(channel)
        answer = stock.Pop(pb.PopRequest(topic=TOPIC, group=GROUP, max_messages=4096), timeout=CALL_S)
    assert answer.deliveries


COLUMNS = ("message_id", "body", "tag", "key", "queue", "offset", "born_ms", "stored_ms", "attempt", "properties")


def as_columns(deliveries: Any) -> dict[str, list[Any]]:
    """What the columns of these rows must be."""
    rows = []
    for delivery in deliveries:
        message = delivery.message
        key = message.keys[0] if message.keys else ""
        place = (delivery.queue, delivery.offset, message.born_ms, delivery.stored_ms, delivery.attempt)
        rows.append((message.message_id, message.body, message.tag, key, *place, dict(message.properties)))
    return {name: [row[place] for row in rows] for place, name in enumerate(COLUMNS)}


def read_columns(columns: pb.Columns) -> dict[str, list[Any]]:
    found = {name: list(getattr(columns, name)) for name in COLUMNS}
    return found | {"properties": [dict(entry.entries) for entry in columns.properties]}


@pytest.mark.mechanism("S1.44")
def test_an_answer_tells_times_and_rest_and_of_each_message_where_it_stood_and_its_attempt(
    stubs: Stubs, clock: FakeClock
) -> None:
    stubs.create_topic(queues=2)
    stubs.create_group()
    stubs.send(b"a", b"b", b"c")  # one request goes to one queue, the next one to the next
    stored_ms = clock.now_ms()
    stubs.send(b"d")
    clock.advance(7)
    first = stubs.pop(max_messages=2, invisible_ms=5_000, queues=[0])
    assert (first.popped_ms, first.invisible_until_ms, first.rest) == (stored_ms + 7, stored_ms + 5_007, 1)
    assert [(one.queue, one.offset, one.attempt, one.stored_ms) for one in first.deliveries] == [
        (0, 0, 1, stored_ms),
        (0, 1, 1, stored_ms),
    ]
    clock.advance(5_000)
    again = {one.message.body: (one.queue, one.offset, one.attempt) for one in stubs.pop().deliveries}
    assert again == {b"a": (0, 0, 2), b"b": (0, 1, 2), b"c": (0, 2, 1), b"d": (1, 0, 1)}


@pytest.mark.mechanism("S1.54")
def test_columns_are_the_rows_field_by_field(either_shop: Stubs) -> None:
    either_shop.create_group("columns")
    messages = [
        pb.Message(body=b"all", message_id="m", tag="t", keys=["k", "l"], properties={"a": "b", "c": ""}, born_ms=5),
        pb.Message(body=b"\0" * 300),
        pb.Message(body="é".encode(), message_id="é", tag="é", properties={"é": "é"}),
    ]
    either_shop.broker.Send(pb.SendRequest(topic=TOPIC, messages=messages), timeout=CALL_S)
    rows, columns = either_shop.pop(), either_shop.pop(group="columns", format=pb.FORMAT_COLUMNS)
    assert not columns.deliveries
    assert read_columns(columns.columns) == as_columns(rows.deliveries)
    assert (columns.popped_ms, columns.rest) == (rows.popped_ms, rows.rest)
    assert either_shop.ack(*columns.columns.handle, group="columns") == [""] * 3


@pytest.mark.slow
def test_a_token_gives_columns_without_handles(shop: Stubs) -> None:
    shop.send(*numbers(3))
    generation = shop.attach().generation
    token = pb.Token(owner="query", generation=generation, epoch=1)
    columns = shop.pop(token=token, format=pb.FORMAT_COLUMNS)
    rows = shop.pop(token=token)
    assert read_columns(columns.columns) == as_columns(rows.deliveries)
    assert list(columns.columns.handle) == []
    assert [len(delivery.handle) for delivery in rows.deliveries] == [28] * 3


def test_an_empty_answer_in_columns_has_columns_of_no_length(either_shop: Stubs) -> None:
    answer = either_shop.pop(format=pb.FORMAT_COLUMNS)
    assert answer.HasField("columns")
    assert answer.columns == pb.Columns()


# ── attempt_id ───────────────────────────────────────────────────────────────────────────────────────────────────────


def attempt(stubs: Stubs, attempt_id: str = "try-1", client_id: str = "worker-1", **fields: Any) -> pb.PopResponse:
    return stubs.pop(attempt_id=attempt_id, client_id=client_id, **{"max_messages": 3, **fields})


@pytest.mark.slow
def test_a_repeated_attempt_may_ask_for_columns(shop: Stubs) -> None:
    shop.send(*numbers(3))
    rows, columns = attempt(shop), attempt(shop, format=pb.FORMAT_COLUMNS)
    assert columns.replay
    assert read_columns(columns.columns) == as_columns(rows.deliveries)
    assert list(columns.columns.handle) == handles(rows)
