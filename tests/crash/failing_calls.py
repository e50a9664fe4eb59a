"""A campaign that fails each call of the write path once, and each from some call on, and checks what is left.

    python -m tests.crash.failing_calls FOLDER EVERY      with the shim preloaded (shim.c); a JSON line for each run

    for each n, EIO or ENOSPC, once or from then on:
        a fork: start, the n-th call on the data folder fails, load, the fault ends, one more send
        a fork: the folder as it is, then as a power cut would leave it: fsck, every message in its place

        a fork: a backup whose copying process meets the fault

`load` sends, pops, acks, extends, releases and dead-letters, and has expiry, retention and a restart. The
forks share what this process imported, so a run takes some 0.1 s.
"""

import ctypes
import errno
import json
import logging
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from popmq_server.clock import FakeClock
from popmq_server.embedded.store.backup import Copy
from popmq_server.embedded.store.lmdb import DiskFault
from popmq_server.errors import CommitFailed, Refused, StartError
from popmq_verify.process.disk import Disk, events
from tests.engine.rig import HOUR, MINUTE, Delivery, Rig

ERRORS = (errno.EIO, errno.ENOSPC)
LARGE = "x" * 20_000
MAP_BYTES = 1 << 26


class Fault(NamedTuple):
    """The n-th call fails with the error, 0 = none; `ever`: so do all later ones."""

    n: int
    error: int
    ever: bool


class Synced(Rig):
    """A rig whose commits are synced."""

    sync = "full"


