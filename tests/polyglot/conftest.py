"""The example programs of other languages, built by their own tools, and a broker in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.broker_process import ROOT, BrokerProcess
from harness.stubs import Stubs

EXAMPLES = ROOT / "examples"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as process:
        yield process


@pytest.fixture
def stubs(broker: BrokerProcess) -> Iterator[Stubs]:
    with Stubs(broker.endpoint) as stubs:
        yield stubs


@pytest.fixture(scope="session")
def program() -> Callable[[str], list[str]]:
    """The command of the example in a language, built on first use."""
    return lambda language: {"node": _node, "go": _go}[language]()


def _node() -> list[str]:
    folder = EXAMPLES / "node"
    installed = folder / "node_modules" / ".package-lock.json"
    node = _tool("node", "npm")
    if not installed.exists() or installed.stat().st_mtime < (folder / "package-lock.json").stat().st_mtime:
        _build(["npm", "ci"], folder)
    return [node, str(folder / "quickstart.js")]


def _go() -> list[str]:
    folder = EXAMPLES / "go"
    _tool("go")
    _build(["./generate.sh"], folder)
    _build(["go", "build", "-o", "quickstart", "."], folder)
    return [str(folder / "quickstart")]


def _tool(*names: str) -> str:
    """The path of the first tool; the tests of a language are skipped only where its tools are not installed."""
    for name in names:
        if shutil.which(name) is None:
            pytest.skip(f"{name} is not on the PATH of this machine")
    return str(shutil.which(names[0]))


def _build(command: list[str], folder: Path) -> None:
    # Without VIRTUAL_ENV or an activated shell, generate.sh would miss the protoc of this interpreter's grpcio-tools.
    environment = {**os.environ, "PYTHON": sys.executable}
    built = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, f"{' '.join(command)} failed:\n{built.stdout}{built.stderr}"
