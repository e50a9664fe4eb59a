"""A broker keeps its promises on each file system of this machine, through kills, a full disk and power cuts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.conftest import Scale
from tests.crash.file_systems import cuts
from tests.crash.file_systems.systems import SYSTEMS, made, mounted, served, why_not
from tests.sources import ROOT

pytestmark = pytest.mark.chaos


@pytest.mark.parametrize("name", SYSTEMS)
def test_answers_hold_on_each_file_system(name: str, tmp_path: Path, scale: Scale) -> None:
    _expect(name, tmp_path)
    counts = ["--kills", str(scale.pick(1, 20)), "--cuts", str(scale.pick(3, 50)), "--seed", str(scale.seed)]
    command = [sys.executable, "-m", "tests.crash.file_systems.campaign", *counts, name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing found" in done.stdout
    assert "skipped" not in done.stdout


def test_a_drive_that_ignores_flushes_is_found_out(tmp_path: Path, scale: Scale) -> None:
    system = SYSTEMS["ext4 ordered"]
    _expect(system.name, tmp_path)
    (tmp_path / "recording").mkdir()
    cuts.record(tmp_path / "recording", system, scale.seed)
    verdicts = cuts.verdicts(tmp_path / "recording", system, 5, scale.seed, broken=True)
    assert any(verdict["findings"] for verdict in verdicts), "the model cannot fail"


def test_a_cut_keeps_what_was_synced_and_may_lose_what_was_not(tmp_path: Path) -> None:
    """Without a broker: the last synced file is always there, and one that was never synced is missing in some cuts."""
    system = SYSTEMS["ext4 ordered"]
    _expect(system.name, tmp_path)
    image = made(system, tmp_path)
    cuts.copy(image, tmp_path / "blank")
    with (
        served(image, tmp_path / "drive.log", tmp_path / "fuse") as drive,
        mounted(system, drive, tmp_path / "m") as root,
    ):
        for name in ("first", "second"):
            with open(root / name, "wb") as file:
                file.write(name.encode() * 1000)
                if name == "first":
                    os.fsync(file.fileno())
                    folder = os.open(root, os.O_RDONLY)
                    os.fsync(folder)
                    os.close(folder)
            if name == "first":
                (tmp_path / "loaded").write_text(str(cuts.now_ns()))
    seen = set[tuple[str, ...]]()
    for _, _, left in cuts.played(tmp_path, 12, seed=1):
        with mounted(system, left / "image", left / "mount") as after:
            assert (after / "first").read_bytes() == b"first" * 1000
            seen.add(tuple(sorted(path.name for path in after.iterdir() if path.is_file() and path.stat().st_size)))
    assert ("first",) in seen


def _expect(name: str, folder: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root mounts")
    if why := why_not(SYSTEMS[name], folder / "try"):
        pytest.skip(f"{name}: {why}")
