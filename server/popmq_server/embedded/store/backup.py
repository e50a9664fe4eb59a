"""A copy of the open store, written by LMDB in a separate process and read in pieces through a pipe.

    copying process: LMDB, one read transaction ──▶ pipe ──▶ read() ──▶ the backup client, at its rate

The copy is compacted (no free pages) and consistent: it has the last commit before it began, and the writer continues
meanwhile. It needs a separate process because py-lmdb cannot abort a write transaction while a copy runs in the same
process, and the writer aborts transactions that wrote nothing.

While a copy runs, pages that later commits free cannot be reused, since the copy may still need them: the file grows
with each write. A copy is therefore ended if it costs too much (`cost`), and if a commit finds no room (core.py); this
releases its pages. The reader of an ended copy gets an error, never a shorter file.

See docs/decisions/0018-backup-in-a-second-process.md.
"""

import hashlib
import os
import pathlib
import subprocess
import sys
import threading
from typing import IO, cast

from popmq_server.embedded.store.lmdb import DiskFault, copy_environment
from popmq_server.embedded.store.store import DISK_FREE_SEND, Store

#: Bytes read and sent at once: large for the disk, small beside the 16 MiB of a request.
PIECE_BYTES = 1 << 20
#: During a copy the file may grow by this share of the map that was left when it began.
GROWTH_SHARE_MAX = 0.5


class Copy:
    """One running copy. One thread calls `read`, which blocks; any thread may call the rest."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pages = store.pages_reached
        self._digest = hashlib.sha256()
        self._why_ended = ""
        self._ending = threading.Lock()
        #: Held while a thread reads the pipe. Closed under it, its number would go to the pipe of the next copy, and
        #: that thread would read the beginning of the other one.
        self._reading = threading.Lock()
        self.bytes = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(store.folder), str(store.map_bytes)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        store.copies.append(self)

    def read(self) -> bytes:
        """Returns the next piece, b"" at the end. Raises DiskFault if the copy was ended, or failed."""
        with self._reading:
            return self._read()

    def _read(self) -> bytes:
        parts: list[bytes] = []
        missing, pipe = PIECE_BYTES, cast("IO[bytes]", self._process.stdout)
        while missing and (part := pipe.read(missing)):
            parts.append(part)
            missing -= len(part)
        piece = b"".join(parts)
        if missing and self._process.wait():
            raise DiskFault(self._why_ended or self._error_text())
        self._digest.update(piece)
        self.bytes += len(piece)
        return piece

    def _error_text(self) -> str:
        """The last line of the process's standard error."""
        lines = cast("IO[bytes]", self._process.stderr).read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"the copying process ended with {self._process.returncode}"

    @property
    def sha256(self) -> bytes:
        """Digest of all bytes read so far."""
        return self._digest.digest()

    def cost(self) -> str:
        """The reason why the copy costs the broker too much, or ""."""
        grown = self._store.pages_reached - self._pages
        if grown > (self._store.map_pages - self._pages) * GROWTH_SHARE_MAX:
            return (
                f"the store grew by {grown * self._store.page_bytes >> 20} MiB meanwhile, half of what --max-size left"
            )
        if grown and (free := self._store.disk_free()) < 2 * DISK_FREE_SEND:
            return f"the disk has {free >> 20} MiB left"
        return ""

    def end(self, why: str) -> None:
        """Ends the copy and releases its pages; `read` raises, unless it has read everything. A second call does
        nothing.

        A killed process leaves its slot in LMDB's reader table occupied until `forget_dead_readers`.
        """
        with self._ending:
            if self not in self._store.copies:
                return
            self._why_ended = why
            self._process.kill()
            self._process.wait()
            self._store.forget_dead_readers()
            self._store.copies.remove(self)

    def close(self) -> None:
        """Ends the copy and closes its pipes. A `read` that still runs meets the end of the pipe first."""
        self.end("its reader has gone")
        with self._reading:
            for pipe in (self._process.stdout, self._process.stderr):
                cast("IO[bytes]", pipe).close()


def main() -> int:
    """The copying process: writes the store of the folder to standard output. Nonzero exit: it is incomplete."""
    try:
        copy_environment(pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.stdout.fileno())
    except DiskFault as error:
        print(f"the copy failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
