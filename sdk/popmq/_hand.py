"""What a client holds in its hand: popped batches, when to renew their leases, and who was settled. Pure: no clock.

The lease of a batch is renewed at a random point of it, so that a thousand clients that popped at one moment do not all
renew at another. Deliveries are held by weak references: one that its handler dropped without settling it is renewed
no more, and comes back to the group when its lease ends.
"""

import random
import weakref
from collections.abc import Callable, Sequence

from popmq.message import Delivery

#: The part of a lease after which it is renewed: late enough to be rare, early enough to try several times.
RENEW_AFTER = (0.4, 0.7)
#: The part of a lease after which a renewal that failed is tried again.
RENEW_AGAIN_AFTER = 0.1
#: Seconds after which a delivery is renewed no more: a handler that hangs must not keep its message for ever.
HOLD_S_MAX = 12 * 3600.0


def _nobody_waits() -> None:
    pass


class Batch:
    """Deliveries of one pop that are not settled, under one lease of `lease` seconds.

    `ordered`: those of one message group go one after another. `runs` has their handles then, by message group.
    """

    __slots__ = ("drop_at", "freed", "group", "lease", "members", "renew_at", "runs")

    def __init__(
        self,
        deliveries: Sequence[Delivery],
        lease: float,
        since: float,
        hold: float = HOLD_S_MAX,
        freed: Callable[[], object] = _nobody_waits,
        ordered: bool = False,
    ) -> None:
        self.group = deliveries[0].group
        self.lease = lease
        self.drop_at = since + hold
        self.freed = freed
        self.members = {delivery.handle: weakref.ref(delivery) for delivery in deliveries}
        self.runs: dict[str, list[str]] = {}
        for delivery in deliveries if ordered else ():
            if delivery.line:
                self.runs.setdefault(delivery.line, []).append(delivery.handle)
        self.renew_at = 0.0
        self.renewed(since)

    def renewed(self, now: float) -> None:
        """The lease counts from `now` again."""
        self.renew_at = now + self.lease * random.uniform(*RENEW_AFTER)

    def failed(self, now: float) -> None:
        """The renewal did not reach the broker."""
        self.renew_at = now + self.lease * RENEW_AGAIN_AFTER

    def behind(self, handle: str) -> list[str]:
        """Those of its message group that come after it, settled or not."""
        run = next((run for run in self.runs.values() if handle in run), [])
        return run[run.index(handle) + 1 :] if run else []

    def unreferenced(self) -> list[str]:
        """Handles of what nobody can settle any more."""
        return [handle for handle, member in self.members.items() if member() is None]


class Hand:
    """All batches of a client. Its caller locks."""

    def __init__(self) -> None:
        self._by_handle: dict[str, Batch] = {}
        self._batches: set[Batch] = set()

    def hold(self, batch: Batch) -> None:
        """Takes a batch in hand."""
        self._batches.add(batch)
        self._by_handle.update(dict.fromkeys(batch.members, batch))

    def batch_of(self, handle: str) -> Batch | None:
        """The batch of a delivery that is in hand."""
        return self._by_handle.get(handle)

    def drop(self, handle: str) -> Batch | None:
        """Takes a delivery out of hand; None: it was not in it."""
        batch = self._by_handle.pop(handle, None)
        if batch is not None:
            batch.members.pop(handle, None)
            if not batch.members:
                self._batches.discard(batch)
        return batch

    def drop_behind(self, batch: Batch, handle: str) -> None:
        """Takes out of hand what comes after a delivery in its message group: the broker has taken it back."""
        for each in batch.behind(handle):
            self.drop(each)

    def drop_unreferenced(self) -> None:
        """Takes out of hand what its handler dropped unsettled."""
        for batch in list(self._batches):
            for handle in batch.unreferenced():
                self.drop(handle)
                self.drop_behind(batch, handle)

    def due(self) -> float | None:
        """When the next lease is to be renewed."""
        return min((batch.renew_at for batch in self._batches), default=None)

    def to_renew(self, now: float) -> list[Batch]:
        """Batches whose time has come, without what was dropped by its handler or held too long."""
        self.drop_unreferenced()
        due = [batch for batch in self._batches if batch.renew_at <= now]
        for batch in due:
            if now >= batch.drop_at:
                for handle in list(batch.members):
                    self.drop(handle)
        return [batch for batch in due if batch.members]
