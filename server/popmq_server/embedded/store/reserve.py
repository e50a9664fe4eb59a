"""Disk space reserved for a full disk.

An ack needs a few pages: LMDB writes a changed page to a new place, and a full disk may have none. So a file of
RESERVE_BYTES reserves space. When a commit meets a full disk, `Core` releases the reserve and tries the commit again;
once there is room the file is filled again.
"""

import contextlib
import os
import pathlib

RESERVE_FILE = "popmq.reserve"
RESERVE_BYTES = 32 << 20
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC


class Reserve:
    """The reserve file; with `wanted` False (a store that does not sync) there is none."""

    def __init__(self, folder: pathlib.Path, *, wanted: bool) -> None:
        self._path = folder / RESERVE_FILE
        self._wanted = wanted
        self._held = False

    def fill(self, disk_free: int, disk_free_min: int) -> None:
        """Allocates the file if that leaves at least `disk_free_min` bytes free. Ignores a lack of room."""
        if self._held or not self._wanted or disk_free < disk_free_min + RESERVE_BYTES:
            return
        with contextlib.suppress(OSError):
            handle = os.open(self._path, _FLAGS | os.O_CREAT, 0o600)
            try:
                os.posix_fallocate(handle, 0, RESERVE_BYTES)
                self._held = True
            finally:
                os.close(handle)

    def give(self) -> None:
        """Releases the space for the next commit."""
        self._held = False
        with contextlib.suppress(OSError):
            handle = os.open(self._path, _FLAGS)
            try:
                os.ftruncate(handle, 0)
            finally:
                os.close(handle)
