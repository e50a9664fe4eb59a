"""What time asks for besides leases: retention, removal of what was deleted, forgetting old request numbers, ids and
transactions.

A tick a minute, and no tick does more than a bounded piece in the transaction that it is given; what is left goes on
in the next one, behind the clients' commands.

Where the last piece stopped is remembered in memory only: after a restart, or a commit that failed, a piece is done
again, which finds less to do.
"""

from collections.abc import Callable
from typing import Any

from popmq_server import lite, purge, retention, room, sweep, transaction, unique
from popmq_server.send import DEDUP_KEEP_MS
from popmq_server.storage.keys import DEDUP_VALUE
from popmq_server.storage.lmdb import MapFull
from popmq_server.tx import Tx

TICK_MS = 60_000
#: Request numbers looked at in one piece.
DEDUP_SWEEP = 1000


#: One piece; whether there is more to do now.
Job = Callable[[Tx], bool]


class HousekeepingFailed(Exception):
    """A piece of what time asks for raised; `job` can be postponed, so that it holds up nothing else."""

    def __init__(self, job: Any) -> None:
        super().__init__(type(job).__name__)
        self.job = job


class Housekeeper:
    """When the next piece is due, and where the last one stopped."""

    def __init__(self, now_ms: int) -> None:
        self._tick_ms = now_ms + TICK_MS
        self._dedup_at = b""
        self._jobs: tuple[Job, ...] = (
            retention.Retention().run,
            self._forget_requests,
            transaction.forget,
            unique.sweep,
            lite.Upkeep().run,
        )
        #: Those that have more to do in this tick. One that has ended is not begun again before the next: jobs that go
        #: round over what has to stay would else keep each other going for ever.
        self._left: list[Job] = []

    def next_ms(self, tx: Tx) -> int:
        """When to run next; now, when a piece was cut short or something deleted is still there."""
        open_ends = any(True for table in (tx.state.purges, tx.state.sweeps) for _ in table)
        if (self._left or tx.state.trims or open_ends) and not self._postponed(tx):
            return tx.now_ms
        return self._tick_ms

    def _postponed(self, tx: Tx) -> bool:
        """After a failure the next tick is further away than it ever is otherwise."""
        return self._tick_ms > tx.now_ms + TICK_MS

    def postpone(self, until_ms: int) -> None:
        """After a failure."""
        self._left = []
        self._tick_ms = max(self._tick_ms, until_ms + TICK_MS)

    def run(self, tx: Tx) -> None:
        """One piece of whatever is due. Raises HousekeepingFailed.

        Deleted things go first and one at a time: they may be large.
        """
        if self._postponed(tx):
            return
        try:
            for entity_id, kind in list(tx.state.purges.items()):
                purge.step(tx, entity_id, kind)
                break
            for where in list(tx.state.sweeps):
                sweep.step(tx, where)
                break
            room.trim(tx)
            if self._left or tx.now_ms >= self._tick_ms:
                self._left = [job for job in self._left or self._jobs if job(tx)]
                if not self._left:
                    room.look_over(tx)
                    self._tick_ms = tx.now_ms + TICK_MS
        except MapFull:
            raise
        except Exception as error:
            raise HousekeepingFailed(self) from error

    def _forget_requests(self, tx: Tx) -> bool:
        """Drops request numbers that are too old; whether there are more to look at."""
        stale = []
        for seen, (key, value) in enumerate(tx.kv.scan("dedup", b"", self._dedup_at)):
            if seen == DEDUP_SWEEP:
                self._dedup_at = key
                break
            if tx.now_ms - DEDUP_VALUE.unpack_from(value)[0] > DEDUP_KEEP_MS:
                stale.append(key)
        else:
            self._dedup_at = b""
        for key in stale:
            tx.kv.delete("dedup", key)
        return bool(self._dedup_at)
