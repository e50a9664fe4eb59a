"""A run: a broker, its clients and what befalls them, from the first call until everything came to rest.

    prepare ─▶ actors act │ faults come and go ─▶ the last broker is well ─▶ rest, survey ─▶ stop ─▶ judged

Each fourth seed is without faults and without callers that leave: what is wrong then has no excuse.
"""

from __future__ import annotations

import gc
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast
from unittest import mock

from popmq_http2.client.aio import AsyncUnaryCall
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_verify.judging.checker import SHORTEST_LEASE_MS
from popmq_verify.load.client import FIFO_TOPIC, GROUPS, MAX_ATTEMPTS, TOPICS
from popmq_verify.load.history import History, Operation
from popmq_verify.load.stubs import Stubs
from popmq_verify.rest import come_to_rest
from tests.simulated import judging, seams
from tests.simulated.broker import Broker
from tests.simulated.clients import LEAVES, LEAVES_SLOW, Actor, Calls, Kept
from tests.simulated.loop import Loop
from tests.simulated.network import Network
from tests.simulated.scheduler import MS, Hangs, Process, S, Scheduler

ACTORS, STEPS = (3, 7), (6, 16)
#: How many faults a run has at most, and the time between two.
FAULTS_MAX = 4
BETWEEN_NS = 20 * MS, 6 * S
#: Seconds that a stop takes at most while the disk is well: it answers the parked and waits for the others.
STOP_S = 2.0


@dataclass
class Outcome:
    """What a run found, and what happened in it."""

    seed: int
    findings: list[judging.Finding]
    trace: str
    last: list[str]
    counts: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        told = [f"  ✗ {claim}: {said}" for claim, said in self.findings[:10]]
        again = f"seed {self.seed} failed; repeat it by: make simulate SEED={self.seed}"
        return "\n".join([again, *told, "  the last events:", *(f"    {line}" for line in self.last)])


