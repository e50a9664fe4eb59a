# Written by sdk/twin.py from popmq/_async/session.py: change that one.
"""A consumer's session: heartbeats while it lives, and the queues that the broker assigns to it."""

import logging
from collections.abc import Sequence

from popmq import _calls
from popmq._clock import Clock
from popmq._sync.concurrency import Event, Stop
from popmq._sync.wire import Wire
from popmq.errors import PopMQError

log = logging.getLogger("popmq.consumer")

#: Seconds to the next heartbeat after one that failed: sessions end 120 s after the last one that arrived.
HEARTBEAT_AGAIN_S = 5.0


class Session:
    """A chore: tells the broker that this client reads this topic for this group, and asks what to read."""

    def __init__(self, wire: Wire, clock: Clock, client_id: str, topic: str, group: str) -> None:
        self._wire = wire
        self._clock = clock
        self._client_id = client_id
        self._topic = topic
        self._group = group
        self._beat_at = 0.0
        self._version = -1
        self._queues: Sequence[int] | None = ()  # (): all; None: this client has none
        self._changed = Event()

    def open(self, stop: Stop) -> None:
        """The first heartbeat, and the first assignment. Raises TopicNotFound, GroupNotFound; Stopped by `stop`."""
        self._beat(stop)
        self._ask(stop)

    def queues(self) -> Sequence[int] | None:
        """The queues to pop, () for all; None: none now, after waiting for that to change."""
        if self._queues is None:
            self._changed.wait(max(0.0, self._beat_at - self._clock.now()))
            self._changed.clear()
        return self._queues

    def wake(self) -> None:
        """Ends the waiting of `queues`."""
        self._changed.set()

    def due(self) -> float | None:
        """When the next heartbeat is due."""
        return self._beat_at

    def run(self) -> None:
        """A heartbeat, and the new assignment if there is one."""
        version = self._version
        try:
            self._beat()
            if self._version != version:
                self._ask()
                self._changed.set()
        except PopMQError as error:
            log.warning("no heartbeat of group %s, tried again in %g s: %s", self._group, HEARTBEAT_AGAIN_S, error)
            self._beat_at = self._clock.now() + HEARTBEAT_AGAIN_S

    def close(self) -> None:
        """Says goodbye: the broker gives this client's queues to others at once, and not after 120 s."""
        try:
            self._wire.run(_calls.heartbeat(self._group, [self._topic], self._client_id, goodbye=True))
        except PopMQError as error:
            log.debug("no goodbye to group %s: %s", self._group, error)

    def _beat(self, stop: Stop | None = None) -> None:
        answer = self._wire.run(_calls.heartbeat(self._group, [self._topic], self._client_id), stop)
        self._version = answer.assignment_version
        self._beat_at = self._clock.now() + answer.interval

    def _ask(self, stop: Stop | None = None) -> None:
        assignment = self._wire.run(_calls.query_assignment(self._topic, self._group, self._client_id), stop)
        if assignment.known:
            self._queues = () if assignment.all else (assignment.queues or None)
