"""Keeps the sessions of one client alive: one job, however many consumers share them.

A session belongs to a client in a group and names every topic that the client reads for that group. Consumers do not
send heartbeats of their own, because two of them in one group would remove each other's topic from the session.

A broker that restarts has lost all sessions. A client that notices that the broker was away sends its heartbeats at
once: until then the broker may assign its queues to others.
"""

import logging
from collections.abc import Callable

from popmq._async.concurrency import Mutex, Stop, run_to_end
from popmq._async.consuming.scheduler import Scheduler
from popmq._async.transport.wire import Wire
from popmq._calls import pop_calls
from popmq._consuming.clock import Clock
from popmq._transport.call import Call
from popmq._transport.call_retries import Stopped
from popmq.errors import BadRequest, PopMQError, TryLater
from popmq.topic import Session

log = logging.getLogger("popmq.consumer")

#: Seconds to the next heartbeat after a failed one: sessions end 120 s after the last that arrived.
HEARTBEAT_AGAIN_S = 5.0
#: Seconds between two heartbeats when the broker was away in between.
HEARTBEAT_SOON_S = 1.0

#: (topic, the consume mode in which it is read, what to call when its assigned queues may have changed)
Reader = tuple[str, str, Callable[[], object]]


class _Member:
    """This client in one group: its readers, and the last assignment version."""

    def __init__(self) -> None:
        self.readers: list[Reader] = []
        self.version = -1
        self.beat_at = 0.0

    def topics(self, mode: str) -> list[str]:
        return sorted({topic for topic, its_mode, _ in self.readers if its_mode == mode})

    def beat(self, group: str, client_id: str) -> Call[Session]:
        """Queues are assigned to those that can read in the current mode: the others wait until it is switched."""
        return pop_calls.heartbeat(group, client_id, pops=self.topics("POP"), pulls=self.topics("PULL"))

    def assigned(self, version: int) -> None:
        """Calls the readers if their assignment may have changed since the last version."""
        if version != self.version:
            self.version = version
            for _, _, changed in list(self.readers):
                changed()


class Heartbeats:
    """Consumers join and leave as readers of a topic."""

    def __init__(self, wire: Wire, clock: Clock, scheduler: Scheduler, client_id: str) -> None:
        self._wire = wire
        self._clock = clock
        self._scheduler = scheduler
        self._client_id = client_id
        # Held during a heartbeat: one that arrived after the goodbye would open the session again.
        self._turn = Mutex()
        self._members: dict[str, _Member] = {}
        self._gave_up = False  # a goodbye did not reach the broker: closing waits for that only once
        self._beating: Stop | None = None  # ends the heartbeats that are under way
        self._losses = 0
        self._beaten_at = 0.0
        scheduler.add(self)

    async def join(self, group: str, reader: Reader, stop: Stop) -> None:
        """Opens the session, or adds a topic to it. Raises TopicNotFound, GroupNotFound; Stopped by `stop`."""
        try:
            await self._join(group, reader, stop)
        except PopMQError:
            raise
        except BaseException:  # stopped or cancelled: the broker may have opened it
            if not self._wire.away():
                await run_to_end(self.leave, group, reader)
            raise
        self._scheduler.wake()

    async def _join(self, group: str, reader: Reader, stop: Stop) -> None:
        async with self._turn:
            member = self._members.setdefault(group, _Member())
            member.readers.append(reader)
            try:
                await self._beat(group, member, stop)
            except BaseException:
                self._forget(group, reader)
                raise

    async def leave(self, group: str, reader: Reader, goodbye: bool = True) -> None:
        """Removes a topic from the session. With the last topic it says goodbye, so that the broker assigns this
        client's queues to others at once and not after 120 s. `goodbye` false: the broker is away.
        """
        self._end_beat()
        async with self._turn:
            self._forget(group, reader)
            if not goodbye or self._gave_up:
                return
            member = self._members.get(group)
            goodbye_to = pop_calls.heartbeat(group, self._client_id, [reader[0]], goodbye=True)
            try:
                await self._wire.run(member.beat(group, self._client_id) if member else goodbye_to, closing=True)
            except PopMQError as error:
                log.debug("no goodbye to group %s: %s", group, error)
                self._gave_up = isinstance(error, TryLater)

    async def close(self) -> None:
        """Removes the readers that are left: those of consumers that were dropped without being closed. Waits for a
        goodbye that is under way.
        """
        self._end_beat()
        async with self._turn:
            left = list(self._members.items())
        for group, member in left:
            for reader in list(member.readers):
                await self.leave(group, reader)

    def _end_beat(self) -> None:
        """Ends the heartbeats that are under way: they may wait for a broker that is away."""
        beating = self._beating  # which ends by itself, in another thread
        if beating is not None:
            beating.set()

    def due(self) -> float | None:
        """When the next heartbeat is due."""
        dues = [member.beat_at for member in list(self._members.values())]
        if dues and self._wire.losses != self._losses:
            dues.append(self._beaten_at + HEARTBEAT_SOON_S)
        return min(dues, default=None)

    async def run(self) -> None:
        """Sends the heartbeats that are due."""
        async with self._turn:
            was_away, self._losses = self._wire.losses != self._losses, self._wire.losses
            self._beating = stop = Stop()
            try:
                for group, member in list(self._members.items()):
                    if was_away or member.beat_at <= self._clock.now():
                        await self._try(group, member, stop)
            finally:
                self._beating = None

    async def _try(self, group: str, member: _Member, stop: Stop) -> None:
        try:
            await self._beat(group, member, stop)
        except Stopped:
            # Not at once: a lock of threads is not fair, and the goodbye would wait for the next one.
            self._beaten_at = self._clock.now()
            member.beat_at = self._beaten_at + HEARTBEAT_SOON_S
        except PopMQError as error:
            log.warning("the heartbeat of group %s failed, next try within %g s: %s", group, HEARTBEAT_AGAIN_S, error)
            self._beaten_at = self._clock.now()  # so that its own loss does not make the next one due at once
            member.beat_at = self._beaten_at + HEARTBEAT_AGAIN_S
            if isinstance(error, BadRequest):
                member.assigned(-1)  # the group or a topic is gone: its readers find out which and report it

    async def _beat(self, group: str, member: _Member, stop: Stop | None = None) -> None:
        answer = await self._wire.run(member.beat(group, self._client_id), stop)
        self._beaten_at = self._clock.now()
        member.beat_at = self._beaten_at + answer.interval
        self._gave_up = False
        member.assigned(answer.assignment_version)

    def _forget(self, group: str, reader: Reader) -> None:
        member = self._members.get(group)
        if member is None:
            return
        member.readers = [other for other in member.readers if other != reader]
        if not member.readers:
            del self._members[group]
