"""The faults of the campaign: each runs a load against a broker that suffers, and gives what was seen of it."""

from __future__ import annotations

import os
import random
import signal
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from popmq_server.embedded.fsck.check import check_folder
from popmq_verify import campaign, full, powercut
from popmq_verify.judging import sealed
from popmq_verify.judging.checker import Finding, check
from popmq_verify.judging.facts import Facts, Survey
from popmq_verify.load import scratch
from popmq_verify.load.history import read
from popmq_verify.process.broker_process import BrokerProcess
from tests.crash.cluster.parts.relay import Balancer
from tests.jepsen.wires import MuteRelay, ResettingRelay

HOUR_NS = 3_600_000_000_000
#: How far the wall clock jumps, in hours.
JUMPS = (-26, -3, -1, 1, 5, 49)
#: Besides the raw calls of the campaign: a client that uses the SDK.
OTHERS = ("tests.jepsen.sdk_client",)


@dataclass
class Seen:
    """One history: the fault, how often it was, and what both judges need. `findings`: of our own checker."""

    fault: str
    count: int
    facts: Facts
    survey: Survey
    findings: list[Finding]


@dataclass(frozen=True)
class Plan:
    """`seconds`: of load with each fault. `pause_s`: the longest SIGSTOP."""

    folder: Path
    seed: int
    seconds: float
    pause_s: float


class Behind(BrokerProcess):
    """A broker that its clients reach through a relay only."""

    relay: Balancer | None = None

    @property
    def endpoint(self) -> str:
        return self.relay.endpoint if self.relay is not None else super().endpoint


def _of(fault: str, count: int, verdict: campaign.Verdict) -> Iterator[Seen]:
    assert verdict.facts is not None
    assert verdict.survey is not None
    yield Seen(fault, count, verdict.facts, verdict.survey, verdict.findings)


def kills(plan: Plan) -> Iterator[Seen]:
    """kill -9, also of a broker that is starting."""
    verdict = campaign.run(plan.folder, 1, plan.seed, seconds=plan.seconds, others=OTHERS)
    yield from _of("kill -9", verdict.figures["kills"], verdict)


def dropping(plan: Plan) -> Iterator[Seen]:
    """kill -9, while retention drops what every group has finished."""
    verdict = campaign.run(plan.folder, 1, plan.seed, dropping=True, seconds=plan.seconds, others=OTHERS)
    yield from _of("kill -9, retention", verdict.figures["kills"], verdict)


def pauses(plan: Plan) -> Iterator[Seen]:
    """SIGSTOP: leases end while the broker sleeps, and clients give up."""
    broker, chance = BrokerProcess(plan.folder / "data"), random.Random(plan.seed)

    def act() -> Counter[str]:
        count: Counter[str] = Counter()
        until = time.monotonic() + plan.seconds
        while time.monotonic() < until:
            time.sleep(chance.uniform(0.3, 1.5))
            os.kill(broker.pid, signal.SIGSTOP)
            try:
                time.sleep(min(chance.uniform(1, plan.pause_s), max(1.0, until - time.monotonic())))
            finally:
                os.kill(broker.pid, signal.SIGCONT)
            count["pauses"] += 1
        return count

    verdict = campaign.observed(broker, plan.seed, act, others=OTHERS)
    yield from _of("SIGSTOP", verdict.figures["pauses"], verdict)


def clock_steps(plan: Plan) -> Iterator[Seen]:
    """The wall clock goes ahead and back by hours."""
    clock = plan.folder / "clock"
    clock.write_bytes(bytes(8))
    broker, chance = _shimmed(plan, POPMQ_CUT_CLOCK=str(clock)), random.Random(plan.seed)

    def act() -> Counter[str]:
        count: Counter[str] = Counter()
        until = time.monotonic() + plan.seconds
        with clock.open("r+b", buffering=0) as file:
            while time.monotonic() < until:
                time.sleep(0.3)
                file.seek(0)
                file.write(struct.pack("q", chance.choice(JUMPS) * HOUR_NS))
                count["jumps"] += 1
            file.seek(0)
            file.write(bytes(8))
        return count

    verdict = campaign.observed(broker, plan.seed, act, others=OTHERS)
    yield from _of("clock steps", verdict.figures["jumps"], verdict)


def slow_disk(plan: Plan) -> Iterator[Seen]:
    """Each sync takes 100 ms longer."""
    verdict = campaign.observed(_shimmed(plan, POPMQ_CUT_SLOW="100"), plan.seed, _loaded(plan.seconds), others=OTHERS)
    yield from _of("slow disk", 1, verdict)


