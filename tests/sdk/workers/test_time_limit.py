"""A time limit for handlers, and where those that run stand."""

import asyncio
import logging
import queue
import runpy
import threading
from pathlib import Path
from typing import Any

import pytest

import popmq
from popmq.errors import InvalidField
from popmq.testing import Broker, FakeClock
from tests.sdk.workers.workers import sent_to

SOON = 0.02
EXAMPLE = Path(__file__).parents[3] / "examples" / "time_limit.py"


def reason_of_the_release(broker: Broker) -> str:
    """Of the message of topic orders."""
    client = broker.client()
    (message,) = client.messages.browse("orders", order="newest").deliveries
    (life,) = client.messages.why(message.message_id)
    return next(event.reason for event in life.groups[0].events if event.what == "released")


def test_a_coroutine_is_cancelled_at_its_limit_and_its_message_is_released_with_the_reason(
    popmq_broker: Broker,
) -> None:
    worker, ended = popmq.Worker(), list[str]()

    @worker.on("orders", group="billing", timeout=SOON)
    async def waits(text: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(text)

    sent_to(popmq_broker, worker, "a")
    assert [each.outcome for each in popmq_broker.work(worker)] == ["released"]
    assert ended == ["a"]
    first, *stack = reason_of_the_release(popmq_broker).splitlines()
    assert first == "timed out after 0.02 s"
    assert "in waits" in stack[0]


class EndsOne(logging.Handler):
    """Lets a handler end when a slot waits for it."""

    def __init__(self, go: threading.Event) -> None:
        super().__init__()
        self.go = go

    def emit(self, record: logging.LogRecord) -> None:
        if "does not go on: 2 of its threads" in record.getMessage():
            self.go.set()


def test_threads_are_left_behind_and_a_slot_waits_when_they_are_more_than_its_handler_has(
    popmq_broker: Broker,
) -> None:
    worker, go, ends = popmq.Worker(), threading.Event(), threading.Event()
    begun = queue.Queue[threading.Thread]()

    @worker.on("orders", group="billing", concurrency=1, timeout=SOON)
    def blocks(text: str) -> None:
        first = not threads
        threads.append(threading.current_thread())
        begun.put(threads[-1])
        (go if first else ends).wait()

    threads: list[threading.Thread] = []
    log, waits = logging.getLogger("popmq.worker"), EndsOne(go)
    log.addHandler(waits)
    sent_to(popmq_broker, worker, "a", "b", "c")
    serving = threading.Thread(target=lambda: asyncio.run(worker.serve(popmq_broker.async_client())))
    serving.start()
    try:
        for _ in range(2):
            begun.get(timeout=60)
        begun.get(timeout=60)
        assert go.is_set(), "the third message waited until one of the two threads had ended"
        assert len(set(threads)) == 3
    finally:
        go.set()
        ends.set()
        worker.stop()
        serving.join()
        log.removeHandler(waits)
    for each in threads:
        each.join()


def test_the_reason_of_a_thread_says_where_it_stood(popmq_broker: Broker) -> None:
    worker, go = popmq.Worker(), threading.Event()

    @worker.on("orders", group="billing", timeout=SOON)
    def blocks(text: str) -> None:
        go.wait()

    try:
        sent_to(popmq_broker, worker, "a")
        popmq_broker.work(worker)
        reason = reason_of_the_release(popmq_broker)
        assert reason.startswith("timed out after 0.02 s\n")
        assert "in blocks\n    go.wait()" in reason
    finally:
        go.set()


def test_a_handler_that_ends_in_time_is_acked_and_its_own_timeout_is_its_error(popmq_broker: Broker) -> None:
    worker = popmq.Worker()

    @worker.on("orders", group="billing", timeout="1m")
    async def decides(text: str) -> None:
        if text == "own":
            raise TimeoutError("of a socket")

    sent_to(popmq_broker, worker, "quick", "own")
    handled = popmq_broker.work(worker)
    assert sorted(each.outcome for each in handled) == ["acked", "released"]
    (error,) = [each.error for each in handled if each.error]
    assert type(error) is TimeoutError


@pytest.mark.parametrize("wrong", [0, -1, "0s"])
def test_a_limit_is_more_than_nothing(wrong: Any) -> None:
    with pytest.raises(InvalidField, match=r"a handler needs some time .*leave it out for no limit"):
        popmq.Worker().on("orders", group="billing", timeout=wrong)(lambda delivery: None)


def test_at_work_shows_each_handler_with_its_message_and_its_stack(popmq_broker: Broker) -> None:
    worker, go, begun = popmq.Worker(), threading.Event(), threading.Barrier(3, timeout=60)

    @worker.on("orders", group="billing")
    def blocks(delivery: popmq.Delivery) -> None:
        begun.wait()
        go.wait()

    @worker.on("mails", group="billing")
    async def waits(delivery: popmq.Delivery) -> None:
        await asyncio.to_thread(begun.wait)
        await asyncio.to_thread(go.wait)

    assert worker.at_work() == "0 handlers at work\n"
    client = sent_to(popmq_broker, worker, "a")
    client.send("mails", popmq.Message("b", message_id="mail-7"))
    serving = threading.Thread(target=lambda: asyncio.run(worker.serve(popmq_broker.async_client())))
    serving.start()
    try:
        begun.wait()
        told = worker.at_work()
    finally:
        go.set()
        worker.stop()
        serving.join()
    assert told.startswith("2 handlers at work\n")
    assert "message 'mail-7' of mails, attempt 1, for " in told
    assert "in blocks" in told
    assert "in waits" in told
    assert "_worker" not in told


def test_the_example_sets_aside_what_never_ends(popmq_broker: Broker, popmq_clock: FakeClock) -> None:
    example = runpy.run_path(str(EXAMPLE))
    worker, client = example["worker"], popmq_broker.client()
    example["send"](client)
    example["random"].seed(1)
    for _ in range(3):
        popmq_broker.work(worker)
        popmq_clock.advance(1_000)
    letters = client.messages.browse("%DLQ%watchers").deliveries
    assert "Nowhere" in [letter.text() for letter in letters]
    assert {letter.dead_letter.reason.splitlines()[0] for letter in letters if letter.dead_letter} == {
        "timed out after 0.1 s"
    }
    assert client.broker.stats("pictures", "painters").groups[0].acked == 1
