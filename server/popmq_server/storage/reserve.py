"""Disk kept back for the day when the disk is full.

An ack needs a few pages: LMDB writes a changed page beside the old one, and at a full disk there may be none. So a file
of RESERVE_BYTES holds room that nobody else can take; when a commit meets a full disk it is given back, the commit is
tried again, and once there is room it is filled again.
"""

import contextlib
import os
import pathlib

RESERVE_FILE = "popmq.reserve"
RESERVE_BYTES = 32 << 20


class Reserve:
    """The file; `wanted` False (a store that does not sync) keeps none."""

    def __init__(self, folder: pathlib.Path, *, wanted: bool) -> None:
        self._path = folder / RESERVE_FILE
        self._wanted = wanted
        self._held = False

    def fill(self, disk_free: int, disk_free_min: int) -> None:
        """Takes the room, when that leaves at least `disk_free_min` bytes to others. No room is no error."""
        if self._held or not self._wanted or disk_free < disk_free_min + RESERVE_BYTES:
            return
        with contextlib.suppress(OSError):
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(handle, 0, RESERVE_BYTES)
                self._held = True
            finally:
                os.close(handle)

    def give(self) -> None:
        """Gives the room back to the disk: to the next commit."""
        self._held = False
        with contextlib.suppress(OSError):
            os.truncate(self._path, 0)
