"""Renews the leases of the deliveries that a client holds."""

import logging
from collections.abc import Sequence
from typing import Any

from popmq._async.concurrency import Lock
from popmq._async.consuming.scheduler import Scheduler
from popmq._async.transport.wire import Wire
from popmq._calls import pop_calls
from popmq._consuming.clock import Clock
from popmq._consuming.group_order import MessageGroupOrder, When
from popmq._consuming.leased_batches import HOLD_S_MAX, Batch, LeasedBatches
from popmq.errors import HandleLapsed, PopMQError
from popmq.message import Delivery

log = logging.getLogger("popmq.consumer")


class HeldLeases:
    """The leases of one client, as a job of its scheduler."""

    def __init__(self, wire: Wire, clock: Clock, scheduler: Scheduler) -> None:
        self._wire = wire
        self._clock = clock
        self._scheduler = scheduler
        self._lock = Lock()
        self._batches = LeasedBatches()
        self._order = MessageGroupOrder(self._batches)
        scheduler.add(self)

    def hold(self, batch: Batch) -> None:
        """Renews the lease of a batch from now on."""
        with self._lock:
            self._batches.add(batch)
        self._scheduler.wake()

    def holds(self, handle: str) -> bool:
        """Whether the lease of this delivery is renewed here."""
        return self._batches.batch_of(handle) is not None

    def held(self) -> list[Delivery]:
        """The deliveries whose leases are renewed here."""
        with self._lock:
            return self._batches.deliveries()

    def forget(self, handle: str) -> bool:
        """Stops renewing a delivery. False: it was not held."""
        with self._lock:
            batch = self._batches.drop(handle)
        if batch is not None:
            batch.freed()
        return batch is not None

    def forget_run(self, delivery: Delivery) -> bool:
        """Stops renewing a delivery and the later ones of its message group, which the broker releases with it.

        False: it was not held.
        """
        with self._lock:
            batch = self._batches.drop(delivery.handle)
            if batch is not None:
                self._batches.drop_behind(batch, delivery.handle)
        return batch is not None

    def may_deliver(self, delivery: Delivery) -> When:
        """Whether a buffered delivery may go to a handler; with "now" it counts as delivered."""
        with self._lock:
            return self._order.may_deliver(delivery)

    def settling(self, handle: str) -> None:
        """How a delivery ended is on its way to the broker; its message group waits for the answer."""
        with self._lock:
            self._order.settling(handle)

    def left(self, handle: str) -> None:
        """The handler of a delivery whose lease was lost has ended: its message group may continue."""
        with self._lock:
            batches = self._order.left(handle)
        for batch in batches:
            batch.freed()

    def settled(self, handle: str, failed: bool) -> None:
        """The broker has answered how a delivery ended. `failed`: it releases the later ones of its message group."""
        with self._lock:
            batches = self._order.settled(handle, failed)
        for batch in batches:
            batch.freed()

    def forget_dropped(self) -> None:
        """Forgets deliveries that handlers dropped without settling them: they return when their leases end."""
        with self._lock:
            dropped = self._batches.drop_unreferenced()
        for group, count in dropped.items():
            log.warning(
                "deliveries of group %s were dropped without ack, release or reject (%d): their messages come again "
                "when their leases end. Guard each delivery by `with delivery:`",
                group,
                count,
            )

    def due(self) -> float | None:
        """When the next lease must be renewed."""
        with self._lock:
            return self._batches.due()

    async def run(self) -> None:
        """Renews what is due, one request a batch: for the broker a whole batch costs as little as one message."""
        self.forget_dropped()
        with self._lock:
            batches, forgotten = self._batches.to_renew(self._clock.now())
        for group, count in forgotten.items():
            log.warning(
                "deliveries of group %s were held for %d h and are renewed no longer (%d): their messages come again "
                "when their leases end",
                group,
                HOLD_S_MAX / 3600,
                count,
            )
        for batch in batches:
            await self._renew(batch)

    async def _renew(self, batch: Batch) -> None:
        with self._lock:
            handles = list(batch.members)
            members = [member() for member in batch.members.values()]
        if not handles:  # all were settled while the batch before was renewed
            return
        changes = [
            pop_calls.extend(handle if member is None else member.current_handle, batch.lease)
            for handle, member in zip(handles, members, strict=True)
        ]
        try:
            results = await self._wire.run(pop_calls.change(batch.group, changes))
        except PopMQError as error:
            log.warning("a lease of group %s could not be renewed and is tried again: %s", batch.group, error)
            batch.failed(self._clock.now())
        else:
            batch.renewed(self._clock.now())
            for member, result in zip(members, results, strict=True):
                pop_calls.renewed(member, result)
            self._drop_lapsed(batch, handles, results)

    def _drop_lapsed(self, batch: Batch, handles: Sequence[str], results: Sequence[Any]) -> None:
        for handle, result in zip(handles, results, strict=True):
            # A delivery that was settled while this renewal ran has lapsed too; it is forgotten already.
            if isinstance(result, PopMQError) and self._lose(batch, handle):
                log.warning("a delivery of group %s is lost to this client: %s", batch.group, result)
                if not isinstance(result, HandleLapsed):
                    log.error("the broker did not renew it: %s", result.code)

    def _lose(self, batch: Batch, handle: str) -> bool:
        """Forgets a delivery whose lease is over, and the later ones of its message group. False: it was not held."""
        with self._lock:
            self._batches.drop_behind(batch, handle)
        return self.forget(handle)
