"""Jobs that tidy up: removal of what was deleted, sweeps, trims, and once a minute retention, request numbers, ids and
transactions that are too old, and subscriptions that nobody reads.

Each is a job of its own (jobs.py): one that fails stops no other. No piece does more than a bounded amount in the
transaction that it is given; what is left goes on in the next one, behind the clients' commands.

Where the last piece stopped is remembered in memory only: after a restart, or a commit that failed, a piece is done
again, which finds less to do.
"""

from collections.abc import Callable, Hashable, Iterable

from popmq_server.delivery import sweep
from popmq_server.lite import lite_topics
from popmq_server.operate import expiry, purge
from popmq_server.retention import retention
from popmq_server.sending import size_limit, transaction, unique
from popmq_server.sending.send import DEDUP_KEEP_MS
from popmq_server.state.jobs import Job, Timed
from popmq_server.state.tx import Tx
from popmq_server.storage.keys import DEDUP_VALUE

TICK_MS = 60_000
#: Request numbers looked at in one piece.
DEDUP_SWEEP = 1000


def jobs(now_ms: int) -> tuple[Job, ...]:
    """All of them. What was deleted goes first: it may be large."""
    minutely: tuple[tuple[str, Callable[[Tx], bool]], ...] = (
        ("retention", retention.Retention().run),
        ("request numbers", Requests().forget),
        ("ended transactions", transaction.forget),
        ("unique ids", unique.sweep),
        ("lite topics", lite_topics.Upkeep().run),
        ("sizes of topics", _look_over),
        ("idle subscriptions", expiry.Expiry(now_ms).run),
    )
    return (Purging(), Sweeping(), Trimming(), *(Minutely(name, piece, now_ms) for name, piece in minutely))


def _soonest(job: Job, tx: Tx, items: Iterable[Hashable]) -> int | None:
    """Now, when an item is there that is not postponed."""
    return min((max(tx.now_ms, job.not_before(item)) for item in items), default=None)


class Purging(Job):
    """Removes what a deleted topic or group left: one piece of one of them."""

    name = "removal of what was deleted"

    def next_ms(self, tx: Tx) -> int | None:
        return _soonest(self, tx, tx.state.purges)

    def step(self, tx: Tx, did: Timed) -> None:
        for entity_id, kind in list(tx.state.purges.items()):
            if not self.waits(tx, entity_id):
                with self.apart(entity_id):
                    purge.step(tx, entity_id, kind, self.at_most(purge.PURGE_KEYS_MAX))
                return


class Sweeping(Job):
    """Goes on with a reset or a switch of the consume mode whose caller has gone."""

    name = "sweep"

    def next_ms(self, tx: Tx) -> int | None:
        return _soonest(self, tx, tx.state.sweeps)

    def step(self, tx: Tx, did: Timed) -> None:
        for where in list(tx.state.sweeps):
            if not self.waits(tx, where):
                with self.apart(where):
                    sweep.step(tx, where)
                return


class Trimming(Job):
    """Makes topics fit their limit of bytes."""

    name = "trim"

    def next_ms(self, tx: Tx) -> int | None:
        return tx.now_ms if tx.state.trims else None

    def step(self, tx: Tx, did: Timed) -> None:
        size_limit.trim(tx)


class Minutely(Job):
    """Begins once a minute, and goes on until `piece` says that nothing more is to do now.

    One that has ended does not begin again before the next minute, since some go round over what has to stay.
    """

    def __init__(self, what: str, piece: Callable[[Tx], bool], now_ms: int) -> None:
        super().__init__()
        self.name = what
        self._piece = piece
        self._due_ms = now_ms + TICK_MS

    def next_ms(self, tx: Tx) -> int | None:
        return self._due_ms

    def step(self, tx: Tx, did: Timed) -> None:
        more = self._piece(tx)
        self._due_ms = tx.now_ms if more else tx.now_ms + TICK_MS


class Requests:
    """Request numbers of producers."""

    def __init__(self) -> None:
        self._at = b""

    def forget(self, tx: Tx) -> bool:
        """Drops request numbers that are too old; whether there are more to look at."""
        stale = []
        for seen, (key, value) in enumerate(tx.kv.scan("dedup", b"", self._at)):
            if seen == DEDUP_SWEEP:
                self._at = key
                break
            if tx.now_ms - DEDUP_VALUE.unpack_from(value)[0] > DEDUP_KEEP_MS:
                stale.append(key)
        else:
            self._at = b""
        for key in stale:
            tx.kv.delete("dedup", key)
        return bool(self._at)


def _look_over(tx: Tx) -> bool:
    size_limit.look_over(tx)
    return False
