"""A copy of the open store, written by LMDB in a process of its own and read piece by piece through a pipe.

    copying process: LMDB, one read transaction ──▶ pipe ──▶ read() ──▶ whoever takes the backup, at its rate

The copy is compacted (no free pages) and consistent: it is the last commit before it began, and the writer goes on
meanwhile. It is a process since py-lmdb lets no write transaction abort while a copy runs in the same one, and the
writer aborts whatever had nothing to write.

While it runs no page that a later commit frees can be used again, for the copy may still need it: the file grows by
what is written. So a copy is ended when it costs too much (`cost`), and when a commit finds no room (core.py): what it
holds is free then. A copy that was ended is an error on the other side, never a shorter file.
"""

import hashlib
import os
import pathlib
import subprocess
import sys
import threading
from typing import IO, cast

from popmq_server.storage.lmdb import DISK_FREE_SEND, DiskFault, Store, copy_environment

#: What is read and sent at once: large for the disk, small beside the 16 MiB of a request.
PIECE_BYTES = 1 << 20
#: A copy may let the file grow by this share of what the map has left beyond where it began.
GROWTH_SHARE_MAX = 0.5


class Copy:
    """One copy under way. `read` is for one thread, which waits; the rest is for any."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pages = store.pages_reached
        self._digest = hashlib.sha256()
        self._why_ended = ""
        self._ending = threading.Lock()
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
        """The next piece, b"" at the end. Raises DiskFault: the copy was ended, or failed."""
        parts: list[bytes] = []
        missing, pipe = PIECE_BYTES, cast("IO[bytes]", self._process.stdout)
        while missing and (part := pipe.read(missing)):
            parts.append(part)
            missing -= len(part)
        piece = b"".join(parts)
        if missing and self._process.wait():
            raise DiskFault(self._why_ended or self._told())
        self._digest.update(piece)
        self.bytes += len(piece)
        return piece

    def _told(self) -> str:
        """The last line that the process wrote about its end."""
        lines = cast("IO[bytes]", self._process.stderr).read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"the copying process ended with {self._process.returncode}"

    @property
    def sha256(self) -> bytes:
        """Of everything that was read."""
        return self._digest.digest()

    def cost(self) -> str:
        """Why the copy costs the broker too much; "" while it does not."""
        grown = self._store.pages_reached - self._pages
        if grown > (self._store.map_pages - self._pages) * GROWTH_SHARE_MAX:
            return (
                f"the store grew by {grown * self._store.page_bytes >> 20} MiB meanwhile, half of what --max-size left"
            )
        if grown and (free := self._store.disk_free()) < 2 * DISK_FREE_SEND:
            return f"the disk has {free >> 20} MiB left"
        return ""

    def end(self, why: str) -> None:
        """Lets go of what the copy holds; `read` raises, unless everything was read. A second call does nothing.

        A process that was killed leaves its place among the readers taken, until somebody looks who is still there.
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
        """When nobody reads any more."""
        self.end("nobody reads it any more")
        for pipe in (self._process.stdout, self._process.stderr):
            cast("IO[bytes]", pipe).close()


def main() -> int:
    """The copying process: the store of the folder to standard output. Not 0: it is not whole."""
    try:
        copy_environment(pathlib.Path(sys.argv[1]), int(sys.argv[2]), sys.stdout.fileno())
    except DiskFault as error:
        print(f"the copy failed: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
