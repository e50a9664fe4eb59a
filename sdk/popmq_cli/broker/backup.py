"""`popmq backup`: a copy of a running broker's store, into a folder or to standard output."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

import popmq
from popmq_cli.shared.asking import SIZE, asks
from popmq_cli.shared.output import Output

#: The name of a broker's data file, and the name until the copy is complete: no broker starts on the second one.
FILE, PART = "popmq.mdb", "popmq.mdb.part"
#: Called with (bytes so far, estimated total).
Report = Callable[[int, int], None]


@click.command()
@click.argument("target", metavar="DIR|-")
@click.option("--rate", type=SIZE, default=0, metavar="SIZE", help="Bytes a second, at most.  [default: 64MiB]")
@asks
def backup(client: popmq.Client, output: Output, target: str, rate: int) -> None:
    """Copy the store of a running broker.

    Into DIR, or to standard output. Everything that the broker answered before the backup began is in it; clients go on
    meanwhile. The copy is a data folder: start a broker on it, or look at it with popmq check. DIR is made; one that
    has a popmq.mdb is refused. Interrupted, killed or refused it leaves no popmq.mdb. From standard output only exit
    code 0 says that the file is whole; a broker refuses to start on one that is cut short.

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
            size = client.backup(sys.stdout.buffer.write, rate, report)
            sys.stdout.buffer.flush()
        else:
            size = _into(client, pathlib.Path(target), rate, report)
    output.note(f"{size:,} bytes written to {'standard output' if target == '-' else target}")


def _into(client: popmq.Client, folder: pathlib.Path, rate: int, report: Report) -> int:
    """The file gets its name when it is complete and synced; then the folder is synced too."""
    if (folder / FILE).exists():
        raise click.UsageError(f"{folder / FILE} exists, and is not overwritten: name another folder")
    part = folder / PART
    try:
        folder.mkdir(parents=True, exist_ok=True)
        size = _write(client, part, rate, report)
        os.rename(part, folder / FILE)
        _sync(folder)
    except OSError as error:
        raise click.ClickException(f"{folder} cannot take the backup: {error.strerror}") from None
    return size


def _write(client: popmq.Client, part: pathlib.Path, rate: int, report: Report) -> int:
    """Removes the file if it is not complete."""
    with open(part, "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        try:
            size = client.backup(file.write, rate, report)
            file.flush()
            os.fsync(file.fileno())
        except BaseException:
            part.unlink()
            raise
    return size


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
