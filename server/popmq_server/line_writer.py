"""Lines on their way out of the process: a thread of its own writes them, so that no reader of them stops the broker.

    any thread ─▶ put, which never waits ─▶ at most QUEUED_BYTES_MAX ─▶ the thread ─▶ a pipe, a terminal, a file
                     └── no room: dropped, counted                          └── an error: dropped, counted

A log shipper that hangs, or a pager, takes no more lines: a write then waits for it without a limit.
"""

import os
import select
import threading
from collections import deque
from collections.abc import Callable

#: Bytes that wait at most: some 8,000 lines.
QUEUED_BYTES_MAX = 1 << 20
#: Seconds that an ending process waits for its last lines to be taken.
FLUSH_S = 2.0


class LineWriter:
    """Writes lines in their order. Once it goes on after it had dropped some, a line says how many."""

    def __init__(
        self, handle: int, notice: Callable[[int], str], failed: Callable[[OSError], object] = lambda _: None
    ) -> None:
        """`handle`: an open file. `notice`: the line about a number of dropped ones. `failed`: told of each error of a
        write, on the thread.
        """
        self._handle, self._notice, self._failed = handle, notice, failed
        #: (line, number of dropped lines that it reports, 0 for another line)
        self._queued: deque[tuple[bytes, int]] = deque()
        self._bytes = self._untold = 0
        self._works = True
        self._changed = threading.Condition()
        #: Lines that were dropped since the start.
        self.dropped = 0
        threading.Thread(target=self._run, name="popmq-lines", daemon=True).start()

    def put(self, text: str) -> None:
        """Queues text, with its line break. Never waits for its reader."""
        line = text.encode(errors="backslashreplace")
        with self._changed:
            if self._bytes + len(line) > QUEUED_BYTES_MAX:
                self._drop()
            else:
                self._report()
                self._add(line, 0)

    def _drop(self) -> None:
        self.dropped += 1
        self._untold += 1

    def _report(self) -> None:
        """Queues a line about those that were dropped, if any."""
        if self._untold:
            told, self._untold = self._untold, 0
            self._add(self._notice(told).encode(), told)

    def _add(self, line: bytes, told: int) -> None:
        self._queued.append((line, told))
        self._bytes += len(line)
        self._changed.notify_all()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queued:
                    if self._works:
                        self._report()
                    if not self._queued:
                        self._changed.wait()
                line, told = self._queued[0]
            self._works = self._write(line)
            with self._changed:
                self._queued.popleft()
                self._bytes -= len(line)
                if not self._works and told:
                    self._untold += told
                elif not self._works:
                    self._drop()
                self._changed.notify_all()

    def _write(self, line: bytes) -> bool:
        """Waits until all of it is taken; False if the system refuses it."""
        while line:
            try:
                line = line[os.write(self._handle, line) :]
            except BlockingIOError:  # another process, which has the same file, has made it non-blocking
                select.select([], [self._handle], [])
            except OSError as error:
                self._failed(error)
                return False
        return True

    def flush(self) -> None:
        """Waits until all lines are written, or FLUSH_S have passed."""
        with self._changed:
            self._changed.wait_for(lambda: not self._queued, FLUSH_S)
