"""UpdateOffsets, QueryOffsets, ResetOffsets, CloneOffsets and SetConsumeMode.

    UpdateOffsets    a group that pulls commits: 15 of each queue
    QueryOffsets     31, 30, 14 and 29 of each queue; bytes by a sample (sizes.py)
    SetConsumeMode   15 of each queue for a group that is new in the topic, then 401 on every master; what a group that
                     pulled has in its retry topic is sent to the topic again (send_back.py)
    ResetOffsets     a group that pulls: 15; one that pops: 222, which also ends what its brokers have read ahead for it
    CloneOffsets     the same, to the position of the other group: 314 would leave what is read ahead

What is leased, or retried by brokers, stays so after a reset and after a switch of the mode. All take effect at the
next read. The queues are those of the layout; a broker that does not answer leaves its queues where they were.
"""

from collections.abc import Mapping, Sequence

from popmq_remoting.requests import groups
from popmq_server.cluster import names
from popmq_server.cluster.brokers import in_lanes, succeeded
from popmq_server.cluster.catalog.positions import Positions, position
from popmq_server.cluster.catalog.topics import KnownTopic
from popmq_server.cluster.layout import QueuePlace
from popmq_server.cluster.pulling.pulls import refuse_lite
from popmq_server.cluster.pulling.retry_topics import RetryTopics
from popmq_server.cluster.pulling.send_back import Leftovers
from popmq_server.cluster.pulling.sizes import Backlog, Sizes
from popmq_server.cluster.refusals import Asked
from popmq_server.cluster.shared import Shared
from popmq_server.contract.commands import (
    CloneOffsets,
    OffsetsOfQueue,
    QueryOffsets,
    ResetOffsets,
    SetConsumeMode,
    UpdateOffsets,
)
from popmq_server.errors import invalid, no_queue
from popmq_server.values.message import RETRY_PREFIX
from popmq_server.values.records import Group, Subscription