class World:
    """All that takes part in one run."""

    def __init__(
        self, seed: int, folder: Path, scheduler: Scheduler, disk: seams.Disk, popped: set[seams.Lease]
    ) -> None:
        self.seed, self.scheduler, self.disk, self.popped = seed, scheduler, disk, popped
        random = scheduler.random
        self.quiet = seed % 4 == 0
        self.network = Network(scheduler)
        self.process = Process(scheduler, "clients")
        self.loop = Loop(self.process, self.network)
        self.operations: list[Operation] = []
        self.waiting: dict[AsyncUnaryCall, Callable[[], float]] = {}
        self.folder = folder / "data"
        self.broker = Broker(scheduler, self.network, self.folder, random.choice(("off", "off", "on")))
        self.counts: Counter[str] = Counter()
        #: The longest time for which it was held up: a lease may have ended before its pop was answered.
        self.longest_ns = 0
        #: Times in which something was wrong, so that calls may be slow.
        self.troubles: list[tuple[int, int]] = []
        #: Times in which a connection was mute.
        self.muted: list[tuple[int, int]] = []
        self.findings: list[judging.Finding] = []
        #: Seeds differ in what they make likely: one topic or all, a busy machine, a fast or a slow disk and network.
        self.where = random.choice((TOPICS, TOPICS[:1], TOPICS[1:])), random.choice((GROUPS, GROUPS[:1]))
        scheduler.interrupted = random.choice((0.01, 0.1, 0.4))
        disk.commit_ns = random.choice(seams.COMMIT_NS)
        self.network.slow = random.choice((0.0, 0.03, 0.2))
        #: How often a caller leaves before its answer.
        self.leaves = 0.0

    def calls(self, name: str) -> Calls:
        return Calls(self.scheduler, self.loop, name, self.waiting)

    # ── The story's strand ───────────────────────────────────────────────────────────────────────────────────────────

    def story(self) -> None:
        scheduler, random = self.scheduler, self.scheduler.random
        self.process.start("loop", self.loop.run)
        self.broker.start()
        rest = self.calls("rest")
        self._prepare(rest)
        self.leaves = 0.0 if self.quiet else LEAVES
        actors = [
            self.process.start(f"c{number}", self._actor(f"c{number}", random.randint(*STEPS)).run)
            for number in range(random.randint(*ACTORS))
        ]
        for _ in range(0 if self.quiet else random.randint(1, FAULTS_MAX)):
            scheduler.wait(lambda: all(one.over for one in actors), scheduler.now_ns + scheduler.between(*BETWEEN_NS))
            if not all(one.over for one in actors):
                self._fault(random.choice(FAULTS))
        while not all(one.over for one in actors):
            scheduler.wait(lambda: self.broker.ended or all(one.over for one in actors))
            self._mend()
        self._mend()
        recorder = Kept(scheduler, "rest", self.operations)
        survey = come_to_rest(cast(Stubs, rest), recorder, lambda: scheduler.pause(1 * S))
        rest.close()
        self._stopped()
        self.loop.over = True
        history = History(sorted(self.operations, key=lambda one: one.called_ns), seams.WALL_NS)
        lapsed = self.counts["kill"] or self.counts["sick_disk"] or self.longest_ns >= SHORTEST_LEASE_MS * MS
        popped = None if lapsed else self.popped
        self.findings += judging.judged(
            history, survey, self.troubles, self.muted, self.folder, popped, patient=self.quiet
        )
        self.counts.update(f"{one.kind} {one.how}" for one in self.operations)

    def _actor(self, name: str, steps: int) -> Actor:
        recorder = Kept(self.scheduler, name, self.operations)
        return Actor(self.calls(name), recorder, steps, lambda: self.leaves, self.where)

    def _prepare(self, calls: Calls) -> None:
        for topic in TOPICS:
            kind = pb.FIFO if topic == FIFO_TOPIC else pb.NORMAL
            calls.admin.CreateTopic(pb.CreateTopicRequest(topic=pb.Topic(name=topic, type=kind, queues=2)))
        for name in GROUPS:
            group = pb.Group(name=name, max_attempts=MAX_ATTEMPTS[name], backoff=pb.Backoff(delays_ms=[100, 500]))
            group.invisible_ms = 2000
            calls.admin.CreateGroup(pb.CreateGroupRequest(group=group))

    # ── Faults ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _fault(self, kind: str) -> None:
        self.counts[kind] += 1
        begun_ns = self.scheduler.now_ns
        self.scheduler.note(f"fault {kind}")
        getattr(self, f"_{kind}")()
        self.troubles.append((begun_ns, self.scheduler.now_ns + 1 * S))

    def _mend(self) -> None:
        """Starts a broker that has ended because of its disk again."""
        if self.broker.ended:
            begun_ns = self.scheduler.now_ns - 1 * S
            self.broker.start()
            self.troubles.append((begun_ns, self.scheduler.now_ns + 1 * S))

    def _stopped(self) -> None:
        """A stop, which does not wait for the parked: it answers them."""
        begun_ns = self.scheduler.now_ns
        self.broker.stop()
        self._took("a stop", begun_ns)

    def _took(self, what: str, begun_ns: int) -> None:
        if (took_s := (self.scheduler.now_ns - begun_ns) / S) > STOP_S:
            self.findings.append(("ends", f"{what} took {took_s:.1f} s"))

    def _kill(self) -> None:
        self.broker.kill()
        self.scheduler.pause(self.scheduler.between(1 * MS, 3 * S))
        self.broker.start()

    def _stop(self) -> None:
        self._stopped()
        self.scheduler.pause(self.scheduler.between(1 * MS, 1 * S))
        self.broker.start()

    def _long(self, most_ns: int) -> int:
        """Half of them are shorter than a lease."""
        ns = self.scheduler.between(10 * MS, self.scheduler.random.choice((800 * MS, most_ns)))
        self.longest_ns = max(self.longest_ns, ns)
        return ns

    def _sleep(self) -> None:
        ns = self._long(20 * S)
        self.broker.suspend(ns)
        self.scheduler.pause(ns)

    def _slow_disk(self) -> None:
        ns = self._long(8 * S)
        self.disk.stall_ns, self.leaves = ns, LEAVES_SLOW
        self.scheduler.wait(lambda: not self.disk.stall_ns, self.scheduler.now_ns + 10 * S)
        self.disk.stall_ns = 0
        self.scheduler.pause(ns)
        self.leaves = LEAVES

    def _sick_disk(self) -> None:
        if self.scheduler.chance(0.5):  # commands gather before the commit that fails
            self.disk.stall_ns = self.scheduler.between(10 * MS, 2 * S)
            self.scheduler.wait(lambda: not self.disk.stall_ns, self.scheduler.now_ns + 10 * S)
            self.disk.stall_ns = 0
        self.disk.fails = True
        self.scheduler.wait(lambda: not self.disk.fails, self.scheduler.now_ns + 10 * S)
        if self.disk.fails:  # nothing was written
            self.disk.fails = False
            return
        begun_ns = self.scheduler.now_ns
        self.scheduler.wait(lambda: self.broker.ended)
        self._took("an end after a failed commit", begun_ns)
        self.broker.start()

    def _reset(self) -> None:
        if self.network.ends:
            self.scheduler.random.choice(self.network.ends).abort()

    def _mute(self) -> None:
        """A connection loses what one of its ends sends, for ever."""
        if self.network.ends:
            end, begun_ns = self.scheduler.random.choice(self.network.ends), self.scheduler.now_ns
            end.mute = True
            self.scheduler.pause(self.scheduler.between(100 * MS, 40 * S))
            end.abort()
            end.peer.abort()
            self.muted.append((begun_ns, self.scheduler.now_ns))


FAULTS = ("kill", "stop", "sleep", "slow_disk", "sick_disk", "reset", "mute")


def run(seed: int) -> Outcome:
    """One run."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="popmq-simulated-", dir=memory if memory.is_dir() else None))
    gc.disable()  # what it frees, and when, depends on what ran before
    try:
        # Coroutines of killed brokers end somewhere in their middle, which is no error. In the main thread their last
        # acts would find a new event loop, and leave tasks on it; a mock would keep what it is called with.
        with mock.patch.object(sys, "unraisablehook", _pass), ThreadPoolExecutor(1) as thread:
            return thread.submit(_run_and_collect, seed, folder).result()
    finally:
        gc.enable()
        shutil.rmtree(folder)


def _pass(_: object) -> None:
    """Keeps nothing."""


def _run_and_collect(seed: int, folder: Path) -> Outcome:
    outcome = _run(seed, folder)
    while gc.collect():
        pass
    return outcome


def _run(seed: int, folder: Path) -> Outcome:
    scheduler = Scheduler(seed)
    disk = seams.Disk(scheduler)
    with seams.simulated(scheduler, disk, seed) as popped, judging.Logged() as logged:
        world = World(seed, folder, scheduler, disk, popped)
        story = world.process.start("story", world.story)
        try:
            scheduler.run(lambda: story.over)
            world.findings += judging.of_logs(logged, world.counts)
            world.findings += [("ends", said) for said in world.broker.complaints]
        except Hangs as hangs:
            world.findings.append(("hangs", str(hangs)))
        except Exception as error:
            world.findings.append(("raises", judging.told(error)))
        finally:
            scheduler.end()
    return Outcome(seed, world.findings, scheduler.trace, list(scheduler.last), world.counts)
