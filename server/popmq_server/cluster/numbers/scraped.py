"""The numbers of topics and groups for a scrape, which does not wait for thousands of questions.

A scrape gets what the one before has begun to ask for; only the first one waits, FIRST_S at most.
"""

import asyncio
import contextvars
import logging

from popmq_server.cluster.numbers.counts import LISTED_S
from popmq_server.cluster.numbers.listings import Listings
from popmq_server.contract.commands import queries
from popmq_server.contract.commands.numbers import GroupNumbers, TopicNumbers
from popmq_server.errors import Refused

log = logging.getLogger("popmq.cluster")

FIRST_S = 2.0


class Scraped:
    """Reads numbers again and again, for scrapes."""

    def __init__(self, listings: Listings) -> None:
        self._listings = listings
        self._loop = asyncio.get_running_loop()
        self._topics: list[TopicNumbers] = []
        self._groups: list[GroupNumbers] = []
        self._reading: asyncio.Task[None] | None = None
        self._begun_s = -LISTED_S

    async def numbers(self) -> tuple[list[TopicNumbers], list[GroupNumbers]]:
        """The numbers of all topics and groups, some seconds old; empty until they are read."""
        first = self._reading is None
        if (self._reading is None or self._reading.done()) and self._loop.time() - self._begun_s >= LISTED_S:
            self._begun_s = self._loop.time()
            self._reading = self._loop.create_task(self._read(), context=contextvars.Context())
        if first and self._reading is not None:
            await asyncio.wait((self._reading,), timeout=FIRST_S)
        return self._topics, self._groups

    async def _read(self) -> None:
        try:
            self._topics = await self._listings.topics(queries.Topics())
            self._groups = await self._listings.groups(queries.Groups())
        except Refused as refused:
            log.warning("the numbers of topics and groups are not read: %s", refused.message)

    def close(self) -> None:
        """Ends the reading."""
        if self._reading is not None:
            self._reading.cancel()
