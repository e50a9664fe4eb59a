"""Syncs a file on a thread of its own, so that a caller can stop waiting for a slow disk.

A sync cannot be interrupted. The event loop's thread, which commits a lone command itself (writer/lone.py), would stand
still with it, and with it all heartbeats. Handing one over to a thread and waiting for it costs some 20 µs.
"""

import os
import threading


class Syncing:
    """One file, by a descriptor of its own: the system tells each descriptor once that a write has failed, so what this
    one is told is kept from no other. For one caller at a time.
    """

    def __init__(self, file: int) -> None:
        """Closes `file` in the end."""
        self._file = file
        self._thread: threading.Thread | None = None
        self._begin, self._end = threading.Lock(), threading.Lock()
        self._begin.acquire()
        self._end.acquire()
        self._runs = self._closes = False
        self._error: OSError | None = None

    @property
    def busy(self) -> bool:
        """Whether a sync that nobody waits for any more still runs."""
        if self._runs and self._end.acquire(blocking=False):
            self._runs = False
        return self._runs

    def sync(self, within_s: float) -> bool:
        """Whether all that was written is on disk; False: the disk takes longer, or has not ended an earlier sync.

        Raises OSError.
        """
        if self.busy:
            return False
        if self._thread is None:
            self._thread = threading.Thread(target=self._loop, name="popmq-sync", daemon=True)
            self._thread.start()
        self._error, self._runs = None, True
        self._begin.release()
        if not self._end.acquire(timeout=within_s):
            return False
        self._runs = False
        if self._error is not None:
            raise self._error
        return True

    def close(self) -> None:
        """Waits for a sync that runs, and ends the thread."""
        if self._runs:
            self._end.acquire()
        if self._thread is not None:
            self._closes = True
            self._begin.release()
            self._thread.join()
        os.close(self._file)

    def _loop(self) -> None:
        while True:
            self._begin.acquire()
            if self._closes:
                return
            try:
                os.fdatasync(self._file)
            except OSError as error:
                self._error = error
            self._end.release()
