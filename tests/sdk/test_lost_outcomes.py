"""An ack, release or reject whose answer was lost: only the broker's word that the message is done counts as done."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

import popmq
from popmq import errors
from tests.sdk.calling.lossy import LOSE, REFUSE, LossyWire
from tests.sdk.conftest import GROUP, TOPIC

Settle = Callable[[Any, Any], Awaitable[Any]]

SETTLE = [
    pytest.param("Ack", lambda client, delivery: client.ack(delivery), id="ack"),
    pytest.param("ChangeInvisibleTime", lambda client, delivery: client.release(delivery), id="release"),
    pytest.param("ChangeInvisibleTime", lambda client, delivery: client.reject(delivery), id="reject"),
]


def after(other: popmq.Client, handle: str) -> Callable[[Callable[[], bytes]], bytes]:
    """For a plan: a call that reaches the broker when the lease has ended and the message is visible again."""

    def late(forward: Callable[[], bytes]) -> bytes:
        other.release(handle, 0.0, group=GROUP)
        return forward()

    return late


@pytest.mark.promise("ack")
@pytest.mark.parametrize(("method", "settle"), SETTLE)
async def test_an_outcome_that_never_arrived_is_not_reported_as_done(
    lossy: Any, wire: LossyWire, sync_client: popmq.Client, method: str, settle: Settle
) -> None:
    await lossy.send(TOPIC, b"a")
    (delivery,) = await lossy.pop(TOPIC, GROUP)
    wire.plan[method] = [REFUSE, after(sync_client, delivery.handle)]
    with pytest.raises(errors.LeaseLost, match="not known whether"):
        await settle(lossy, delivery)
    (again,) = await lossy.pop(TOPIC, GROUP)
    assert again.message_id == delivery.message_id


@pytest.mark.promise("ack")
@pytest.mark.parametrize(("method", "settle"), SETTLE)
async def test_an_outcome_that_arrived_and_whose_answer_was_lost_is_not_known(
    lossy: Any, wire: LossyWire, method: str, settle: Settle
) -> None:
    await lossy.send(TOPIC, b"a")
    (delivery,) = await lossy.pop(TOPIC, GROUP)
    wire.plan[method] = [LOSE]
    with pytest.raises(errors.LeaseLost):
        await settle(lossy, delivery)
    assert await lossy.pop(TOPIC, GROUP) == []


@pytest.mark.promise("ack")
async def test_a_lapsed_handle_whose_first_try_was_answered_is_no_lost_lease(lossy: Any) -> None:
    await lossy.send(TOPIC, b"a")
    (delivery,) = await lossy.pop(TOPIC, GROUP)
    await lossy.ack(delivery)
    with pytest.raises(errors.HandleLapsed) as refused:
        await lossy.ack(delivery)
    assert type(refused.value) is errors.HandleLapsed


@pytest.mark.promise("ack")
async def test_each_message_of_a_batch_tells_its_own_fate(
    lossy: Any, wire: LossyWire, sync_client: popmq.Client
) -> None:
    await lossy.send(TOPIC, [b"a", b"b"])
    lost, done = await lossy.pop(TOPIC, GROUP)
    wire.plan["Ack"] = [REFUSE, after(sync_client, lost.handle)]
    with pytest.raises(errors.PartlyRefused) as refused:
        await lossy.ack([lost, done])
    first, second = refused.value.results
    assert isinstance(first, errors.LeaseLost)
    assert second is None


@pytest.mark.promise("ack")
async def test_a_guard_of_a_popped_delivery_raises_what_it_does_not_know(
    lossy: Any, wire: LossyWire, sync_client: popmq.Client, guard: Any
) -> None:
    await lossy.send(TOPIC, b"a")
    (delivery,) = await lossy.pop(TOPIC, GROUP)
    wire.plan["Ack"] = [REFUSE, after(sync_client, delivery.handle)]
    with pytest.raises(errors.LeaseLost):
        async with guard(delivery):
            pass


@pytest.mark.promise("ack")
@pytest.mark.parametrize("confirm", [False, True])
async def test_a_consumer_logs_an_outcome_that_may_not_have_arrived_and_goes_on(
    lossy: Any,
    wire: LossyWire,
    sync_client: popmq.Client,
    guard: Any,
    caplog: pytest.LogCaptureFixture,
    confirm: bool,
) -> None:
    await lossy.send(TOPIC, b"a")
    attempts: list[int] = []
    async for delivery in lossy.consume(TOPIC, GROUP, until_idle=0.1, confirm=confirm):
        if not attempts:
            wire.plan["Ack"] = [REFUSE, after(sync_client, delivery.handle)]
        async with guard(delivery):
            attempts.append(delivery.attempt)
    assert attempts == [1, 2]
    assert "not known whether" in caplog.text


@pytest.mark.promise("ack")
async def test_a_consumer_that_raises_does_so_for_a_confirmed_outcome_that_may_not_have_arrived(
    lossy: Any, wire: LossyWire, sync_client: popmq.Client, guard: Any
) -> None:
    await lossy.send(TOPIC, b"a")
    async with lossy.consume(TOPIC, GROUP, confirm=True, on_error="raise") as consumer:
        delivery = await consumer.__anext__()
        wire.plan["Ack"] = [REFUSE, after(sync_client, delivery.handle)]
        with pytest.raises(errors.LeaseLost):
            async with guard(delivery):
                pass


@pytest.mark.promise("ack")
async def test_a_worker_handles_a_message_again_whose_ack_did_not_arrive(
    wire: LossyWire, sync_client: popmq.Client, caplog: pytest.LogCaptureFixture
) -> None:
    worker = popmq.Worker(wire.endpoint)
    attempts: list[int] = []

    @worker.on(TOPIC, group=GROUP)
    async def handle(delivery: popmq.Delivery) -> None:
        attempts.append(delivery.attempt)
        if delivery.attempt == 1:
            wire.plan["Ack"] = [REFUSE, after(sync_client, delivery.handle)]
        else:
            worker.stop()

    sync_client.send(TOPIC, b"a")
    await asyncio.wait_for(worker.serve(), 60)
    assert attempts == [1, 2]
    assert "not known whether" in caplog.text


async def test_an_owner_acks_its_epochs_by_the_word_of_the_broker(lossy: Any, wire: LossyWire) -> None:
    """AckUpTo says what it has done, however often it is repeated: no answer stands for another one."""
    await lossy.send(TOPIC, [b"a", b"b"])
    owner = await lossy.owners.attach(GROUP, "o")
    await lossy.owners.pop_sealed(TOPIC, GROUP, popmq.Token("o", owner.generation, 1))
    wire.plan["AckUpTo"] = [REFUSE]
    assert (await lossy.owners.ack_up_to(GROUP, "o", owner.generation, 1)).acked == 2
    wire.plan["AckUpTo"] = [LOSE]
    await lossy.owners.ack_up_to(GROUP, "o", owner.generation, 1)
    assert (await lossy.broker.stats(TOPIC, GROUP)).groups[0].acked == 2
