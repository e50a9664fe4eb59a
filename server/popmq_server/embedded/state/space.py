"""Room: limits the writes when the map, or the disk, is nearly full.

The map fills from the left; each line shows how far a kind of work may fill it:

    0 %                                               85 %     92 %     95 %     99 %   100 %
    ├──────────────────────────────────────────────────┼────────┼────────┼────────┼──────┤
    STORE  sends                                       ┤        ╎        ╎        ╎      ╎
    GROW   dead letters, redrives, delayed messages, commits,   ┤        ╎        ╎      ╎
           give-ups, copies to `kept`, wider index blocks       ╎        ╎        ╎      ╎
    POP    pops, new topics, groups and owners                           ┤        ╎      ╎
    MOVE   expired leases, releases, send-backs, rows of history                  ┤      ╎
    FREE   acks, renewals, purges, deletes, retention, rollbacks: to the last page       ┤

Reason for the limits: LMDB writes a changed page to a new place, so a delete needs pages before it frees any, and the
freed pages are reusable only two commits later. The last share of the map is reserved for work that frees space, so a
full store can always be emptied. Work that moves messages has the share before it, since pointers are small. Dead
letters, which are as large as their messages, leave room for the pops of other groups.

The limits are enforced at each write: the code that appends a message, keeps a copy, puts a message into a retry topic
or writes a row of history first calls `tx.room` (`has`, `take`, `demand`) with the number of bytes it will write. A
command without room is answered STORAGE_FULL. A job is postponed by RETRY_MS. A lease whose dead letter finds no room
remains, is counted as `dead_blocked`, and is tried again.

Near the end the free space is exact: pages at the end of the map and those that this transaction may reuse
(free_pages.py). It cannot predict a lack of adjacent pages, which a value of more than one page needs. A put that meets
this aborts its transaction, and core.py and jobs.py isolate the command or job that made it: core.py halves the batch,
so the sender of the long value is refused, and the others are not. Its refusal says that the free pages lie apart. A
lease whose dead letter meets this waits as one without room (jobs.py).

Pages that a commit freed are reusable in the second commit after it. So if room is missing and such pages are pending,
a batch begins with an extra commit: the store recovers without an operator. Sends use the bytes that no entry uses; the
part of these that is still pending fits in the 10 % that sends leave to pops.

See docs/decisions/0025-levels-of-space.md.
"""

import functools
import logging
from collections.abc import Callable
from typing import NamedTuple

from popmq_server.clock import stopwatch
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.embedded.store.store import DISK_FREE_SEND, Store
from popmq_server.errors import FREE_DISK, MAKE_ROOM, NoRoom

log = logging.getLogger("popmq.space")

#: Kinds of work, each with its own limit.
STORE, GROW, POP, MOVE = range(4)
#: Share of the map that each kind leaves free.
STORE_LEAVES, GROW_LEAVES, POP_LEAVES, MOVE_LEAVES = 0.15, 0.08, 0.05, 0.01
#: … but at least this many pages, in a small map. Measured: a piece of a job takes up to 70 pages; one ack of 4,096
#: leases of one message each, at random among 12,000, takes 570.
GROW_LEAVES_MIN, POP_LEAVES_MIN, MOVE_LEAVES_MIN = 560, 400, 256
#: … and at most this many bytes, in a large map: work that frees space never needs more.
MOVE_LEAVES_MAX = 64 << 20
#: Free bytes that STORE needs on the disk, and that GROW and POP need.
DISK_FREE_STORE = DISK_FREE_SEND
DISK_FREE_GROW = 64 << 20

#: Batches, and seconds, between two measurements while there is plenty of space: a measurement takes 30 µs.
LOOK_EVERY = 32
LOOK_S = 0.1
#: With less than this free each batch measures; the batches between two measurements fit in it.
PLENTY_BYTES = 1 << 30
#: Below this many free bytes the pages of the free list are counted one list at a time.
EXACT_BELOW = 256 << 20
#: Minimum of pending pages for an extra commit while GROW has no room, or the last transaction was short of room.
PENDING_MIN = 32
#: The minimum while room is low, as a share of the map; and the bytes that one batch may store.
PENDING_SHARE, BATCH_BYTES = 1 / 64, 32 << 20

