"""A hundred million acks: two producers and three consumers in batches of 256, while their broker is killed.

    producers ──Send 256, repeated until answered──▶ broker, killed ──Pop 256──▶ consumers ──Ack 256──▶ broker
                         one byte of a shared file for each message: UNSENT, SENT, ACKED, UNSURE

Histories of this length could not be judged by search. A byte for each message says what all processes know of it, and
two claims need no more: a message that is ACKED is never delivered again, and at the end none is SENT, that is lost.

    python -m tests.jepsen.bulk {produce,consume} ENDPOINT FOLDER NAME
"""

from __future__ import annotations

import contextlib
import mmap
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.embedded.fsck.check import check_folder
from popmq_verify.load.stubs import Stubs
from popmq_verify.process import impatient
from popmq_verify.process.broker_process import BrokerProcess

TOPIC, GROUP, QUEUES = "bulk", "sinks", 8
BATCH = 256
PRODUCERS, CONSUMERS = 2, 3
#: Messages that the producers may be ahead of the consumers.
AHEAD = 100_000
LEASE_MS, WAIT_MS = 60_000, 1_000
#: Seconds between two kills.
BETWEEN_S = 10.0, 30.0
UNSENT, SENT, ACKED, UNSURE = range(4)
#: Seconds without a delivery after which what is left is counted as lost: far more than a lease.
LOST_AFTER_S = 150.0
#: Bytes of one counter. Each process has its own counter, so none is written by two.
PLACE = 8


class Shared:
    """The file that all processes map: counters of sent and ended messages, then a byte for each message."""

    def __init__(self, folder: Path, messages: int = 0) -> None:
        """`messages`: makes the file; without, it is there."""
        file = folder / "states"
        if messages:
            with file.open("wb") as made:
                made.truncate(PLACE * (PRODUCERS + CONSUMERS) + messages)
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), 0)
        self._head = PLACE * (PRODUCERS + CONSUMERS)
        self.messages = len(self._map) - self._head

    def count(self, place: int, more: int) -> None:
        """Adds to the counter of one process."""
        at = PLACE * place
        self._map[at : at + PLACE] = (int.from_bytes(self._map[at : at + PLACE], "big") + more).to_bytes(PLACE, "big")

    def sums(self) -> tuple[int, int]:
        """How many messages were sent, and how many have ended."""
        ones = [int.from_bytes(self._map[at : at + PLACE], "big") for at in range(0, self._head, PLACE)]
        return sum(ones[:PRODUCERS]), sum(ones[PRODUCERS:])

    def __getitem__(self, message: int) -> int:
        return self._map[self._head + message]

    def __setitem__(self, message: int, state: int) -> None:
        self._map[self._head + message] = state

    def fill(self, first: int, count: int, state: int) -> None:
        """Sets messages that follow each other."""
        self._map[self._head + first : self._head + first + count] = bytes([state]) * count

    def states(self) -> Counter[int]:
        """How many messages are in each state."""
        counted: Counter[int] = Counter()
        for at in range(self._head, len(self._map), 1 << 20):
            part = self._map[at : at + (1 << 20)]
            counted.update({state: part.count(state) for state in range(4)})
        return counted


class Refused(Exception):
    """An answer that no fault of the campaign explains."""


def _insist(call: Any, request: Any) -> tuple[Any, bool]:
    """The answer, and whether a try before it had none. Raises Refused."""
    repeated = False
    while True:
        try:
            return call(request, timeout=60), repeated
        except grpc.RpcError as error:
            if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED):
                raise Refused(f"{error.code()}: {error.details()}") from error
            repeated = True
            time.sleep(0.02)


def prepare(stubs: Stubs, keep_ms: int) -> None:
    """The topic and its group."""
    topic = pb.Topic(name=TOPIC, queues=QUEUES, retention=pb.Retention(keep_ms=keep_ms))
    stubs.admin.CreateTopic(pb.CreateTopicRequest(topic=topic))
    stubs.admin.CreateGroup(pb.CreateGroupRequest(group=pb.Group(name=GROUP)))
    stubs.broker.Pop(pb.PopRequest(topic=TOPIC, group=GROUP))


