"""The session of a consumer that pops, and its assigned queues: asked again when a heartbeat reports a change."""

import logging
from collections.abc import Sequence

from popmq._async.concurrency import Event, Stop
from popmq._async.consuming.heartbeats import HEARTBEAT_AGAIN_S, Reader
from popmq._async.consuming.parts import Parts
from popmq._calls import pop_calls
from popmq.errors import PopMQError, TryLater

log = logging.getLogger("popmq.consumer")


class ConsumerSession:
    """Keeps this client a reader of the topic for the group, and knows its assigned queues. A job of the scheduler."""

    def __init__(self, parts: Parts, topic: str, group: str) -> None:
        self._parts = parts
        self._topic = topic
        self._group = group
        self._reader: Reader = topic, "POP", self._ask_soon
        self._ask_at: float | None = None
        self._queues: Sequence[int] | None = ()  # (): all; None: this client has none
        self._changed = Event()
        self._abandoned = False

    async def open(self, stop: Stop) -> None:
        """The first heartbeat, and the first assignment. Raises TopicNotFound, GroupNotFound; Stopped by `stop`."""
        await self._parts.heartbeats.join(self._group, self._reader, stop)
        try:
            await self._ask(stop)
        except BaseException as error:
            await self._parts.heartbeats.leave(self._group, self._reader, goodbye=not isinstance(error, TryLater))
            raise

    async def queues(self) -> Sequence[int] | None:
        """The queues to pop, () for all. None: none is assigned, after waiting a while for that to change."""
        if self._queues is None:
            await self._changed.wait(HEARTBEAT_AGAIN_S)
            self._changed.clear()
        return self._queues

    def wake(self) -> None:
        """Ends the wait of `queues`."""
        self._changed.set()

    def abandon(self) -> None:
        """Its consumer is gone. Called by the garbage collector, in the middle of anything: takes no lock."""
        self._abandoned = True

    def due(self) -> float | None:
        """When to ask again."""
        return self._parts.clock.now() if self._abandoned else self._ask_at

    async def run(self) -> None:
        """Asks for the assignment."""
        if self._abandoned:
            self._parts.scheduler.remove(self)
            await self.close()
            return
        try:
            await self._ask()
            self._changed.set()
        except PopMQError as error:
            log.warning(
                "the assignment of group %s is not known, next try in %g s: %s", self._group, HEARTBEAT_AGAIN_S, error
            )
            self._ask_at = self._parts.clock.now() + HEARTBEAT_AGAIN_S

    async def close(self) -> None:
        """Leaves the group, so that the broker assigns this client's queues to others at once and not after 120 s."""
        await self._parts.heartbeats.leave(self._group, self._reader)

    def _ask_soon(self) -> None:
        self._ask_at = self._parts.clock.now()

    async def _ask(self, stop: Stop | None = None) -> None:
        self._ask_at = None  # before the call: a change meanwhile sets it again
        assignment = await self._parts.wire.run(
            pop_calls.query_assignment(self._topic, self._group, self._parts.client_id), stop
        )
        if assignment.mode != "POP":
            self._queues = ()  # for when the group is switched back: the assigned queues are for consumers that pull
        elif assignment.known:
            self._queues = () if assignment.all else (assignment.queues or None)
