"""`make file-systems`: kills, a full disk and power cuts on each file system that this machine can mount, and a table.

    python -m tests.crash.file_systems.campaign [--kills 20] [--cuts 50] [--recordings 1] [--seed N] [NAME …]

It runs in a mount namespace of its own, so that all mounts are gone when it ends, however it ends. It needs root, loop
devices and, for power cuts, FUSE; what this machine lacks is named. It ends with 1 if anything is found.
"""

from __future__ import annotations

import argparse
import datetime
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from popmq_verify import campaign, full
from popmq_verify.judging.checker import Finding
from tests.crash.file_systems import cuts
from tests.crash.file_systems.systems import SYSTEMS, System, made, mounted, why_not
from tests.sources import ROOT

#: Set in the process that has a namespace of its own.
INSIDE = "POPMQ_FILE_SYSTEMS"
ROW = "{:<18}{:>7}{:>12}{:>10}{:>12}{:>7}{:>12}{:>10}"
HEADS = ("file system", "kills", "deliveries", "acks", "acks, full", "cuts", "answers", "findings")


@dataclass
class Seen:
    """What happened on one file system."""

    figures: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)

    def row(self, system: System) -> str:
        shown = ("kills", "deliveries", "ack: messages", "acks while the disk was full", "cuts", "answers")
        figures = [f"{self.figures[name]:,}" if name in self.figures else "–" for name in shown]
        return ROW.format(system.name, *figures, len(self.findings))


def suffered(system: System, folder: Path, seed: int, kills: int, count: int, recordings: int) -> Seen:
    """One file system: kill -9 under load, no byte left, power cuts."""
    seen = Seen()
    image = made(system, folder)
    with mounted(system, image, folder / "mount") as root:
        (root / "kills").mkdir()
        verdict = campaign.run(root / "kills", kills, seed)
        seen.figures.update(verdict.figures)
        seen.findings += verdict.findings
        shutil.rmtree(root / "kills")
        (root / "full").mkdir()
        told: dict[str, int] = {}
        seen.findings += full.no_byte_left(root / "full", (), told)
        seen.figures.update(told)
    for number in range(recordings if system.has_drive else 0):
        recording = folder / f"recording-{number}"
        recording.mkdir()
        cuts.record(recording, system, seed + number)
        for verdict_of_cut in cuts.verdicts(recording, system, count, seed + number):
            seen.figures["cuts"] += 1
            seen.figures["answers"] += verdict_of_cut["answered"]
            where = f"recording {number}, cut {verdict_of_cut['cut']}"
            seen.findings += [(claim, f"{where}: {said}") for claim, said in verdict_of_cut["findings"]]
        shutil.rmtree(recording)
    return seen


def main() -> int:
    """Runs the file systems in turn."""
    reader = argparse.ArgumentParser()
    reader.add_argument("--kills", type=int, default=20)
    reader.add_argument("--cuts", type=int, default=50, help="of each recording")
    reader.add_argument("--recordings", type=int, default=1)
    reader.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    reader.add_argument("names", nargs="*", metavar="NAME", help=", ".join(SYSTEMS))
    asked = reader.parse_intermixed_args()
    if INSIDE not in os.environ:
        if os.geteuid() or shutil.which("unshare") is None:
            print("file-systems: skipped: it needs root and the command unshare")
            return 0
        again = ["unshare", "--mount", sys.executable, "-m", "tests.crash.file_systems.campaign", *sys.argv[1:]]
        again += [] if "--seed" in sys.argv else ["--seed", str(asked.seed)]
        return subprocess.run(again, env=os.environ | {INSIDE: "1"}, check=False).returncode
    began, sound = time.monotonic(), True
    now = datetime.datetime.now(datetime.UTC)
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    print(f"file-systems: seed {asked.seed}, {now:%F}, commit {commit.stdout.strip()}, Linux {os.uname().release}, "
          f"load average {os.getloadavg()[0]:.1f}")  # fmt: skip
    print(ROW.format(*HEADS), flush=True)
    with tempfile.TemporaryDirectory(prefix="popmq-file-systems-") as scratch:
        for number, name in enumerate(asked.names or SYSTEMS):
            system, folder = SYSTEMS[name], Path(scratch, str(number))
            if why := why_not(system, folder):
                print(f"{name:<18}skipped: {why}", flush=True)
                continue
            folder.mkdir()
            seen = suffered(system, folder, asked.seed, asked.kills, asked.cuts, asked.recordings)
            sound = sound and not seen.findings
            print(
                seen.row(system), *[f"    {claim}: {said}" for claim, said in seen.findings[:10]], sep="\n", flush=True
            )
            shutil.rmtree(folder)
    print(f"file-systems: {'nothing found' if sound else 'FAIL'} in {time.monotonic() - began:.0f} s")
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
