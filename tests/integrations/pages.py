"""Runs a page of docs/integrations: its first Python block is the module of the worker, the others use it."""

import os
import subprocess
import sys
from pathlib import Path

from popmq.testing import Broker
from tests.integrations.programs import ROOMS, Program
from tests.prose import examples
from tests.sources import ROOT


def run(page: str, folder: Path, broker: Broker, *command: str) -> None:
    """Starts the page's worker with its framework's command, and runs the rest beside it; raises if that fails."""
    module, *rest = examples(ROOT / "docs" / "integrations" / page)
    (folder / "program.py").write_text("\n".join(rest))
    paths = os.pathsep.join([str(folder), *(str(ROOT / room) for room in ROOMS)])
    environment = {"POPMQ_ENDPOINT": broker.endpoint, "PYTHONPATH": paths}
    with Program(folder, module, *command, POPMQ_ENDPOINT=broker.endpoint):
        subprocess.run([sys.executable, "program.py"], cwd=folder, env={**os.environ, **environment}, check=True)
