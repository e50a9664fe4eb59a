"""The consumer and its guard: acked on success, released on an exception, renewed meanwhile, and a clean end."""

import asyncio
import gc
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

import pytest

import popmq
from popmq import errors
from popmq.testing import Broker, FakeClock
from tests.sdk.conftest import GROUP, TOPIC, Connect, eventually


@pytest.mark.mechanism("S1.01")
async def test_a_loop_sees_each_message_once_and_acks_it(client: Any, guard: Any, numbers: Any) -> None:
    await client.send(TOPIC, [b"%d" % number for number in range(500)])
    seen = []
    consumer = client.consume(TOPIC, GROUP)
    async for delivery in consumer:
        async with guard(delivery):
            seen.append(int(delivery.body))
        if len(seen) == 500:
            consumer.stop()
    assert sorted(seen) == list(range(500))
    stats = await numbers()
    assert (stats.acked, stats.in_flight, stats.retry) == (500, 0, 0)


@pytest.mark.slow
async def test_a_loop_waits_while_its_group_may_not_consume_and_goes_on(
    client: Any, guard: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def told() -> bool:
        await client.groups.get(GROUP)  # lets the others go on
        return "may not read" in caplog.text

    await client.groups.update(GROUP, consume_enable=False)
    await client.send(TOPIC, "x")
    with pytest.raises(errors.Forbidden):
        async with client.consume(TOPIC, GROUP, until_idle=0.1) as consumer:
            await anext_of(consumer)
    async with client.consume(TOPIC, GROUP) as consumer:
        waiting = asyncio.ensure_future(anext_of(consumer))
        await eventually(told)
        await client.groups.update(GROUP, consume_enable=True)
        async with guard(await waiting) as delivery:
            assert delivery.body == b"x"


async def test_acks_of_a_loop_are_gathered(client: Any, guard: Any) -> None:
    await client.send(TOPIC, [b"x"] * 500)
    before = client.client_stats().calls
    consumer = client.consume(TOPIC, GROUP)
    left = 500
    async for delivery in consumer:
        async with guard(delivery):
            left -= 1
        if not left:
            consumer.stop()
    assert client.client_stats().calls - before < 250


async def test_a_failing_handler_is_logged_and_its_message_backs_off_with_the_error(
    client: Any, guard: Any, numbers: Any, advance: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await client.send(TOPIC, [b"bad", b"good"])
    async with client.consume(TOPIC, GROUP) as consumer:
        for _ in range(2):
            delivery = await anext_of(consumer)
            async with guard(delivery):
                if delivery.body == b"bad":
                    raise ValueError("this one is bad")
    stats = await numbers()
    assert (stats.acked, stats.backoff) == (1, 1)
    (record,) = [record for record in caplog.records if record.name == "popmq.consumer"]
    assert "failed" in record.getMessage()
    await advance(10.0)
    (again,) = await client.pop(TOPIC, GROUP)
    assert again.attempt == 2


async def test_the_error_text_reaches_the_dead_letter_topic(client: Any, guard: Any) -> None:
    await client.groups.create("once", max_attempts=1)
    await client.send(TOPIC, b"bad")
    async with client.consume(TOPIC, "once") as consumer, guard(await anext_of(consumer)):
        raise ValueError("ü" * 3000)
    (dead,) = (await client.messages.browse("%DLQ%once")).deliveries
    reason = dead.dead_letter.reason
    assert reason.startswith("ValueError: üüü")
    assert "test_consume.py" in reason
    assert 'raise ValueError("ü" * 3000)' in reason
    assert len(reason.encode()) <= 4096


async def test_an_exception_with_on_error_raise_ends_the_loop(client: Any, guard: Any, numbers: Any) -> None:
    await client.send(TOPIC, [b"x"] * 3)
    consumer = client.consume(TOPIC, GROUP, on_error="raise")

    async def loop() -> None:
        async with consumer:
            async for delivery in consumer:
                async with guard(delivery):
                    raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        await loop()
    stats = await numbers()
    assert (stats.backoff, stats.in_flight) == (1, 0)


@pytest.mark.parametrize("on_error", ["log", "raise"])
async def test_an_error_that_says_how_a_message_ends_is_no_failure_of_its_handler(
    client: Any, guard: Any, numbers: Any, on_error: Any, caplog: pytest.LogCaptureFixture
) -> None:
    says = {b"never": popmq.Reject("spam"), b"later": popmq.RetryLater("10m", "busy"), b"not yet": popmq.Snooze("10m")}
    await client.send(TOPIC, list(says))
    async with client.consume(TOPIC, GROUP, on_error=on_error) as consumer:
        for _ in says:
            delivery = await anext_of(consumer)
            async with guard(delivery):
                raise says[delivery.body]
    stats = await numbers()
    assert (stats.dead, stats.backoff) == (1, 2)
    (dead,) = (await client.messages.browse(f"%DLQ%{GROUP}")).deliveries
    assert (dead.body, dead.dead_letter.reason, dead.dead_letter.attempts) == (b"never", "spam", 1)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


async def test_what_an_error_says_of_a_wait_counts_an_attempt_only_for_a_retry(
    client: Any, guard: Any, advance: Any
) -> None:
    await client.send(TOPIC, [b"later", b"not yet"])
    async with client.consume(TOPIC, GROUP) as consumer:
        for _ in range(2):
            delivery = await anext_of(consumer)
            async with guard(delivery):
                raise popmq.RetryLater(600) if delivery.body == b"later" else popmq.Snooze(600)
    await advance(599.0)
    assert await client.pop(TOPIC, GROUP) == []
    await advance(1.0)
    again = await client.pop(TOPIC, GROUP, max_messages=2)
    assert {delivery.body: delivery.attempt for delivery in again} == {b"later": 2, b"not yet": 1}


@pytest.mark.slow
@pytest.mark.parametrize("interruption", [KeyboardInterrupt, asyncio.CancelledError])
async def test_an_interruption_gives_the_message_back_at_once_uncounted_and_goes_on(
    client: Any, guard: Any, interruption: type[BaseException]
) -> None:
    await client.send(TOPIC, b"x")
    consumer = client.consume(TOPIC, GROUP)
    delivery = await anext_of(consumer)
    with pytest.raises(interruption):
        async with guard(delivery):
            raise interruption
    await consumer.close()
    (again,) = await client.pop(TOPIC, GROUP)
    assert again.attempt == 1


@pytest.mark.slow
async def test_a_handler_that_exits_the_process_has_failed(client: Any, guard: Any, numbers: Any) -> None:
    await client.send(TOPIC, b"x")
    consumer = client.consume(TOPIC, GROUP)
    delivery = await anext_of(consumer)
    with pytest.raises(SystemExit):
        async with guard(delivery):
            raise SystemExit(1)
    await consumer.close()
    assert (await numbers()).backoff == 1


@pytest.mark.slow
async def test_a_handler_may_settle_its_delivery_itself(client: Any, guard: Any, numbers: Any) -> None:
    await client.send(TOPIC, [b"reject", b"release", b"ack", b"client"])
    async with client.consume(TOPIC, GROUP) as consumer:
        for _ in range(4):
            delivery = await anext_of(consumer)
            async with guard(delivery):
                if delivery.body == b"reject":
                    delivery.reject("unreadable")
                elif delivery.body == b"release":
                    delivery.release(30.0)
                elif delivery.body == b"ack":
                    delivery.ack()
                else:
                    await client.ack(delivery)
    stats = await numbers()
    assert (stats.dead, stats.backoff, stats.acked, stats.in_flight) == (1, 1, 2, 0)


@pytest.mark.slow
async def test_confirm_waits_until_the_outcome_is_on_disk(client: Any, guard: Any, numbers: Any) -> None:
    await client.send(TOPIC, b"x")
    consumer = client.consume(TOPIC, GROUP, confirm=True)
    async with guard(await anext_of(consumer)):
        pass
    assert (await numbers()).acked == 1


@pytest.mark.mechanism("D.26")
@pytest.mark.slow
async def test_the_lease_is_renewed_while_the_handler_runs(client: Any, guard: Any, numbers: Any, advance: Any) -> None:
    await client.send(TOPIC, b"slow")
    async with client.consume(TOPIC, GROUP, invisible=60.0) as consumer:
        delivery = await anext_of(consumer)
        async with guard(delivery):
            await advance(3600.0)
            assert await client.pop(TOPIC, GROUP) == []
    assert (await numbers()).acked == 1


@pytest.mark.slow
async def test_a_popped_delivery_is_renewed_from_its_guard_on(
    client: Any, guard: Any, numbers: Any, advance: Any
) -> None:
    await client.send(TOPIC, b"slow")
    (delivery,) = await client.pop(TOPIC, GROUP, invisible=60.0)
    await advance(50.0)
    async with guard(delivery):
        await advance(3600.0)
    assert (await numbers()).acked == 1


async def test_messages_that_wait_in_the_client_are_renewed_too(
    client: Any, guard: Any, numbers: Any, advance: Any
) -> None:
    await client.send(TOPIC, [b"x"] * 7)
    async with client.consume(TOPIC, GROUP, invisible=60.0) as consumer:
        for _ in range(7):
            async with guard(await anext_of(consumer)):
                await advance(50.0)
    assert (await numbers()).acked == 7


async def test_a_lost_lease_is_noticed_logged_and_not_acked(
    client: Any, guard: Any, numbers: Any, advance: Any, popmq_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    await client.send(TOPIC, b"x")
    async with client.consume(TOPIC, GROUP, invisible=60.0) as consumer:
        delivery = await anext_of(consumer)
        async with guard(delivery):
            await client.extend(delivery, 1.0)  # an operator's hand: the lease ends before the client renews it
            await advance(120.0)
    assert (await numbers()).acked == 0
    assert "is lost to this client" in caplog.text
    (again,) = await client.pop(TOPIC, GROUP)
    assert again.attempt == 2


async def test_messages_popped_and_not_delivered_are_released_uncounted_at_the_end_of_a_loop(
    client: Any, guard: Any, numbers: Any
) -> None:
    await client.send(TOPIC, [b"x"] * 20)
    handled = 0
    async with client.consume(TOPIC, GROUP) as consumer:
        async for delivery in consumer:
            async with guard(delivery):
                handled += 1
            if handled == 5:  # pops of 1, 2, 4: two more wait in the client
                break
    stats = await numbers()
    assert (stats.acked, stats.in_flight) == (5, 0)
    rest = await client.pop(TOPIC, GROUP, max_messages=100)
    assert [delivery.attempt for delivery in rest] == [1] * 15


async def test_stop_ends_a_consumer_that_waits_for_messages(client: Any, numbers: Any) -> None:
    consumer = client.consume(TOPIC, GROUP, wait=60.0)
    ended = asyncio.ensure_future(collect(consumer))
    await eventually(lambda: holds(numbers, lambda stats: stats.waiters == 1))
    consumer.stop()
    assert await ended == []
    await eventually(lambda: holds(numbers, lambda stats: stats.waiters == 0))


async def test_a_stopped_consumer_asks_for_the_batch_of_its_last_pop_and_leases_as_little_else_as_can_be(
    client: Any, guard: Any, numbers: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, asked = resolve_name("popmq._calls.pop_calls"), list[tuple[int, float, str]]()

    def pop(*place: Any, _real: Any = calls.pop, **how: Any) -> Any:
        asked.append((how["max_messages"], how["wait"], how["attempt_id"]))
        return _real(*place, **how)

    monkeypatch.setattr(calls, "pop", pop)
    await client.send(TOPIC, [b"x"] * 7)
    consumer = client.consume(TOPIC, GROUP, wait=60.0)
    for _ in range(7):  # pops of 1, 2, 4
        async with guard(await anext_of(consumer)):
            pass
    ended = asyncio.ensure_future(collect(consumer))
    await eventually(lambda: holds(numbers, lambda stats: stats.waiters == 1))
    consumer.stop()
    assert await ended == []
    parked, repeated = asked[-2:]
    assert (parked[:2], repeated[:2]) == ((8, 60.0), (1, 0.0))
    assert parked[2] == repeated[2]


async def test_a_stopped_consumer_has_said_goodbye(client: Any, guard: Any, numbers: Any) -> None:
    await client.send(TOPIC, b"x")
    async with client.consume(TOPIC, GROUP) as consumer, guard(await anext_of(consumer)):
        assert (await numbers()).sessions == 1
    assert (await numbers()).sessions == 0


async def test_closing_the_client_closes_its_consumers(connect: Connect, client: Any, numbers: Any) -> None:
    await client.send(TOPIC, [b"x"] * 3)
    other = connect()
    consumer = other.consume(TOPIC, GROUP)
    delivery = await anext_of(consumer)
    delivery.release(0.0, uncounted=True)
    delivery = await anext_of(consumer)  # a pop of two: one delivered, one waits
    await other.close()
    stats = await numbers()
    assert (stats.in_flight, stats.sessions) == (1, 0)
    with pytest.raises(errors.ClientClosed):
        await other.ack(delivery)


async def test_a_consumer_without_its_topic_says_so(client: Any) -> None:
    with pytest.raises(errors.TopicNotFound, match="nowhere"):
        await anext_of(client.consume("nowhere", GROUP))
    with pytest.raises(errors.GroupNotFound, match="nobody"):
        await anext_of(client.consume(TOPIC, "nobody"))


@pytest.mark.mechanism("S3.07")
@pytest.mark.slow
async def test_handlers_that_run_beside_the_loop_bound_its_deliveries(client: Any, guard: Any) -> None:
    await client.send(TOPIC, [b"x"] * 30)
    out: set[popmq.Delivery] = set()
    most = 0
    full = asyncio.Event()

    async def settle_later(delivery: popmq.Delivery) -> None:
        await full.wait()
        async with guard(delivery):
            out.discard(delivery)

    handed = 0
    tasks = []
    consumer = client.consume(TOPIC, GROUP, max_in_hand=4)
    async for delivery in consumer:
        handed += 1
        out.add(delivery)
        most = max(most, len(out))
        if len(out) == 4:
            full.set()
        tasks.append(asyncio.ensure_future(settle_later(delivery)))
        if handed == 30:
            consumer.stop()
    await asyncio.gather(*tasks)
    assert most == 4


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many messages the pops of consumers ask for, filled as they are made."""
    calls, sizes = resolve_name("popmq._calls.pop_calls"), list[int]()

    def pop(*place: Any, _real: Any = calls.pop, **how: Any) -> Any:
        sizes.append(how["max_messages"])
        return _real(*place, **how)

    monkeypatch.setattr(calls, "pop", pop)
    return sizes


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer that puts off a pop does so until there is room, and not until a time."""
    size = resolve_name("popmq._consuming.pop_size")
    monkeypatch.setattr(size, "PATIENT_FOR", 1e9)
    monkeypatch.setattr(size, "PATIENT_S_MAX", 3600.0)


@pytest.mark.usefixtures("patient")
async def test_a_pop_that_has_too_little_room_waits_for_what_quick_handlers_settle_meanwhile(
    client: Any, asked: list[int]
) -> None:
    await client.send(TOPIC, [b"x"] * 7)
    async with client.consume(TOPIC, GROUP, max_in_hand=4) as consumer:
        held = [await anext_of(consumer) for _ in range(3)]
        waiting = asyncio.ensure_future(anext_of(consumer))
        for delivery in held:
            await client.groups.get(GROUP)  # a pop with a place for less than four would be made meanwhile
            assert asked == [1, 2]
            delivery.ack()
        (await waiting).ack()
    assert asked == [1, 2, 4]


@pytest.mark.usefixtures("patient")
async def test_a_pop_waits_for_no_handler_after_one_that_found_the_topic_empty(client: Any, asked: list[int]) -> None:
    async with client.consume(TOPIC, GROUP, max_in_hand=4) as consumer:
        held = []
        for _ in range(4):
            waiting = asyncio.ensure_future(anext_of(consumer))
            await client.send(TOPIC, b"x")
            held.append(await waiting)
        assert asked == [1, 2, 2, 1]


@pytest.mark.usefixtures("patient")
async def test_a_consumer_that_waits_for_room_stops_at_once(client: Any, asked: list[int]) -> None:
    await client.send(TOPIC, [b"x"] * 7)
    consumer = client.consume(TOPIC, GROUP, max_in_hand=4)
    held = [await anext_of(consumer) for _ in range(3)]
    waiting = asyncio.ensure_future(anext_of(consumer))
    await client.groups.get(GROUP)
    consumer.stop()
    with pytest.raises(StopAsyncIteration):
        await waiting
    assert (len(held), asked) == (3, [1, 2])


async def test_slow_handlers_keep_the_next_message_from_no_free_one(client: Any, asked: list[int]) -> None:
    await client.send(TOPIC, [b"x"] * 4)
    async with client.consume(TOPIC, GROUP, max_in_hand=4) as consumer:
        held = [await anext_of(consumer) for _ in range(4)]
        assert (len(held), asked) == (4, [1, 2, 1])


@pytest.mark.usefixtures("patient")
async def test_with_one_in_hand_each_pop_is_made_when_the_one_before_is_settled(client: Any, asked: list[int]) -> None:
    await client.send(TOPIC, [b"x"] * 3)
    async with client.consume(TOPIC, GROUP, max_in_hand=1) as consumer:
        for _ in range(3):
            (await anext_of(consumer)).ack()
        assert asked == [1, 1, 1]


@pytest.mark.mechanism("S1.06")
@pytest.mark.slow
async def test_the_queues_that_the_broker_assigns_are_the_ones_that_are_popped(connect: Connect, client: Any) -> None:
    await client.groups.create("shared", share_number=1)
    everyone = [connect(), connect(), connect(), connect()]
    for member in everyone:
        await member.sessions.heartbeat("shared", [TOPIC])
    assignments = [await member.queues.assignment(TOPIC, "shared") for member in everyone]
    assert all(assignment.known and not assignment.all for assignment in assignments)
    load = [queue for assignment in assignments for queue in assignment.queues]
    assert sorted(load) == sorted([*range(8)] * 2)
    await client.send(TOPIC, b"0")
    for _ in range(7):
        await client.send(TOPIC, b"next queue")
    mine = set(assignments[0].queues)
    async with everyone[0].consume(TOPIC, "shared") as consumer:
        found = {(await anext_of(consumer)).queue for _ in range(len(mine))}
    assert found == mine


def anext_of(consumer: Any) -> Any:
    return consumer.__anext__()


async def collect(consumer: Any) -> list[popmq.Delivery]:
    return [delivery async for delivery in consumer]


async def holds(numbers: Any, condition: Callable[[popmq.GroupStats], bool]) -> bool:
    return condition(await numbers())


@pytest.fixture(autouse=True)
def _by_the_fake_clock(popmq_clock: FakeClock) -> None:
    """Nothing of this file depends on how fast the machine is."""


async def test_a_consumer_that_is_dropped_keeps_no_message_and_no_session(
    client: Any, connect: Connect, advance: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await client.send(TOPIC, [b"warm"] * 3)
    reader = connect()
    consumer = reader.consume(TOPIC, GROUP, invisible=10.0)
    for _ in range(3):  # so that it sees a quick handler, and pops several
        (await consumer.__anext__()).ack()
    await client.send(TOPIC, [b"1", b"2", b"3"])
    (await consumer.__anext__()).ack()
    del consumer
    gc.collect()
    await advance(60.0)
    assert len(await client.pop(TOPIC, GROUP)) == 2
    assert "deliveries of group billing were dropped without ack, release or reject (2)" in caplog.text
    assert await client.sessions.list(GROUP) == []
