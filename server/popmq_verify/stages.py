"""The stages of `popmq verify`, each on a broker with the user's settings and a scratch folder of its own.

    kills        kill -9 under load, again and again, while it starts too
    power cuts   the files as a power cut would leave them, at many points of the broker's writes
    full disk    a data file that may not grow; and, where this user may mount one, a small file system without a byte
    slow disk    every sync takes longer
    clock jumps  the wall clock goes ahead and back by hours

A finding is a contradiction between answers, or between answers and stored messages: a defect, never chance.

A run of one minute is the shortest of each stage, and has AT_ONCE of them at the same time: they wait more than they
compute. `--minutes 30` has thirty times the load, kills and cuts.
"""

from __future__ import annotations

import random
import struct
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from popmq_verify import campaign, full, powercut
from popmq_verify.judging.checker import Finding
from popmq_verify.process.broker_process import BrokerProcess

#: Stages that run at the same time. On two cores they take a minute together even beside other work; more of them
#: would measure each other where the slow disk and the clock compare times.
AT_ONCE = 3
#: Seconds of load in each stage of a run of one minute. The rest of the minute goes to starts, rests and judging.
LOAD_S = {"kills": 8.0, "power cuts": 0.0, "full disk": 0.0, "slow disk": 3.0, "clock jumps": 3.0}
#: Cuts of one recording of 2 s; a run of one minute has one recording.
CUTS = 4
#: How much longer each sync takes on the slow disk, and the mean lateness above which leases are late, in ms.
SLOW_MS, LATE_MS = 100, 1_000
#: Seconds between two jumps of the clock, and how far they go, in hours.
JUMP_EVERY_S, JUMP_HOURS = 0.3, (-26, -3, -1, 1, 5, 49)
NS_PER_HOUR = 3_600_000_000_000


@dataclass
class Outcome:
    """The result of one stage.

    `findings`: (claim, sentence), empty if it passed. `skipped`: why it did not run. `figures`: what happened, in words
    and numbers. `notes`: parts of it that could not run here.
    """

    name: str
    findings: list[Finding] = field(default_factory=list)
    figures: dict[str, int] = field(default_factory=dict)
    skipped: str = ""
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0


@dataclass(frozen=True)
class Plan:
    """`flags`: of `popmq serve`, the user's settings; `sync`: what an OK promises; `scale`: minutes."""

    folder: Path
    flags: tuple[str, ...] = ()
    sync: str = "full"
    scale: float = 1.0
    seed: int = 0


def run_all(plan: Plan, names: Sequence[str], ended: Callable[[Outcome], None]) -> list[Outcome]:
    """Runs stages, AT_ONCE at a time, and returns their outcomes in the order of the names; `ended`: as each ends."""
    pool = ThreadPoolExecutor(AT_ONCE)
    try:
        running = [pool.submit(run, plan, name) for name in names]
        for each in as_completed(running):
            ended(each.result())
        return [each.result() for each in running]
    finally:
        pool.shutdown(cancel_futures=True)  # on Ctrl-C the brokers end too, so running stages end, and no other begins