def full_disk(plan: Plan) -> Iterator[Seen]:
    """The file system of the data has no free byte, again and again. Nothing where this user may not mount one."""
    chance = random.Random(plan.seed)
    with full.small_disk(plan.folder / "data") as why:
        if why:
            return
        broker = BrokerProcess(plan.folder / "data")
        ballast = broker.data / "ballast"

        def act() -> Counter[str]:
            count: Counter[str] = Counter()
            until = time.monotonic() + plan.seconds
            while time.monotonic() < until:
                full.take_all(ballast)
                time.sleep(chance.uniform(0.5, 4))
                ballast.unlink()
                count["full"] += 1
                time.sleep(chance.uniform(0.5, 2))
            return count

        verdict = campaign.observed(broker, plan.seed, act, others=OTHERS)
        yield from _of("full disk", verdict.figures["full"], verdict)


def failing_syncs(plan: Plan) -> Iterator[Seen]:
    """A sync fails with EIO, the broker ends, and is started again."""
    broker, chance = _shimmed(plan), random.Random(plan.seed)
    broker.environment["POPMQ_CUT_SYNCS"] = "60"

    def act() -> Counter[str]:
        count: Counter[str] = Counter()
        until = time.monotonic() + plan.seconds
        while True:
            broker.wait_dead()
            count["failed syncs"] += 1
            if time.monotonic() > until:
                break
            broker.environment["POPMQ_CUT_SYNCS"] = str(chance.randrange(20, 120))
            broker.spawn()
        del broker.environment["POPMQ_CUT_SYNCS"]
        broker.spawn()
        return count

    verdict = campaign.observed(broker, plan.seed, act, others=OTHERS)
    yield from _of("EIO of a sync", verdict.figures["failed syncs"], verdict)


def resets(plan: Plan) -> Iterator[Seen]:
    """Connections are reset at some byte of an answer."""
    broker = Behind(plan.folder / "data")
    relay = ResettingRelay(broker.port, random.Random(plan.seed))
    verdict = _through(plan, broker, relay)
    yield from _of("resets within answers", verdict.figures["failed connections"], verdict)


def mute_connections(plan: Plan) -> Iterator[Seen]:
    """Half-open and one-way connections."""
    broker = Behind(plan.folder / "data")
    relay = MuteRelay(broker.port, random.Random(plan.seed))
    verdict = _through(plan, broker, relay)
    yield from _of("half-open, one-way", verdict.figures["failed connections"], verdict)


def _through(plan: Plan, broker: Behind, relay: ResettingRelay | MuteRelay) -> campaign.Verdict:
    """The load reaches the broker through a relay; what comes to rest at the end reaches it directly."""
    wait = _loaded(plan.seconds)

    def act() -> Counter[str]:
        wait()
        relay.cutting = False  # what is repeated until it is answered, as the reader's calls, comes to its end
        broker.relay = None
        return Counter({"failed connections": relay.cuts})

    with relay:
        broker.relay = relay
        return campaign.observed(broker, plan.seed, act, others=OTHERS)


def power_cuts(plan: Plan, cuts: int = 4) -> Iterator[Seen]:
    """What a power cut leaves, at moments of a recording."""
    powercut.record(plan.folder, plan.seed)
    history = read(plan.folder / "histories")
    for number, cut, left in powercut.played(plan.folder, cuts, plan.seed):
        known = powercut.before(history, cut)
        if (found := powercut.observed(left, known)) is None:
            continue
        facts, survey = found
        findings = check(facts, survey) + sealed.check(facts.history, survey) + list(scratch.check(facts.history))
        findings += [("store", problem) for problem in check_folder(left / "data")]
        yield Seen(f"power cut {number}", 1, facts, survey, findings)


def _shimmed(plan: Plan, **environment: str) -> BrokerProcess:
    """A broker with the shim of the power cuts, which keeps no log."""
    data = plan.folder / "broker" / "data"
    data.parent.mkdir()
    environment |= {"LD_PRELOAD": str(powercut.compile_shim(plan.folder)), "POPMQ_CUT_LOG": "/dev/null"}
    return BrokerProcess(data, environment={**environment, "POPMQ_CUT_FOLDER": str(data)})


def _loaded(seconds: float) -> Callable[[], Counter[str]]:
    """Lets the load run."""

    def act() -> Counter[str]:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(0.1)
        return Counter()

    return act


FAULTS: dict[str, Callable[[Plan], Iterator[Seen]]] = {
    fault.__name__.replace("_", "-"): fault
    for fault in (
        kills,
        dropping,
        pauses,
        clock_steps,
        slow_disk,
        full_disk,
        failing_syncs,
        resets,
        mute_connections,
        power_cuts,
    )
}
