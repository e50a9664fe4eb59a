"""Pop, and the four ways in which a delivery ends or goes on."""

import asyncio
import threading
from typing import Any

import pytest

import popmq
from popmq import errors
from popmq.testing import FakeClock
from tests.sdk.calling.lossy import LossyWire, holding
from tests.sdk.conftest import GROUP, TOPIC, eventually, holds


@pytest.mark.promise("statistics")
async def test_a_leased_message_is_hidden_until_it_is_acked_for_good(client: Any, numbers: Any) -> None:
    await client.send(TOPIC, b"once")
    (delivery,) = await client.pop(TOPIC, GROUP)
    assert await client.pop(TOPIC, GROUP) == []
    assert (await numbers()).in_flight == 1
    await client.ack(delivery)
    assert (await numbers()).acked == 1


@pytest.mark.promise("statistics")
async def test_many_are_acked_in_one_request(client: Any, numbers: Any) -> None:
    await client.send(TOPIC, [b"x"] * 256)
    deliveries = await client.pop(TOPIC, GROUP, max_messages=256)
    before = client.client_stats().calls
    await client.ack(deliveries)
    assert client.client_stats().calls == before + 1
    assert (await numbers()).acked == 256


async def test_a_handle_as_text_needs_its_group(client: Any) -> None:
    await client.send(TOPIC, [b"x", b"y"])
    first, second = await client.pop(TOPIC, GROUP)
    await client.ack(first.handle, group=GROUP)
    with pytest.raises(errors.PopMQError):
        await client.ack(second.handle)


@pytest.mark.promise("ack")
async def test_an_ack_after_the_ack_says_that_the_delivery_is_over(client: Any) -> None:
    await client.send(TOPIC, b"x")
    (delivery,) = await client.pop(TOPIC, GROUP)
    await client.ack(delivery)
    with pytest.raises(errors.HandleLapsed) as over:
        await client.ack(delivery)
    assert isinstance(over.value, errors.Over)


@pytest.mark.promise("ack")
async def test_one_lapsed_handle_of_many_does_not_harm_the_others(client: Any, numbers: Any) -> None:
    await client.send(TOPIC, [b"x", b"y", b"z"])
    first, second, third = await client.pop(TOPIC, GROUP)
    await client.ack(second)
    with pytest.raises(errors.PartlyRefused) as refused:
        await client.ack([first, second, third])
    assert list(refused.value.errors) == [1]
    assert isinstance(refused.value.errors[1], errors.HandleLapsed)
    assert (await numbers()).acked == 3


async def test_an_extended_lease_ends_later(client: Any, advance: Any) -> None:
    await client.send(TOPIC, b"x")
    (delivery,) = await client.pop(TOPIC, GROUP, invisible=10.0)
    result = await client.extend(delivery, 100.0)
    assert result.visible_ms == delivery.invisible_until_ms + 90_000
    await advance(99.0)
    assert await client.pop(TOPIC, GROUP) == []
    await client.ack(delivery)


async def test_a_released_message_comes_back_after_its_delay(client: Any, advance: Any) -> None:
    await client.send(TOPIC, b"x")
    (delivery,) = await client.pop(TOPIC, GROUP)
    await client.release(delivery, delay=5.0, reason="not now")
    await advance(4.9)
    assert await client.pop(TOPIC, GROUP) == []
    await advance(0.1)
    (again,) = await client.pop(TOPIC, GROUP)
    assert again.attempt == 2


async def test_a_release_without_a_delay_takes_the_groups_backoff(client: Any, popmq_clock: Any) -> None:
    await client.send(TOPIC, b"x")
    (delivery,) = await client.pop(TOPIC, GROUP)
    result = await client.release(delivery)
    assert (result.visible_ms, result.dead_lettered) == (popmq_clock.now_ms() + 10_000, False)


@pytest.mark.capability("snooze")
async def test_a_snoozed_message_comes_back_after_its_delay_and_no_attempt_counts(client: Any, advance: Any) -> None:
    await client.send(TOPIC, b"x")
    (delivery,) = await client.pop(TOPIC, GROUP)
    await client.snooze(delivery, "5m", "not open yet")
    await advance(299.0)
    assert await client.pop(TOPIC, GROUP) == []
    await advance(1.0)
    (again,) = await client.pop(TOPIC, GROUP)
    assert again.attempt == 1
    results = await client.snooze([again.handle], 60, group=GROUP)
    assert [result.dead_lettered for result in results] == [False]


@pytest.mark.capability("snooze")
async def test_a_handler_snoozes_its_delivery_as_often_as_the_group_allows(
    client: Any, guard: Any, advance: Any, numbers: Any
) -> None:
    async def put_back() -> bool:
        return (await numbers()).backoff == 1  # type: ignore[no-any-return]

    await client.groups.update(GROUP, snoozes_max=1)
    await client.send(TOPIC, b"x")
    attempts = []
    for _ in range(3):
        (delivery,) = await client.pop(TOPIC, GROUP)
        attempts.append(delivery.attempt)
        async with guard(delivery):
            delivery.snooze("10s", reason="closed")
        await eventually(put_back)
        await advance(10.0)
    assert attempts == [1, 1, 2]


