"""The batches whose leases a client renews: when each is due, and which deliveries are settled. It has no clock.

A batch is renewed at a random point of its lease, so that a thousand clients that popped at the same moment do not all
renew at the same moment. Deliveries are held by weak references: when a handler drops a delivery without settling it,
its lease is renewed no longer, and the message returns to the group when the lease ends.
"""

import random
import weakref
from collections import Counter
from collections.abc import Callable, Sequence

from popmq.message import Delivery

#: The part of a lease after which it is renewed: late enough to be rare, early enough to try several times.
RENEW_AFTER = (0.4, 0.7)
#: The part of a lease after which a failed renewal is tried again.
RENEW_AGAIN_AFTER = 0.1
#: Seconds after which a delivery is no longer renewed: a handler that hangs must not keep its message forever.
HOLD_S_MAX = 12 * 3600.0

DEAD_LETTER_PREFIX = "%DLQ%"


def ordered(topic: str) -> bool:
    """Whether the broker releases the later messages of a message group with a failed one.

    Not in a dead-letter topic: its messages keep their message groups but have no order.
    """
    return not topic.startswith(DEAD_LETTER_PREFIX)


def _no_callback() -> None:
    pass


def weakly(method: Callable[[], object]) -> Callable[[], None]:
    """Calls a method while its object lives, and does not keep it alive."""
    reference = weakref.WeakMethod(method)

    def call() -> None:
        found = reference()
        if found is not None:
            found()

    return call


class Batch:
    """The unsettled deliveries of one pop, under one lease of `lease` seconds.

    `ordered`: deliveries of one message group are delivered one after another. `runs` then has their handles, by
    message group. `freed` is called whenever one of the deliveries is settled or lost.
    """

    __slots__ = ("drop_at", "freed", "group", "lease", "members", "renew_at", "runs")

    def __init__(
        self,
        deliveries: Sequence[Delivery],
        lease: float,
        since: float,
        hold: float = HOLD_S_MAX,
        freed: Callable[[], object] = _no_callback,
        ordered: bool = False,
    ) -> None:
        self.group = deliveries[0].group
        self.lease = lease
        self.drop_at = since + hold
        self.freed = freed
        self.members = {delivery.handle: weakref.ref(delivery) for delivery in deliveries}
        self.runs: dict[str, list[str]] = {}
        for delivery in deliveries if ordered else ():
            if delivery.order_key:
                self.runs.setdefault(delivery.order_key, []).append(delivery.handle)
        self.renew_at = 0.0
        self.renewed(since)

    def renewed(self, now: float) -> None:
        """The lease starts again at `now`."""
        self.renew_at = now + self.lease * random.uniform(*RENEW_AFTER)

    def failed(self, now: float) -> None:
        """The renewal did not reach the broker."""
        self.renew_at = now + self.lease * RENEW_AGAIN_AFTER

    def behind(self, handle: str) -> list[str]:
        """The handles after this one in its message group, settled or not."""
        run = next((run for run in self.runs.values() if handle in run), [])
        return run[run.index(handle) + 1 :] if run else []

    def unreferenced(self) -> list[str]:
        """Handles of deliveries that are no longer referenced, and so cannot be settled."""
        return [handle for handle, member in self.members.items() if member() is None]


class LeasedBatches:
    """All batches of a client. The caller holds a lock around each call."""

    def __init__(self) -> None:
        self._by_handle: dict[str, Batch] = {}
        self._batches: set[Batch] = set()

    def add(self, batch: Batch) -> None:
        """Renews the lease of this batch from now on."""
        self._batches.add(batch)
        self._by_handle.update(dict.fromkeys(batch.members, batch))

    def deliveries(self) -> list[Delivery]:
        """All that are held, and still referenced."""
        found = (batch.members[handle]() for handle, batch in self._by_handle.items())
        return [delivery for delivery in found if delivery is not None]

    def batch_of(self, handle: str) -> Batch | None:
        """The batch of a delivery; None when it is not held."""
        return self._by_handle.get(handle)

    def drop(self, handle: str) -> Batch | None:
        """Forgets a delivery and returns its batch; None when it is not held."""
        batch = self._by_handle.pop(handle, None)
        if batch is not None:
            batch.members.pop(handle, None)
            if not batch.members:
                self._batches.discard(batch)
        return batch

    def drop_behind(self, batch: Batch, handle: str) -> None:
        """Forgets the deliveries after this one in its message group: the broker has released them."""
        for each in batch.behind(handle):
            self.drop(each)

    def drop_unreferenced(self) -> Counter[str]:
        """Forgets deliveries that their handlers dropped without settling them. Returns their number by group."""
        dropped: Counter[str] = Counter()
        for batch in list(self._batches):
            for handle in batch.unreferenced():
                dropped[batch.group] += 1
                self.drop(handle)
                self.drop_behind(batch, handle)
        return dropped

    def due(self) -> float | None:
        """When the next lease must be renewed."""
        return min((batch.renew_at for batch in self._batches), default=None)

    def to_renew(self, now: float) -> tuple[list[Batch], Counter[str]]:
        """Batches that are due; and how many deliveries, by group, were held for so long that they are forgotten."""
        due = [batch for batch in self._batches if batch.renew_at <= now]
        forgotten: Counter[str] = Counter()
        for batch in due:
            if now >= batch.drop_at:
                forgotten[batch.group] += len(batch.members)
                for handle in list(batch.members):
                    self.drop(handle)
        return [batch for batch in due if batch.members], forgotten
