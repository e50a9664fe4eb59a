"""A drive whose writes and flushes are logged: one file, `drive`, that this program serves by FUSE, for a loop device.

    broker ─▶ ext4, xfs, btrfs ─▶ loop device ─▶ FUSE ─▶ this program ─▶ the file that stands for the platter
              page cache, journal   bios           WRITE, FSYNC        └▶ the log, in the form of the shim's (disk.py)

The kernel sends each bio of the file system as a WRITE and each flush as an FSYNC, one after the other, and the file is
open for direct I/O, so no cache lies between. What the log has before a point, without some of the writes after the
last flush, is what a drive with a volatile cache has after a power cut at that point.

    python -m tests.crash.file_systems.drive FILE LOG MOUNT

serves FILE at MOUNT/drive until it is unmounted. It speaks the kernel's protocol (linux/fuse.h) itself: eight of its
requests are enough.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path

from popmq_verify.process.disk import RECORD

#: Bytes of the largest WRITE, and of a request with its heads.
WRITE_BYTES = 1 << 20
REQUEST_BYTES = WRITE_BYTES + (64 << 10)
ROOT, DRIVE = 1, 2
NAME = "drive"

LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC = 1, 2, 3, 4, 14, 15, 16, 17, 18, 20
FLUSH, INIT, INTERRUPT, DESTROY, BATCH_FORGET = 25, 26, 36, 38, 42
UNANSWERED = frozenset({FORGET, INTERRUPT, BATCH_FORGET})
#: Of INIT: WRITEs of more than a page, and `max_pages` is set. Of OPEN: no page cache.
BIG_WRITES, MAX_PAGES, DIRECT_IO = 1 << 5, 1 << 22, 1

IN = struct.Struct("<IIQQIIII")  # length, opcode, request, node, and who asks
OUT = struct.Struct("<IiQ")  # length, −errno, request
ATTRIBUTES = struct.Struct("<6Q10I")
PLACE = struct.Struct("<QQI")  # handle, offset, size: READ and WRITE begin so, in 40 bytes
PLACE_BYTES = 40
#: Answers that are always the same.
FIXED = {
    INIT: struct.pack(
        *("<IIIIHHIIHH32x", 7, 31, 0, BIG_WRITES | MAX_PAGES, 16, 12),
        *(WRITE_BYTES, 1, WRITE_BYTES // os.sysconf("SC_PAGE_SIZE"), 0),
    ),
    OPEN: struct.pack("<QII", 0, DIRECT_IO, 0),
    STATFS: struct.pack("<5Q4I24x", 0, 0, 0, 2, 0, 4096, 255, 4096, 0),
    RELEASE: b"",
    FLUSH: b"",
    DESTROY: b"",
}


class Drive:
    """The file, its log, and the connection to the kernel."""

    def __init__(self, file: Path, log: Path, fuse: int) -> None:
        self._file = os.open(file, os.O_RDWR)
        self._log = log.open("wb", buffering=0)
        self._fuse = fuse
        self._size = file.stat().st_size
        self._note(b"N", 0, NAME.encode(), time.monotonic_ns())

    def serve(self) -> None:
        """Answers until the mount is gone."""
        request = bytearray(REQUEST_BYTES)
        while True:
            try:
                length = os.readv(self._fuse, [request])
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                raise
            _, opcode, number, node, *_ = IN.unpack_from(request)
            if opcode in UNANSWERED:
                continue
            body = memoryview(request)[IN.size : length]
            answer = self._answer(opcode, node, body)
            wrong, data = (answer, b"") if isinstance(answer, int) else (0, answer)
            os.writev(self._fuse, [OUT.pack(OUT.size + len(data), -wrong, number), data])
            if opcode == DESTROY:
                return

    def _answer(self, opcode: int, node: int, body: memoryview) -> bytes | int:
        """The answer's body, or an errno."""
        if opcode in (READ, WRITE):
            return self._read(body) if opcode == READ else self._write(body)
        if opcode == FSYNC:
            self._note(b"S", 0, b"", time.monotonic_ns())
            return b""
        if opcode in (GETATTR, SETATTR):  # its times are not kept
            return struct.pack("<QII", 60, 0, 0) + self._attributes(node)
        if opcode == LOOKUP:
            if bytes(body).rstrip(b"\0") != NAME.encode():
                return errno.ENOENT
            return struct.pack("<QQQQII", DRIVE, 0, 60, 60, 0, 0) + self._attributes(DRIVE)
        return FIXED.get(opcode, errno.ENOSYS)

    def _read(self, body: memoryview) -> bytes:
        _, offset, size = PLACE.unpack_from(body)
        return os.pread(self._file, size, offset)

    def _write(self, body: memoryview) -> bytes:
        began = time.monotonic_ns()
        _, offset, size = PLACE.unpack_from(body)
        data = body[PLACE_BYTES : PLACE_BYTES + size]
        os.pwrite(self._file, data, offset)
        self._note(b"W", offset, data, began)
        return struct.pack("<II", size, 0)

    def _note(self, kind: bytes, offset: int, data: bytes | memoryview, began: int) -> None:
        record = RECORD.pack(began, time.monotonic_ns(), offset, len(data), 0, kind[0], 0, 0)
        os.writev(self._log.fileno(), [record, data])

    def _attributes(self, node: int) -> bytes:
        mode, size = (stat.S_IFDIR | 0o700, 0) if node == ROOT else (stat.S_IFREG | 0o600, self._size)
        return ATTRIBUTES.pack(node, size, size // 512, *[0] * 6, mode, 1, 0, 0, 0, 4096, 0)


def main(file: Path, log: Path, mount: Path) -> None:
    """Mounts, prints a line, serves."""
    fuse = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fuse},rootmode={stat.S_IFDIR:o},user_id=0,group_id=0"
    subprocess.run(["mount", "-i", "-t", "fuse", "-o", options, "popmq-drive", str(mount)], check=True, pass_fds=[fuse])
    print("mounted", flush=True)
    Drive(file, log, fuse).serve()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
