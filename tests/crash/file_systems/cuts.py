"""Power cuts of a whole file system, with its journal: a drive is cut off under a broker, and what is left is judged.

    record    a broker under load on a file system on a Drive (drive.py); killed once and started again
    played    the images that cuts at random points leave: what was flushed, and some sectors of the writes since then
    judge     mounts the image, so that the file system recovers; then as the campaign of the shim (powercut.py)

It is a second opinion of the shim (popmq_verify/shim.c), which is preloaded into the broker and takes the kernel's word
for what a sync does: here the kernel's own page cache, file system and journal decide what is left. Programs see no
difference, since nothing is frozen, and no copy is made while something writes.

    python -m tests.crash.file_systems.cuts FOLDER SYSTEM COUNT SEED {honest,broken}     judges; JSON lines
"""

from __future__ import annotations

import json
import mmap
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from popmq_verify import powercut
from popmq_verify.campaign import finish, loaded
from popmq_verify.load.history import read
from popmq_verify.process.broker_process import BrokerProcess
from popmq_verify.process.disk import KEPT, Event
from tests.crash.file_systems.systems import SECTOR, SYSTEMS, CannotMount, System, logged, made, mounted, served

CLIENTS = 3
#: Seconds of load before and after the kill.
LOAD_S = 2.0


def record(folder: Path, system: System, seed: int) -> None:
    """Runs a broker under load that is killed once, and keeps what the drive did, and what clients were answered."""
    histories, log = folder / "histories", folder / "drive.log"
    histories.mkdir(parents=True)
    image = made(system, folder)
    copy(image, folder / "blank")
    with served(image, log, folder / "fuse") as drive, mounted(system, drive, folder / "mount") as root:
        broker = BrokerProcess(root / "data")
        with loaded(broker, histories, seed, CLIENTS) as clients:
            (folder / "loaded").write_text(str(now_ns()))
            time.sleep(LOAD_S)
            broker.kill()
            broker.start()
            time.sleep(LOAD_S)
            finish(histories, clients)
            assert broker.stop() == 0
    again = folder / "again"
    copy(folder / "blank", again)
    left = _Image(again)
    for event in logged(log):
        left.put(event)
    left.close()
    assert again.read_bytes() == image.read_bytes(), "the log lacks a write"
    again.unlink()


class _Image:
    """An image that writes are put into."""

    def __init__(self, file: Path) -> None:
        with file.open("r+b") as opened:
            self._map = mmap.mmap(opened.fileno(), 0)

    def put(self, event: Event, chance: random.Random | None = None, kept: float = 1.0) -> None:
        """A write, or those of its sectors that chance keeps."""
        for start in range(0, len(event.data), SECTOR):
            if chance is None or kept == 1.0 or chance.random() < kept:
                part = event.data[start : start + SECTOR]
                self._map[event.offset + start : event.offset + start + len(part)] = part

    def close(self) -> None:
        self._map.close()


def now_ns() -> int:
    """The clock of a Drive's log."""
    return time.monotonic_ns()


def played(folder: Path, count: int, seed: int, broken: bool = False) -> Iterator[tuple[int, powercut.Cut, Path]]:
    """Each cut with the image that it left, which is removed afterwards. `broken`: the drive ignores flushes."""
    log = logged(folder / "drive.log")
    begin = int((folder / "loaded").read_text())
    first = next(index for index, event in enumerate(log) if event.start_ns > begin)
    copy(folder / "blank", folder / "flushed")
    flushed, since, done = _Image(folder / "flushed"), list[Event](), 0
    for number, cut in enumerate(powercut.cuts(log[first:], count, seed)):
        cut.event += first
        for event in log[done : cut.event]:
            if event.kind == "W":
                since.append(event)
            elif event.kind == "S" and not broken:
                for earlier in since:
                    flushed.put(earlier)
                since.clear()
        done = cut.event
        left = folder / f"cut-{number}"
        left.mkdir()
        copy(folder / "flushed", left / "image")
        chance = random.Random(f"{seed}/{number}")
        kept, image = chance.choice(KEPT), _Image(left / "image")
        for event in [*since, *([log[cut.event]] if cut.during else [])]:
            image.put(event, chance, kept)
        image.close()
        yield number, cut, left
        shutil.rmtree(left)
    flushed.close()


def copy(source: Path, target: Path) -> None:
    """A copy in which holes stay holes."""
    subprocess.run(["cp", "--sparse=always", str(source), str(target)], check=True)


def judge_all(folder: Path, system: System, count: int, seed: int, broken: bool) -> Iterator[dict[str, Any]]:
    """The findings of each cut, and the number of answers that had to hold."""
    history = read(folder / "histories")
    for number, cut, left in played(folder, count, seed, broken):
        yield {"cut": number, "event": cut.event}
        known = powercut.before(history, cut)
        try:
            with mounted(system, left / "image", left / "mount") as root:
                findings = powercut.judge(root, known)
        except CannotMount as error:
            findings = [("file system", str(error))]
        except Exception as error:  # a store that does not open is a finding
            findings = [("store", f"{type(error).__name__}: {error}")]
        answered = sum(operation.ok for operation in known.operations)
        yield {"cut": number, "answered": answered, "findings": findings[:20]}


def verdicts(folder: Path, system: System, count: int, seed: int, broken: bool = False) -> list[dict[str, Any]]:
    """The judgement of each cut, made in a process of its own; a death of that process is a finding too."""
    command = [sys.executable, "-m", "tests.crash.file_systems.cuts", str(folder), system.name, str(count), str(seed)]
    judged = subprocess.run([*command, "broken" if broken else "honest"], capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in judged.stdout.splitlines() if line.startswith("{")]
    if judged.returncode:
        told = [("store", f"the engine died: {judged.stderr[-2000:]}")]
        lines.append({**(lines[-1] if lines else {"cut": 0}), "answered": 0, "findings": told})
    return [line for line in lines if "findings" in line]


if __name__ == "__main__":
    _, where, which, cuts, begin, how = sys.argv
    for line in judge_all(Path(where), SYSTEMS[which], int(cuts), int(begin), how == "broken"):
        print(json.dumps(line), flush=True)