class Load:
    """The calls and answers of a run. A process that has ended makes no more calls."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = FakeClock()
        self.sent = list[str]()
        self.acked = list[str]()
        #: Acks that were not answered, or with UNAVAILABLE: a start may find them in the journal.
        self.unsure = list[str]()
        #: Messages whose send was refused with STORAGE_FULL.
        self.unsent = list[str]()
        self.refused = list[str]()
        self.rig: Rig

    def run(self) -> None:
        """The load. Raises CommitFailed or StartError where a process ends."""
        self.rig = Synced(self.folder, self.clock, MAP_BYTES)
        if not self._created() and not self._created():
            return
        self._pop()
        for number in range(4):
            self._send(f"a{number}", f"b{number}{LARGE * (number % 2)}")
        first = self._pop(6)
        self._try(lambda: self.rig.extend(first[:1], HOUR))
        self._ack(first[:2])
        self._try(lambda: self.rig.release(first[2:3]))
        self._try(lambda: self.rig.reject(first[3:4], "bad"))
        self._try(lambda: self.rig.advance(2 * MINUTE))
        self._ack(self._pop())
        self._try(lambda: self.rig.advance(2 * HOUR))
        self._send("c")
        self.rig.restart()
        self._try(lambda: self.rig.advance(2 * HOUR))
        self._send("d")
        self._ack(self._pop(2))

    def heals(self) -> bool:
        """Whether a send is answered with OK again."""
        before = len(self.sent)
        self._created()
        self._try(lambda: self.rig.advance(MINUTE))
        self._send("healed")
        return len(self.sent) > before

    def _created(self) -> bool:
        """Creates the topic and the group. False if one was refused: a client then tries again."""
        made = [self._try(lambda: self.rig.topic("t", 2, keep_ms=MINUTE)), self._try(lambda: self.rig.group("g"))]
        return None not in made

    def _send(self, *bodies: str) -> None:
        if self._try(lambda: self.rig.send(*bodies)) is not None:
            self.sent += bodies
        elif self.refused[-1] == "STORAGE_FULL":
            self.unsent += bodies

    def _pop(self, count: int = 32) -> list[Delivery]:
        return self._try(lambda: self.rig.pop(count)) or []

    def _ack(self, rows: list[Delivery]) -> None:
        before = len(self.unsure)
        self.unsure += [row.body for row in rows]
        results = self._try(lambda: self.rig.ack(rows))
        if results is not None:
            del self.unsure[before:]
        self.acked += [row.body for row, result in zip(rows, results or (), strict=False) if result is None]

    def _try(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Refused as refused:
            self.refused.append(refused.code)
            return None


def load(folder: Path, fail: Callable[[int], int], n: int) -> dict[str, Any]:
    """One load with a fault, in this process. `fail` sets it, and returns the calls so far."""
    run, ended, healed = Load(folder), "", False
    fail(n)
    try:
        run.run()
    except (CommitFailed, StartError) as error:
        ended = f"{type(error).__name__}: {error}"
    except Exception as error:
        ended = f"untyped {error!r}"
    calls = fail(0)
    if not ended:
        try:
            healed = run.heals()
        except Exception as error:
            ended = f"after the fault {error!r}"
    told: dict[str, Any] = {"sent": run.sent, "acked": run.acked, "unsure": run.unsure}
    told |= {"unsent": run.unsent, "refused": run.refused}
    return told | {"now_ms": run.clock.now_ms(), "ended": ended, "healed": healed, "calls": calls}


def judge(folder: Path, told: dict[str, Any], unsent: Sequence[str] = ()) -> list[str]:
    """Restarts without faults on the store of a run, pops until nothing more comes, and returns what is wrong.

    `unsent`: messages that must not be there.
    """
    rig = Rig(folder, FakeClock(told["now_ms"]), MAP_BYTES)
    found = rig.findings()
    if not told["sent"]:
        return found
    got, empty = set[str](), 0
    while empty < 3:
        rows = rig.pop()
        got |= {row.body for row in rows}
        if rows:
            rig.ack(rows)
        else:
            empty += 1
            rig.advance(HOUR)
    kept = got | ({message.body.decode() for message in rig.dead()} if rig.numbers().dead else set())
    kept |= {*told["acked"], *told["unsure"]}
    found += [f"lost: {body[:10]}" for body in told["sent"] if body not in kept]
    found += [f"refused, and stored: {body[:10]}" for body in unsent if body in got]
    found += [f"acked, and delivered again: {body[:10]}" for body in told["acked"] if body in got]
    return found + rig.findings()


def forked(work: Callable[[], Any]) -> Any:
    """The result of a function in a forked process, or a string that says how the process ended."""
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        try:
            with open(writes, "wb") as pipe:
                pipe.write(json.dumps(work()).encode())
        except BaseException as error:
            os.write(2, f"{error!r}\n".encode())
            os._exit(1)
        os._exit(0)
    os.close(writes)
    with open(reads, "rb") as pipe:
        answer = pipe.read()
    status = os.waitpid(child, 0)[1]
    return json.loads(answer) if not status else f"the process ended with {os.waitstatus_to_exitcode(status)}"


class Runs:
    """The runs in one folder, of which the shim watches `data`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data, self.log = folder, folder / "data", folder / "cut.log"
        self._shim = ctypes.CDLL(None)

    def all(self, every: int) -> Iterator[dict[str, Any]]:
        """The outcome of each run; of `every` calls one is failed."""
        whole = self.one(Fault(0, errno.EIO, False))
        yield whole
        kinds = [(error, ever) for error in ERRORS for ever in (False, True)]
        for place, (error, ever) in enumerate(kinds):
            for n in range(1 + place * every // len(kinds), whole["calls"] + 1, every):
                yield self.one(Fault(n, error, ever))

    def one(self, fault: Fault) -> dict[str, Any]:
        """Runs a load with a fault, and judges the store afterwards."""
        os.truncate(self.log, 0)
        run = {"n": fault.n, "error": errno.errorcode[fault.error], "ever": fault.ever}
        told = forked(lambda: load(self.data, lambda n: self._fail(fault._replace(n=n)), fault.n))
        if isinstance(told, str):
            return run | {"findings": [told], "ended": told, "refused": [], "healed": False, "calls": 0}
        found: list[str] = []
        for look in (self._judge_cut, self._judge_folder):
            said = forked(lambda look=look: look(told, fault.n))  # type: ignore[misc]
            found += [said] if isinstance(said, str) else said
        forked(lambda: shutil.rmtree(self.data, ignore_errors=True))
        return run | {"findings": found[:5]} | {name: told[name] for name in ("refused", "ended", "healed", "calls")}

    def _fail(self, fault: Fault) -> int:
        """Sets a fault; returns the calls since the last one was set."""
        return int(self._shim.popmq_cut_fail(ctypes.c_long(fault.n), fault.error, int(fault.ever)))

    def _judge_folder(self, told: dict[str, Any], _: int) -> list[str]:
        return judge(self.data, told, told["unsent"])

    def _judge_cut(self, told: dict[str, Any], seed: int) -> list[str]:
        """The same after a power cut at the end of the load."""
        disk, left = Disk(), self.folder / "cut"
        for event in events(self.log, self.data):
            disk.play(event)
        left.mkdir()
        disk.cut(left, random.Random(seed))
        try:
            return [f"power cut: {finding}" for finding in judge(left, told)]
        finally:
            shutil.rmtree(left)

    def backup(self, fault: Fault) -> dict[str, Any]:
        """A backup whose copying process meets the fault: it takes the variables of this one."""
        told: dict[str, Any] = forked(lambda: _copied(self.data, fault))
        forked(lambda: shutil.rmtree(self.data))
        return {"n": fault.n, "error": errno.errorcode[fault.error]} | told


def _copied(folder: Path, fault: Fault) -> dict[str, Any]:
    rig = Synced(folder, FakeClock(), MAP_BYTES)
    rig.pair()
    rig.send("a", LARGE)
    os.environ["POPMQ_CUT_FAIL"] = f"{fault.n},{fault.error},0"
    size, failed, copy = 0, "", Copy(rig.store)
    try:
        while piece := copy.read():
            size += len(piece)
    except DiskFault as error:
        failed = str(error)
    copy.close()
    rig.send("b")
    return {"bytes": size, "failed": failed, "findings": rig.findings()}


def main(folder: Path, every: int) -> None:
    """Prints a JSON line for each run."""
    logging.disable(logging.CRITICAL)
    runs = Runs(folder)
    for run in runs.all(every):
        print(json.dumps(run), flush=True)
    for error in ERRORS:
        for n in range(2):
            print(json.dumps(runs.backup(Fault(n, error, False))), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
