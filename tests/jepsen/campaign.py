"""`make jepsen`: faults under load, each history judged twice, and a table.

    python -m tests.jepsen.campaign FOLDER [--seconds 8] [--pause 4] [--rounds 1] [--seed N] [FAULT …]

The histories stay in FOLDER, with a page for each counter-example. It ends with 1 if a judge finds anything, or if the
judges differ.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import time
from pathlib import Path

from tests.jepsen import form, judges
from tests.jepsen.faults import FAULTS, Plan, Seen

ROW = "{:<24}{:>7}{:>12}{:>12}  {:<12}{:<12}"


def judged(seen: Seen, file: Path) -> tuple[str, bool]:
    """A row of the table, and whether both judges found nothing."""
    lines = list(form.lines_of(seen.facts.history, seen.survey))
    form.write(file, lines)
    pages = file.with_suffix("")
    pages.mkdir(exist_ok=True)
    porcupine = judges.judged(file, pages)
    if not porcupine.pages:
        pages.rmdir()
    ours = f"{len(seen.findings)} findings" if seen.findings else "ok"
    calls = sum("op" in line for line in lines)
    row = ROW.format(seen.fault, seen.count, f"{calls:,}", f"{porcupine.operations:,}", ours, porcupine.verdict)
    told = [f"    {claim}: {said}" for claim, said in seen.findings[:5]]
    told += [f"    Porcupine: {said}" for said in porcupine.findings[:5]]
    return "\n".join([row, *told]), not seen.findings and porcupine.verdict == "ok"


def main() -> int:
    """Runs the faults in turn."""
    reader = argparse.ArgumentParser()
    reader.add_argument("folder", type=Path)
    reader.add_argument("--seconds", type=float, default=8)
    reader.add_argument("--pause", type=float, default=4)
    reader.add_argument("--rounds", type=int, default=1)
    reader.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    reader.add_argument("faults", nargs="*", help=", ".join(FAULTS))
    asked = reader.parse_intermixed_args()
    asked.folder = asked.folder.resolve()  # the shim knows files by their whole paths
    judges.build()
    shutil.rmtree(asked.folder, ignore_errors=True)
    asked.folder.mkdir(parents=True)
    began, sound = time.monotonic(), True
    print(f"jepsen: seed {asked.seed}, load average {os.getloadavg()[0]:.1f}", flush=True)
    print(ROW.format("fault", "count", "calls", "judged", "our checker", "Porcupine"), flush=True)
    for turn in range(asked.rounds):
        for name in asked.faults or FAULTS:
            scratch = asked.folder / "scratch"
            scratch.mkdir()
            for number, seen in enumerate(FAULTS[name](Plan(scratch, asked.seed + turn, asked.seconds, asked.pause))):
                row, fine = judged(seen, asked.folder / f"{name}-{turn}-{number}.jsonl")
                sound = sound and fine
                print(row, flush=True)
            shutil.rmtree(scratch)
    print(f"jepsen: {'nothing found' if sound else 'FAIL'} in {time.monotonic() - began:.0f} s", flush=True)
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
