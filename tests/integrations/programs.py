"""Programs of frameworks that tests start: their own commands, on a module that a test wrote."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from harness.broker_process import ROOT

ROOMS = ("proto", "http2", "sdk", "server")


class Program:
    """A command, as `python -m dramatiq app`, run in the folder of its module; killed with its children at the end."""

    def __init__(self, folder: Path, module: str, *command: str, **environment: str) -> None:
        (folder / "app.py").write_text(textwrap.dedent(module))
        paths = [str(folder), *(str(ROOT / room) for room in ROOMS), str(ROOT)]
        self.log = folder / "log.txt"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *command],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def stop(self) -> int:
        """SIGTERM, as a supervisor stops it; returns its exit code."""
        self._process.terminate()
        return self._process.wait(60)

    def wait(self) -> int:
        """Until it ends by itself; returns its exit code."""
        return self._process.wait(60)

    def kill(self) -> None:
        """kill -9 of it and of all processes that it made."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, 9)
            self._process.wait()
