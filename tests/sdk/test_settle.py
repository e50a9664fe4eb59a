"""What is sent with an ack, in one commit: by `forward`, `settle`, and the client's `settle`."""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

import pytest

import popmq
from popmq.errors import HandleLapsed, InvalidField, TopicNotFound
from popmq_proto.v1 import popmq_pb2 as pb
from tests.sdk.calling.lossy import LOSE, LossyWire
from tests.sdk.conftest import GROUP, QUICK, TOPIC, Connect, eventually

OUT, FIFO = "invoices", "letters"


@pytest.fixture
async def client(client: Any) -> Any:
    """With a topic to send to."""
    await client.topics.create(OUT, queues=1)
    return client


async def texts(client: Any, topic: str = OUT) -> list[str]:
    return [one.text() for one in (await client.messages.browse(topic, order="oldest")).deliveries]


async def popped(client: Any, *bodies: str, topic: str = TOPIC) -> list[popmq.Delivery]:
    await client.send(topic, bodies)
    rows: list[popmq.Delivery] = await client.pop(topic, GROUP)
    return rows


async def forward_to(guard: Any, delivery: popmq.Delivery, *topics: str, fails: bool = False) -> None:
    async with guard(delivery):
        for topic in topics:
            delivery.forward("x", topic=topic)
        if fails:
            raise ZeroDivisionError


# ── forward ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_what_is_forwarded_is_sent_when_the_block_ends(client: Any, guard: Any, numbers: Any) -> None:
    (delivery,) = await popped(client, "a")
    async with guard(delivery):
        delivery.forward("x", popmq.Message("y", key="k"), topic=OUT)
        delivery.forward("z", topic=OUT)
        assert await texts(client) == []
    assert await texts(client) == ["x", "y", "z"]
    assert (await client.messages.look_up(OUT, key="k")).deliveries
    assert (await numbers()).acked == 1


async def test_a_block_that_raises_sends_nothing(client: Any, guard: Any, numbers: Any) -> None:
    (delivery,) = await popped(client, "a")
    with pytest.raises(ZeroDivisionError):
        await forward_to(guard, delivery, OUT, fails=True)
    assert await texts(client) == []
    assert (await numbers()).backoff == 1


@pytest.mark.parametrize("end", ["release", "reject"])
async def test_a_delivery_that_is_not_acked_sends_nothing(client: Any, guard: Any, numbers: Any, end: str) -> None:
    (delivery,) = await popped(client, "a")
    async with guard(delivery):
        delivery.forward("x", topic=OUT)
        getattr(delivery, end)()
    await eventually(lambda: _settled(numbers))
    assert await texts(client) == []


async def _settled(numbers: Any) -> bool:
    await asyncio.sleep(0)
    return not (await numbers()).in_flight


async def test_an_ack_within_the_block_sends_what_was_forwarded_before(client: Any, guard: Any) -> None:
    (delivery,) = await popped(client, "a")
    async with guard(delivery):
        delivery.forward("x", topic=OUT)
        delivery.ack()
        await eventually(lambda: _sent(client, 1))
        with pytest.raises(HandleLapsed):
            delivery.forward("late", topic=OUT)
    assert await texts(client) == ["x"]


async def _sent(client: Any, count: int) -> bool:
    await asyncio.sleep(0)
    return len(await texts(client)) == count


async def test_a_delivery_outside_of_its_block_cannot_forward_but_settle(client: Any) -> None:
    (delivery,) = await popped(client, "a")
    with pytest.raises(HandleLapsed, match="with"):
        delivery.forward("x", topic=OUT)
    delivery.settle([popmq.Send(OUT, "x"), popmq.Send(OUT, "y")])
    await eventually(lambda: _sent(client, 2))