#: What the changes that are only in the journal may take of the map: this share, and at most this many bytes.
UNFOLDED_SHARE, UNFOLDED_MAX = 1 / 8, 64 << 20

#: Bytes of a retry entry, with its row of history and its pin, besides its reason.
ENTRY_BYTES = 256
#: Bytes that a message takes in the log and its indexes besides its own.
MESSAGE_BYTES = 160
#: LMDB stores a longer value in separate pages.
_INLINE_MAX, _PAGE = 2000, 4096

#: Seconds between two lines of the log "sends are refused", and from such a line to "accepted again", at least: a store
#: at its limit would fill the log otherwise.
QUIET_S, AGAIN_S = 60.0, 1.0

_PLENTY = 1 << 62


class Fill(NamedTuple):
    """The last measurement, in bytes.

    `unused`: of the map, used by no entry. `free`: the part that the next transaction may take; `pending`: what later
    ones may take in addition.
    """

    unused: int
    free: int
    pending: int
    disk_free: int


class Room:
    """The bytes that one transaction may still take. Each kind of work leaves its floor free."""

    __slots__ = ("_floors", "_free", "_taken", "_why", "plenty", "short")

    def __init__(self, free: tuple[int, ...], floors: tuple[int, ...], why: Callable[[], NoRoom]) -> None:
        """`free`, `floors`: one value for each kind of work."""
        self._free = free
        self._floors = floors
        self._taken = 0
        self._why = why
        #: Whether a check found no room.
        self.short = False
        #: Whether there is so much room that checks are skipped.
        self.plenty = min(free) - PLENTY_BYTES > max(floors)

    def has(self, kind: int, size: int = 0) -> bool:
        """Whether a kind of work may write `size` bytes."""
        if self.plenty or self._free[kind] - self._taken - needed(size) >= self._floors[kind]:
            return True
        self.short = True
        return False

    def take(self, kind: int, size: int) -> bool:
        """Takes the bytes if there is room; returns whether there was."""
        if not self.has(kind, size):
            return False
        self._taken += needed(size)
        return True

    def demand(self, kind: int, size: int) -> None:
        """Takes the bytes, or raises NoRoom: STORAGE_FULL."""
        if not self.take(kind, size):
            raise self.refusal()

    def refusal(self) -> NoRoom:
        """The error that says why there is no room."""
        return self._why()


def needed(size: int) -> int:
    """Bytes of the map that `size` bytes of records take: leaf pages are not full, long values end within a page."""
    return size + (size >> 3)


