"""The data folder: one process at a time has it, whatever happens to the files in it."""

import errno
import fcntl
import os
import stat
from pathlib import Path

import pytest

from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded.store.folder import LOCK_FILE, lock_folder
from popmq_server.errors import StartError
from tests.engine.rig import Rig


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_a_folder_whose_lock_file_was_removed_is_still_in_use(folder: Path) -> None:
    rig = Rig(folder)
    (folder / LOCK_FILE).unlink()
    for opened in (Rig, check_folder):
        with pytest.raises(StartError, match="in use by another PopMQ \\(process unknown\\)"):
            opened(folder)
    rig.core.close()
    Rig(folder).core.close()


def test_a_refusal_names_the_process_that_has_the_folder(folder: Path) -> None:
    held = lock_folder(folder)
    with pytest.raises(StartError, match=f"process {os.getpid()}"):
        lock_folder(folder)
    held.close()


def test_a_file_in_place_of_the_folder_or_above_it_is_said_to_be_none(folder: Path) -> None:
    folder.touch()
    for path in (folder, folder / "below"):
        with pytest.raises(StartError, match="cannot be used as a data folder: it is not a folder"):
            lock_folder(path)


def test_a_folder_that_an_earlier_release_has_open_is_in_use(folder: Path) -> None:
    """It locks the file only."""
    folder.mkdir()
    handle = os.open(folder / LOCK_FILE, os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(StartError, match="in use"):
        lock_folder(folder)
    os.close(handle)
    lock_folder(folder).close()


def test_the_lock_file_alone_protects_a_folder_where_directories_cannot_be_locked(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock

    def of_files(handle: int, kind: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))  # as NFS does
        flock(handle, kind)

    monkeypatch.setattr(fcntl, "flock", of_files)
    held = lock_folder(folder)
    with pytest.raises(StartError, match="in use"):
        lock_folder(folder)
    held.close()
