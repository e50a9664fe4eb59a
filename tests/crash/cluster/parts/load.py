"""Producers and consumers through a balancer, each in a thread with a client of its own, and what they saw.

Each call is noted with its time and its answer; judging.py compares them.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.crash.cluster.parts.callers import INVISIBLE_S, Caller, Failed, Taken

#: Pauses of a producer: with two of them, some 150 messages a second.
PAUSE_S = 0.01


class Seen(NamedTuple):
    """One delivery: when it came, in which order, and until when it is leased, by the client's clock."""

    at_s: float
    number: int
    until_s: float
    attempt: int


class Answered(NamedTuple):
    """A call that was answered: when, after how long, and about which queue (-1: it is not known)."""

    at_s: float
    took_s: float
    queue: int = -1


class Refusal(NamedTuple):
    """A call that failed: its kind, when, after how long, and why."""

    kind: str
    at_s: float
    took_s: float
    why: str


@dataclass
class Histories:
    """What all clients saw, by message id."""

    sent: dict[str, float] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    seen: dict[str, list[Seen]] = field(default_factory=lambda: defaultdict(list))
    acked: dict[str, float] = field(default_factory=dict)
    failed: list[Refusal] = field(default_factory=list)
    #: Answers while there was load: sends, pops, acks.
    answers: dict[str, list[Answered]] = field(default_factory=lambda: defaultdict(list))
    stopped: threading.Event = field(default_factory=threading.Event)
    #: Message groups: the ids of each in the order of their sends.
    groups: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    deliveries: int = 0

    def note(self, kind: str, began_s: float, queue: int = -1) -> None:
        if not self.stopped.is_set():
            now_s = time.monotonic()
            self.answers[kind].append(Answered(now_s, now_s - began_s, queue))

    def fail(self, kind: str, began_s: float, why: object) -> None:
        now_s = time.monotonic()
        self.failed.append(Refusal(kind, now_s, now_s - began_s, str(why)))

    def of(self, kind: str) -> list[Refusal]:
        """The calls of a kind that failed."""
        return [each for each in self.failed if each.kind == kind]


class Load:
    """`with Load(caller, topic, group) as load:` – ends with the block. `caller` makes a client for each thread.

    `message_groups`: of each producer, for a FIFO topic.
    """

    def __init__(
        self,
        caller: Callable[[], Caller],
        topic: str,
        group: str,
        *,
        producers: int = 2,
        consumers: int = 3,
        message_groups: int = 0,
    ) -> None:
        self._caller, self._topic, self._group = caller, topic, group
        self._message_groups = message_groups
        self.histories = Histories()
        self._stop, self._drained = threading.Event(), threading.Event()
        self._producers = [threading.Thread(target=self._produce, args=(number,)) for number in range(producers)]
        self._consumers = [threading.Thread(target=self._consume) for _ in range(consumers)]
        self._counting = threading.Lock()

    def __enter__(self) -> Load:
        for thread in (*self._consumers, *self._producers):
            thread.start()
        return self

    def finish(self, drain_s: float) -> None:
        """Ends the producers; the consumers go on until all has come and is acked, at most so long."""
        self._stop.set()
        self.histories.stopped.set()
        for thread in self._producers:
            thread.join()
        until_s = time.monotonic() + drain_s
        while self._open() and time.monotonic() < until_s:
            time.sleep(0.5)
        self._drained.set()
        for thread in self._consumers:
            thread.join()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._drained.set()
        for thread in (*self._producers, *self._consumers):
            thread.join()

    def _open(self) -> bool:
        """Whether a message with an OK has not been acked yet."""
        return bool(self.histories.sent.keys() - self.histories.acked.keys())

    def _produce(self, number: int) -> None:
        caller, histories = self._caller(), self.histories
        count = 0
        while not self._stop.is_set():
            count += 1
            name = f"{self._topic}-p{number}-{count}"
            message_group = f"g{number}-{count % self._message_groups}" if self._message_groups else ""
            began_s = time.monotonic()
            try:
                queue = caller.send(self._topic, name, message_group)
            except Failed as failed:
                histories.unknown.add(name)
                histories.fail("send", began_s, failed)
                time.sleep(PAUSE_S)
                continue
            histories.sent[name] = time.monotonic()
            histories.groups[message_group].append(name)
            histories.note("send", began_s, queue)
            time.sleep(PAUSE_S)
        caller.close()

    def _consume(self) -> None:
        caller, histories = self._caller(), self.histories
        while not self._drained.is_set():
            began_s = time.monotonic()
            try:
                found = caller.pop(self._topic, self._group)
            except Failed as failed:
                histories.fail("pop", began_s, failed)
                time.sleep(PAUSE_S)
                continue
            at_s = time.monotonic()
            histories.note("pop", began_s)
            with self._counting:
                for taken in found:
                    histories.note("message", began_s, taken.queue)
                    assert taken.body == taken.message_id.encode(), "the body of another message"
                    histories.deliveries += 1
                    seen = Seen(at_s, histories.deliveries, at_s + INVISIBLE_S, taken.attempt)
                    histories.seen[taken.message_id].append(seen)
            for taken in found:
                self._ack(taken)
        caller.close()

    def _ack(self, taken: Taken) -> None:
        began_s = time.monotonic()
        try:
            taken.ack()
        except Failed as failed:
            self.histories.fail("ack", began_s, f"{taken.message_id}: {failed}")
            return
        # The first one: what comes behind it came after an OK ack, however often it is acked again.
        self.histories.acked.setdefault(taken.message_id, time.monotonic())
        self.histories.note("ack", began_s)
