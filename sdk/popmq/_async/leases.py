"""Renews the leases of what is in hand, and keeps sessions alive: whatever a client does by the clock."""

import logging
from collections.abc import Sequence
from typing import Any, Protocol

from popmq import _calls
from popmq._async.concurrency import Lock, Worker
from popmq._async.wire import Wire
from popmq._clock import Clock
from popmq._hand import Batch, Hand
from popmq._turns import Turns, When
from popmq.errors import HandleLapsed, PopMQError
from popmq.message import Delivery

log = logging.getLogger("popmq.consumer")


class Chore(Protocol):
    """Something to do at times."""

    def due(self) -> float | None:
        """When, on the client's clock; None: not now."""

    async def run(self) -> None:
        """Does it; afterwards `due` is later."""


class Keeper:
    """Does chores in the background, each when it is due."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._chores: list[Chore] = []
        self._worker = Worker("popmq-keeper", self._step)
        self._driven = clock.drive(self.due, self._worker.run_now)

    def bind(self) -> None:
        """To be called in the event loop before the first chore."""
        self._worker.bind()

    def add(self, chore: Chore) -> None:
        """Takes a chore on."""
        self._chores.append(chore)
        self.wake()

    def remove(self, chore: Chore) -> None:
        """Gives a chore up."""
        self._chores.remove(chore)

    def wake(self) -> None:
        """Something may be due sooner than before."""
        if not self._driven:
            self._worker.wake()

    def due(self) -> float | None:
        """When the next chore is due."""
        return min((due for due in (chore.due() for chore in list(self._chores)) if due is not None), default=None)

    async def stop(self) -> None:
        """Does no more."""
        self._chores.clear()
        await self._worker.stop()

    async def _step(self) -> float | None:
        for chore in list(self._chores):
            due = chore.due()
            if due is not None and due <= self._clock.now():
                await chore.run()
        due = self.due()
        return None if due is None else max(0.0, due - self._clock.now())


class Leases:
    """The chore of renewing what is in hand."""

    def __init__(self, wire: Wire, clock: Clock, keeper: Keeper) -> None:
        self._wire = wire
        self._clock = clock
        self._keeper = keeper
        self._lock = Lock()
        self._hand = Hand()
        self._turns = Turns(self._hand)
        keeper.add(self)

    def hold(self, batch: Batch) -> None:
        """Renews the leases of a batch from now on."""
        with self._lock:
            self._hand.hold(batch)
        self._keeper.wake()

    def holds(self, handle: str) -> bool:
        """Whether the lease of this delivery is renewed here."""
        return self._hand.batch_of(handle) is not None

    def forget(self, handle: str) -> bool:
        """Renews a delivery no more; false: it was not held."""
        with self._lock:
            batch = self._hand.drop(handle)
        if batch is not None:
            batch.freed()
        return batch is not None

    def forget_run(self, delivery: Delivery) -> bool:
        """Renews it no more, nor those behind it in its message group, which go back with it; false: was not held."""
        with self._lock:
            batch = self._hand.drop(delivery.handle)
            if batch is not None:
                self._hand.drop_behind(batch, delivery.handle)
        return batch is not None

    def begin(self, delivery: Delivery) -> When:
        """Hands a buffered delivery out, if it is its turn."""
        with self._lock:
            return self._turns.begin(delivery)

    def asked(self, handle: str) -> None:
        """How a delivery ended is being told, and its message group waits for the answer."""
        with self._lock:
            self._turns.asked(handle)

    def left(self, handle: str) -> None:
        """The handler of a delivery that was lost is done: its message group may go on."""
        with self._lock:
            batches = self._turns.left(handle)
        for batch in batches:
            batch.freed()

    def over(self, handle: str, failed: bool) -> None:
        """The broker knows how a delivery ended; `failed`: those behind it in its message group go back with it."""
        with self._lock:
            batches = self._turns.over(handle, failed)
        for batch in batches:
            batch.freed()

    def forget_dropped(self) -> None:
        """Forgets what its handler dropped without settling it: it comes back to the group when its lease ends."""
        with self._lock:
            self._hand.drop_unreferenced()

    def due(self) -> float | None:
        """When the next lease is to be renewed."""
        with self._lock:
            return self._hand.due()

    async def run(self) -> None:
        """Renews what is due, a batch at a time: the broker moves a whole batch as cheaply as one message."""
        with self._lock:
            batches = self._hand.to_renew(self._clock.now())
        for batch in batches:
            await self._renew(batch)

    async def _renew(self, batch: Batch) -> None:
        with self._lock:
            handles = list(batch.members)
        changes = [_calls.extend(handle, batch.lease) for handle in handles]
        try:
            results = await self._wire.run(_calls.change(batch.group, changes))
        except PopMQError as error:
            log.warning("a lease of group %s was not renewed, it is tried again: %s", batch.group, error)
            batch.failed(self._clock.now())
        else:
            batch.renewed(self._clock.now())
            self._drop_lapsed(batch, handles, results)

    def _drop_lapsed(self, batch: Batch, handles: Sequence[str], results: Sequence[Any]) -> None:
        for handle, result in zip(handles, results, strict=True):
            # A delivery that was settled while its renewal was under way has lapsed too, and is forgotten already.
            if isinstance(result, PopMQError) and self._lose(batch, handle):
                log.warning("a delivery of group %s is lost to this client: %s", batch.group, result)
                if not isinstance(result, HandleLapsed):
                    log.error("the broker did not renew it: %s", result.code)

    def _lose(self, batch: Batch, handle: str) -> bool:
        """Its lease is over, and so is that of those behind it in its message group. False: it was known."""
        with self._lock:
            self._hand.drop_behind(batch, handle)
        return self.forget(handle)
