"""Serving and stopping a worker: what its end finishes, releases and leaves to others."""

import asyncio
import threading

import pytest

import popmq
from popmq import errors
from popmq.testing import Broker
from tests.sdk.workers.workers import sent_to


@pytest.mark.promise("redelivery")
@pytest.mark.slow
async def test_stop_finishes_running_handlers_and_releases_other_messages_at_once(popmq_broker: Broker) -> None:
    worker, begun = popmq.Worker(popmq_broker.endpoint), asyncio.Event()
    going_on = asyncio.Event()

    @worker.on("orders", group="billing", concurrency=1)
    async def slow(delivery: popmq.Delivery) -> None:
        begun.set()
        await going_on.wait()

    client = await asyncio.to_thread(sent_to, popmq_broker, worker, *"abc")
    serving = asyncio.create_task(worker.serve())
    await begun.wait()
    worker.stop()
    going_on.set()
    assert await serving is True
    (row,) = (await asyncio.to_thread(client.broker.stats, "orders")).groups
    assert (row.acked, row.in_flight, row.ready + row.retry) == (1, 0, 2)
    assert {each.attempt for each in await asyncio.to_thread(client.pop, "orders", "billing")} == {1}


@pytest.mark.promise("uncounted")
@pytest.mark.parametrize("blocks", [False, True])
async def test_the_second_stop_releases_messages_of_running_handlers_uncounted(
    popmq_broker: Broker, blocks: bool
) -> None:
    worker, begun, never = popmq.Worker(popmq_broker.endpoint), threading.Event(), threading.Event()

    if blocks:

        @worker.on("orders", group="billing")
        def stays(delivery: popmq.Delivery) -> None:
            begun.set()
            never.wait(60)

    else:

        @worker.on("orders", group="billing")
        async def hangs(delivery: popmq.Delivery) -> None:
            begun.set()
            await asyncio.Event().wait()

    client = await asyncio.to_thread(sent_to, popmq_broker, worker, "x")
    serving = asyncio.create_task(worker.serve())
    assert await asyncio.to_thread(begun.wait, 60)
    worker.stop()
    worker.stop()
    assert await serving is False
    never.set()
    (again,) = await asyncio.to_thread(client.pop, "orders", "billing")
    assert again.attempt == 1


async def test_the_second_stop_does_not_wait_for_a_broker_that_is_away(
    popmq_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("popmq._async.transport.wire.CLOSE_S", 60.0)
    worker = popmq.Worker(popmq_broker.endpoint, timeouts=popmq.Timeouts(admin=0.1))
    handled = asyncio.Event()

    @worker.on("orders", group="billing")
    async def handle(delivery: popmq.Delivery) -> None:
        handled.set()

    await asyncio.to_thread(sent_to, popmq_broker, worker, "x")
    client = worker.client()
    serving = asyncio.create_task(worker.serve(client))
    await handled.wait()
    await asyncio.to_thread(popmq_broker.stop)
    worker.stop()
    with pytest.raises(errors.Unavailable):
        await client.topics.list()
    worker.stop()
    await asyncio.wait_for(serving, 5.0)


@pytest.mark.slow
async def test_a_worker_whose_group_is_not_there_says_so(popmq_broker: Broker) -> None:
    worker = popmq.Worker(popmq_broker.endpoint)
    worker.on("orders", group="billing")(lambda delivery: None)
    with pytest.raises(errors.GroupNotFound):
        await worker.serve()
    with pytest.raises(RuntimeError, match="no handler"):
        await popmq.Worker(popmq_broker.endpoint).serve()
    with pytest.raises(ValueError, match="concurrency is 0"):
        worker.on("orders", group="billing", concurrency=0)(lambda delivery: None)


@pytest.mark.promise("redelivery")
async def test_slow_handlers_hold_no_message_ahead(popmq_broker: Broker) -> None:
    """A message that would wait for an hour of work is left to another process."""
    worker, all_begun = popmq.Worker(popmq_broker.endpoint), asyncio.Event()
    begun: list[str] = []

    @worker.on("orders", group="billing", concurrency=4)
    async def hangs(text: str) -> None:
        begun.append(text)
        if len(begun) == 4:
            all_begun.set()
        await asyncio.Event().wait()

    client = await asyncio.to_thread(sent_to, popmq_broker, worker, *"abcdefghijkl")
    serving = asyncio.create_task(worker.serve())
    await all_begun.wait()
    (row,) = (await asyncio.to_thread(client.broker.stats, "orders")).groups
    assert (row.in_flight, row.ready) == (4, 8)
    worker.stop()
    worker.stop()
    await serving


@pytest.mark.slow
@pytest.mark.parametrize("end", ["itself", "the drain", "a second stop"])
async def test_a_deleted_topic_drains_the_handlers_of_others_before_the_worker_ends(
    popmq_broker: Broker, end: str
) -> None:
    worker, begun, going_on = popmq.Worker(popmq_broker.endpoint), asyncio.Event(), asyncio.Event()
    worker.on("mails", group="mailer")(lambda delivery: None)

    @worker.on("orders", group="billing", concurrency=1)
    async def slow(delivery: popmq.Delivery) -> None:
        begun.set()
        await going_on.wait()

    client = await asyncio.to_thread(sent_to, popmq_broker, worker, *"ab")
    worker._drain = 0.0 if end == "the drain" else None
    serving = asyncio.create_task(worker.serve())
    await begun.wait()
    await asyncio.to_thread(client.topics.delete, "mails")
    if end != "the drain":
        while worker.unready() != "draining":  # noqa: ASYNC110 - a worker has no event to wait for
            await asyncio.sleep(0.01)
        worker.stop()  # as the supervisor says to all, when one process has ended
    if end == "a second stop":
        worker.stop()
    elif end == "itself":
        assert not serving.done()
        going_on.set()
    with pytest.raises(errors.TopicNotFound, match="mails"):
        await serving
    (row,) = (await asyncio.to_thread(client.broker.stats, "orders")).groups
    assert (row.acked, row.in_flight, row.ready + row.retry) == ((1, 0, 1) if end == "itself" else (0, 0, 2))
    assert {each.attempt for each in await asyncio.to_thread(client.pop, "orders", "billing")} == {1}
