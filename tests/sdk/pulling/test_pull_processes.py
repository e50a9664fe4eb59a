"""Pull consumers among processes, threads and signals, and a broker that restarts in the middle of everything."""

import asyncio
import signal
import subprocess
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import popmq
from harness.broker_process import BrokerProcess
from popmq.testing import Broker, FakeClock
from tests.sdk.conftest import GROUP, TOPIC, Connect, eventually, has_retried
from tests.sdk.programs import STOPPED_BY_A_SIGNAL, line, python
from tests.sdk.pulling.pulls import committed, each_queue, next_of, pulling, soon, take

pytestmark = pytest.mark.process


WAITS = """
    import signal, popmq
    with popmq.Client({endpoint!r}) as client:
        for delivery in client.pull_consume("orders", "billing"):
            with delivery:
                print(delivery.text(), flush=True)
                if delivery.text() == "last":
                    signal.pause()
"""

COMMITS_THEN_WAITS = """
    import signal, popmq
    with popmq.Client({endpoint!r}) as client:
        for number, delivery in enumerate(client.pull_consume("orders", "billing"), 1):
            with delivery:
                print(delivery.text(), flush=True)
            if number == 8:
                break
        for delivery in client.pull_consume("orders", "billing"):
            with delivery:
                print(delivery.text(), flush=True)
                signal.pause()
"""

ORDERLY = """
    import signal, popmq
    with popmq.Client({endpoint!r}) as client:
        for delivery in client.pull_consume("orders", "billing", orderly=True):
            with delivery:
                print(delivery.queue, delivery.offset, flush=True)
                signal.pause()
"""


def progress(client: popmq.Client) -> int:
    return sum(row.committed for row in client.offsets.query(TOPIC, GROUP))


@pytest.mark.promise("statistics")
def test_a_consumer_stopped_by_a_signal_has_committed_and_said_goodbye(
    sync_client: popmq.Client, popmq_broker: Broker
) -> None:
    sync_client.send(TOPIC, ["one"])
    worker = python(STOPPED_BY_A_SIGNAL.replace("{loop}", "pull_consume"), popmq_broker)
    assert line(worker) == "one"
    worker.send_signal(signal.SIGTERM)
    out, err = worker.communicate(timeout=60)
    assert (out, err, worker.returncode) == ("stopped\n", "", 0)
    assert progress(sync_client) == 1
    assert sync_client.broker.stats(TOPIC, GROUP).groups[0].sessions == 0


@pytest.mark.promise("statistics")
@pytest.mark.mechanism("S0.03")
@pytest.mark.parametrize(("texts", "done"), [(["first", "last"], [1]), (["first"], [0, 1])], ids=["handles", "waits"])
def test_ctrl_c_ends_a_consumer_and_leaves_its_message_to_others(
    sync_client: popmq.Client, popmq_broker: Broker, texts: list[str], done: list[int]
) -> None:
    sync_client.send(TOPIC, texts)
    worker = python(WAITS, popmq_broker)
    assert [line(worker) for _ in texts] == texts
    worker.send_signal(signal.SIGINT)
    _, err = worker.communicate(timeout=60)
    assert "KeyboardInterrupt" in err
    assert progress(sync_client) in done
    assert sync_client.broker.stats(TOPIC, GROUP).groups[0].sessions == 0


@pytest.mark.mechanism("S3.16")
def test_no_thread_is_left_when_a_client_is_closed(sync_client: popmq.Client, popmq_broker: Broker) -> None:
    sync_client.send(TOPIC, ["x"] * 3)
    client = popmq.Client(popmq_broker.endpoint)
    next(client.pull_consume(TOPIC, GROUP)).ack()
    names = {thread.name for thread in threading.enumerate()}
    assert {f"popmq-pull-{TOPIC}-{queue}" for queue in range(8)} < names
    client.close()
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("popmq-pull")] == []


async def test_no_task_is_left_when_an_async_client_is_closed(sync_client: popmq.Client, popmq_broker: Broker) -> None:
    sync_client.send(TOPIC, ["x"] * 3)
    async with popmq.AsyncClient(popmq_broker.endpoint) as client:
        (await next_of(client.pull_consume(TOPIC, GROUP))).ack()
        assert len(asyncio.all_tasks()) > 8
    assert asyncio.all_tasks() == {asyncio.current_task()}


# ── One is killed ────────────────────────────────────────────────────────────────────────────────────────────────────


def handled(consumer: popmq.PullConsumer, messages: int) -> list[str]:
    """Handles so many messages, and closes the consumer."""
    seen = []
    for delivery in consumer:
        with delivery:
            seen.append(delivery.text())
        if len(seen) == messages:
            break
    return seen


