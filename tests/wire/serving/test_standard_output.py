"""The lines that a broker prints at its start, where nothing takes them."""

import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.broker_process import ROOT

pytestmark = pytest.mark.slow

OPTIONS = ["--port", "0", "--tls-port", "0", "--metrics-port", "0"]
PROGRAMS = {
    "popmq_server": [sys.executable, "-m", "popmq_server"],
    "popmq serve": [sys.executable, "-c", "from popmq_cli.main import main; main()", "serve"],
}


@pytest.fixture
def no_output(kind: str) -> Iterator[int | None]:
    """A standard output that takes nothing; None: it is closed."""
    if kind == "closed":
        yield None
        return
    if kind == "full":
        handle = os.open("/dev/full", os.O_WRONLY)
    else:
        reader, handle = os.pipe()
        os.close(reader)
    yield handle
    os.close(handle)


# The command line opens a closed one on no file: tests/cli/test_ends.py.
@pytest.mark.parametrize(
    ("kind", "program"),
    [
        ("closed", "popmq_server"),
        *((kind, program) for kind in ("full", "without a reader") for program in PROGRAMS),
    ],
)
def test_a_broker_serves_although_its_standard_output_takes_nothing(
    tmp_path: Path, no_output: int | None, program: str
) -> None:
    closing = ["bash", "-c", 'exec "$@" >&-', "bash"] if no_output is None else []
    command = [*closing, *PROGRAMS[program], *OPTIONS, "--data", str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=no_output, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stderr is not None
        log = list(itertools.takewhile(lambda line: "standard output takes no lines" not in line, process.stderr))
        process.send_signal(signal.SIGTERM)
        log += process.stderr
    assert process.returncode == 0, log
    assert "stopping: running calls end" in log[-1]
    assert "Traceback" not in "".join(log)
