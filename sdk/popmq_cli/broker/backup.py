"""`popmq backup`: a copy of a running broker's store, into a folder or to standard output."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import pathlib
import stat
import sys
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import click

import popmq
from popmq_cli.shared.asking import SIZE, asks
from popmq_cli.shared.output import Output

#: The name of a broker's data file, and the name until the copy is complete: no broker starts on the second one.
FILE, PART = "popmq.mdb", "popmq.mdb.part"
#: LMDB's magic, after the head of its first page.
_MAGIC, _MAGIC_AT, _HEAD_BYTES = (0xBEEFC0DE).to_bytes(4, sys.byteorder), 16, 4096
#: Called with (bytes so far, estimated total).
Report = Callable[[int, int], None]


@click.command()
@click.argument("target", metavar="DIR|-")
@click.option("--rate", type=SIZE, default=0, metavar="SIZE", help="Bytes a second, at most.  [default: 64MiB]")
@asks
def backup(client: popmq.Client, output: Output, target: str, rate: int) -> None:
    """Copy the store of a running broker.

    It writes into DIR, or to standard output. The copy has all changes that the broker answered before the backup
    began; clients continue meanwhile. DIR is then a data folder: start a broker on it, or look at it with popmq check.
    The command creates DIR, and refuses one that has a popmq.mdb or to which another backup writes. An interrupted,
    killed or refused backup leaves no popmq.mdb. A file from standard output is complete only if the exit code is 0; a
    broker refuses to start on a truncated one.

    \b
    Examples:
      popmq backup /backups/monday
      popmq backup --rate 16MiB /backups/monday
      popmq backup - > popmq.mdb
      popmq backup - | zstd | ssh archive 'cat > popmq.mdb.zst'
    """
    with _progress() as report:
        if target == "-":
            if sys.stdout.isatty():
                raise click.UsageError(
                    "a backup is binary: it is not written to a terminal; name a folder, or redirect it with > or |"
                )
            size = client.broker.backup(sys.stdout.buffer.write, rate, report)
            sys.stdout.buffer.flush()
        else:
            size = _into(client, pathlib.Path(target), rate, report)
    output.note(f"{size:,} bytes written to {'standard output' if target == '-' else target}")


def _into(client: popmq.Client, folder: pathlib.Path, rate: int, report: Report) -> int:
    """The file gets its name when it is complete and synced; then the folder is synced too."""
    part = _Part(folder)
    try:
        part.refuse_overwriting()
        size = client.broker.backup(part.write, rate, report)
        part.keep()
    except OSError as error:
        limit = " (ulimit -f, or the largest file of this file system)" if error.errno == errno.EFBIG else ""
        raise click.ClickException(f"{folder} cannot take the backup: {error.strerror}{limit}") from None
    finally:
        part.close()
    return size


class _Part:
    """The file of an incomplete backup. The first piece makes it, so that a refused backup touches nothing.

    It is locked: a second backup into the folder, also of another broker, is refused. One that a killed backup left has
    no lock, and is used again.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        self._path = folder / PART
        self._file: BinaryIO | None = None

    def refuse_overwriting(self) -> None:
        if os.path.lexists(self._folder / FILE):
            raise click.UsageError(f"{self._folder / FILE} exists, and is not overwritten: name another folder")

    def write(self, data: bytes) -> None:
        """Appends a piece. Raises OSError, and ClickException where another backup writes into the folder."""
        file = self._file or self._made()
        file.write(data)

    def _made(self) -> BinaryIO:
        self._folder.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.fdopen(os.open(self._path, flags, 0o600), "r+b")
        if not _is_part(file):
            file.close()
            raise click.UsageError(f"{self._path} is not an unfinished backup, and is not overwritten: move it away")
        if not _is_ours(file, self._path):
            file.close()
            raise click.ClickException(f"another backup is being written into {self._folder}: name another folder")
        self._file = file  # from here on `close` may remove it
        self.refuse_overwriting()
        file.truncate()
        return file

    def keep(self) -> None:
        """Gives the complete file its name."""
        assert self._file is not None
        self._file.flush()
        os.fsync(self._file.fileno())
        self.refuse_overwriting()
        os.rename(self._path, self._folder / FILE)
        self._file.close()
        self._file = None
        _sync(self._folder)

    def close(self) -> None:
        """Removes the file if it is not complete."""
        if self._file is not None:
            self._path.unlink()
            self._file.close()


def _is_part(file: BinaryIO) -> bool:
    """Whether the file is what a killed backup leaves: nothing, zeros, or pages of LMDB."""
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return False
    head = os.pread(file.fileno(), _HEAD_BYTES, 0)
    return not head.strip(b"\0") or head[_MAGIC_AT:].startswith(_MAGIC)


def _is_ours(file: BinaryIO, path: pathlib.Path) -> bool:
    """Locks the file. False if another process has, or if it has meanwhile lost its name, as a complete backup does."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks takes one backup too
        pass
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _sync(folder: pathlib.Path) -> None:
    for path in (folder, folder.resolve().parent):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@contextlib.contextmanager
def _progress() -> Iterator[Report]:
    """Shows progress on a terminal; nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda done, about: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns: tuple[Any, ...] = (BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")
        yield lambda done, about: bar.update(task, completed=done, total=about)
