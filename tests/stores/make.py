"""Keeps a store of a release: checks its commit out into a temporary folder and fills a store with its own code.

    python -m tests.stores.make format-1 9f07406^       → tests/stores/format-1.mdb.xz
    python -m tests.stores.make format-2 93b55c5
    python -m tests.stores.make sparse a06f67e7     → tests/stores/sparse.mdb.xz

Before a format is added (embedded/store/formats.py), a store of the one that ends is kept so, made by its last
commit. fill.py says what is in it, and test_older_stores.py opens each. `sparse` is of the newest format, with values
that came after its first store (version 4 of CheckPoints, version 2 of blocks of history): later releases read them.
"""

import argparse
import lzma
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import lmdb

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
ROOMS = ("proto", "http2", "sdk", "server", ".")


def check_out(commit: str, folder: Path) -> None:
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)


def fill(release: Path, data: Path, what: str) -> None:
    """Runs fill.py with the code of the release: its engine, and the rig of its tests."""
    path = os.pathsep.join(str(release / room) for room in ROOMS)
    command = [sys.executable, str(HERE / "fill.py"), str(data), what]
    subprocess.run(command, check=True, env=os.environ | {"PYTHONPATH": path}, cwd=release)


def packed(data: Path) -> bytes:
    """The store without its free pages, compressed."""
    copy = data.with_name("copy.mdb")
    with lmdb.open(str(data), subdir=False, readonly=True, lock=False) as env, copy.open("wb") as target:
        env.copyfd(target.fileno(), compact=True)
    return lzma.compress(copy.read_bytes(), preset=9)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("name", help="format-N, or sparse")
    parser.add_argument("commit", help="the last one that wrote this format")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="popmq-store-") as scratch:
        release, data = Path(scratch, "release"), Path(scratch, "data")
        release.mkdir()
        check_out(options.commit, release)
        fill(release, data, options.name.removeprefix("format-"))
        target = HERE / f"{options.name}.mdb.xz"
        target.write_bytes(packed(data / "popmq.mdb"))
    print(f"{target.name}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
