"""`popmq compact`: releases the free pages of a stopped store to the disk.

A running broker uses freed pages again, but its file does not shrink. This writes a copy without them beside it,
compares the copy with the original entry by entry, and puts it in its place:

    lock the folder ─▶ check the store ─▶ room for a copy? ─▶ copy, fsync ─▶ compare ─▶ rename, fsync the folder
         │                  │                  │                 │             │            the new file is whole, or
         ▼                  ▼                  ▼                 ▼             ▼            the old one is still there
      a broker runs      broken: 1          too little: 78    the copy is removed, nothing has changed

If it is killed at any moment, one of the two files is in place. The next run overwrites an unfinished copy.

See docs/decisions/0019-compaction-offline.md.
"""

import argparse
import contextlib
import itertools
import os
import pathlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

from popmq_server.embedded.fsck.check import CHECK_MAP_BYTES, check
from popmq_server.embedded.store import keys
from popmq_server.embedded.store.datafile.own_files import is_copy, open_own
from popmq_server.embedded.store.folder import (
    COMPACT_FILE,
    DATA_FILE,
    data_file,
    keep_owner,
    sync_folder,
)
from popmq_server.embedded.store.lmdb import (
    DiskFault,
    Transaction,
    reading_copy,
    refused_by_system,
)
from popmq_server.embedded.store.store import Store, reading
from popmq_server.errors import StartError

#: At least this much disk is left free after the copy.
MARGIN_BYTES = 64 << 20
#: Interval between two reports of the progress, in seconds.
PROGRESS_S = 0.2

#: Called with (bytes copied so far, bytes that the copy will have).
Progress = Callable[[int, int], None]


class Unsound(Exception):
    """The store has broken invariants: it is left as it is. `sentences` says which."""

    def __init__(self, sentences: list[str]) -> None:
        super().__init__(f"{len(sentences)} broken invariants")
        self.sentences = sentences


class Compacted(NamedTuple):
    """Bytes of the data file."""

    before: int
    after: int


def compact_folder(folder: pathlib.Path, progress: Progress = lambda done, total: None) -> Compacted:
    """Replaces the data file of a stopped broker by a compacted copy.

    Raises StartError: no data folder, in use, no room, a copy that failed. Raises Unsound. Then nothing has changed.
    """
    data = data_file(folder)
    before = data.stat().st_size
    store = Store(folder, max(CHECK_MAP_BYTES, before), "full")
    try:
        with reading(store) as kv:
            if broken := list(check(kv)):
                raise Unsound(broken)
            total = kv.used_pages() * store.page_bytes
            _check_room(store, total)
            _copy(store, data.with_name(COMPACT_FILE), data, lambda done: progress(done, total))
            _replace(kv, data.with_name(COMPACT_FILE), data)
    finally:
        store.close()
    return Compacted(before, data.stat().st_size)


def _check_room(store: Store, total: int) -> None:
    free = store.disk_free()
    if free < total + MARGIN_BYTES:
        raise StartError(
            f"the copy needs {total + MARGIN_BYTES >> 20} MiB beside {DATA_FILE}, the disk has {free >> 20} MiB free: "
            "free some, or move the data folder to a larger disk first"
        )


def _copy(store: Store, copy: pathlib.Path, data: pathlib.Path, progress: Callable[[int], None]) -> None:
    """Writes and syncs the copy, with the permissions of the original. Raises StartError; then no copy is left."""
    with contextlib.suppress(FileNotFoundError):
        os.close(open_own(copy, os.O_RDONLY, is_copy))
        copy.unlink()
    handle = os.open(copy, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with _progress(handle, progress):
            store.copy(handle)
        keep_owner(handle, data.stat())
        os.fsync(handle)
    except (OSError, DiskFault) as error:
        copy.unlink(missing_ok=True)
        why = refused_by_system(error)[1] if isinstance(error, OSError) else str(error)
        raise StartError(f"the copy could not be written, {DATA_FILE} is as it was: {why or error}") from error
    except BaseException:
        copy.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


@contextlib.contextmanager
def _progress(handle: int, progress: Callable[[int], None]) -> Iterator[None]:
    """Reports the size of the copy while LMDB writes it in one call."""
    done = threading.Event()

    def tell() -> None:
        while not done.wait(PROGRESS_S):
            progress(os.fstat(handle).st_size)

    teller = threading.Thread(target=tell, name="popmq-compact", daemon=True)
    teller.start()
    try:
        yield
    finally:
        done.set()
        teller.join()
        progress(os.fstat(handle).st_size)


def _replace(kv: Transaction, copy: pathlib.Path, data: pathlib.Path) -> None:
    """Replaces the original by the copy, if both have the same entries. Raises StartError."""
    try:
        with reading_copy(copy, kv.bare) as copied:
            odd = next(_differences(kv, copied), None)
        if odd is not None:
            raise StartError(f"the copy differs from {DATA_FILE}, which is as it was: {odd}")
        os.replace(copy, data)
    except BaseException:
        copy.unlink(missing_ok=True)
        raise
    sync_folder(data.parent)


def _differences(ours: Transaction, theirs: Transaction) -> Iterator[str]:
    """The entries that only one of the two has, as sentences."""
    for name in keys.DATABASES:
        for one, other in itertools.zip_longest(ours.scan(name), theirs.scan(name)):
            if not _same(one, other):
                yield f"an entry of {name} at {(one or other)[0].hex()}"


def _same(one: tuple[bytes, memoryview] | None, other: tuple[bytes, memoryview] | None) -> bool:
    """Compares as bytes: views are compared item by item, 30 s for a gigabyte."""
    if one is None or other is None:
        return one is other
    return one[0] == other[0] and bytes(one[1]) == bytes(other[1])


def _tell(done: int, total: int) -> None:
    """Shows the progress in one line of the terminal, which each call overwrites."""
    print(f"\rcopied {done >> 20} of {total >> 20} MiB", end="", file=sys.stderr, flush=True)


def main(argv: list[str] | None = None) -> int:
    """`python -m popmq_server.embedded.fsck.compact DIR`: 0 done, 1 broken invariants, 78 cannot be done."""
    parser = argparse.ArgumentParser(prog="popmq compact", description="Shrink the data file of a stopped broker.")
    parser.add_argument("data", type=pathlib.Path, metavar="DIR")
    folder = parser.parse_args(argv).data
    on_terminal = sys.stderr.isatty()
    try:
        done = compact_folder(folder, _tell) if on_terminal else compact_folder(folder)
    except StartError as error:
        print(f"popmq: {error}", file=sys.stderr)
        return 78
    except Unsound as unsound:
        for sentence in unsound.sentences:
            print(sentence)
        print(f"{unsound}: nothing was changed; `popmq check` reports them too", file=sys.stderr)
        return 1
    finally:
        if on_terminal:
            print(file=sys.stderr)
    print(f"{folder / DATA_FILE}: {_size(done.before)} before, {_size(done.after)} now")
    return 0


def _size(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


if __name__ == "__main__":
    sys.exit(main())