@pytest.mark.embedded("the client that had a dead letter last")
async def test_a_rejected_message_lies_in_the_dead_letter_topic_with_its_reason(client: Any) -> None:
    await client.send(TOPIC, b"bad")
    (delivery,) = await client.pop(TOPIC, GROUP)
    result = await client.reject(delivery, "not JSON" + "!" * 5000)
    assert result.dead_lettered
    page = await client.messages.browse(f"%DLQ%{GROUP}")
    (dead,) = page.deliveries
    assert dead.body == b"bad"
    assert (dead.dead_letter.topic, dead.dead_letter.offset, dead.dead_letter.attempts) == (TOPIC, 0, 1)
    assert dead.dead_letter.last_client == client.client_id
    assert len(dead.dead_letter.reason) == 4096
    with pytest.raises(RuntimeError, match="it was browsed"):
        dead.ack()


@pytest.mark.promise("attempt_ids")
async def test_a_pop_repeated_with_its_attempt_id_returns_the_same_deliveries(client: Any) -> None:
    await client.send(TOPIC, [b"x", b"y"])
    first = await client.pop(TOPIC, GROUP, attempt_id="try")
    await client.ack(first[0])
    second = await client.pop(TOPIC, GROUP, attempt_id="try")
    assert [delivery.handle for delivery in second] == [first[1].handle]
    assert second[0].attempt == 1


@pytest.mark.slow
async def test_a_pop_names_the_queues_that_it_wants(client: Any) -> None:
    receipts = [await client.send(TOPIC, b"x") for _ in range(4)]
    wanted = receipts[2].queue
    popped = await client.pop(TOPIC, GROUP, queues=[wanted])
    assert [delivery.queue for delivery in popped] == [wanted]


@pytest.mark.promise("statistics")
async def test_a_guard_around_a_popped_delivery_acks_and_waits_for_it(client: Any, guard: Any, numbers: Any) -> None:
    await client.send(TOPIC, b"x")
    (delivery,) = await client.pop(TOPIC, GROUP)
    async with guard(delivery):
        assert (await numbers()).in_flight == 1
    assert (await numbers()).acked == 1


@pytest.mark.promise("statistics")
async def test_a_guard_around_a_popped_delivery_lets_the_exception_through(
    client: Any, guard: Any, numbers: Any
) -> None:
    await client.send(TOPIC, b"x")
    (delivery,) = await client.pop(TOPIC, GROUP)
    with pytest.raises(ZeroDivisionError):
        async with guard(delivery):
            1 / 0  # noqa: B018  # raises in the block
    assert (await numbers()).backoff == 1


@pytest.mark.capability("ttl")
async def test_a_message_is_not_delivered_after_its_ttl(client: Any, advance: Any, numbers: Any) -> None:
    await client.send(TOPIC, [popmq.Message("soon", ttl="1m"), "whenever"])
    (first, second) = (await client.messages.browse(TOPIC, order="oldest")).deliveries
    assert (first.ttl, second.ttl) == (60.0, 0.0)
    await advance(60.0)
    assert [delivery.text() for delivery in await client.pop(TOPIC, GROUP)] == ["whenever"]
    assert (await numbers()).expired == 1


@pytest.mark.capability("ttl")
async def test_a_group_keeps_expired_messages_if_it_says_so(client: Any, advance: Any) -> None:
    assert (await client.groups.update(GROUP, dead_letter_expired=True)).dead_letter_expired
    await client.send(TOPIC, popmq.Message("soon", ttl=60))
    await advance(60.0)
    assert await client.pop(TOPIC, GROUP) == []
    (letter,) = (await client.messages.browse(f"%DLQ%{GROUP}")).deliveries
    assert letter.dead_letter.reason == "expired"


async def test_a_delivery_that_is_settled_while_the_lease_of_another_is_renewed_is_renewed_no_more(
    lossy: Any,
    wire: LossyWire,
    late: threading.Event,
    advance: Any,
    popmq_clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await lossy.send(TOPIC, ["1", "2"])
    deliveries = [(await lossy.pop(TOPIC, GROUP, max_messages=1, invisible=60.0))[0] for _ in range(2)]
    for delivery in deliveries:
        delivery.__enter__()
    wire.plan["ChangeInvisibleTime"] = [holding(late)]
    popmq_clock.broker_clock.advance(50_000)  # both are due now
    advancing = asyncio.ensure_future(advance(0))
    await eventually(lambda: holds(lambda: wire.seen["ChangeInvisibleTime"]))
    for delivery in deliveries:
        delivery.ack()
    late.set()
    await advancing
    assert len(wire.seen["ChangeInvisibleTime"]) == 1
    assert "could not be renewed" not in caplog.text


async def test_outcomes_of_another_group_do_not_keep_a_loop_from_being_idle(
    lossy: Any, wire: LossyWire, late: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room in ("_async", "_sync"):
        monkeypatch.setattr(f"popmq.{room}.transport.wire.CLOSE_S", 0.2)
    await lossy.topics.create("later")
    await lossy.groups.create("audit")
    await lossy.send(TOPIC, "x")
    wire.plan["Ack"] = [holding(late)]
    (await lossy.pop(TOPIC, GROUP))[0].ack()
    async with asyncio.timeout(10.0):
        assert [delivery async for delivery in lossy.consume("later", "audit", until_idle=0.05)] == []