def value_bytes(size: int) -> int:
    """Bytes that one value takes: a long one takes whole pages."""
    return size if size <= _INLINE_MAX else -(-(size + 16) // _PAGE) * _PAGE


def messages_bytes(sizes: list[int]) -> int:
    """Bytes that messages of these sizes take in the log, with their indexes."""
    return sum(sizes) + MESSAGE_BYTES * len(sizes) + _PAGE


def entries_bytes(count: int, reason: str = "") -> int:
    """Bytes that entries of a retry topic or of message groups take: each entry has the reason, as does its history."""
    return count * (ENTRY_BYTES + 2 * value_bytes(len(reason.encode())))


#: The Room of transactions before `Space.room`, and without a Space: no check finds too little in it.
UNLIMITED = Room((_PLENTY,) * 4, (0,) * 4, lambda: NoRoom("the store is full"))


@functools.lru_cache(maxsize=16)
def _floors(map_bytes: int, page: int) -> tuple[int, int, int, int]:
    """The bytes that each kind of work leaves free. Cached, since each batch needs them several times."""
    grow = max(int(map_bytes * GROW_LEAVES), GROW_LEAVES_MIN * page)
    pop = max(int(map_bytes * POP_LEAVES), POP_LEAVES_MIN * page)
    move = min(max(int(map_bytes * MOVE_LEAVES), MOVE_LEAVES_MIN * page), MOVE_LEAVES_MAX)
    return max(int(map_bytes * STORE_LEAVES), grow), grow, pop, move


class Space:
    """Measures how full the store is; gives each transaction its Room."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: Whether the commands that now run without room met a full map although there are free pages.
        self.scattered = False
        #: The group with the largest backlog, as told in this transaction; empty: not asked.
        self._holder = ""
        self._turn = 0
        self._seen = 0.0
        self._was_short = False
        self._room = UNLIMITED
        self._fill = Fill(0, 0, 0, 0)  # before the first measurement: as if full
        #: What `unfolded_bytes` found in the last measurement; None: it was not asked.
        self._unfolded: int | None = None
        #: Whether the last measurement found so much room that no transaction has to be counted before the next one.
        self._ample = False
        #: When the log last said that sends are refused; None: the last line said that they are accepted.
        self._warned: float | None = None
        #: When it last said that large ones are.
        self._warned_of_large = -QUIET_S

    @property
    def tight(self) -> bool:
        """Whether the last measurement found no room for GROW: each batch then runs in parts."""
        if self._ample:
            return False
        return self._fill.free < self._leaves()[GROW] or self._fill.disk_free < DISK_FREE_GROW

    @property
    def recovers(self) -> bool:
        """Whether room is short, and an extra commit would make enough pending pages reusable."""
        if self._ample:
            return False
        fill, map_bytes = self._fill, self._store.map_bytes
        if self.tight or self._was_short:
            return fill.pending >= PENDING_MIN * self._store.page_bytes
        return fill.pending >= map_bytes * PENDING_SHARE and fill.free < self._leaves()[STORE] + BATCH_BYTES

    def unfolded_bytes(self) -> int:
        """Bytes of the map that commit batches may take before a fold (journal/folding.py); 0 unless twice as much is
        there beside what sends leave free: where room is scarce, pages and disk are counted after each batch.
        """
        if self._unfolded is None:
            most = min(int(self._store.map_bytes * UNFOLDED_SHARE), UNFOLDED_MAX)
            spare = self._fill.free - self._leaves()[STORE] >= 2 * most
            self._unfolded = most if spare and self._fill.disk_free >= 2 * DISK_FREE_STORE else 0
        return self._unfolded

    def room(self, kv: Transaction, holder: Callable[[], str], *, shut: bool = False) -> Room:
        """The room of a transaction. `holder`: names a group that could free some. `shut`: a commit just found no room.

        Measures first if the last measurement is old.
        """
        fill = self._look(kv)
        if self._ample and not shut and self._warned is None:  # as most of the time
            self._room, self._was_short = UNLIMITED, False
            return UNLIMITED
        self._was_short = self._room.short
        store, grow, pop, move = self._leaves()
        if shut or fill.disk_free < DISK_FREE_STORE:
            store = _PLENTY
        if shut or fill.disk_free < DISK_FREE_GROW:
            grow = pop = _PLENTY
        free = fill.unused, *(fill.free,) * 3
        self._holder = ""
        why = self.at_put if shut and self.scattered else lambda: self._refusal(holder)
        self._room = Room(free, (store, grow, pop, move), why)
        if not shut:  # else it is not known yet what is full
            self._log(free[STORE] < store)
        return self._room

    def _log(self, refuses: bool) -> None:
        """Says that sends are refused, at most every QUIET_S, and when they are accepted again; also that large ones
        are, while small ones have room.
        """
        small = not refuses and self._warned is None
        if small and self._was_short and stopwatch() - self._warned_of_large >= QUIET_S:
            self._warned_of_large = stopwatch()
            log.warning("large sends are refused: %s; acks have room", self._where())
        if refuses and (self._warned is None or stopwatch() - self._warned >= QUIET_S):
            self._warned = stopwatch()
            log.warning("sends are refused: %s; acks have room", self._where())
        elif not refuses and self._warned is not None and stopwatch() - self._warned >= AGAIN_S:
            self._warned = None
            log.info("sends are accepted again: there is room")

    def at_put(self) -> NoRoom:
        """The refusal of a command whose put met a full map: there are no free pages, or too few adjacent ones."""
        fill, map_bytes = self._fill, self._store.map_bytes
        if self.tight:
            return NoRoom(f"the map is full ({self._store.limited_by})")
        return NoRoom(
            f"the map is {1 - fill.unused / map_bytes:.0%} full, but the free pages lie apart: a message of more than "
            "a page, or a batch of messages, needs adjacent ones",
            "send smaller messages, raise the limit (`popmq max-size`), or stop the broker and run `popmq compact`",
        )

    def has_pages(self) -> bool:
        """Measures whether there are free pages, so that a put that met a full map lacked adjacent ones. Between
        transactions.
        """
        kv = self._store.begin_batch()
        try:
            self._fill, self._unfolded = self._measured(kv), None
            return not self.tight
        finally:
            kv.abort()

    def look_again(self) -> None:
        """Discards the last measurement: the map has another size, or a commit found less room than was measured."""
        self._turn = 0
        self._fill, self._unfolded, self._ample = Fill(0, 0, 0, 0), None, False

    def _leaves(self) -> tuple[int, int, int, int]:
        return _floors(self._store.map_bytes, self._store.page_bytes)

    def _look(self, kv: Transaction) -> Fill:
        """The last measurement, or a new one if it is old or space is scarce. It may be some batches old."""
        self._turn -= 1
        if not self._ample or self._turn < 0 or stopwatch() - self._seen > LOOK_S:
            self._turn, self._seen = LOOK_EVERY, stopwatch()
            self._fill = fill = self._measured(kv)
            self._unfolded = None
            self._store.reserve.fill(fill.disk_free, DISK_FREE_STORE)
            above = fill.free - PLENTY_BYTES > self._leaves()[STORE]
            self._ample = above and fill.disk_free >= 2 * DISK_FREE_STORE
        return self._fill

    def _measured(self, kv: Transaction) -> Fill:
        """Measures the pages that no entry uses; near the end exactly those that this transaction may take."""
        store, disk_free = self._store, self._store.disk_free()
        page = store.page_bytes
        unused = free = store.map_bytes - kv.used_pages() * page
        pending = 0
        if free < EXACT_BELOW:
            pages = store.free_pages(EXACT_BELOW // page)
            if pages is not None:
                free, pending = min(free, (pages.tail + pages.reusable) * page), pages.pending * page
        return Fill(unused, free, pending, disk_free)

    def _refusal(self, holder: Callable[[], str]) -> NoRoom:
        """Whether the map or the disk is full, the group with the largest backlog, and what makes room."""
        where = self._where()
        self._holder = self._holder or holder()  # it walks over all groups: once for all refusals of a batch
        why = f"{where}; {self._holder}" if self._holder else where
        return NoRoom(why, FREE_DISK if self._disk_is_full else MAKE_ROOM)

    @property
    def _disk_is_full(self) -> bool:
        """Whether the disk refuses sends that the map would take."""
        return self._fill.disk_free < DISK_FREE_STORE and self._fill.unused >= self._leaves()[STORE]

    def _where(self) -> str:
        """Whether the map or the disk is full."""
        if self._disk_is_full:
            left, need = self._fill.disk_free >> 20, DISK_FREE_STORE >> 20
            return f"the disk has {left} MiB left, and new messages need {need} MiB"
        return f"the map is {1 - self._fill.unused / self._store.map_bytes:.0%} full ({self._store.limited_by})"