class Offsets:
    """Reads and moves the positions of groups, and changes their modes."""

    def __init__(self, shared: Shared, positions: Positions, retries: RetryTopics, leftovers: Leftovers) -> None:
        self._brokers, self._topics, self._groups = shared.brokers, shared.topics, shared.groups
        self._layouts, self._modes = shared.layouts, shared.modes
        self._positions, self._retries = positions, retries
        self._leftovers, self._sizes = leftovers, Sizes(shared.brokers)

    async def update(self, command: UpdateOffsets) -> int:
        """Moves committed offsets; returns how many messages were moved past."""
        if command.topic.startswith(RETRY_PREFIX):
            return await self._update_retry(command)
        topic, group, places = await self._resolved(command.topic, command.group)
        await self._modes.expect(topic, group, "PULL")
        _check_queues(topic, places, command.offsets)
        return await self._positions.commit(topic, group.name, command.offsets, places, _field)

    async def _update_retry(self, command: UpdateOffsets) -> int:
        retry = await self._retries.named(command.topic, command.group)
        for queue in command.offsets:
            if queue:
                raise no_queue(command.topic, 1, queue, _field(queue))
        place = await self._retries.made(retry)
        return await self._retries.finish(retry, place, command.offsets[0], _field(0))

    async def query(self, command: QueryOffsets) -> list[OffsetsOfQueue]:
        """A row for each queue."""
        if command.topic.startswith(RETRY_PREFIX):
            return await self._query_retry(command)
        topic = await self._topics.get(command.topic)
        group = await self._groups.get(command.group) if command.group else None
        places = (await self._layouts.of(topic)).places
        ends = await self._positions.ends(topic, places)
        committed: list[int] | None = None
        if group is not None:
            committed = position(await self._positions.committed(topic, group.name, places), ends)
        since = [-1] * len(places)
        if command.since_ms is not None:
            since = await self._positions.start(topic, places, ends, "TIMESTAMP", command.since_ms)
        sizes = [0] * len(places)
        if group is None or committed is not None:
            starts = committed or [end.least for end in ends]
            backlogs = [Backlog(place, at, end.most) for place, at, end in zip(places, starts, ends, strict=True)]
            sizes = await self._sizes.behind(topic, command.group, backlogs)
        return [
            OffsetsOfQueue(
                queue,
                end.least,
                end.most,
                committed[queue] if committed is not None else -1,
                since[queue],
                least_committed=None,
                read_ms=None,
                bytes_behind=sizes[queue],
            )
            for queue, end in enumerate(ends)
        ]

    async def _query_retry(self, command: QueryOffsets) -> list[OffsetsOfQueue]:
        retry = await self._retries.named(command.topic, command.group)
        if command.since_ms is not None:
            raise invalid(
                "the entries of a retry topic are not in the order of their time",
                field="timestamp_ms",
                action="leave the time out: the answer has the first and the next offset",
            )
        place = await self._retries.place(retry)
        first, most = 0, 0
        if place is not None:
            first, (_, most) = await self._retries.begins(retry, place)
        known = first if command.group else -1
        return [OffsetsOfQueue(0, first, most, known, -1, least_committed=None, read_ms=None)]

    # ── Operators ────────────────────────────────────────────────────────────────────────────────────────────────────

    async def set_consume_mode(self, command: SetConsumeMode) -> Subscription:
        """Sets mode and share number; the same call again does what was left, at brokers that were away too."""
        topic, group, places = await self._resolved(command.topic, command.group)
        await self._positions.begin(topic, group, places, command.start)
        changed = await self._modes.set(topic, group.name, command.mode, command.share_number)
        if not changed.pulls:
            await self._leftovers.move(self._retries.of(group, topic))
        return changed

    async def reset(self, command: ResetOffsets) -> dict[int, int]:
        """Moves a group in all queues or in some; returns its next offset of each queue of the topic."""
        topic, group, places = await self._resolved(command.topic, command.group)
        ends = await self._positions.ends(topic, places)
        wanted = dict(command.offsets or {})
        _check_queues(topic, places, wanted)
        for queue, offset in wanted.items():
            least, most = ends[queue]
            if not least <= offset <= most:
                begins = f"begins at {least}, after" if offset < least else f"ends at {most}, before"
                bound = f"at least {least}" if offset < least else f"at most {most}"
                raise invalid(
                    f"queue {queue} of topic {topic.name!r} {begins} {offset}",
                    field=_field(queue),
                    action=f"give an offset of {bound}",
                )
        before = await self._positions.begin(topic, group, places)
        if command.to is not None:
            wanted = dict(enumerate(await self._positions.start(topic, places, ends, *command.to)))
        await self._move(topic, group, places, wanted)
        return {queue: wanted.get(queue, offset) for queue, offset in enumerate(before)}

    async def clone(self, command: CloneOffsets) -> dict[int, int]:
        """Moves a group to the position of another one."""
        topic, group, places = await self._resolved(command.topic, command.group)
        source = await self._groups.get(command.from_group, "from_group")
        ends = await self._positions.ends(topic, places)
        whole = position(await self._positions.committed(topic, source.name, places), ends)
        if whole is None:
            raise invalid(
                f"group {source.name!r} has no position in topic {topic.name!r}",
                field="from_group",
                action="name a group that has read the topic, or reset the offsets instead",
            )
        wanted = dict(enumerate(whole))
        await self._move(topic, group, places, wanted)
        return wanted

    async def _move(
        self, topic: KnownTopic, group: Group, places: Sequence[QueuePlace], wanted: Mapping[int, int]
    ) -> None:
        """Moves a group in some queues. A reset (222) of one that pulls would make brokers ignore its commits."""
        if (await self._modes.of(topic, group.name)).pulls:
            await self._positions.put(topic, group.name, {places[queue]: at for queue, at in wanted.items()})
            return
        known = names.broker_group(group.name)

        async def one(queue: int) -> None:
            place = places[queue]
            request = groups.reset_offset(known, topic.broker_name, place.queue_id, wanted[queue])
            await self._brokers.call(Asked(place.broker, topic.name, group.name), request, succeeded)

        await in_lanes(list(wanted), one)

    async def _resolved(self, topic: str, group: str) -> tuple[KnownTopic, Group, Sequence[QueuePlace]]:
        """Raises Refused for the topic first."""
        known = await self._topics.get(topic)
        found = await self._groups.get(group)
        refuse_lite(known)
        return known, found, (await self._layouts.of(known)).places


def _field(queue: int) -> str:
    return f"offsets[{queue}]"


def _check_queues(topic: KnownTopic, places: Sequence[QueuePlace], offsets: Mapping[int, int]) -> None:
    for queue in offsets:
        if queue >= len(places):
            raise no_queue(topic.name, len(places), queue, _field(queue))


BY_OFFSETS = (
    UpdateOffsets.awaited_by(Offsets.update)
    | QueryOffsets.awaited_by(Offsets.query)
    | SetConsumeMode.awaited_by(Offsets.set_consume_mode)
    | ResetOffsets.awaited_by(Offsets.reset)
    | CloneOffsets.awaited_by(Offsets.clone)
)
