"""The command of each language's driver, built on first use by the tools of that language.

The registries and caches are those that the tools are set up for; nothing here names one. A language whose tools this
machine lacks is skipped.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path

from harness.broker_process import ROOT

DRIVERS = ROOT / "tests" / "interop" / "drivers"
BUILT = ROOT / "build" / "interop"
PYTHON_CLIENT = "rocketmq-python-client==5.1.2"
MAVEN_GOALS = ["compile", "dependency:copy-dependencies"]
_one_at_a_time = threading.Lock()


class NoTools(Exception):
    """This machine cannot build the driver; the text says what is missing."""


def command(language: str) -> list[str]:
    """How to start the driver. Raises NoTools; AssertionError with the tool's words when building fails."""
    with _one_at_a_time:
        return _built(language)


@cache
def _built(language: str) -> list[str]:
    return BUILDS[language]()


def _python() -> list[str]:
    """A virtual environment of its own: the client pins other versions of what our tests use."""
    python = BUILT / "python" / "bin" / "python"
    installed = BUILT / "python" / "installed"
    if not installed.exists() or installed.read_text() != PYTHON_CLIENT:
        run_build([sys.executable, "-m", "venv", "--clear", str(BUILT / "python")], ROOT)
        run_build([str(python), "-m", "pip", "--disable-pip-version-check", "install", "-q", PYTHON_CLIENT], ROOT)
        installed.write_text(PYTHON_CLIENT)
    return [str(python), str(DRIVERS / "python" / "driver.py")]


def _node() -> list[str]:
    folder = DRIVERS / "node"
    node, _ = tool("node"), tool("npm")
    installed = folder / "node_modules" / ".package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < (folder / "package-lock.json").stat().st_mtime:
        run_build(["npm", "ci"], folder)
    return [node, str(folder / "driver.js")]


def _java() -> list[str]:
    """The client is one jar; Maven fetches it and compiles the driver: classes/ and lib/."""
    folder, built = DRIVERS / "java", BUILT / "java"
    java, mvn = tool("java"), tool("mvn")
    tool("javac")
    build_once(built, [folder / "pom.xml", *folder.glob("src/*")], [mvn, "-q", "-B", *MAVEN_GOALS], folder)
    # A client that lives for seconds is not worth the optimising compiler. Its log file belongs among what is built.
    quick = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m", f"-Drocketmq.log.root={built / 'log'}"]
    return [java, *quick, "-cp", f"{built / 'classes'}{os.pathsep}{built / 'lib' / '*'}", "Driver"]


def _rust() -> list[str]:
    """The client is compiled with the driver: some two minutes, once."""
    folder, built = DRIVERS / "rust", BUILT / "rust"
    cargo = [tool("cargo"), "build", "--quiet", "--locked", "--target-dir", str(built)]
    if subprocess.run([cargo[0], "--version"], capture_output=True, check=False).returncode:
        raise NoTools("cargo is on the PATH, but no toolchain is behind it: rustup default stable")
    build_once(built, [folder / "Cargo.toml", folder / "Cargo.lock", *folder.glob("src/*")], cargo, folder)
    return [str(built / "debug" / "popmq-interop-driver")]


def _go() -> list[str]:
    folder, built = DRIVERS / "go", BUILT / "go"
    build = [tool("go"), "build", "-o", str(built / "driver"), "."]
    build_once(built, [folder / "go.mod", folder / "go.sum", *folder.glob("*.go")], build, folder)
    return [str(built / "driver"), str(built / "log")]


BUILDS: dict[str, Callable[[], list[str]]] = {"python": _python, "node": _node, "java": _java, "rust": _rust, "go": _go}


def tool(name: str) -> str:
    """The path of a program. Raises NoTools."""
    path = shutil.which(name)
    if path is None:
        raise NoTools(f"{name} is not on the PATH of this machine")
    return path


def digest(*files: Path) -> str:
    """Of the files' contents: what a build is compared with to know whether it is still good."""
    sums = hashlib.sha256()
    for file in files:
        sums.update(file.read_bytes())
    return sums.hexdigest()


def build_once(built: Path, sources: list[Path], words: list[str], folder: Path) -> None:
    """Run the tool unless it made `built` from these very files already."""
    made_from, now = built / "made-from", digest(*sorted(sources))
    if not made_from.exists() or made_from.read_text() != now:
        run_build(words, folder)
        made_from.write_text(now)


def run_build(words: list[str], folder: Path) -> None:
    """Raises AssertionError with all that the tool said when it fails."""
    built = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert built.returncode == 0, f"{' '.join(words)} failed:\n{built.stdout}{built.stderr}"
