"""Browse: a page of a queue, of dead letters or of a retry topic (11), as a reader without a group.

The dead letters of a group are in one queue for each broker, which the layout numbers as any topic's.
"""

from dataclasses import replace

from popmq_server.cluster.catalog.topics import KnownTopic
from popmq_server.cluster.layout import QueuePlace
from popmq_server.cluster.pulling.reading import Reader, Reading
from popmq_server.cluster.pulling.retry_topics import RetryTopics
from popmq_server.cluster.shared import Shared
from popmq_server.contract.commands import queries
from popmq_server.contract.commands.numbers import Page
from popmq_server.errors import no_queue
from popmq_server.values.message import RETRY_PREFIX


class Pages:
    """Reads pages of a queue for people."""

    def __init__(self, shared: Shared, retries: RetryTopics) -> None:
        self._topics, self._layouts = shared.topics, shared.layouts
        self._retries, self._reader = retries, Reader(shared.brokers)

    async def browse(self, query: queries.Browse) -> Page:
        """From the offset on, or from the first message after it. Raises Refused."""
        first, attempts = 0, False
        place: QueuePlace | None
        if query.topic.startswith(RETRY_PREFIX):
            retry = await self._retries.named(query.topic)
            topic, place, attempts = retry.itself, await self._retries.place(retry), True
            if query.queue or place is None:
                return Page([], query.offset, 0, 0)
            first, _ = await self._retries.begins(retry, place)
        else:
            topic = await self._topics.get(query.topic)
            place = await self._place(topic, query.queue)
        reading = Reading(
            topic,
            place,
            "",
            query.queue,
            max(query.offset, first),
            query.messages_max,
            query.bytes_max,
            attempts=attempts,
            redriven=True,
        )
        read = await self._reader.read(reading)
        if read.status == "OFFSET_TOO_SMALL":
            reading = replace(reading, offset=read.least)
            read = await self._reader.read(reading)
        at = read.next_offset if read.rows or read.more else max(reading.offset, read.least)
        return Page(read.rows, at, max(first, read.least), read.most, full=read.full)

    async def _place(self, topic: KnownTopic, queue: int) -> QueuePlace:
        places = (await self._layouts.of(topic)).places
        if queue >= len(places):
            raise no_queue(topic.name, len(places), queue, "queue")
        return places[queue]


BY_PAGES = queries.Browse.awaited_by(Pages.browse)