@pytest.mark.parametrize(
    ("message", "error"),
    [(5, TypeError), (popmq.Message("x", transaction=True), InvalidField), (popmq.Message("x", key=5), TypeError)],  # type: ignore[arg-type]
)
async def test_what_cannot_be_sent_raises_in_the_handler(client: Any, guard: Any, message: Any, error: Any) -> None:
    (delivery,) = await popped(client, "a")
    with pytest.raises(error):
        async with guard(delivery):
            delivery.forward(message, topic=OUT)
    assert await texts(client) == []


async def test_a_refused_message_releases_the_delivery_with_the_reason(
    client: Any, guard: Any, numbers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (delivery,) = await popped(client, "a")
    with pytest.raises(TopicNotFound):
        await forward_to(guard, delivery, OUT, "nowhere")
    assert await texts(client) == []
    await eventually(lambda: _released(numbers))
    (life,) = await client.messages.why(delivery.message_id)
    assert "nowhere" in str(life.groups[0])


async def _released(numbers: Any) -> bool:
    await asyncio.sleep(0)
    return bool((await numbers()).backoff)


async def test_deliveries_of_a_consumer_share_a_request_and_one_that_is_refused_does_not_stop_the_others(
    client: Any, connect: Connect, guard: Any, wire: LossyWire, numbers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    lossy = connect(wire.endpoint, retry=QUICK)
    await client.send(TOPIC, [str(number) for number in range(6)])
    held, go = threading.Event(), threading.Event()
    wire.plan["Settle"] = [waiting(held, go)]
    consumer = lossy.consume(TOPIC, GROUP)
    for number in range(6):
        async with guard(delivery := await consumer.__anext__()):
            delivery.forward(delivery.text(), topic="nowhere" if number == 4 else OUT)
        if number == 0:
            await asyncio.to_thread(held.wait)
    go.set()
    await consumer.close()
    assert len(await texts(client)) == 5
    assert ((await numbers()).acked, (await numbers()).backoff) == (5, 1)
    sizes = [len(pb.SettleRequest.FromString(request).handles) for request in wire.seen["Settle"]]
    assert sizes[:2] == [1, 5]
    assert "nothing was sent, and it is released" in caplog.text


def waiting(held: threading.Event, go: threading.Event) -> Callable[[Callable[[], bytes]], bytes]:
    """For a plan: the call tells that it came, and waits."""

    def act(forward: Callable[[], bytes]) -> bytes:
        held.set()
        go.wait()
        return forward()

    return act


@pytest.mark.parametrize("acts", [[LOSE], [LOSE, LOSE]])
async def test_an_answer_that_is_lost_changes_nothing(
    client: Any, connect: Connect, guard: Any, wire: LossyWire, numbers: Any, acts: list[str]
) -> None:
    lossy = connect(wire.endpoint, retry=QUICK)
    await client.send(TOPIC, "a")
    (delivery,) = await lossy.pop(TOPIC, GROUP)
    wire.plan["Settle"] = [*acts]
    async with guard(delivery):
        delivery.forward("x", topic=OUT)
    assert await texts(client) == ["x"]
    assert (await numbers()).acked == 1
    assert len(wire.seen["Settle"]) == len(acts) + 1


@pytest.mark.capability("settle")
async def test_the_output_of_a_message_group_comes_in_its_order(client: Any, guard: Any) -> None:
    await client.topics.create(FIFO, type="FIFO", queues=1)
    await client.topics.create("copies", type="FIFO", queues=4)
    await client.send(FIFO, [popmq.Message(str(number), message_group="m") for number in range(20)])
    async with client.consume(FIFO, GROUP) as consumer:
        for _ in range(20):
            async with guard(delivery := await consumer.__anext__()):
                delivery.forward(popmq.Message(delivery.body, message_group="m"), topic="copies")
    assert await texts(client, "copies") == [str(number) for number in range(20)]


async def test_in_a_message_group_what_comes_after_a_refused_one_waits_for_it(
    client: Any, guard: Any, advance: Any
) -> None:
    await client.topics.create(FIFO, type="FIFO", queues=1)
    await client.send(FIFO, [popmq.Message(text, message_group="m") for text in "ab"])
    seen = []
    async with client.consume(FIFO, GROUP) as consumer:
        for topic in ("nowhere", OUT, OUT):
            async with guard(delivery := await consumer.__anext__()):
                seen.append(delivery.text())
                delivery.forward(delivery.text(), topic=topic)
            if topic == "nowhere":
                await eventually(lambda: _in_backoff(client))
                await advance(10.0)
    assert seen == ["a", "a", "b"]
    assert await texts(client) == ["a", "b"]


async def _in_backoff(client: Any) -> bool:
    await asyncio.sleep(0)
    return any(row.backoff for row in (await client.broker.stats(FIFO, GROUP)).groups)


async def test_a_pulled_message_cannot_forward(client: Any, guard: Any) -> None:
    await client.send(TOPIC, "a")
    async with client.broadcast_consume(TOPIC, start="first") as consumer:
        delivery = await consumer.__anext__()
        with pytest.raises(RuntimeError, match="pull consumer"):
            delivery.forward("x", topic=OUT)


# ── settle ───────────────────────────────────────────────────────────────────────────────────────────────────────────


async def test_a_batch_is_settled_in_one_request_with_the_receipts_in_order(client: Any, numbers: Any) -> None:
    await client.topics.create("other", queues=1)
    a, b, c, d = await popped(client, *"abcd")
    sends = [popmq.Send(OUT, "x"), popmq.Send("other", "y"), popmq.Send(OUT, "z", "w")]
    receipts = await client.settle([a, b], sends, release=[c], reject=[d], delay="5s", reason="as told")
    assert [(each.queue, each.offset) for each in receipts] == [(0, 0), (0, 0), (0, 1), (0, 2)]
    assert await texts(client) == ["x", "z", "w"]
    now = await numbers()
    assert (now.acked, now.backoff, now.dead) == (2, 1, 1)


async def test_a_lapsed_delivery_is_named_and_nothing_is_done(client: Any, numbers: Any) -> None:
    rows = await popped(client, *"ab")
    await client.ack(rows[1])
    with pytest.raises(HandleLapsed) as refused:
        await client.settle(rows, popmq.Send(OUT, "x"))
    assert refused.value.field == "handles[1]"
    assert await texts(client) == []
    assert (await numbers()).in_flight == 1


async def test_handles_need_their_group_and_all_deliveries_one(client: Any) -> None:
    (delivery,) = await popped(client, "a")
    assert await client.settle(delivery.handle, popmq.Send(OUT, "x"), group=GROUP)
    for wrong in ([], ["handle", popmq.Delivery(b"x", group="other")]):
        with pytest.raises(InvalidField):
            await client.settle(wrong, popmq.Send(OUT, "x"), group=GROUP)


@pytest.mark.parametrize("sends", ["x", [popmq.Message("x")], 5])
async def test_what_is_no_send_is_refused_before_the_broker_is_asked(client: Any, sends: Any) -> None:
    rows = await popped(client, "a")
    with pytest.raises(TypeError):
        await client.settle(rows, sends)


def test_a_send_needs_a_topic_and_messages() -> None:
    assert repr(popmq.Send("t", "x")) == "Send('t', 'x')"
    for wrong in ((5, "x"), ("t",), ("t", 5)):
        with pytest.raises(TypeError):
            popmq.Send(*wrong)


async def test_a_settle_whose_answer_is_lost_is_done_once(
    client: Any, connect: Connect, wire: LossyWire, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    lossy = connect(wire.endpoint, retry=QUICK)
    await client.send(TOPIC, ["a", "b"])
    rows = await lossy.pop(TOPIC, GROUP)
    wire.plan["Settle"] = [LOSE]
    (receipt,) = await lossy.settle(rows, popmq.Send(OUT, "x"))
    assert (receipt.queue, receipt.offset) == (0, 0)
    assert await texts(client) == ["x"]