def taken_over(killed: subprocess.Popen[str], clock: FakeClock) -> None:
    """Kills a consumer, and lets the time pass after which the broker takes it for dead."""
    killed.kill()
    killed.communicate(timeout=60)
    clock.advance(121_000)


@pytest.mark.mechanism("S3.35")
def test_a_consumer_takes_over_the_queues_of_a_killed_one(
    sync_client: popmq.Client, popmq_broker: Broker, popmq_clock: FakeClock
) -> None:
    for queue in range(8):
        sync_client.send(TOPIC, [f"{queue}"])
    worker = python(COMMITS_THEN_WAITS, popmq_broker)
    assert sorted(line(worker) for _ in range(8)) == [f"{queue}" for queue in range(8)]
    sync_client.send(TOPIC, ["in hand"])
    assert line(worker) == "in hand"
    again = []
    mine = sync_client.pull_consume(TOPIC, GROUP)
    thread = threading.Thread(target=lambda: again.extend(handled(mine, 1)))
    thread.start()
    while sync_client.broker.stats(TOPIC, GROUP).groups[0].sessions in (0, 1):
        thread.join(0.01)
    taken_over(worker, popmq_clock)
    while thread.is_alive():
        popmq_clock.advance(1000)
        thread.join(0.01)
    assert again == ["in hand"]
    assert progress(sync_client) == 9


def test_queues_locked_by_a_killed_consumer_are_read_in_order_by_another_one(
    sync_client: popmq.Client, popmq_broker: Broker, popmq_clock: FakeClock
) -> None:
    sync_client.send(TOPIC, ["a", "b", "c"])
    worker = python(ORDERLY, popmq_broker)
    assert line(worker).endswith(" 0")
    again: list[str] = []
    mine = sync_client.pull_consume(TOPIC, GROUP, orderly=True)
    thread = threading.Thread(target=lambda: again.extend(handled(mine, 3)))
    thread.start()
    taken_over(worker, popmq_clock)
    while thread.is_alive():
        popmq_clock.advance(1000)
        thread.join(0.01)
    assert again == ["a", "b", "c"]
    assert progress(sync_client) == 3


# ── The broker restarts ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S0.11")
async def test_a_consumer_goes_on_after_a_restart_of_the_broker(
    client: Any, guard: Any, popmq_broker: Broker, popmq_clock: FakeClock
) -> None:
    await each_queue(client, TOPIC, 8, 10)
    seen: Counter[str] = Counter()
    async with client.pull_consume(TOPIC, GROUP) as consumer:
        seen.update(await take(consumer, guard, 30))
        await asyncio.to_thread(popmq_broker.restart)
        await each_queue(client, TOPIC, 8, 10)
        seen.update(await take(consumer, guard, 130))
    assert seen == Counter({f"{number}": 2 for number in range(80)})
    assert await committed(client) == dict.fromkeys(range(8), 20)


@pytest.mark.slow
async def test_a_consumer_survives_a_kill_9_of_the_broker(connect: Connect, guard: Any, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process:
        client = connect(process.endpoint, clock=None)
        await client.topics.create(TOPIC)
        await client.groups.create(GROUP)
        await each_queue(client, TOPIC, 8, 10)
        async with client.pull_consume(TOPIC, GROUP) as consumer:
            seen = Counter(await take(consumer, guard, 30))
            process.kill()
            process.start()
            await each_queue(client, TOPIC, 8, 10)
            seen.update(await take(consumer, guard, 130))
        assert seen == Counter({f"{number}": 2 for number in range(80)})
        assert await committed(client) == dict.fromkeys(range(8), 20)


@pytest.mark.embedded("calls that take under 50 ms")
@pytest.mark.slow
async def test_a_consumer_may_start_before_its_broker(connect: Connect, client: Any, popmq_broker: Broker) -> None:
    await client.send(TOPIC, "x")
    await asyncio.to_thread(popmq_broker.stop)
    impatient = connect(timeouts=popmq.Timeouts.all(0.05))
    consumer = impatient.pull_consume(TOPIC, GROUP)
    waiting = soon(consumer)
    await eventually(lambda: has_retried(impatient))
    await asyncio.to_thread(popmq_broker.start)
    assert (await waiting).text() == "x"
    await consumer.close()


async def test_closing_without_a_broker_takes_no_longer_than_a_call_may(
    connect: Connect, client: Any, guard: Any, popmq_broker: Broker
) -> None:
    await client.send(TOPIC, ["x", "y"])
    impatient = connect(timeouts=popmq.Timeouts.all(0.5))
    consumer = impatient.pull_consume(TOPIC, GROUP)
    await take(consumer, guard, 1)
    await eventually(lambda: pulling(consumer))
    await asyncio.to_thread(popmq_broker.stop)
    began = asyncio.get_running_loop().time()
    await consumer.close()
    assert asyncio.get_running_loop().time() - began < 5.0
