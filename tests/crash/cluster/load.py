"""Producers and consumers through a balancer, each in a thread with a client of its own, and what they saw.

Each call is noted with its time and its answer; `judged` compares them:

    lost            sent with an OK, and never delivered
    after an ack    delivered, although its ack had been answered OK before
    overlaps        delivered while the lease of an earlier delivery ran, which was neither acked nor given back
    backwards       a later delivery with an attempt that is not higher
    refused acks    acks within the lease that were not OK at last
    silent_s        the longest time in which no client of a kind had an answer
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import popmq

INVISIBLE_S = 20.0
POP_WAIT_S = 0.5
#: Of a delivery that comes while another's lease ends: clocks of client and broker differ by a round trip.
SLACK_S = 0.5
#: A call tries for so long.
CALL_S = 15.0


class Seen(NamedTuple):
    """One delivery: when it came, and until when it is leased, by the client's clock."""

    at_s: float
    until_s: float
    attempt: int


@dataclass
class Histories:
    """What all clients saw, by message id."""

    sent: dict[str, float] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set)
    seen: dict[str, list[Seen]] = field(default_factory=lambda: defaultdict(list))
    acked: dict[str, float] = field(default_factory=dict)
    refused: list[tuple[str, str]] = field(default_factory=list)
    #: Times of answers while there was load: sends, pops, acks.
    answers: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    stopped: threading.Event = field(default_factory=threading.Event)

    def note(self, kind: str) -> None:
        if not self.stopped.is_set():
            self.answers[kind].append(time.monotonic())


class Load:
    """`with Load(endpoint, topic, group) as load:` – ends with the block, when all that was sent has come."""

    def __init__(
        self,
        endpoint: str,
        topic: str,
        group: str,
        *,
        producers: int = 2,
        consumers: int = 3,
        retry: popmq.Retry | None = None,
    ) -> None:
        """`retry`: of the producers. By default a send is tried once, so that no id is stored twice."""
        self._endpoint, self._topic, self._group = endpoint, topic, group
        self._retry = retry or popmq.Retry(tries=1)
        self.histories = Histories()
        self._stop, self._drained = threading.Event(), threading.Event()
        self._producers = [threading.Thread(target=self._produce, args=(number,)) for number in range(producers)]
        self._consumers = [threading.Thread(target=self._consume) for _ in range(consumers)]

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
        with popmq.Client(self._endpoint, timeouts=popmq.Timeouts.all(CALL_S), retry=self._retry) as client:
            count = 0
            while not self._stop.is_set():
                count += 1
                name = f"p{number}-{count}"
                try:
                    client.send(self._topic, popmq.Message(name.encode(), message_id=name))
                except popmq.PopMQError:
                    self.histories.unknown.add(name)
                    continue
                self.histories.sent[name] = time.monotonic()
                self.histories.note("send")
                time.sleep(0.01)

    def _consume(self) -> None:
        with popmq.Client(self._endpoint, timeouts=popmq.Timeouts.all(CALL_S)) as client:
            while not self._drained.is_set():
                try:
                    found = client.pop(self._topic, self._group, wait=POP_WAIT_S, invisible=INVISIBLE_S)
                except popmq.PopMQError:
                    continue
                at_s = time.monotonic()
                self.histories.note("pop")
                for delivery in found:
                    seen = Seen(at_s, at_s + INVISIBLE_S, delivery.attempt)
                    self.histories.seen[delivery.message_id].append(seen)
                for delivery in found:
                    self._ack(delivery)

    def _ack(self, delivery: popmq.Delivery) -> None:
        histories = self.histories
        try:
            delivery.ack()
        except popmq.PopMQError as error:
            histories.refused.append((delivery.message_id, f"{type(error).__name__}: {error}"))
            return
        histories.acked[delivery.message_id] = time.monotonic()
        histories.note("ack")


@dataclass(frozen=True)
class Judged:
    """Counts; see above."""

    sent: int
    delivered: int
    acked: int
    lost: list[str]
    after_ack: list[str]
    overlaps: list[str]
    backwards: list[str]
    refused_acks: list[tuple[str, str]]
    silent_s: dict[str, float]

    def row(self) -> str:
        """For a table."""
        silent = ", ".join(f"{kind} {seconds:.1f} s" for kind, seconds in self.silent_s.items())
        return (
            f"{self.sent:,} sent, {self.delivered:,} delivered, {self.acked:,} acked; lost {len(self.lost)}, "
            f"after an OK ack {len(self.after_ack)}, overlaps {len(self.overlaps)}, "
            f"attempts backwards {len(self.backwards)}, refused acks "
            f"{len(self.refused_acks)}; longest silence: {silent}"
        )


def judged(histories: Histories) -> Judged:
    """Compares what was answered."""
    after, overlaps, backwards = list[str](), list[str](), list[str]()
    for name, found in histories.seen.items():
        ordered = sorted(found)
        acked_s = histories.acked.get(name, float("inf"))
        for earlier, later in pairwise(ordered):
            if later.at_s + SLACK_S < min(earlier.until_s, acked_s):
                overlaps.append(name)
            if later.attempt <= earlier.attempt:
                backwards.append(name)
        after += [name for seen in ordered if seen.at_s > acked_s + SLACK_S]
    return Judged(
        len(histories.sent),
        sum(map(len, histories.seen.values())),
        len(histories.acked),
        sorted(histories.sent.keys() - histories.seen.keys()),
        after,
        overlaps,
        backwards,
        histories.refused,
        {kind: max_gap(times) for kind, times in histories.answers.items()},
    )


def max_gap(times: list[float]) -> float:
    """The longest time between two answers."""
    ordered = sorted(times)
    return max((later - earlier for earlier, later in pairwise(ordered)), default=0.0)
