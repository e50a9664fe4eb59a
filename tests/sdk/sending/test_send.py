"""Sends: receipts, order, gathering, and refusals that hurt nobody else."""

import asyncio
from typing import Any

import pytest

import popmq
from popmq import errors
from popmq.testing import Broker
from tests.sdk.conftest import GROUP, TOPIC


async def bodies(client: Any) -> list[bytes]:
    found: list[bytes] = []
    while popped := await client.pop(TOPIC, GROUP, max_messages=4096, max_bytes=16 << 20):
        found += [delivery.body for delivery in popped]
    return found


async def test_one_message_has_one_receipt(client: Any) -> None:
    receipt = await client.send(TOPIC, popmq.Message("text", message_id="m1"))
    assert receipt == popmq.SendReceipt("m1", receipt.queue, 0)


async def test_many_messages_of_one_send_keep_their_order_in_one_queue(client: Any) -> None:
    receipts = await client.send(TOPIC, [b"a", "b", popmq.Message(b"c")])
    assert [receipt.offset for receipt in receipts] == [0, 1, 2]
    assert len({receipt.queue for receipt in receipts}) == 1
    assert len({receipt.message_id for receipt in receipts}) == 3
    assert await bodies(client) == [b"a", b"b", b"c"]


async def test_everything_that_a_message_carries_arrives(client: Any) -> None:
    trace = popmq.TraceContext("00-" + "a" * 32 + "-" + "b" * 16 + "-01", "vendor=1")
    message = popmq.Message.json(
        {"flight": "AA1"},
        key="AA1",
        more_keys=("JFK", "LAX"),
        tag="AA",
        properties={"origin": "JFK"},
        encoding="ZSTD",
        trace_context=trace,
        born_ms=1_600_000_000_000,
    )
    await client.send(TOPIC, message)
    (delivery,) = await client.pop(TOPIC, GROUP)
    assert delivery.json() == {"flight": "AA1"}
    assert (delivery.key, delivery.more_keys, delivery.tag) == ("AA1", ("JFK", "LAX"), "AA")
    assert delivery.properties == {"origin": "JFK"}
    assert (delivery.encoding, delivery.trace_context, delivery.born_ms) == ("ZSTD", trace, 1_600_000_000_000)
    assert (delivery.topic, delivery.group, delivery.attempt) == (TOPIC, GROUP, 1)


async def test_sending_an_empty_list_returns_no_receipts(client: Any) -> None:
    assert await client.send(TOPIC, []) == []


async def test_a_caller_alone_sends_one_request_each(client: Any) -> None:
    for _ in range(5):
        await client.send(TOPIC, b"alone")
    stats = client.client_stats()
    assert (stats.sent, stats.send_requests) == (5, 5)


async def test_sends_that_meet_are_gathered_into_few_requests(client: Any) -> None:
    receipts = await asyncio.gather(*[client.send(TOPIC, b"%d" % number) for number in range(100)])
    stats = client.client_stats()
    assert stats.sent == 100
    assert stats.send_requests <= 25
    assert len({(receipt.queue, receipt.offset) for receipt in receipts}) == 100
    assert sorted(await bodies(client)) == sorted(b"%d" % number for number in range(100))


async def test_each_caller_gets_the_receipts_of_its_own_messages(client: Any) -> None:
    sizes = [1, 7, 3, 1, 5] * 4
    answers = await asyncio.gather(
        *[
            client.send(TOPIC, [popmq.Message(b"x", message_id=f"{caller}-{index}") for index in range(size)])
            for caller, size in enumerate(sizes)
        ]
    )
    for caller, (size, receipts) in enumerate(zip(sizes, answers, strict=True)):
        assert [receipt.message_id for receipt in receipts] == [f"{caller}-{index}" for index in range(size)]


async def test_topics_are_gathered_apart(client: Any) -> None:
    await client.topics.create("other")
    await asyncio.gather(*[client.send(topic, b"x") for topic in (TOPIC, "other") for _ in range(20)])
    stats = await client.broker.stats()
    stored = {topic.topic: topic.messages for topic in stats.topics if topic.messages}
    assert stored == {TOPIC: 20, "other": 20}


