"""Positions: where queues begin and end, the next offset of a group in each, and where a new group begins.

    ends         31 and 30 of each queue
    committed    14 of each queue; brokers know each one by itself, and PopMQ a position of the topic as a whole:

        no queue has one       the group has no position in the topic
        some have one          the others begin at their first message: they were added since

    at           29 of each queue
    begin        15 of each queue, for a group without a position: RocketMQ would begin where the first read happens to
                 find the end, or with the last message that is stored

Brokers write positions to disk some seconds later (`flushConsumerOffsetInterval`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from popmq_remoting import Request, Response, ResponseCode
from popmq_remoting.requests import groups
from popmq_server.cluster import names
from popmq_server.cluster.brokers import Brokers, in_lanes, succeeded
from popmq_server.cluster.catalog.topics import KnownTopic
from popmq_server.cluster.layout import QueuePlace
from popmq_server.cluster.refusals import Asked
from popmq_server.errors import invalid
from popmq_server.values.records import Group

T = TypeVar("T")


class Ends(NamedTuple):
    """The first offset of a queue, and that of the next message."""

    least: int
    most: int


class Positions:
    """Of queues named by broker and id. `group`: as PopMQ calls it; "" = readers without one."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def ends(self, topic: KnownTopic, places: Sequence[QueuePlace]) -> list[Ends]:
        """Of each queue. Raises Refused."""
        name = topic.broker_name
        least = await self._of_each(topic, places, lambda queue_id: groups.min_offset(name, queue_id), _offset)
        most = await self._of_each(topic, places, lambda queue_id: groups.max_offset(name, queue_id), _offset)
        return [Ends(first, max(first, following)) for first, following in zip(least, most, strict=True)]

    async def at(self, topic: KnownTopic, places: Sequence[QueuePlace], time_ms: int) -> list[int]:
        """The first offset of each queue that was stored then or later; the end if there is none."""
        name = topic.broker_name
        return await self._of_each(topic, places, lambda queue_id: groups.offset_at(name, queue_id, time_ms), _offset)

    async def committed(self, topic: KnownTopic, group: str, places: Sequence[QueuePlace]) -> list[int | None]:
        """The next offset of a group in each queue; None: it has none there."""
        name, known = topic.broker_name, names.reading_group(group)
        return await self._of_each(
            topic, places, lambda queue_id: groups.query_offset(known, name, queue_id), _if_any, group
        )

    async def commit(
        self,
        topic: KnownTopic,
        group: str,
        offsets: Mapping[int, int],
        places: Sequence[QueuePlace],
        field: Callable[[int], str],
    ) -> int:
        """Moves a group in some queues, by their numbers; returns how many messages it moved past.

        An offset before the first one counts as the first one. `field`: the request's, for the offset of a queue.
        Raises Refused INVALID_FIELD, and moves nothing then.
        """
        queues = list(offsets)
        moved = [places[queue] for queue in queues]
        befores = await self.committed(topic, group, moved)
        wanted, passed = dict[QueuePlace, int](), 0
        for queue, place, before, end in zip(queues, moved, befores, await self.ends(topic, moved), strict=True):
            if offsets[queue] > end.most:
                raise invalid(
                    f"queue {queue} of topic {topic.name!r} ends at {end.most}, before {offsets[queue]}",
                    field=field(queue),
                    action=f"give an offset of at most {end.most}",
                )
            wanted[place] = max(offsets[queue], end.least)
            passed += max(0, wanted[place] - max(before or 0, end.least))
        await self.put(topic, group, wanted)
        return passed

    async def put(self, topic: KnownTopic, group: str, offsets: Mapping[QueuePlace, int]) -> None:
        """Moves a group. Raises Refused."""
        known = names.reading_group(group)

        async def one(place: QueuePlace) -> None:
            request = groups.update_offset(known, topic.broker_name, place.queue_id, offsets[place])
            await self._brokers.call(Asked(place.broker, topic.name, group), request, succeeded)

        await in_lanes(list(offsets), one)

    async def begin(
        self, topic: KnownTopic, group: Group, places: Sequence[QueuePlace], start: tuple[str, int] | None = None
    ) -> list[int]:
        """The position of a group in each queue, made by `start`, or else by its settings, if it has none yet.

        `start`: (name of a StartFrom, ms). Raises Refused INVALID_FIELD for one of a group that has a position.
        """
        committed = await self.committed(topic, group.name, places)
        ends = await self.ends(topic, places)
        whole = position(committed, ends)
        if whole is not None and start is not None:
            raise invalid(
                f"group {group.name!r} has its position in topic {topic.name!r} already",
                field="start",
                action=f"leave it out, or move the group: popmq offsets reset {topic.name} {group.name} --to latest",
            )
        if whole is not None:
            return whole
        kind, since_ms = start or (group.start_from, group.start_ms)
        wanted = await self.start(topic, places, ends, kind, since_ms)
        await self.put(topic, group.name, dict(zip(places, wanted, strict=True)))
        return wanted

    async def start(
        self, topic: KnownTopic, places: Sequence[QueuePlace], ends: Sequence[Ends], kind: str, since_ms: int
    ) -> list[int]:
        """The offsets of a StartFrom."""
        if kind == "LATEST":
            return [each.most for each in ends]
        if kind == "EARLIEST":
            return [each.least for each in ends]
        found = await self.at(topic, places, since_ms)
        return [min(max(offset, end.least), end.most) for offset, end in zip(found, ends, strict=True)]

    async def _of_each(
        self,
        topic: KnownTopic,
        places: Sequence[QueuePlace],
        ask: Callable[[int], Request],
        read: Callable[[Response], T],
        group: str = "",
    ) -> list[T]:
        found: dict[QueuePlace, T] = {}

        async def one(place: QueuePlace) -> None:
            asked = Asked(place.broker, topic.name, group)
            found[place] = await self._brokers.call(asked, ask(place.queue_id), read)

        await in_lanes(places, one)
        return [found[place] for place in places]


def position(committed: Sequence[int | None], ends: Sequence[Ends]) -> list[int] | None:
    """The next offset of each queue, none before its first message; None: no queue has a position."""
    if all(offset is None for offset in committed):
        return None
    return [max(offset or 0, end.least) for offset, end in zip(committed, ends, strict=True)]


def _offset(answer: Response) -> int:
    return answer.expect().number("offset")


def _if_any(answer: Response) -> int | None:
    return None if answer.code == ResponseCode.QUERY_NOT_FOUND else _offset(answer)
