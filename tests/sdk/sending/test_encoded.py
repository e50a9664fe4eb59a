"""Messages that are encoded from columns: what arrives, and that sends treat them as they treat others."""

import asyncio
from typing import Any

import pytest

import popmq
from popmq import EncodedMessages, errors
from popmq.testing import Broker
from tests.sdk.calling.lossy import LOSE, LossyWire
from tests.sdk.conftest import GROUP, QUICK, TOPIC, Connect

COLUMNS: dict[str, Any] = {
    "message_id": ["m-1", "m-2", "m-3"],
    "key": ["k", None, "é" * 60],
    "tag": ["", "red", None],
    "properties": [{"a": "b", "c": ""}, None, [("ü", "x" * 300)]],
}
BODIES: list[popmq.message.Body] = [b"one", "zwei ü", bytearray(b"x" * 20_000)]


async def test_columns_arrive_as_the_messages_that_they_stand_for(client: Any) -> None:
    await client.send(TOPIC, EncodedMessages.of_columns(BODIES, **COLUMNS))
    found = sorted(await client.pop(TOPIC, GROUP, max_messages=10), key=lambda delivery: delivery.message_id)
    assert [delivery.body for delivery in found] == [b"one", "zwei ü".encode(), b"x" * 20_000]
    assert [delivery.key for delivery in found] == ["k", "", "é" * 60]
    assert [delivery.tag for delivery in found] == ["", "red", ""]
    assert [delivery.properties for delivery in found] == [{"a": "b", "c": ""}, {}, {"ü": "x" * 300}]
    assert all(delivery.born_ms > 1_600_000_000_000 for delivery in found)


async def test_ids_are_made_where_none_is_given(client: Any) -> None:
    messages = EncodedMessages.of_columns([b"x"] * 3, message_id=["mine", "", None])
    made = [row.message_id for row in messages.rows()]
    assert made[0] == "mine"
    assert len({*made} | {""}) == 4
    assert [receipt.message_id for receipt in await client.send(TOPIC, messages)] == made


def test_a_forked_child_makes_other_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    parent = EncodedMessages.of_columns([b"x"]).rows()[0].message_id
    monkeypatch.setattr("popmq._runtime.forks.count", 1_000)
    child = EncodedMessages.of_columns([b"x"]).rows()[0].message_id
    assert parent.partition("-")[0] != child.partition("-")[0]


async def test_encoded_and_other_messages_share_requests_and_each_caller_gets_its_receipts(client: Any) -> None:
    def given(caller: int) -> Any:
        ids = [f"{caller}-{place}" for place in range(3)]
        if caller % 2:
            return EncodedMessages.of_columns([b"x"] * 3, message_id=ids)
        return [popmq.Message(b"x", message_id=name) for name in ids]

    answers = await asyncio.gather(*[client.send(TOPIC, given(caller)) for caller in range(40)])
    for caller, receipts in enumerate(answers):
        assert [receipt.message_id for receipt in receipts] == [f"{caller}-{place}" for place in range(3)]
    assert client.client_stats().send_requests < 40


async def test_fifo_topics_keep_the_order_of_encoded_messages(client: Any) -> None:
    await client.topics.create("ledger", type="FIFO")
    sent = [f"{number}" for number in range(20)]
    await client.send("ledger", EncodedMessages.of_columns(sent, message_group=["g"] * 20))
    found = await client.pop("ledger", GROUP, max_messages=20)
    assert [delivery.text() for delivery in found] == sent


async def test_a_refused_encoded_message_has_its_place(client: Any) -> None:
    with pytest.raises(errors.PartlyRefused) as refused:
        await client.send(TOPIC, EncodedMessages.of_columns([b"good", b"", b"good too"]))
    assert list(refused.value.errors) == [1]
    staged = await client.sinks.stage(
        TOPIC, EncodedMessages.of_columns([b"", b"b"]), sink="job", batch=1, stage_id="attempt"
    )
    assert [type(result) for result in staged] == [errors.InvalidField, type(None)]


@pytest.mark.parametrize("count", [0, 5000])
async def test_encoded_messages_are_cut_into_requests(client: Any, count: int) -> None:
    receipts = await client.send(TOPIC, EncodedMessages.of_columns([b"x"] * count))
    assert len(receipts) == count
    assert client.client_stats().send_requests == -(-count // 4096)


async def test_an_encoded_request_whose_answer_was_lost_is_repeated_as_it_was(
    popmq_broker: Broker, connect: Connect
) -> None:
    with LossyWire(popmq_broker.endpoint) as wire:
        client = connect(wire.endpoint, retry=QUICK)
        await client.topics.create(TOPIC)
        wire.plan["Send"] = [LOSE]
        receipts = await client.send(TOPIC, EncodedMessages.of_columns([b"a", b"b"]))
        assert [receipt.offset for receipt in receipts] == [0, 1]
        first, second = wire.seen["Send"]
        assert first == second


@pytest.mark.parametrize("transport", ["python", "grpcio"])
def test_both_transports_carry_them(popmq_broker: Broker, transport: str) -> None:
    client = popmq_broker.client(transport=transport)
    client.topics.create(TOPIC)
    receipts = client.send(TOPIC, EncodedMessages.of_columns([b"a", b"b"]))
    assert [receipt.offset for receipt in receipts] == [0, 1]


def test_encoded_messages_are_cut_and_joined_like_lists() -> None:
    rows = EncodedMessages.of_columns([b"a", b"b", b"c"], message_group=["g", "h", ""])
    again = EncodedMessages.joined([rows[1:], rows.take([0])])
    assert [again.body(place) for place in range(3)] == [b"b", b"c", b"a"]
    assert (len(again), sorted(again.message_groups)) == (3, ["g", "h"])
    of = EncodedMessages.of([popmq.Message(b"a", message_group="g"), "text"])
    assert ([row.body for row in of.rows()], [*of.message_groups]) == ([b"a", b"text"], ["g"])


@pytest.mark.parametrize(
    ("columns", "error", "text"),
    [
        ({"body": [b"a", 5]}, TypeError, r"body\[1\] is of type int"),
        ({"body": [b"a", "b"], "key": ["k"]}, ValueError, "the column key has 1 values, body has 2"),
        ({"body": [b"a", "b"], "tag": ["", 7]}, TypeError, r"tag\[1\] is 7, of type int: give a str"),
        ({"body": [b"a"], "key": ["\ud800"]}, ValueError, r"key\[0\] is '\\ud800'"),
        ({"body": [b"a"], "properties": [{"n": None}]}, TypeError, r"properties\[0\]\['n'\] is None"),
        ({"body": [b"a", b"x" * ((4 << 20) + 1)]}, errors.InvalidField, "4194305 bytes"),
    ],
)
def test_wrong_values_are_named(columns: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        EncodedMessages.of_columns(columns.pop("body"), **columns)


def test_numbers_of_fields_are_those_of_the_contract() -> None:
    row = EncodedMessages.of_columns([b"b"], message_id=["i"], key=["k"], tag=["t"], message_group=["g"]).rows()[0]
    assert (row.message_id, row.body, list(row.keys), row.tag, row.message_group) == ("i", b"b", ["k"], "t", "g")
