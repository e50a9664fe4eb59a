"""The file systems of the campaign: how each is made and mounted, and why this machine cannot have one."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from popmq_verify.process.disk import Event, events
from tests.crash.file_systems.drive import NAME

#: A broker refuses sends below 256 MiB of free disk; xfs makes none below 300 MiB.
DRIVE_MIB = 640
#: Bytes that a drive writes whole or not at all: that of drives with 4 KiB sectors, which file systems count on.
SECTOR = 4096
READY_S = 30.0


class CannotMount(Exception):
    """A mount was refused; the message is that of the command."""


@dataclass(frozen=True)
class System:
    """`make`: the command that makes it in a file; none for what needs no drive. `options`: of the mount. `over`: it is
    an overlay, whose upper layer lies on this one.
    """

    name: str
    kind: str
    make: tuple[str, ...] = ()
    options: str = "rw"
    over: str = ""

    @property
    def has_drive(self) -> bool:
        """Whether it can lose its power; memory has nothing that stays."""
        return bool(self.make)


EXT4 = ("mkfs.ext4", "-q", "-F", "-b", "4096")
SYSTEMS = {
    system.name: system
    for system in (
        System("ext4 ordered", "ext4", EXT4, "data=ordered"),
        System("ext4 writeback", "ext4", EXT4, "data=writeback"),
        System("xfs", "xfs", ("mkfs.xfs", "-q", "-f", "-s", "size=4096")),
        # It gives room back with its next own commit, by default after 30 s.
        System("btrfs", "btrfs", ("mkfs.btrfs", "-q", "-f", "-s", "4096"), "commit=5"),
        System("overlay on ext4", "overlay", EXT4, "data=ordered", over="ext4"),
        System("tmpfs", "tmpfs", options=f"size={DRIVE_MIB}m"),
    )
}


def why_not(system: System, folder: Path) -> str:
    """Why this machine cannot mount it; "" if it can, which is tried in a folder."""
    if sys.platform != "linux":
        return "Linux only"
    if missing := [tool for tool in (*system.make[:1], "losetup", "mount") if shutil.which(tool) is None]:
        return f"no {missing[0]} on this machine"
    folder.mkdir()
    try:
        image = made(system, folder)
        with mounted(system, image, folder / "mount"):
            return ""
    except (CannotMount, subprocess.CalledProcessError) as error:
        return str(error)
    finally:
        shutil.rmtree(folder)


def made(system: System, folder: Path) -> Path:
    """A new file system in a sparse file; an empty file for one that needs none."""
    image = folder / "image"
    with image.open("wb") as file:
        file.truncate(DRIVE_MIB << 20 if system.has_drive else 0)
    if system.has_drive:
        subprocess.run([*system.make, str(image)], check=True, capture_output=True)
    return image


@contextlib.contextmanager
def mounted(system: System, image: Path, at: Path) -> Iterator[Path]:
    """Mounts an image, or what a Drive serves; gives the folder to use, and unmounts. Raises CannotMount."""
    at.mkdir(exist_ok=True)
    with contextlib.ExitStack() as undo:
        if not system.has_drive:
            _mount(undo, at, "-t", system.kind, "-o", system.options, system.kind)
            yield at
            return
        command = ["losetup", "--find", "--show", "--sector-size", str(SECTOR), str(image)]
        loop = subprocess.run(command, capture_output=True, text=True, check=False)
        if loop.returncode:
            raise CannotMount(loop.stderr.strip())
        device = loop.stdout.strip()
        try:
            _mount(undo, at, "-t", system.over or system.kind, "-o", system.options, device)
        finally:
            subprocess.run(["losetup", "--detach", device], check=True)  # once the last mount is gone
        if not system.over:
            yield at
            return
        for part in ("lower", "upper", "work", "merged"):
            (at / part).mkdir(exist_ok=True)
        layers = f"lowerdir={at}/lower,upperdir={at}/upper,workdir={at}/work"
        _mount(undo, at / "merged", "-t", "overlay", "-o", layers, "overlay")
        yield at / "merged"


def _mount(undo: contextlib.ExitStack, at: Path, *what: str) -> None:
    done = subprocess.run(["mount", *what, str(at)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotMount(done.stderr.strip())
    # Lazy, for a store that could not be opened: its file stays open until the process ends.
    undo.callback(subprocess.run, ["umount", "--lazy", str(at)], check=True)


@contextlib.contextmanager
def served(image: Path, log: Path, at: Path) -> Iterator[Path]:
    """A Drive over an image, in a process of its own: gives the file that a loop device takes."""
    at.mkdir()
    command = [sys.executable, "-m", "tests.crash.file_systems.drive", str(image), str(log), str(at)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != "mounted\n":
                raise CannotMount("FUSE cannot be mounted here")
            yield at / NAME
            subprocess.run(["umount", str(at)], check=True)
            process.wait(READY_S)
        finally:
            process.kill()


def logged(log: Path) -> list[Event]:
    """The writes (W) and flushes (S) of a Drive."""
    return [event for event in events(log, Path()) if event.kind in "WS"]
