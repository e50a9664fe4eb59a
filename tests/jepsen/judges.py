"""Porcupine's verdict: the Go program `judge`, built once, as a function."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.sources import ROOT

JUDGE = ROOT / "build" / "jepsen" / "judge"
SOURCE = Path(__file__).parent / "judge"


@dataclass(frozen=True)
class Verdict:
    """`verdict`: ok, illegal, or unknown if the time was not enough. `pages`: drawn counter-examples."""

    verdict: str
    partitions: int
    operations: int
    illegal: int
    unknown: int
    findings: list[str]
    pages: list[str]


def no_go() -> str:
    """Why Porcupine cannot judge here; empty if it can."""
    return "" if shutil.which("go") else "needs Go"


def build() -> None:
    """Builds the program. Go does nothing if it is built already; the first time it fetches Porcupine."""
    JUDGE.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"GOFLAGS": "-mod=readonly"}
    subprocess.run(["go", "build", "-o", str(JUDGE), "."], cwd=SOURCE, env=environment, check=True)


def judged(history: Path, pages: Path | None = None) -> Verdict:
    """What Porcupine says of a file of the form. Raises CalledProcessError if it cannot read it."""
    command = [str(JUDGE), *(["-page", str(pages)] if pages else []), str(history)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode not in (0, 1, 3):
        raise subprocess.CalledProcessError(ended.returncode, command, ended.stdout, ended.stderr)
    return Verdict(**json.loads(ended.stdout))
