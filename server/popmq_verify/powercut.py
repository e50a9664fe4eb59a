"""The power-cut campaign: records a broker's writes under load, then cuts them off at random points.

    record   runs a broker under load; the preloaded shim (shim.c) logs its writes and syncs to FOLDER/cut.log
    played   makes the files of each cut from the log: what was synced, and some sectors of the rest (disk.py)
    judge    opens them with the engine, brings it to rest, and compares with all answers before the cut

    python -m popmq_verify.powercut FOLDER COUNT SEED {honest,broken}     judges; JSON lines

Judging opens each cut with the real engine, in this process: run it as a process of its own, because a badly damaged
store can end the process that reads it.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from popmq_server.clock import FakeClock
from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_verify.campaign import finish, loaded
from popmq_verify.judging import sealed
from popmq_verify.judging.checker import Finding, check
from popmq_verify.judging.facts import Facts, Survey
from popmq_verify.load import scratch
from popmq_verify.load.history import NEVER, History, Recorder, read
from popmq_verify.load.reader import Reader
from popmq_verify.load.stubs import Stubs
from popmq_verify.process.broker_process import BrokerProcess
from popmq_verify.process.disk import Disk, Event, events
from popmq_verify.rest import come_to_rest

CLIENTS = 3
LOAD_S = 2.0
HOUR_MS = 3_600_000


@dataclass
class Cut:
    """A point in the log: everything before `event` is done.

    `during`: the call of that event had begun, so part of its effect may be on the disk. `at_ns`: the monotonic time of
    the cut; answers that clients got until then must hold.
    """

    event: int
    at_ns: int
    during: bool


def no_shim() -> str:
    """Why this machine cannot compile or preload the shim; "" when it can."""
    if sys.platform != "linux":
        return "a library is preloaded, which this test does the Linux way"
    return "" if _compiler() else "there is no C compiler on this machine (cc, gcc or clang)"


def _compiler() -> str | None:
    """The path of a C compiler, or None."""
    return next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)


def compile_shim(folder: Path) -> Path:
    """The shim as a shared object. Ask `no_shim` before. Raises CalledProcessError."""
    compiler = _compiler() or "cc"
    shim = folder / "shim.so"
    source = Path(__file__).with_name("shim.c")
    command = [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-o", str(shim), str(source), "-ldl", "-lpthread"]
    subprocess.run(command, check=True, capture_output=True)
    return shim


def watched(folder: Path, *flags: str) -> BrokerProcess:
    """A broker on `folder`/data whose writes and syncs are logged to `folder`/cut.log."""
    environment = {
        "LD_PRELOAD": str(compile_shim(folder)),
        "POPMQ_CUT_LOG": str(folder / "cut.log"),
        "POPMQ_CUT_FOLDER": str(folder / "data"),
    }
    return BrokerProcess(folder / "data", *flags, environment=environment)


def record(folder: Path, seed: int, flags: Sequence[str] = ()) -> None:
    """Watches a broker under load that dies once between two writes: recovery can lose its power too."""
    histories = folder / "histories"
    histories.mkdir(parents=True)
    broker = watched(folder, *flags)
    broker.environment["POPMQ_CUT_CALLS"] = str(random.Random(seed).randrange(300, 2000))
    with loaded(broker, histories, seed, CLIENTS) as clients:
        broker.wait_dead()
        del broker.environment["POPMQ_CUT_CALLS"]
        broker.start()
        time.sleep(LOAD_S)
        finish(histories, clients)
        assert broker.stop() == 0
    disk = Disk()
    for event in events(folder / "cut.log", broker.data):
        disk.play(event)
    for name, content in disk.cached():
        assert content == (broker.data / name).read_bytes(), f"the shim missed a write to {name}"


def cuts(log: list[Event], count: int, seed: int) -> list[Cut]:
    """Random cuts, in the order of the log; half of them during a call, half between two."""
    chance = random.Random(seed)
    chosen = []
    for index in sorted(chance.randrange(1, len(log)) for _ in range(count)):
        event, during = log[index], chance.random() < 0.5
        at_ns = chance.randint(event.start_ns, event.end_ns) if during else event.start_ns
        chosen.append(Cut(index, at_ns, during))
    return chosen


def played(folder: Path, count: int, seed: int, broken: bool = False) -> Iterator[tuple[int, Cut, Path]]:
    """Every cut with the folder that it left, which is removed afterwards."""
    log = list(events(folder / "cut.log", folder / "data"))
    disk, done = Disk(broken), 0
    for number, cut in enumerate(cuts(log, count, seed)):
        for event in log[done : cut.event]:
            disk.play(event)
        done = cut.event
        left = folder / f"cut-{number}"
        (left / "data").mkdir(parents=True)
        disk.cut(left / "data", random.Random(f"{seed}/{number}"), log[cut.event] if cut.during else None)
        yield number, cut, left
        shutil.rmtree(left)


def before(history: History, cut: Cut) -> History:
    """The history up to the cut: later answers and calls are removed."""
    known = bisect_right(history.operations, cut.at_ns, key=lambda operation: operation.called_ns)
    operations = [
        operation
        if operation.returned_ns <= cut.at_ns
        else replace(operation, returned_ns=NEVER, how="unknown", told={})
        for operation in history.operations[:known]
    ]
    return History(operations, history.wall_minus_monotonic_ns)


def judge(left: Path, known: History) -> list[Finding]:
    """Opens the store that a cut left, brings it to rest an hour later, and checks all answers before the cut."""
    found = observed(left, known)
    if found is None:
        return []
    facts, survey = found
    findings = check(facts, survey) + sealed.check(facts.history, survey) + list(scratch.check(facts.history))
    return findings + [("store", problem) for problem in check_folder(left / "data")]


def observed(left: Path, known: History) -> tuple[Facts, Survey] | None:
    """Opens the store that a cut left, brings it to rest an hour later, and reads all. None: nobody had called yet."""
    clock = FakeClock(start_ms=time.time_ns() // 1_000_000)
    with EmbeddedBroker(left / "data", clock=clock, sync="none") as broker, Stubs(broker.endpoint) as stubs:
        if not known.operations:  # the clients came after the answers to CreateTopic and CreateGroup
            return None
        _finish_reading(left, stubs)
        survey = come_to_rest(stubs, Recorder(left, "rest"), pass_time=lambda: clock.advance(HOUR_MS))
    after = read(left)
    return Facts(History(known.operations + after.operations, after.wall_minus_monotonic_ns)), survey


def _finish_reading(left: Path, stubs: Stubs) -> None:
    """The owner comes back after the cut: its open epoch must be unchanged, and the rest must follow."""
    reader = Reader(stubs, Recorder(left, "reader"), random.Random(0), lease_ms=HOUR_MS)
    reader.attach()
    reader.finish()


def judge_all(folder: Path, count: int, seed: int, broken: bool) -> Iterator[dict[str, Any]]:
    """Judges every cut; yields a line before each cut and one after it, so that a death in between names the cut."""
    history = read(folder / "histories")
    for number, cut, left in played(folder, count, seed, broken):
        yield {"cut": number, "event": cut.event}
        known = before(history, cut)
        try:
            findings = judge(left, known)
        except Exception as error:  # a store that does not open is a finding
            findings = [("store", f"{type(error).__name__}: {error}")]
        answered = sum(operation.ok for operation in known.operations)
        yield {"cut": number, "answered": answered, "findings": findings[:20]}


def verdicts(folder: Path, count: int, seed: int, broken: bool = False) -> list[dict[str, Any]]:
    """The judgement of each cut, made in a process of its own; a death of that process is a finding too."""
    command = [sys.executable, "-m", "popmq_verify.powercut", str(folder), str(count), str(seed)]
    judged = subprocess.run([*command, "broken" if broken else "honest"], capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in judged.stdout.splitlines() if line.startswith("{")]
    if judged.returncode:
        lines.append({**lines[-1], "answered": 0, "findings": [("store", f"the engine died: {judged.stderr[-2000:]}")]})
    return [line for line in lines if "findings" in line]


if __name__ == "__main__":
    for line in judge_all(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "broken"):
        print(json.dumps(line), flush=True)
