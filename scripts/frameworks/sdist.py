"""Fetches the source archive of a framework, which has its tests, into build/frameworks, and runs some of them."""

import importlib.metadata
import os
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "frameworks"


def unpacked(package: str) -> Path:
    """The sources of the release that is installed here; fetched by pip the first time."""
    release = f"{package}-{importlib.metadata.version(package)}"
    folder = FOLDER / release
    if not folder.is_dir():
        FOLDER.mkdir(parents=True, exist_ok=True)
        asked = ["download", "--quiet", "--no-deps", "--no-binary", package, "--dest", str(FOLDER)]
        subprocess.run(
            [sys.executable, "-m", "pip", *asked, release.replace(f"{package}-", f"{package}==")], check=True
        )
        with tarfile.open(FOLDER / f"{release}.tar.gz") as archive:
            archive.extractall(FOLDER, filter="data")
    return folder


def pytest(folder: Path, plugin: str, files: list[str], *options: str) -> int:
    """Runs tests of a framework with our fixtures in place of its own. Returns the exit code of pytest."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)])}
    # Each with the settings of its own release: none of ours.
    ours = ["-o", "addopts=", "-o", "filterwarnings=default", "--timeout", "60", "-p", "no:cacheprovider", "-p", plugin]
    command = [sys.executable, "-m", "pytest", "-q", "-rs", *ours, *options, *files]
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode
