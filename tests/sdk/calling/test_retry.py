"""What is tried again, and that trying again neither loses nor doubles: through a wire that loses answers."""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import grpc
import pytest

import popmq
from popmq import errors
from popmq.testing import FakeClock
from popmq_proto.v1 import popmq_pb2 as pb
from tests.sdk.calling.lossy import LOSE, REFUSE, LossyWire
from tests.sdk.conftest import GROUP, TOPIC


@pytest.mark.promise("dedup")
@pytest.mark.slow
async def test_a_send_whose_answers_were_lost_is_stored_once_and_gets_its_first_receipts(
    lossy: Any, wire: LossyWire
) -> None:
    wire.plan["Send"] = [LOSE, REFUSE, LOSE]
    receipts = await lossy.send(TOPIC, [b"a", b"b"])
    assert [receipt.offset for receipt in receipts] == [0, 1]
    assert lossy.client_stats().retries == 3
    assert [delivery.body for delivery in await lossy.pop(TOPIC, GROUP)] == [b"a", b"b"]


async def test_a_broker_that_goes_and_comes_is_logged_once_each(
    lossy: Any, wire: LossyWire, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "popmq")
    wire.plan["Send"] = [REFUSE, REFUSE, REFUSE]
    for _ in range(3):
        await lossy.send(TOPIC, b"x")
    went, came = [record.getMessage() for record in caplog.records if record.name == "popmq.client"]
    assert went.startswith("no answer to Broker.Send, calls are tried again until their timeouts")
    assert came.startswith(f"the broker at {wire.endpoint} answers again after")


@pytest.mark.slow
async def test_every_try_of_a_send_is_the_same_request(lossy: Any, wire: LossyWire) -> None:
    wire.plan["Send"] = [REFUSE, REFUSE]
    await lossy.send(TOPIC, b"x")
    assert len(wire.seen["Send"]) == 3
    assert len(set(wire.seen["Send"])) == 1


@pytest.mark.embedded("changes of a lease that may be repeated")
@pytest.mark.slow
async def test_a_change_that_is_tried_again_says_that_it_may_have_been_carried_out(lossy: Any, wire: LossyWire) -> None:
    await lossy.send(TOPIC, b"x")
    (delivery,) = await lossy.pop(TOPIC, GROUP)
    wire.plan["ChangeInvisibleTime"] = [LOSE]
    await lossy.extend(delivery, 60)
    requests = [pb.ChangeInvisibleTimeRequest.FromString(request) for request in wire.seen["ChangeInvisibleTime"]]
    assert [request.repeated_try for request in requests] == [False, True]


async def test_sends_are_numbered_apart(lossy: Any, wire: LossyWire) -> None:
    await lossy.send(TOPIC, b"x")
    await lossy.send(TOPIC, b"x")
    requests = [pb.SendRequest.FromString(request) for request in wire.seen["Send"]]
    assert [request.request_number for request in requests] == [1, 2]
    assert len({request.producer_id for request in requests}) == 1


