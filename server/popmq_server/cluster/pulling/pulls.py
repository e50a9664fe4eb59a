"""Pull: a read of one queue, and a wait at its end.

    commit     the group's position first, if the request says so (positions.py)
    read       reading.py; retry topics from the first unfinished entry on
    wait       a pull that its broker parks (11, sysFlag 6) on the connection of waits; brokers look only each 5 s
               whether its time is over, so the gateway answers by itself then

A group that pops is refused, as its consumers would process the messages a second time.
"""

import asyncio
from dataclasses import replace

from popmq_remoting import WAITS
from popmq_remoting.requests.pulling import PulledQueue
from popmq_server.clock import pause
from popmq_server.cluster.catalog.positions import Positions
from popmq_server.cluster.catalog.topics import KnownTopic
from popmq_server.cluster.layout import QueuePlace
from popmq_server.cluster.pulling.reading import Read, Reader, Reading
from popmq_server.cluster.pulling.retry_topics import RetryTopics
from popmq_server.cluster.shared import Shared
from popmq_server.contract.commands import Pull, Pulled
from popmq_server.contract.deadline import remaining_s
from popmq_server.errors import Refused, invalid, no_queue
from popmq_server.values import permission
from popmq_server.values.filters import filter as filters
from popmq_server.values.filters.filter import Filter
from popmq_server.values.message import RETRY_PREFIX
from popmq_server.values.records import Group

#: The queue has no message at this offset yet, and may get one.
AT_THE_END = frozenset(("NO_MESSAGE_IN_QUEUE", "OFFSET_OVERFLOW_ONE"))
_PASSED_OVER = frozenset(("OFFSET_FOUND_NULL", "NO_MATCHED_MESSAGE", "MESSAGE_WAS_REMOVING"))
#: Before a read that has come no further is repeated.
_PAUSE_S = 0.1