def run(plan: Plan, name: str) -> Outcome:
    """Runs one stage. One that cannot run on this machine gives the reason, and is not a failure."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="popmq-verify-", dir=plan.folder) as folder:
        outcome = Outcome(name)
        try:
            STAGES[name](plan, Path(folder), outcome)
        except Exception as error:  # a broker that does not start or stop is a finding
            outcome.findings.append(("store", f"{type(error).__name__}: {error}"))
    outcome.seconds = time.monotonic() - began
    return outcome


def _kills(plan: Plan, folder: Path, outcome: Outcome) -> None:
    """kill -9 under load for LOAD_S seconds a minute of the plan; then judged as a campaign."""
    seconds = LOAD_S["kills"] * plan.scale
    verdict = campaign.run(folder / "broker", 1, plan.seed, flags=plan.flags, seconds=seconds)
    _take(outcome, verdict)


def _power_cuts(plan: Plan, folder: Path, outcome: Outcome) -> None:
    """One recording a minute of the plan, and CUTS cuts of each; skipped if an OK does not promise to survive a cut."""
    outcome.skipped = powercut.no_shim()
    if outcome.skipped:
        return
    if plan.sync != "full":
        outcome.skipped = f"sync = {plan.sync}: a power cut may lose what was answered last, as documented"
        return
    answered = 0
    for number in range(max(1, round(plan.scale))):
        recording = folder / f"recording-{number}"
        powercut.record(recording, plan.seed + number, plan.flags)
        for verdict in powercut.verdicts(recording, CUTS, plan.seed + number):
            answered += verdict["answered"]
            outcome.findings += [(claim, f"cut {verdict['cut']}: {said}") for claim, said in verdict["findings"]]
            outcome.figures["power cuts"] = outcome.figures.get("power cuts", 0) + 1
    outcome.figures["answers that had to hold, over all cuts"] = answered


def _full_disk(plan: Plan, folder: Path, outcome: Outcome) -> None:
    """A full data file, and a full file system if this user may mount one."""
    outcome.findings += full.small_file(folder / "file" / "data", plan.flags, outcome.figures)
    with full.small_disk(folder / "disk") as why_not:
        if why_not:
            outcome.notes.append(f"without a disk that has no byte left: {why_not}")
        else:
            outcome.findings += full.no_byte_left(folder / "disk", plan.flags, outcome.figures)


def _slow_disk(plan: Plan, folder: Path, outcome: Outcome) -> None:
    """Load while each sync takes SLOW_MS longer: slow answers are fine, late leases are not."""
    outcome.skipped = powercut.no_shim()
    if outcome.skipped:
        return
    broker = _shimmed(folder, plan, POPMQ_CUT_SLOW=str(SLOW_MS))
    verdict = campaign.observed(broker, plan.seed, _waiting(LOAD_S["slow disk"] * plan.scale))
    _take(outcome, verdict)
    outcome.figures["each sync took longer by, ms"] = SLOW_MS
    _lateness(outcome, verdict.figures)


def _clock_jumps(plan: Plan, folder: Path, outcome: Outcome) -> None:
    """Load while the wall clock that the broker sees jumps; leases must neither expire early nor come back late."""
    outcome.skipped = powercut.no_shim()
    if outcome.skipped:
        return
    clock = folder / "clock"
    clock.write_bytes(bytes(8))
    broker = _shimmed(folder, plan, POPMQ_CUT_CLOCK=str(clock))
    chance = random.Random(plan.seed)

    def jumping() -> Counter[str]:
        count: Counter[str] = Counter()
        until = time.monotonic() + LOAD_S["clock jumps"] * plan.scale
        with clock.open("r+b", buffering=0) as file:
            while time.monotonic() < until:
                time.sleep(JUMP_EVERY_S)
                file.seek(0)
                file.write(struct.pack("q", chance.choice(JUMP_HOURS) * NS_PER_HOUR))
                count["jumps of the wall clock"] += 1
            file.seek(0)
            file.write(bytes(8))
        return count

    verdict = campaign.observed(broker, plan.seed, jumping)
    _take(outcome, verdict)
    _lateness(outcome, verdict.figures)


STAGES: dict[str, Callable[[Plan, Path, Outcome], None]] = {
    "kills": _kills,
    "power cuts": _power_cuts,
    "full disk": _full_disk,
    "slow disk": _slow_disk,
    "clock jumps": _clock_jumps,
}


def _shimmed(folder: Path, plan: Plan, **environment: str) -> BrokerProcess:
    """A broker with the shim that keeps no log: its writes are not played back."""
    data = folder / "broker" / "data"
    data.parent.mkdir()
    environment |= {"LD_PRELOAD": str(powercut.compile_shim(folder)), "POPMQ_CUT_LOG": "/dev/null"}
    return BrokerProcess(data, *plan.flags, environment={**environment, "POPMQ_CUT_FOLDER": str(data)})


def _waiting(seconds: float) -> Callable[[], Counter[str]]:
    """An act for `campaign.observed` that only lets the load run."""

    def wait() -> Counter[str]:
        time.sleep(seconds)
        return Counter()

    return wait


#: The figures of a campaign that a report shows.
_SHOWN = {
    "kills": "kills",
    "during_start": "of them while it started",
    "jumps of the wall clock": "jumps of the wall clock",
    "messages sent": "messages whose send was answered",
    "deliveries": "deliveries",
    "of them second and later attempts": "of them second and later attempts",
    "ack: messages": "messages acked",
    "dead letters": "dead letters",
}


def _take(outcome: Outcome, verdict: campaign.Verdict) -> None:
    """Copies the findings, and those figures of a campaign that a report shows."""
    outcome.findings += verdict.findings
    for name, shown in _SHOWN.items():
        if name in verdict.figures:
            outcome.figures[shown] = verdict.figures[name]


def _lateness(outcome: Outcome, figures: Counter[str]) -> None:
    """How late the messages of leases that ended came back; a finding when they were late on average."""
    leases, late_ms = figures["leases revived since the last start"], figures["late in sum, ms"]
    outcome.figures["leases that ended by themselves"] = leases
    if leases:
        outcome.figures["their mean delay, ms"] = round(late_ms / leases)
    if leases and late_ms / leases > LATE_MS:
        outcome.findings.append(
            ("late", f"{leases} leases that ended by themselves came back {late_ms / leases:.0f} ms late on average")
        )
