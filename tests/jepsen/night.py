"""`make night`: each fault so often that its rare moments come too, every history judged three times, and one table.

    python -m tests.jepsen.night FOLDER [--times 1.0] [--seed N] [ROW …]

Two rows run at the same time. Each second round is of brokers with `--journal off`. A round with a finding keeps its
history in FOLDER, which also gets the table. It ends with 1 if a judge found anything.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from popmq_verify.judging.facts import Facts
from tests.jepsen import bulk, faults, form, judges
from tests.jepsen.faults import Plan, Seen
from tests.spec.replay import Stories

#: Of each round with a history: seconds of load, and of the longest SIGSTOP.
SECONDS, PAUSE_S = 60.0, 2.0
CUTS = 50
#: Of the acks in bulk: each has its own broker.
PARTS = 10


@dataclass
class Row:
    """A line of the table: sums over rounds. The lists are what each judge found; Porcupine may also be at a loss."""

    fault: str
    count: int = 0
    acks: int = 0
    judged: int = 0
    ours: list[str] = field(default_factory=list)
    porcupine: list[str] = field(default_factory=list)
    specification: list[str] = field(default_factory=list)
    by_all: bool = True

    def add(self, other: Row) -> None:
        """One more round."""
        self.count += other.count
        self.acks += other.acks
        self.judged += other.judged
        self.ours += other.ours
        self.porcupine += other.porcupine
        self.specification += other.specification
        self.by_all = other.by_all

    @property
    def found(self) -> list[str]:
        return self.ours + self.porcupine + self.specification

    def line(self) -> str:
        """As a line of Markdown."""
        third = [_told(self.porcupine), _told(self.specification)] if self.by_all else ["–", "–"]
        judged = f"{self.judged:,}" if self.judged else "–"
        cells = [self.fault, f"{self.count:,}", f"{self.acks:,}", judged, _told(self.ours), *third]
        return f"| {' | '.join(cells)} |"


HEAD = (
    "| fault, under load | times | acks | judged | our checker | Porcupine | the specification |\n"
    "|---|--:|--:|--:|---|---|---|"
)


def _file(folder: Path, name: str, more: object) -> Path:
    """A file or folder of a row. The shim's path may have no blanks."""
    return folder / re.sub(r"\W+", "-", f"{name}-{more}")


def _told(found: list[str]) -> str:
    return f"{len(found)} findings" if found else "ok"


def of_history(fault: str, seen: Seen, file: Path) -> Row:
    """One history, judged three times. The file stays if a judge found anything."""
    pages, file = file, file.with_suffix(".jsonl")
    form.write(file, list(form.lines_of(seen.facts.history, seen.survey)))
    pages.mkdir()
    porcupine = judges.judged(file, pages)
    row = Row(fault, seen.count, _acks(seen.facts), porcupine.operations)
    row.ours = [f"{claim}: {said}" for claim, said in seen.findings]
    row.porcupine = porcupine.findings or ([] if porcupine.verdict == "ok" else [porcupine.verdict])
    row.specification = Stories(seen.facts).problems()
    if not row.found:
        file.unlink()
        shutil.rmtree(pages)
    return row


def _acks(facts: Facts) -> int:
    codes: list[int] = [code for one in facts.history.of("ack") if one.ok for code in one.told["codes"]]
    settled: list[str] = [handle for one in facts.history.of("settle") if one.ok for handle in one.asked["handles"]]
    return codes.count(0) + len(settled)


def _journal(number: int) -> None:
    """Sets what the brokers of a round are started with."""
    os.environ["POPMQ_JOURNAL"] = ("on", "off")[number % 2]


def rounds(name: str, fault: Callable[[Plan], Iterator[Seen]], times: int, folder: Path, seed: int) -> Iterator[Row]:
    """Rounds of a fault until it was `times` times."""
    count = number = 0
    while count < times:
        scratch, row = _file(folder, name, "scratch"), Row(name)
        scratch.mkdir()
        _journal(number)
        plan = Plan(scratch, seed + number, SECONDS, PAUSE_S)
        for part, seen in enumerate(fault(plan)):
            row.add(of_history(name, seen, _file(folder, name, f"{number}-{part}")))
        shutil.rmtree(scratch)
        if not row.judged:  # not on this machine
            break
        count += row.count
        number += 1
        yield row


