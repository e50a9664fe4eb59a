"""Backups of a running broker: streams the pieces of one copy to the client at a bounded rate.

    Backup ─▶ Copy (store/backup.py) ─▶ piece ─▶ client, then a pause that keeps the rate ─▶ piece … ─▶ end, sha256

A backup does not block the writer. The broker aborts the copy when the client takes no piece for STALL_S, or when the
copy costs the broker too much (`Copy.cost`). The stream then fails midway, and the partial file is not a backup.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

from popmq_server.clock import pause, stopwatch
from popmq_server.contract.commands.store import Piece
from popmq_server.embedded.store.backup import Copy
from popmq_server.embedded.store.lmdb import DiskFault
from popmq_server.embedded.store.store import Store
from popmq_server.errors import Refused

#: The copy is aborted when the client takes no piece for this long: it has left, or hangs.
STALL_S = 60.0
#: Interval between checks of a running copy.
WATCH_S = 0.25


class _Watch:
    """Aborts a copy that the client stopped reading, or that costs too much."""

    def __init__(self, copy: Copy) -> None:
        self._copy = copy
        self._loop = asyncio.get_running_loop()
        self._moved = self._loop.time()
        self._look()

    def moved(self) -> None:
        self._moved = self._loop.time()

    def _look(self) -> None:
        self._next = self._loop.call_later(WATCH_S, self._look)
        if why := self._why():
            self._copy.end(why)

    def _why(self) -> str:
        if self._loop.time() - self._moved > STALL_S:
            return f"the receiver took no piece for {STALL_S:.0f} s"
        return self._copy.cost()

    def cancel(self) -> None:
        self._next.cancel()


async def backup(
    store: Store, bytes_per_s: int, used_pages: Callable[[], Awaitable[int]]
) -> AsyncGenerator[Piece, None]:
    """Yields the pieces of a copy of the store as it is now. Raises Refused: BUSY, STORAGE_FULL.

    `used_pages` asks the writer, because no other thread may read the map.
    """
    if store.copies:
        raise Refused(
            "BUSY", "another backup is running", retry_after_ms=10_000, action="wait until it has ended, or end it"
        )
    try:
        copy = Copy(store)  # starts a process, which takes a millisecond or two
    except OSError as error:  # the system has no more processes, memory or files
        raise Refused(
            "BUSY",
            f"no process can be started for the copy: {error.strerror}",
            retry_after_ms=10_000,
            action="raise the limits of the broker for processes, memory and files, or end other programs",
        ) from error
    watch = _Watch(copy)
    try:
        yield Piece(about_bytes=await used_pages() * store.page_bytes)
        async for data in _paced(copy, bytes_per_s):
            watch.moved()
            yield Piece(data)
        yield Piece(length=copy.bytes, sha256=copy.sha256)
    except DiskFault as fault:
        raise Refused(
            "STORAGE_FULL",
            f"the backup failed: {fault}",
            action="take it again, faster (--rate) or at a quieter time, with more free disk or a higher limit (`popmq "
            "max-size`), whichever the reason names",
        ) from fault
    finally:
        watch.cancel()
        copy.close()


async def _paced(copy: Copy, bytes_per_s: int) -> AsyncGenerator[bytes, None]:
    """Delays each piece so that the rate holds. After a slow read by the client it does not send faster to catch up."""
    due = stopwatch()
    while data := await asyncio.to_thread(copy.read):
        await pause(due - stopwatch())
        due = max(due, stopwatch()) + len(data) / bytes_per_s
        yield data