class Pulls:
    """Reads a queue for clients, and waits at its end."""

    def __init__(self, shared: Shared, positions: Positions, retries: RetryTopics) -> None:
        self._brokers, self._topics, self._groups = shared.brokers, shared.topics, shared.groups
        self._layouts, self._modes = shared.layouts, shared.modes
        self._positions, self._retries = positions, retries
        self._reader = Reader(shared.brokers)
        self._loop = asyncio.get_running_loop()
        self._closing = self._loop.create_future()
        #: Pulls that wait.
        self.parked = 0

    async def pull(self, command: Pull, wait_ms: int) -> Pulled:
        """Raises Refused."""
        until_s = self._wait_until_s(wait_ms)
        if command.topic.startswith(RETRY_PREFIX):
            return await self._pull_retry(command, until_s)
        topic = await self._topics.get(command.topic)
        refuse_lite(topic)
        group = await self._groups.get(command.group) if command.group else None
        permission.check_read(group, topic.settings)
        if group is not None:
            await self._modes.expect(topic, group, "PULL")
        wanted = filters.make(*command.filter or ("", ""))
        places = (await self._layouts.of(topic)).places
        acked = 0
        if command.commit_offset is not None:
            acked = await self._commit(topic, group, places, command.queue, command.commit_offset)
        if command.queue >= len(places):
            return Pulled("NO_MATCHED_LOGIC_QUEUE", [], 0, 0, 0, acked=acked)
        reading = _reading(command, topic, places[command.queue], command.offset, wanted)
        return _pulled(await self._read(reading, until_s), acked)

    async def _commit(
        self, topic: KnownTopic, group: Group | None, places: tuple[QueuePlace, ...], queue: int, offset: int
    ) -> int:
        """Moves the group's position; returns how many messages it moved past."""
        if group is None:
            raise _no_group()
        if queue >= len(places):
            raise no_queue(topic.name, len(places), queue, "commit_offset")
        return await self._positions.commit(topic, group.name, {queue: offset}, places, lambda queue: "commit_offset")

    async def _pull_retry(self, command: Pull, until_s: float) -> Pulled:
        """Entries from a number on; none before the first unfinished one."""
        retry = await self._retries.named(command.topic, command.group)
        permission.check_read(retry.group if command.group else None, retry.origin.settings)
        wanted = filters.make(*command.filter or ("", ""))
        place = await self._retries.made(retry)
        acked = 0
        if command.commit_offset is not None:
            if not command.group:
                raise _no_group()
            acked = await self._retries.finish(retry, place, command.commit_offset, "commit_offset")
        first, ends = await self._retries.begins(retry, place)
        if command.queue:
            return Pulled("NO_MATCHED_LOGIC_QUEUE", [], 0, first, ends.most, acked=acked)
        reading = _reading(command, retry.itself, place, max(command.offset, first), wanted)
        read = await self._read(reading, until_s)
        if read.status == "NO_MESSAGE_IN_QUEUE":
            read.status = "OFFSET_OVERFLOW_BADLY" if reading.offset else "OFFSET_OVERFLOW_ONE"
        read.least = first
        return _pulled(read, acked)

    # ── The wait ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _wait_until_s(self, wait_ms: int) -> float:
        """A pull that waits ends before its client gives up."""
        left_s = remaining_s()
        now_s = self._loop.time()
        return now_s + (wait_ms / 1000 if left_s is None else min(wait_ms / 1000, max(0.0, left_s - 0.5)))

    async def _read(self, reading: Reading, until_s: float) -> Read:
        """Reads, and waits at the end of the queue."""
        passed, over, first = "", 0, None
        while True:
            read = await self._reader.read(reading, first)
            first, over = None, over + read.passed_over
            passed = read.status if read.status in _PASSED_OVER else passed
            if read.rows or self._loop.time() >= until_s or self._closing.done() or not _waits(reading, read):
                read.status = passed if passed and read.status in AT_THE_END else read.status
                read.passed_over = over
                return read
            if not read.more:
                reading = replace(reading, offset=read.next_offset)
                first = await self._wait(reading, until_s)
            elif read.next_offset == reading.offset:
                await pause(min(_PAUSE_S, until_s - self._loop.time()))
            else:
                reading = replace(reading, offset=read.next_offset)

    async def _wait(self, reading: Reading, until_s: float) -> PulledQueue | None:
        """What a parked pull found; None: the time is over, or the process stops."""
        left_ms = int((until_s - self._loop.time()) * 1000)
        parked = self._loop.create_task(self._reader.pull(reading, max(1, left_ms), WAITS))
        self.parked += 1
        try:
            await asyncio.wait((parked, self._closing), timeout=left_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
            return parked.result() if parked.done() else None
        finally:
            self.parked -= 1
            parked.cancel()

    def close_waits(self) -> None:
        """Answers the pulls that wait: the process stops."""
        if not self._closing.done():
            self._closing.set_result(None)


def refuse_lite(topic: KnownTopic) -> None:
    """Raises Refused for a LITE topic, whose queues mean nothing to readers."""
    if topic.settings.type == "LITE":
        raise Refused(
            "UNSUPPORTED",
            f"topic {topic.name!r} has type LITE, which gateways do not serve",
            field="topic",
            action="read it at its brokers",
        )


def _reading(command: Pull, topic: KnownTopic, place: QueuePlace, offset: int, wanted: Filter) -> Reading:
    return Reading(
        topic,
        place,
        command.group,
        command.queue,
        offset,
        command.max_messages,
        command.max_bytes,
        wanted,
        command.end_offset,
        command.body,
    )


def _waits(reading: Reading, read: Read) -> bool:
    """Whether to wait after an answer without messages: not when the caller has to correct its offset."""
    if read.status == "NO_MESSAGE_IN_QUEUE":
        return reading.offset == 0
    return read.status in AT_THE_END or read.status in _PASSED_OVER


def _pulled(read: Read, acked: int) -> Pulled:
    return Pulled(
        status=read.status,
        rows=read.rows,
        next_offset=read.next_offset,
        min_offset=read.least,
        max_offset=read.most,
        more=read.more,
        acked=acked,
        full=read.full,
        passed_over=read.passed_over,
    )


def _no_group() -> Refused:
    return invalid(
        "a reader without a group has no offset to commit",
        field="commit_offset",
        action="name a group, or leave the offset out",
    )