def produce(stubs: Stubs, shared: Shared, number: int) -> None:
    """Sends each second batch; a request is repeated with its number until it is answered."""
    for batch, first in enumerate(range(number * BATCH, shared.messages, PRODUCERS * BATCH), 1):
        while (sums := shared.sums())[0] - sums[1] > AHEAD:
            time.sleep(0.01)
        ids = range(first, min(first + BATCH, shared.messages))
        request = pb.SendRequest(topic=TOPIC, producer_id=f"p{number}", request_number=batch)
        request.messages.extend(pb.Message(body=one.to_bytes(8, "big")) for one in ids)
        shared.fill(first, len(ids), SENT)
        _insist(stubs.broker.Send, request)
        shared.count(number, len(ids))


def consume(stubs: Stubs, shared: Shared, number: int) -> list[str]:
    """Pops and acks until all messages have ended; what it found."""
    pop = pb.PopRequest(topic=TOPIC, group=GROUP, max_messages=BATCH, invisible_ms=LEASE_MS, wait_ms=WAIT_MS)
    pop.format, pop.client_id = pb.FORMAT_COLUMNS, f"c{number}"
    pop.columns.append("body")
    found, last = list[str](), time.monotonic()
    while shared.sums()[1] < shared.messages:
        answer, _ = _insist(stubs.broker.Pop, pop)
        if not answer.columns.handle:
            if time.monotonic() - last >= LOST_AFTER_S:
                break
            continue
        last = time.monotonic()
        ids = [int.from_bytes(body, "big") for body in answer.columns.body]
        found += [f"message {one} was delivered after the OK to its ack" for one in ids if shared[one] == ACKED]
        acked, repeated = _insist(stubs.broker.Ack, pb.AckRequest(group=GROUP, handles=answer.columns.handle))
        codes = [result.error.code for result in acked.results] or [0] * len(ids)
        ended = 0
        for one, code in zip(ids, codes, strict=True):
            before = shared[one]
            if not code:
                shared[one] = ACKED
                ended += before == SENT
            elif repeated and before == SENT:  # the first try was carried out, or the lease has ended
                shared[one] = UNSURE
                ended += 1
        shared.count(PRODUCERS + number, ended)
    return found


def run(folder: Path, messages: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Sends, pops and acks so many messages; counts of kills and acks, and what was found."""
    folder.mkdir(parents=True)
    shared, chance = Shared(folder, messages), random.Random(seed)
    broker = BrokerProcess(folder / "data", program=[sys.executable, "-m", impatient.__name__])
    counted: Counter[str] = Counter()
    with broker:
        with Stubs(broker.endpoint) as stubs:
            prepare(stubs, impatient.KEEP_MS)
        with _programs(broker.endpoint, folder) as programs:
            due = time.monotonic() + chance.uniform(*BETWEEN_S)
            while any(one.poll() is None for one in programs):
                time.sleep(0.2)
                if time.monotonic() > due:
                    broker.kill()
                    broker.start()
                    counted["kills"] += 1
                    due = time.monotonic() + chance.uniform(*BETWEEN_S)
            found = [line for one in programs for line in (one.stdout or ())]
            found += [f"a program ended with {one.returncode}" for one in programs if one.returncode]
        with Stubs(broker.endpoint) as stubs:
            left = stubs.group_stats(TOPIC, GROUP)
            found += [f"at the end {left.ready} messages are ready"] if left.ready else []
    states = shared.states()
    counted["acks"], counted["unsure"] = states[ACKED], states[UNSURE]
    return counted, found + missing(states) + check_folder(broker.data)


def missing(states: Counter[int]) -> list[str]:
    """What the states at the end say of messages that nobody acked."""
    found = [f"{states[SENT]} messages are lost"] if states[SENT] else []
    return found + ([f"{states[UNSENT]} messages were not sent"] if states[UNSENT] else [])


@contextlib.contextmanager
def _programs(endpoint: str, folder: Path) -> Iterator[Sequence[subprocess.Popen[str]]]:
    """The producers and consumers, each a process."""
    command = [sys.executable, "-m", __spec__.name]
    which = [("produce", number) for number in range(PRODUCERS)] + [("consume", number) for number in range(CONSUMERS)]
    programs = [
        subprocess.Popen([*command, kind, endpoint, str(folder), str(number)], stdout=subprocess.PIPE, text=True)
        for kind, number in which
    ]
    try:
        yield programs
    finally:
        for one in programs:
            one.kill()
            one.wait()


def main(kind: str, endpoint: str, folder: str, number: str) -> int:
    """One producer or consumer."""
    shared = Shared(Path(folder))
    with Stubs(endpoint) as stubs:
        if kind == "produce":
            produce(stubs, shared, int(number))
            return 0
        found = consume(stubs, shared, int(number))
        print("\n".join(found[:20]), end="\n" if found else "")
        return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
