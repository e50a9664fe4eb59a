"""The example programs of other languages, built by their own tools, and a broker in a process of its own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from harness.broker_process import ROOT, BrokerProcess
from harness.stubs import Stubs
from tests.interop.builds import build_once, digest

EXAMPLES = ROOT / "examples"
CONTRACT = ROOT / "proto" / "popmq" / "v1" / "popmq.proto"
#: Fetching and compiling these takes minutes: only `make polyglot` does. What it built is run by every test run.
BUILDS_ALL = os.environ.get("POPMQ_CAMPAIGN") == "whole"


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
    return lambda language: {"node": _node, "go": _go, "java": _java, "rust": _rust}[language]()


def _node() -> list[str]:
    folder = EXAMPLES / "node"
    installed = folder / "node_modules" / ".package-lock.json"
    node = tool("node", "npm")
    if not installed.exists() or installed.stat().st_mtime < (folder / "package-lock.json").stat().st_mtime:
        _build(["npm", "ci"], folder)
    return [node, str(folder / "quickstart.js")]


def _go() -> list[str]:
    folder = EXAMPLES / "go"
    tool("go")
    _build(["./generate.sh"], folder)
    _build(["go", "build", "-o", "quickstart", "."], folder)
    return [str(folder / "quickstart")]


def _java() -> list[str]:
    folder = EXAMPLES / "java"
    java, mvn, _ = tool("java"), tool("mvn"), tool("javac")
    goals = ["compile", "dependency:copy-dependencies"]
    _once(folder, [folder / "pom.xml", *folder.glob("src/**/*.java")], [mvn, "-q", "-B", *goals])
    target = folder / "target"
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
    path = f"{target / 'classes'}{os.pathsep}{target / 'lib' / '*'}"
    return [java, *quick, "-cp", path, "dev.popmq.examples.Quickstart"]


def _rust() -> list[str]:
    folder = EXAMPLES / "rust"
    cargo = tool("cargo")
    if subprocess.run([cargo, "--version"], capture_output=True, check=False).returncode:
        pytest.skip("cargo is on the PATH, but no toolchain is behind it: rustup default stable")
    sources = [folder / "Cargo.toml", folder / "Cargo.lock", folder / "build.rs", *folder.glob("src/*.rs")]
    _once(folder, sources, [cargo, "build", "--quiet", "--locked"])
    return [str(folder / "target" / "debug" / "quickstart")]


def _once(folder: Path, sources: list[Path], command: list[str]) -> None:
    """Builds an example that was not built from these very files; skips its test where that takes too long."""
    sources = [*sources, CONTRACT]
    made_from = folder / "target" / "made-from"
    built = made_from.exists() and made_from.read_text() == digest(*sorted(sources))
    if not built and not BUILDS_ALL:
        pytest.skip(f"{folder.name} is not built for this contract: make polyglot")
    build_once(folder / "target", sources, command, folder)


def tool(*names: str) -> str:
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
