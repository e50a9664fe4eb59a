"""When the changes of commit batches are folded into the data file (store/journal/folding.py)."""

from collections.abc import Callable

from popmq_server.clock import Clock
from popmq_server.embedded import operations as own
from popmq_server.embedded.store.lmdb import DiskFault, MapFull
from popmq_server.embedded.store.store import Store
from popmq_server.errors import CommitFailed, not_written

#: How long changes may be in the journal only: a start after a crash makes so many again.
FOLD_MS = 1000


class Folds:
    """Folds of one store; without a journal there are none."""

    def __init__(self, store: Store, clock: Clock, after_fault: Callable[[MapFull | DiskFault], None]) -> None:
        """`after_fault`: Core.after_fault."""
        self._store, self._clock, self._after_fault = store, clock, after_fault
        #: When the next fold is due; None: the data file has all changes.
        self._due_ms: int | None = None

    def sooner(self, due_ms: int | None) -> int | None:
        """The earlier of a time and the next fold; None: neither is due at any time."""
        return self._due_ms if due_ms is None or (self._due_ms is not None and self._due_ms < due_ms) else due_ms

    def if_due(self) -> None:
        """Folds if it is time. A full disk postpones it. Raises CommitFailed."""
        if self._due_ms is not None and self._due_ms <= self._clock.now_ms():
            self._fold()

    def demanded(self, _: own.Fold) -> None:
        """Folds now, for a reader in another thread or process. Raises Refused, CommitFailed."""
        if not self._fold():
            raise not_written("what was answered before could not be written to the data file")

    def last(self) -> None:
        """The last act of the thread that ran the batches, which began what is unfolded. Raises CommitFailed."""
        if not self._fold() and not self._fold():
            raise CommitFailed("the last changes could not be written to the data file: the next start finds them")

    def _fold(self) -> bool:
        """Folds; returns whether it succeeded."""
        try:
            self._store.fold()
        except (MapFull, DiskFault) as fault:
            self._due_ms = self._clock.now_ms() + FOLD_MS
            self._after_fault(fault)
            return False
        self._due_ms = None
        return True

    def committed(self, now_ms: int) -> None:
        """After a commit: sets when its changes have to be folded."""
        if self._store.folding is None or not self._store.folding.unfolded:
            self._due_ms = None
        elif self._due_ms is None:
            self._due_ms = now_ms + FOLD_MS

    def allow(self, room: int) -> bool:
        """Sets how many bytes of the map batches may take before a fold. Returns whether the pages that the transaction
        which began may take are known: with 0 bytes they are after a fold.
        """
        if self._store.folding is None:
            return True
        self._store.folding.room = room
        return bool(room) or not self._store.unfolded

    def make_room(self) -> bool:
        """After a put that met a full map: folds what is unfolded, since its pages may be all that was missing. Returns
        whether there was any: then the transaction is worth another try. Raises MapFull, DiskFault.
        """
        if not self._store.unfolded:
            return False
        self._store.fold()
        return True
