"""Room: what may still be written when the map, or the disk, is nearly full.

The map is filled from the left; each line says how far a kind of work may fill it:

    0 %                                               85 %     92 %     95 %     99 %   100 %
    ├──────────────────────────────────────────────────┼────────┼────────┼────────┼──────┤
    STORE  sends                                       ┤        ╎        ╎        ╎      ╎
    GROW   burials, redrives, firing, commits of transactions,  ┤        ╎        ╎      ╎
           give-ups, copies to `kept`, wider index blocks       ╎        ╎        ╎      ╎
    POP    pops, new topics, groups and owners                           ┤        ╎      ╎
    MOVE   leases that come back, releases, send-backs, rows of history           ┤      ╎
    FREE   acks, renewals, purges, deletes, retention, rollbacks: to the last page       ┤

Why not all of them to the end: LMDB writes a changed page beside the old one, so a delete needs pages before it gives
any back, and what it gives back is there only two commits later. The last share of the map is kept for what frees, so
that a full store can always be emptied; what moves a message has the share before it, since a pointer is small, and
dead letters, which are as large as their messages, leave room for the pops of other groups.

Enforced where things are written, not where they are asked for: whoever appends a message, keeps a copy, puts a message
into a retry topic or writes a row of history asks `tx.room` first (`has`, `take`, `demand`), with the bytes that it is
going to write. A command that gets no room is answered STORAGE_FULL. A job is postponed by RETRY_MS; a lease whose dead
letter finds no room stays where it is, counted as `unburied`, and is looked at again.

The figure behind it is exact when it matters: pages at the end of the map and those that are reusable in this very
transaction (storage/free_pages.py). What cannot be foreseen is a lack of pages side by side, which a value of more than
one page needs; a put that meets it aborts its transaction, and core.py and jobs.py isolate who it was.

Pages that a commit gave back come only with the one after the next. So where there is no room and such pages wait, a
group begins with a commit of its own: a store in which room was made heals without anybody's help. Sends look at the
bytes that no entry uses; what of these is not back yet is in the 10 % that they leave to pops.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

from popmq_server.clock import stopwatch
from popmq_server.errors import NoRoom
from popmq_server.storage.lmdb import DISK_FREE_SEND, Store, Transaction

#: Kinds of work, by how far they may fill the map.
STORE, GROW, POP, MOVE = range(4)
#: Shares of the map that they leave to the others.
STORE_LEAVES, GROW_LEAVES, POP_LEAVES, MOVE_LEAVES = 0.15, 0.08, 0.05, 0.01
#: … but at least so many pages, in a small map. Measured: a piece of time's work takes up to 70 pages, one ack of 4,096
#: leases of one message each, at random among 12,000, takes 570.
GROW_LEAVES_MIN, POP_LEAVES_MIN, MOVE_LEAVES_MIN = 560, 400, 256
#: … and at most so many bytes, in a large one: what frees never needs more.
MOVE_LEAVES_MAX = 64 << 20
#: Free bytes of the disk that STORE needs, and GROW and POP.
DISK_FREE_STORE = DISK_FREE_SEND
DISK_FREE_GROW = 64 << 20

#: Groups, and seconds, between two looks at the space while there is plenty: a look costs 30 µs.
LOOK_EVERY = 32
LOOK_S = 0.1
#: So many groups of GROUP_BYTES_MAX fit between two looks: with less than that left each group looks.
PLENTY_BYTES = 1 << 30
#: Below so many free bytes the pages of the free list are counted one list at a time.
EXACT_BELOW = 256 << 20
#: Freed pages for which a commit of its own is worth while, when there is no room for what grows.
PENDING_MIN = 32
#: The same where there is little room: a share of the map. What one group of commands may store.
PENDING_SHARE, GROUP_BYTES = 1 / 64, 32 << 20

#: What a retry entry, with its row of history and its pin, takes besides its reason.
ENTRY_BYTES = 256
#: What a message takes in the log and its indexes besides its own bytes.
MESSAGE_BYTES = 160
#: LMDB stores a longer value in pages of its own.
_INLINE_MAX, _PAGE = 2000, 4096

_PLENTY = 1 << 62


class Fill(NamedTuple):
    """What the last look saw, in bytes.

    `unused`: of the map, by no entry. `free`: of these what the next transaction may take; `pending`: what later ones
    may take besides.
    """

    unused: int
    free: int
    pending: int
    disk_free: int


class Room:
    """What one transaction may still take. Each kind of work has a floor below which it leaves what is free alone."""

    __slots__ = ("_floors", "_free", "_taken", "_why", "plenty", "short")

    def __init__(self, free: tuple[int, ...], floors: tuple[int, ...], why: Callable[[], str]) -> None:
        """`free`, `floors`: for each kind of work."""
        self._free = free
        self._floors = floors
        self._taken = 0
        self._why = why
        #: Whether somebody found no room.
        self.short = False
        #: So much that nobody needs to count.
        self.plenty = min(free) - PLENTY_BYTES > max(floors)

    def has(self, kind: int, size: int = 0) -> bool:
        """Whether a kind of work may write so many bytes."""
        if self.plenty or self._free[kind] - self._taken - needed(size) >= self._floors[kind]:
            return True
        self.short = True
        return False

    def take(self, kind: int, size: int) -> bool:
        """The same, and they are taken."""
        if not self.has(kind, size):
            return False
        self._taken += needed(size)
        return True

    def demand(self, kind: int, size: int) -> None:
        """The same, or Refused STORAGE_FULL."""
        if not self.take(kind, size):
            raise self.refusal()

    def refusal(self) -> NoRoom:
        """Why there is none."""
        return NoRoom(self._why())


def needed(size: int) -> int:
    """Bytes of the map that `size` bytes of records take: leaves are not full, long values end within a page."""
    return size + (size >> 3)


def value_bytes(size: int) -> int:
    """What one value takes: a long one has pages of its own."""
    return size if size <= _INLINE_MAX else -(-(size + 16) // _PAGE) * _PAGE


def messages_bytes(sizes: list[int]) -> int:
    """What messages of these sizes take in the log, with their indexes."""
    return sum(sizes) + MESSAGE_BYTES * len(sizes) + _PAGE


def entries_bytes(count: int, reason: str = "") -> int:
    """What entries of a retry topic, or of message groups, take: each carries the reason, and so does its history."""
    return count * (ENTRY_BYTES + 2 * value_bytes(len(reason.encode())))


def unlimited() -> Room:
    """For transactions of which nobody asks."""
    return Room((_PLENTY,) * 4, (0,) * 4, str)


@functools.lru_cache(maxsize=16)
def _floors(map_bytes: int, page: int) -> tuple[int, int, int, int]:
    """What each class of writers leaves free, in bytes. Every commit asks four times."""
    grow = max(int(map_bytes * GROW_LEAVES), GROW_LEAVES_MIN * page)
    pop = max(int(map_bytes * POP_LEAVES), POP_LEAVES_MIN * page)
    move = min(max(int(map_bytes * MOVE_LEAVES), MOVE_LEAVES_MIN * page), MOVE_LEAVES_MAX)
    return max(int(map_bytes * STORE_LEAVES), grow), grow, pop, move


class Space:
    """Knows how full the store is; gives each transaction its Room."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._turn = 0
        self._seen = 0.0
        self._was_short = False
        self._room = unlimited()
        self._fill = Fill(0, 0, 0, 0)  # before the first look: as if full

    @property
    def tight(self) -> bool:
        """Whether, at the last look, there was no room for what grows: pieces of jobs then commit apart."""
        return self._fill.free < self._leaves()[GROW] or self._fill.disk_free < DISK_FREE_GROW

    @property
    def recovers(self) -> bool:
        """Whether room is missed, and a commit, whatever it writes, would give back enough pages to be worth while."""
        fill, map_bytes = self._fill, self._store.map_bytes
        if self.tight or self._was_short:
            return fill.pending >= PENDING_MIN * self._store.page_bytes
        return fill.pending >= map_bytes * PENDING_SHARE and fill.free < self._leaves()[STORE] + GROUP_BYTES

    def room(self, kv: Transaction, holder: Callable[[], str], *, shut: bool = False) -> Room:
        """The room of a transaction. `holder`: who could free some. `shut`: a commit has just failed for lack of it."""
        fill = self._look(kv)
        self._was_short = self._room.short
        store, grow, pop, move = self._leaves()
        if shut or fill.disk_free < DISK_FREE_STORE:
            store = _PLENTY
        if shut or fill.disk_free < DISK_FREE_GROW:
            grow = pop = _PLENTY
        free = fill.unused, *(fill.free,) * 3
        self._room = Room(free, (store, grow, pop, move), lambda: self._why(holder))
        return self._room

    def look_again(self) -> None:
        """The map has another size: what the last look saw is not true any more."""
        self._turn = 0
        self._fill = Fill(0, 0, 0, 0)

    def _leaves(self) -> tuple[int, int, int, int]:
        return _floors(self._store.map_bytes, self._store.page_bytes)

    def _look(self, kv: Transaction) -> Fill:
        """While there is plenty, not in every group: the answer may be some groups old."""
        self._turn -= 1
        stale = self._turn < 0 or stopwatch() - self._seen > LOOK_S
        scarce = self._fill.free - PLENTY_BYTES < self._leaves()[STORE] or self._fill.disk_free < 2 * DISK_FREE_STORE
        if stale or scarce:
            self._turn, self._seen = LOOK_EVERY, stopwatch()
            self._fill = self._measured(kv)
            self._store.reserve.fill(self._fill.disk_free, DISK_FREE_STORE)
        return self._fill

    def _measured(self, kv: Transaction) -> Fill:
        """Pages that no entry uses; near the end exactly those that this transaction may take."""
        store, disk_free = self._store, self._store.disk_free()
        page = store.page_bytes
        unused = free = store.map_bytes - kv.used_pages() * page
        pending = 0
        if free < EXACT_BELOW:
            pages = store.free_pages(EXACT_BELOW // page)
            if pages is not None:
                free, pending = min(free, (pages.tail + pages.reusable) * page), pages.pending * page
        return Fill(unused, free, pending, disk_free)

    def _why(self, holder: Callable[[], str]) -> str:
        """What is full, and who could free it: the answer names the group that holds the most."""
        fill, map_bytes = self._fill, self._store.map_bytes
        where = f"the map is {1 - fill.unused / map_bytes:.0%} full (--max-size)"
        if fill.disk_free < DISK_FREE_STORE and fill.unused >= self._leaves()[STORE]:
            where = f"the disk has {fill.disk_free >> 20} MiB left"
        return f"{where}; {found}" if (found := holder()) else where