async def test_a_refused_message_affects_neither_its_batch_nor_other_callers_of_the_request(client: Any) -> None:
    with pytest.raises(errors.PartlyRefused) as refused:
        await client.send(TOPIC, [b"good", b"", b"good too"])
    first, second, third = refused.value.results
    assert isinstance(first, popmq.SendReceipt)
    assert isinstance(third, popmq.SendReceipt)
    assert isinstance(second, errors.InvalidField)
    assert list(refused.value.errors) == [1]
    outcomes = await asyncio.gather(*[client.send(TOPIC, body) for body in (b"", b"a", b"b")], return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [errors.InvalidField, popmq.SendReceipt, popmq.SendReceipt]
    assert sorted(await bodies(client)) == [b"a", b"b", b"good", b"good too"]


async def test_a_body_over_the_limit_is_refused_before_it_is_sent(client: Any) -> None:
    with pytest.raises(errors.InvalidField, match="4194305 bytes") as refused:
        await client.send(TOPIC, [b"ok", b"x" * (4 * 1024 * 1024 + 1)])
    assert refused.value.field == "messages[1].body"
    assert await bodies(client) == []


async def test_an_unknown_topic_is_refused_with_its_name_and_the_cure(client: Any) -> None:
    with pytest.raises(errors.TopicNotFound, match="nowhere") as refused:
        await client.send("nowhere", b"x")
    assert (refused.value.code, refused.value.retryable) == ("TOPIC_NOT_FOUND", False)
    assert "topic create" in refused.value.action


@pytest.mark.slow
async def test_a_list_longer_than_a_request_may_be_is_cut(client: Any) -> None:
    receipts = await client.send(TOPIC, [b"%d" % number for number in range(5000)])
    assert len(receipts) == 5000
    assert client.client_stats().send_requests == 2
    assert len(await bodies(client)) == 5000


@pytest.mark.slow
async def test_a_list_heavier_than_a_request_may_be_is_cut(client: Any) -> None:
    receipts = await client.send(TOPIC, [b"x" * 4_000_000] * 5)
    assert len(receipts) == 5
    assert client.client_stats().send_requests == 2


async def test_an_encoding_that_does_not_exist_is_refused(client: Any) -> None:
    with pytest.raises(errors.InvalidField, match="ROT13"):
        await client.send(TOPIC, popmq.Message(b"x", encoding="ROT13"))


@pytest.mark.parametrize("value", [{"order": 1}, 5, None, 1.5, True, object()], ids=lambda value: type(value).__name__)
async def test_sending_another_type_is_a_type_error_that_says_what_to_write(client: Any, value: Any) -> None:
    for given in (value, [b"first", value]):
        with pytest.raises(TypeError, match=rf"{type(value).__name__}: give str or bytes, or popmq\.Message\.json"):
            await client.send(TOPIC, given)
    with pytest.raises(TypeError, match=r"Message\.json"):
        popmq.Message(value)
    assert await bodies(client) == []


@pytest.mark.slow
async def test_an_object_is_sent_as_json_and_read_as_json(client: Any) -> None:
    for value in ({"order": 1, "to": "Jürgen"}, [1, 2, 3], 5, None):
        await client.send(TOPIC, popmq.Message.json(value, key="k"))
        (delivery,) = await client.pop(TOPIC, GROUP)
        assert (delivery.json(), delivery.key) == (value, "k")


async def test_every_kind_of_bytes_is_one_message(client: Any) -> None:
    for body in (b"body", bytearray(b"body"), memoryview(b"body")):
        assert isinstance(await client.send(TOPIC, body), popmq.SendReceipt)
    assert await bodies(client) == [b"body"] * 3


async def test_tasks_that_send_again_at_once_share_their_next_request(
    popmq_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("popmq._async.background.send_gatherer.GATHER_S_MAX", 60.0)  # however slow the machine is

    async def send_ten() -> None:
        for number in range(10):
            await sender.send(TOPIC, f"{number}")

    async with popmq.AsyncClient(popmq_broker.endpoint) as sender:
        await sender.topics.create(TOPIC)
        await asyncio.gather(*(send_ten() for _ in range(32)))
        stats = sender.client_stats()
    assert (stats.sent, stats.send_requests <= 12) == (320, True), f"{stats.send_requests} requests, not one a round"
