"""Helpers for the data folder of a stopped broker: the findings of `popmq check`, and the reason of a refused start."""

import subprocess
import sys
from pathlib import Path

from harness.broker_process import ROOT
from popmq_server.embedded.fsck.check import check_folder

CANNOT_START = 78  # EX_CONFIG of sysexits.h: a supervisor need not try again


def refused_start(data: Path, port: int = 0) -> str:
    """The error text of a broker that must refuse to start."""
    command = [sys.executable, "-m", "popmq_server", "--data", str(data), "--host", "127.0.0.1"]
    command += ["--port", str(port), "--tls-port", "0", "--metrics-port", "0"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert ended.returncode == CANNOT_START, (ended.returncode, ended.stderr)
    assert "ready" not in ended.stdout
    assert "Traceback" not in ended.stderr, ended.stderr
    return ended.stderr


def broken_invariants(data: Path) -> list[str]:
    """Every broken invariant, as a sentence; empty for a sound store."""
    return check_folder(data)
