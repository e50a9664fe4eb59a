"""Results: given with acks, asked for by message id, and forgotten, with both clients."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import popmq
from harness.broker_process import BrokerProcess
from popmq.errors import InvalidField, ResultFailed, ResultTimeout
from tests.sdk.conftest import GROUP, TOPIC, Connect


@pytest.fixture
async def client(client: Any) -> Any:
    """Its group keeps results."""
    await client.groups.update(GROUP, results_keep="1h")
    return client


async def popped(client: Any, *bodies: str) -> list[popmq.Delivery]:
    await client.send(TOPIC, [popmq.Message(body, message_id=body) for body in bodies])
    rows: list[popmq.Delivery] = await client.pop(TOPIC, GROUP)
    return rows


# ── Giving ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "body", "kind"),
    [
        ({"a": [1, None]}, b'{"a":[1,null]}', "application/json"),
        ("täxt", "täxt".encode(), "text/plain"),
        (b"\x00", b"\x00", ""),
        (popmq.Result(1, content_type="text/x").body, b"1", ""),
        (None, b"null", "application/json"),
    ],
)
def test_a_value_is_encoded_as_a_message_is(value: Any, body: bytes, kind: str) -> None:
    made = popmq.Result(value)
    assert (made.body, made.content_type, made.failed, made.message_id) == (body, kind, False, "")


async def test_an_ack_of_a_batch_keeps_the_results_that_are_given(client: Any) -> None:
    rows = await popped(client, "a", "b", "c")
    await client.ack(rows, results=[popmq.Result({"n": 1}), None, popmq.Result("C")])
    found = await client.results(["a", "b", "c"], GROUP)
    assert {key: one.text() for key, one in found.items()} == {"a": '{"n":1}', "c": "C"}
    assert (await client.result("a", GROUP)).json() == {"n": 1}
    assert found["c"].content_type == "text/plain"
    assert found["c"].stored_ms > 0


async def test_a_settle_keeps_results_with_what_it_sends(client: Any) -> None:
    (row,) = await popped(client, "a")
    await client.topics.create("out", queues=1)
    await client.settle(row, popmq.Send("out", "x"), results=popmq.Result("A"))
    assert (await client.result("a", GROUP)).text() == "A"
    assert len((await client.messages.browse("out")).deliveries) == 1


async def test_a_delivery_is_acked_with_its_result_in_the_background(client: Any, guard: Any) -> None:
    first, second, third = await popped(client, "a", "b", "c")
    first.ack(popmq.Result("A"))
    async with guard(second):
        second.ack(popmq.Result("B"))
    third.settle([], popmq.Result("C"))
    found = await client.results(["a", "b", "c"], GROUP, wait=30.0)
    assert sorted(one.text() for one in found.values()) == ["A", "B", "C"]


async def test_what_is_no_result_is_refused_before_it_is_sent(client: Any) -> None:
    (row,) = await popped(client, "a")
    wrong: Any = "A"
    with pytest.raises(TypeError, match="Result"):
        row.ack(wrong)
    with pytest.raises(InvalidField, match="bytes"):
        row.ack(popmq.Result(b"x" * (256 * 1024 + 1)))
    with pytest.raises(InvalidField, match="2 results for 1"):
        await client.ack(row, results=[None, None])
    await client.ack(row)


async def test_a_group_that_keeps_none_refuses_a_result_and_the_delivery_is_released(client: Any) -> None:
    await client.groups.update(GROUP, results_keep=0)
    (row,) = await popped(client, "a")
    with pytest.raises(InvalidField, match="keeps no results"):
        await client.ack(row, results=popmq.Result("A"))
    with pytest.raises(InvalidField, match="keeps no results"):
        await client.result("a", GROUP)
    await client.ack(row)


# ── Asking ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_result_is_waited_for(client: Any) -> None:
    waiting = asyncio.ensure_future(client.result("a", GROUP, wait="30s"))
    (row,) = await popped(client, "a")
    await client.ack(row, results=popmq.Result("A"))
    assert (await waiting).text() == "A"


@pytest.mark.slow
async def test_results_and_waits_live_through_a_kill_9(connect: Connect, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process:
        client = connect(process.endpoint, clock=None)
        await client.topics.create(TOPIC)
        await client.groups.create(GROUP, results_keep="1h")
        first, second = await popped(client, "before", "after")
        await client.ack(first, results=popmq.Result("B"))
        waiting = asyncio.ensure_future(client.result("after", GROUP, wait="60s"))
        await asyncio.to_thread(process.kill)
        await asyncio.to_thread(process.start)
        assert (await client.result("before", GROUP)).text() == "B"
        await client.ack(second, results=popmq.Result("A"))
        assert (await waiting).text() == "A"
        await client.close()


async def test_a_wait_for_some_of_many_ends_with_them(client: Any) -> None:
    rows = await popped(client, "a", "b")
    await client.ack(rows[:1], results=[popmq.Result("A")])
    assert [*await client.results(["a", "b"], GROUP, wait="30s", at_least=1)] == ["a"]


async def test_nobody_waits_for_none_of_the_results(client: Any) -> None:
    assert await asyncio.wait_for(client.results(["a"], GROUP, wait="30s", at_least=0), 10.0) == {}


async def test_a_wait_that_is_over_is_an_error_of_its_own_for_one_and_none_for_many(client: Any) -> None:
    with pytest.raises(ResultTimeout, match="no result"):
        await client.result("a", GROUP)
    assert await client.results(["a", "b"], GROUP) == {}


async def test_a_dead_letter_is_a_failed_result_whose_body_cannot_be_mistaken(client: Any) -> None:
    (row,) = await popped(client, "a")
    await client.reject(row, "no stock")
    result = await client.result("a", GROUP)
    assert (result.failed, result.reason, result.attempts, result.body) == (True, "no stock", 1, b"")
    for read in (result.json, result.text):
        with pytest.raises(ResultFailed, match="no stock"):
            read()


async def test_more_results_than_one_answer_takes_come_in_several(client: Any) -> None:
    ids = [f"m{number}" for number in range(20)]
    rows = await popped(client, *ids)
    await client.ack(rows, results=[popmq.Result(b"x" * 250_000)] * 20)
    assert sorted(await client.results(ids, GROUP, wait="30s")) == sorted(ids)


async def test_a_result_is_stored_without_a_delivery_and_wakes_who_waits(client: Any) -> None:
    waiting = asyncio.create_task(client.result("task-7", GROUP, wait="30s"))
    await client.store_results({"task-7": popmq.Result({"done": 7}), "task-8": popmq.Result(b"")}, GROUP)
    assert (await waiting).json() == {"done": 7}
    assert [*await client.results(["task-8", "task-9"], GROUP)] == ["task-8"]
    with pytest.raises(popmq.errors.InvalidField, match="1–4"):
        await client.store_results({}, GROUP)
    with pytest.raises(TypeError, match=r"popmq\.Result"):
        await client.store_results({"a": b"bytes"}, GROUP)


async def test_a_forgotten_result_is_gone(client: Any) -> None:
    rows = await popped(client, "a", "b")
    await client.ack(rows, results=[popmq.Result("A"), popmq.Result("B")])
    await client.forget_results("a", GROUP)
    assert [*await client.results(["a", "b"], GROUP)] == ["b"]


async def test_ids_that_are_none_are_refused(client: Any) -> None:
    wrong: Any = [1]
    with pytest.raises(TypeError, match="message id"):
        await client.results(wrong, GROUP)
    with pytest.raises(InvalidField, match="4096"):
        await client.results([str(number) for number in range(4097)], GROUP)
    with pytest.raises(InvalidField):
        await client.results([], GROUP)


async def test_the_time_of_results_is_a_setting_of_the_group(client: Any) -> None:
    assert (await client.groups.get(GROUP)).results_keep == 3600.0
    assert (await client.groups.create("none")).results_keep == 0.0
    assert (await client.groups.create("some", results_keep="2m")).results_keep == 120.0
