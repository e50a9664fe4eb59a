"""`popmq bench`: measures a broker as seen from this machine, by a small load on a topic of its own."""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import click

import popmq
from popmq_cli.shared.asking import SIZE, asks
from popmq_cli.shared.output import Output

COLUMNS = ["STEP", "MESSAGES#", "MSG/S#", "MIB/S#", "CALLS#", "P50 MS#", "P99 MS#", "MAX MS#"]
#: The prefix of the names of the topic and of the group.
PREFIX = "popmq-bench-"
#: Seconds that a pop waits for messages of senders that are still running.
WAIT_S = 1.0


@dataclass
class Step:
    """One kind of call, by all threads together."""

    name: str
    messages: int = 0
    seconds: float = 0.0  # from the first call to the end of the last one
    calls: list[float] = field(default_factory=list)  # seconds that each took
    ended: float = 0.0  # when the last one was answered

    def timed(self, call: Callable[..., Any], *arguments: Any) -> Any:
        """Makes a call and notes how long it took, unless it was a pop that found nothing: that has only waited.

        `list.append` is safe between threads.
        """
        began = time.perf_counter()
        answer = call(*arguments)
        ended = time.perf_counter()
        if answer != []:
            self.calls.append(ended - began)
            self.ended = max(self.ended, ended)
        return answer

    def within_ms(self, share: float) -> float:
        """Milliseconds within which this share of the calls was answered."""
        ordered = sorted(self.calls) or [0.0]
        return round(ordered[min(int(len(ordered) * share), len(ordered) - 1)] * 1000, 3)


@click.command()
@click.option("--messages", type=click.IntRange(1), default=10_000, show_default=True, help="Number of messages.")
@click.option(
    "--size", type=SIZE, default="256", show_default=True, metavar="SIZE", help="Bytes of each body: 256, 4KiB."
)
@click.option("--batch", type=click.IntRange(1, 4096), default=1, show_default=True, help="Messages in one call.")
@click.option("--threads", type=click.IntRange(1, 256), default=8, show_default=True, help="Calls at a time.")
@asks
def bench(client: popmq.Client, output: Output, messages: int, size: int, batch: int, threads: int) -> None:
    """Send, pop and ack messages, and show rates and durations.

    It creates a topic and a group, and deletes them at the end. A send or an ack is answered when it is on the broker's
    disk. The durations include the network and this program, which is one Python process; with --batch 1 and many
    threads this program is often slower than the broker.

    \b
    Examples:
      popmq bench
      popmq bench --messages 100000 --batch 100 --size 1KiB
      popmq bench --messages 1000 --threads 1 --json
    """
    name = PREFIX + uuid.uuid4().hex[:8]
    try:
        client.topics.create(name)
        client.groups.create(name)
        output.note(f"sending {messages:,} messages of {size:,} bytes to {name}")
        sent = _send(client, name, b"x" * max(size, 1), messages, batch, threads)
        output.note(f"popping and acking {messages:,} messages")
        popped, acked = _pop(client, name, messages, batch, threads)
    finally:
        for delete in (client.topics.delete, client.groups.delete):
            with contextlib.suppress(popmq.errors.NotFound):  # it was interrupted before it made both
                delete(name)
    rows = [_row(step, size) for step in (sent, popped, acked)]
    if output.as_json:
        names = ("step", "messages", "messages_per_s", "mib_per_s", "calls", "p50_ms", "p99_ms", "max_ms")
        output.objects(dict(zip(names, row, strict=True)) for row in rows)
    else:
        output.table(f"{threads} threads, {batch} messages a call", COLUMNS, rows)


def _send(client: popmq.Client, topic: str, body: bytes, messages: int, batch: int, threads: int) -> Step:
    step = Step("send", messages)

    def work(number: int) -> None:
        left = messages // threads + (number < messages % threads)
        while left > 0:
            size = min(batch, left)
            step.timed(client.send, topic, [body] * size)
            left -= size

    began = _in_threads(threads, work)
    step.seconds = step.ended - began
    return step


def _pop(client: popmq.Client, name: str, messages: int, batch: int, threads: int) -> tuple[Step, Step]:
    """Each thread acks what it popped before it pops again, as a consumer does: their rates are the same."""
    popped, acked = Step("pop"), Step("ack")
    counting = threading.Lock()

    def work(_number: int) -> None:
        while popped.messages < messages:
            taken = popped.timed(client.pop, name, name, batch, WAIT_S)
            if taken:
                acked.timed(client.ack, taken)
            with counting:
                popped.messages += len(taken)
                acked.messages += len(taken)

    began = _in_threads(threads, work)
    popped.seconds = acked.seconds = acked.ended - began
    return popped, acked


def _in_threads(count: int, work: Callable[[int], None]) -> float:
    """Runs `work` in threads; returns when they began. Raises the first error."""
    errors: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return began


def _row(step: Step, size: int) -> tuple[str | int | float, ...]:
    rate = step.messages / step.seconds if step.seconds else 0.0
    return (
        step.name,
        step.messages,
        round(rate),
        round(rate * size / 1024**2, 2),
        len(step.calls),
        step.within_ms(0.5),
        step.within_ms(0.99),
        step.within_ms(1.0),
    )