def damaged(name: str, times: int, folder: Path, seed: int) -> Iterator[Row]:
    """Files with one flipped bit; what a broker does with each is judged by our own claims only."""
    scratch = _file(folder, name, "scratch")
    command = [sys.executable, "-m", "tests.crash.bitrot", str(scratch), str(seed), str(times)]
    lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()
    row = Row(name, len(lines), by_all=False)
    for flip in map(json.loads, lines):
        silent = not flip["found"] and (flip["ended"] or flip["error"] or flip["lost"])
        row.ours += [json.dumps(flip)] if flip["wrong"] or silent else []
    shutil.rmtree(scratch)
    yield row


def many(name: str, times: int, folder: Path, seed: int) -> Iterator[Row]:
    """Acks in batches, too many for a search: a byte for each message is judged (bulk.py)."""
    for number in range(PARTS):
        _journal(number)
        scratch = _file(folder, name, "scratch")
        counted, found = bulk.run(scratch, times // PARTS, seed)
        yield Row(name, counted["kills"], counted["acks"], ours=found, by_all=False)
        shutil.rmtree(scratch)


def _cuts(plan: Plan) -> Iterator[Seen]:
    return faults.power_cuts(plan, CUTS)


#: Row → its rounds, and how often: of bulk the messages, of all others the fault.
ROWS: dict[str, tuple[Callable[[str, int, Path, int], Iterator[Row]], int]] = {
    "kill -9 in bulk": (many, 100_000_000),
    "kill -9": (lambda name, *rest: rounds(name, faults.kills, *rest), 800),
    "kill -9, retention": (lambda name, *rest: rounds(name, faults.dropping, *rest), 300),
    "SIGSTOP of 1 to 2 s": (lambda name, *rest: rounds(name, faults.pauses, *rest), 500),
    "power cut": (lambda name, *rest: rounds(name, _cuts, *rest), 500),
    "one flipped bit": (damaged, 1000),
    "clock steps": (lambda name, *rest: rounds(name, faults.clock_steps, *rest), 500),
    "EIO of a sync": (lambda name, *rest: rounds(name, faults.failing_syncs, *rest), 50),
    "full disk": (lambda name, *rest: rounds(name, faults.full_disk, *rest), 20),
    "slow disk": (lambda name, *rest: rounds(name, faults.slow_disk, *rest), 2),
    "resets within answers": (lambda name, *rest: rounds(name, faults.resets, *rest), 500),
    "half-open, one-way": (lambda name, *rest: rounds(name, faults.mute_connections, *rest), 200),
}


def whole(name: str, times: float, folder: Path, seed: int) -> Row:
    """All rounds of a row, with a line for each."""
    run, count = ROWS[name]
    total = Row(name)
    for row in run(name, max(1, round(count * times)), folder, seed):
        total.add(row)
        print(f"  {name}: {total.count:,} times, {total.acks:,} acks", *row.found[:5], sep="\n    ✗ ", flush=True)
    return total


def main() -> int:
    """Runs the rows and writes the table."""
    reader = argparse.ArgumentParser()
    reader.add_argument("folder", type=Path)
    reader.add_argument("--times", type=float, default=1.0, help="how much of each row: 1 = a night")
    reader.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    reader.add_argument("--workers", type=int, default=2)
    reader.add_argument("rows", nargs="*", help=", ".join(ROWS))
    asked = reader.parse_intermixed_args()
    folder = asked.folder.resolve()  # the shim knows files by their whole paths
    judges.build()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began, done = time.monotonic(), dict[str, Row]()
    print(f"night: seed {asked.seed}, load average {os.getloadavg()[0]:.1f}", flush=True)
    with ProcessPoolExecutor(asked.workers) as pool:
        run = partial(whole, times=asked.times, folder=folder, seed=asked.seed)
        waiting = {pool.submit(run, name): name for name in asked.rows or ROWS}
        for ended in as_completed(waiting):
            done[waiting[ended]] = ended.result()
            table = [done[name].line() for name in ROWS if name in done]
            (folder / "night.md").write_text("\n".join([HEAD, *table]) + "\n")
            print(done[waiting[ended]].line(), flush=True)
    print((folder / "night.md").read_text())
    sound = not any(row.found for row in done.values())
    print(f"night: {'nothing found' if sound else 'FAIL'} in {(time.monotonic() - began) / 60:.0f} minutes", flush=True)
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