@pytest.mark.slow
async def test_a_message_group_keeps_its_order_though_a_send_before_is_held_up(
    lossy: Any, wire: LossyWire, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room in ("_async", "_sync"):  # no send waits for others: only the end of the request can let a2 and a3 go
        monkeypatch.setattr(f"popmq.{room}.background.send_gatherer.GATHER_S_MAX", 0.0)
    await lossy.topics.create("letters", type="FIFO")
    begun, another = threading.Event(), threading.Event()

    def held(forward: Callable[[], bytes]) -> bytes:
        begun.set()
        another.wait()
        return forward()

    def passing(forward: Callable[[], bytes]) -> bytes:
        try:
            return forward()
        finally:
            another.set()

    wire.plan["Send"] = [held, passing, REFUSE, LOSE]
    sends = [asyncio.ensure_future(lossy.send("letters", popmq.Message("a1", message_group="a")))]
    await asyncio.to_thread(begun.wait)
    for waiting, body in enumerate(("a2", "a3"), 1):
        sends.append(asyncio.ensure_future(lossy.send("letters", popmq.Message(body, message_group="a"))))
        while lossy.client_stats().sends_waiting < waiting:  # noqa: ASYNC110 - it joins in a thread of its own
            await asyncio.sleep(0)
    await lossy.topics.list()  # meanwhile they have seen that they may not fly
    sends.append(asyncio.ensure_future(lossy.send("letters", popmq.Message("b1", message_group="b"))))
    first, second, third, _ = await asyncio.gather(*sends)
    assert first.offset < second.offset < third.offset
    requests = [pb.SendRequest.FromString(request) for request in wire.seen["Send"]]
    assert [[message.body for message in request.messages] for request in requests[:2]] == [[b"a1"], [b"b1"]]


@pytest.mark.promise("redelivery")
async def test_a_consumer_closed_during_a_release_releases_nothing_twice(
    lossy: Any, wire: LossyWire, guard: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await lossy.topics.create("letters", type="FIFO")
    await lossy.send("letters", [popmq.Message("warm", message_group=f"w{number}") for number in range(3)])
    asked, closing = threading.Event(), threading.Event()

    def held(forward: Callable[[], bytes]) -> bytes:
        asked.set()
        closing.wait()
        return forward()

    wire.plan["ChangeInvisibleTime"] = [held]
    consumer = lossy.consume("letters", GROUP)
    for _ in range(3):
        async with guard(await consumer.__anext__()):
            pass
    await lossy.send("letters", [popmq.Message(str(number), message_group="a") for number in range(4)])
    (await consumer.__anext__()).release(0.0)
    await asyncio.to_thread(asked.wait)
    closed = asyncio.ensure_future(consumer.close())
    closing.set()
    await closed
    left = [(each.text(), each.attempt) for each in await lossy.pop("letters", GROUP)]
    assert left == [("0", 2), ("1", 1), ("2", 1), ("3", 1)]
    assert len(wire.seen["ChangeInvisibleTime"]) == 1
    assert "outcome of group" not in caplog.text


@pytest.mark.slow
async def test_messages_of_every_kind_are_gathered_and_each_caller_gets_its_own(lossy: Any, wire: LossyWire) -> None:
    await lossy.topics.create("later", type="DELAY")
    wire.plan["Send"] = [LOSE, REFUSE, LOSE]
    kinds = [
        popmq.Message("plain"),
        popmq.Message("delayed", delay=60.0),
        popmq.Message("half", transaction=True),
        popmq.Message("", key="refused"),
    ]
    answers = await asyncio.gather(*(lossy.send("later", kind) for kind in kinds * 25), return_exceptions=True)
    assert lossy.client_stats().send_requests < 60
    for plain, delayed, half, refused in zip(*[iter(answers)] * 4, strict=True):
        assert plain.offset >= 0
        assert not plain.recall_handle + plain.transaction_id
        assert (delayed.offset, bool(delayed.recall_handle)) == (-1, True)
        assert (half.offset, bool(half.transaction_id)) == (-1, True)
        assert isinstance(refused, errors.InvalidField)


@pytest.mark.slow
async def test_a_pop_whose_answer_was_lost_returns_that_batch_at_its_first_attempt(lossy: Any, wire: LossyWire) -> None:
    await lossy.send(TOPIC, [b"a", b"b"])
    wire.plan["Pop"] = [LOSE]
    popped = await lossy.pop(TOPIC, GROUP)
    assert [(delivery.body, delivery.attempt) for delivery in popped] == [(b"a", 1), (b"b", 1)]


@pytest.mark.slow
async def test_a_pop_that_is_tried_again_waits_only_for_what_is_left(lossy: Any, wire: LossyWire) -> None:
    wire.plan["Pop"] = [REFUSE]
    await lossy.pop(TOPIC, GROUP, wait=0.2)
    first, second = [pb.PopRequest.FromString(request) for request in wire.seen["Pop"]]
    assert first.attempt_id == second.attempt_id != ""
    assert second.wait_ms < first.wait_ms == 200


@pytest.mark.slow
async def test_a_client_is_asked_once_even_if_it_is_silent(lossy: Any, wire: LossyWire) -> None:
    wire.plan["VerifyMessage"], wire.plan["GetClientStack"] = [REFUSE], [REFUSE]
    with pytest.raises(errors.Unavailable):
        await lossy.sessions.verify_message("worker", TOPIC, 0, 0)
    with pytest.raises(errors.Unavailable):
        await lossy.sessions.stack("worker")
    assert [len(wire.seen[name]) for name in ("VerifyMessage", "GetClientStack")] == [1, 1]


@pytest.mark.promise("ack")
async def test_an_extend_that_is_tried_again_and_meets_a_dead_handle_has_failed(lossy: Any, wire: LossyWire) -> None:
    await lossy.send(TOPIC, b"a")
    (delivery,) = await lossy.pop(TOPIC, GROUP)
    await lossy.ack(delivery)
    wire.plan["ChangeInvisibleTime"] = [LOSE]
    with pytest.raises(errors.HandleLapsed):
        await lossy.extend(delivery)


@pytest.mark.promise("statistics")
@pytest.mark.slow
async def test_a_consumer_whose_answers_get_lost_still_sees_each_message_once(
    lossy: Any, wire: LossyWire, guard: Any
) -> None:
    await lossy.send(TOPIC, [b"%d" % number for number in range(40)])
    for method in ("Pop", "Ack", "Heartbeat", "QueryAssignment"):
        wire.plan[method] = [LOSE, None, REFUSE, grpc.StatusCode.CANCELLED, LOSE]
    seen = []
    async for delivery in lossy.consume(TOPIC, GROUP, until_idle=0.1):
        async with guard(delivery):
            seen.append((int(delivery.body), delivery.attempt))
    assert sorted(seen) == [(number, 1) for number in range(40)]
    (stats,) = (await lossy.broker.stats(TOPIC, GROUP)).groups
    assert (stats.acked, stats.in_flight) == (40, 0)


@pytest.mark.promise("redelivery")
@pytest.mark.slow
async def test_a_consumer_is_not_idle_before_the_broker_knows_how_the_last_message_ended(
    lossy: Any, wire: LossyWire, guard: Any
) -> None:
    await lossy.send(TOPIC, b"x")
    nothing_came = threading.Event()

    def empty(forward: Callable[[], bytes]) -> bytes:
        reply = forward()
        nothing_came.set()
        return reply

    def late(forward: Callable[[], bytes]) -> bytes:
        nothing_came.wait()
        return forward()

    wire.plan["Pop"], wire.plan["ChangeInvisibleTime"] = [None, empty], [late]
    attempts = []
    async for delivery in lossy.consume(TOPIC, GROUP, until_idle=0.1):
        async with guard(delivery):
            attempts.append(delivery.attempt)
            if delivery.attempt == 1:
                delivery.release(0.0)
    assert attempts == [1, 2]


@pytest.mark.promise("statistics")
async def test_every_close_of_a_consumer_returns_after_its_goodbye(lossy: Any, wire: LossyWire) -> None:
    await lossy.send(TOPIC, b"x")
    begun, closed = threading.Event(), threading.Event()

    def held(forward: Callable[[], bytes]) -> bytes:
        begun.set()
        closed.wait()
        return forward()

    consumer = lossy.consume(TOPIC, GROUP)
    (await consumer.__anext__()).ack()
    wire.plan["Heartbeat"] = [held]
    first = asyncio.ensure_future(consumer.close())
    await asyncio.to_thread(begun.wait)
    second = asyncio.ensure_future(consumer.close())
    await lossy.topics.list()
    early = second.done()
    closed.set()
    await asyncio.gather(first, second)
    assert not early
    assert (await lossy.broker.stats(TOPIC, GROUP)).groups[0].sessions == 0


@pytest.mark.slow
async def test_a_replayed_batch_is_renewed_at_once_for_its_lease_is_older_than_its_answer(
    lossy: Any, wire: LossyWire, guard: Any, popmq_clock: FakeClock, advance: Any
) -> None:
    await lossy.send(TOPIC, b"x")

    def late(forward: Callable[[], bytes]) -> bytes:
        popmq_clock.advance(50_000)
        return forward()

    wire.plan["Pop"] = [LOSE, late]
    async with lossy.consume(TOPIC, GROUP, invisible=60.0) as consumer, guard(await consumer.__anext__()):
        await advance(20.0)
    (stats,) = (await lossy.broker.stats(TOPIC, GROUP)).groups
    assert stats.acked == 1


@pytest.mark.promise("redelivery")
async def test_a_batch_that_was_under_way_when_the_consumer_was_stopped_is_released(
    lossy: Any, wire: LossyWire
) -> None:
    await lossy.send(TOPIC, b"x")
    consumer = lossy.consume(TOPIC, GROUP)
    stopped = threading.Event()

    def stop_before_the_answer(forward: Callable[[], bytes]) -> bytes:
        reply = forward()
        consumer.stop()
        stopped.wait()
        return reply

    wire.plan["Pop"] = [stop_before_the_answer]
    assert [delivery async for delivery in consumer] == []
    stopped.set()
    (again,) = await lossy.pop(TOPIC, GROUP)
    assert (again.body, again.attempt) == (b"x", 1)


@pytest.mark.promise("redelivery")
async def test_a_batch_that_was_under_way_when_its_task_was_cancelled_is_released(
    wire: LossyWire, sync_client: popmq.Client
) -> None:
    sync_client.send(TOPIC, b"x")
    loop, cancelled = asyncio.get_running_loop(), threading.Event()

    def cancel_before_the_answer(forward: Callable[[], bytes]) -> bytes:
        reply = forward()
        loop.call_soon_threadsafe(task.cancel)
        cancelled.wait()
        return reply

    wire.plan["Pop"] = [cancel_before_the_answer]
    async with popmq.AsyncClient(wire.endpoint) as client:
        consumer = client.consume(TOPIC, GROUP)
        task = asyncio.ensure_future(consumer.__anext__())
        with pytest.raises(asyncio.CancelledError):
            await task
        await consumer.close()
    cancelled.set()
    (again,) = sync_client.pop(TOPIC, GROUP)
    assert (again.body, again.attempt) == (b"x", 1)


@pytest.mark.slow
async def test_the_test_clock_does_not_advance_before_settled_messages_reach_the_broker(
    lossy: Any, wire: LossyWire, guard: Any, popmq_clock: FakeClock, advance: Any
) -> None:
    await lossy.send(TOPIC, b"x")
    moved = threading.Event()

    def slow(forward: Callable[[], bytes]) -> bytes:
        moved.wait(0.2)
        return forward()

    wire.plan["Ack"] = [slow]
    async with lossy.consume(TOPIC, GROUP, invisible=60.0) as consumer:
        async with guard(await consumer.__anext__()):
            pass
        await advance(120.0)
        moved.set()
    (stats,) = (await lossy.broker.stats(TOPIC, GROUP)).groups
    assert stats.acked == 1


@pytest.mark.slow
async def test_gathering_is_bounded_by_messages_and_by_bytes(lossy: Any, wire: LossyWire) -> None:
    await asyncio.gather(*[lossy.send(TOPIC, b"x" * 300_000) for _ in range(30)])
    assert max(map(len, wire.seen["Send"])) <= 1024 * 1024
    wire.seen["Send"].clear()
    await asyncio.gather(*[lossy.send(TOPIC, [b"x"] * 100) for _ in range(30)])
    assert max(len(pb.SendRequest.FromString(request).messages) for request in wire.seen["Send"]) <= 512
