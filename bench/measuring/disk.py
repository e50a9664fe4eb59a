"""Watches the disk beside a measurement: a stall that hits another program too is the disk's, not the broker's."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

EVERY_S = 0.1


class DiskWatch:
    """`with`: syncs 4 KiB of a file of its own every EVERY_S, on a thread, and remembers the longest time."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "disk-watch"
        self._worst_s = self._began_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="disk-watch", daemon=True)

    def __enter__(self) -> DiskWatch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def take_ms(self) -> float:
        """The longest time of a sync since the last call, and of one that still runs."""
        running_s = time.monotonic() - self._began_s if self._began_s else 0.0
        worst_s, self._worst_s = max(self._worst_s, running_s), 0.0
        return worst_s * 1e3

    def _watch(self) -> None:
        with self._file.open("wb") as file:
            while not self._ended.wait(EVERY_S):
                self._began_s = time.monotonic()
                os.pwrite(file.fileno(), b"." * 4096, 0)
                os.fdatasync(file.fileno())
                self._worst_s, self._began_s = max(self._worst_s, time.monotonic() - self._began_s), 0.0
