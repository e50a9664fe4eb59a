"""Results of tasks in a group that keeps results (docs/results.md), for frameworks that store results themselves.
docs/decisions/0061-dramatiq-and-taskiq.md says why.

    ack of a task, with its result ───────────────────────────┐ one commit
                                                              ├──▶ %RESULT%group: id → body
    result without an ack ──▶ inbox (a LITE topic) ──▶ its ack ┘
    dead letter of a task ────────────────────────────────────▶ the same: id → reason

A group keeps a result with the ack of a message. What a framework stores beside an ack (its progress, a result that
others look for before the ack) is sent to an inbox, and acked there with itself as the result. Each process has a lite
topic of its own in the inbox, so that nobody else takes what it sends, and later results of an id follow earlier ones.
"""

import asyncio
import re
import secrets
import threading
import time
from collections.abc import Sequence

import popmq
from popmq.outcome import RESULT_BYTES_MAX

#: The shortest time for which a group keeps results, in seconds.
KEEP_S_MIN = 60.0
#: Of the lease in which a result is acked in the inbox, in seconds: as short as the broker takes.
_LEASE_S = 1.0
#: How long one pop of the inbox waits: only if an earlier ack failed there is nothing before its lease ends.
_WAIT_S = 2.0
_TTL = re.compile(r"; ttl=(\d+)\Z")
_TYPE, _TICKET = "content_type", "ticket"


def result_of(body: bytes, ttl_ms: int, content_type: str = "application/octet-stream") -> popmq.Result | None:
    """A result that counts for `ttl_ms` milliseconds; None: it is larger than the 256 KiB that a group keeps."""
    if len(body) > RESULT_BYTES_MAX:
        return None
    return popmq.Result(body, content_type=f"{content_type}; ttl={ttl_ms}")


def counts(result: popmq.Result) -> bool:
    """Whether the ttl of a stored result is not over. Failed results have none: their group decides."""
    ttl = _TTL.search(result.content_type)
    return ttl is None or result.stored_ms + int(ttl[1]) > time.time() * 1000


def keep_for(client: popmq.Client, group: str, seconds: float) -> None:
    """Lets a group keep results for at least so long. Without the right `admin` it stays as it is."""
    keep = max(seconds, KEEP_S_MIN)
    try:
        if client.groups.get(group).results_keep < keep:
            client.groups.update(group, results_keep=keep)
    except popmq.errors.Denied:
        pass


async def keep_for_async(client: popmq.AsyncClient, group: str, seconds: float) -> None:
    """The same with an AsyncClient."""
    keep = max(seconds, KEEP_S_MIN)
    try:
        if (await client.groups.get(group)).results_keep < keep:
            await client.groups.update(group, results_keep=keep)
    except popmq.errors.Denied:
        pass


class _Tickets:
    """Which stores of an inbox are done: those that wait share the pops and acks of the one whose turn it is."""

    def __init__(self) -> None:
        self.lite_topic = secrets.token_hex(12)
        self._done: set[str] = set()

    def message(self, message_id: str, result: popmq.Result, ticket: str) -> popmq.Message:
        properties = {_TYPE: result.content_type, _TICKET: ticket}
        return popmq.Message(result.body, message_id=message_id, lite_topic=self.lite_topic, properties=properties)

    def results(self, batch: Sequence[popmq.Delivery]) -> list[popmq.Result]:
        return [popmq.Result(each.body, content_type=each.properties[_TYPE]) for each in batch]

    def acked(self, batch: Sequence[popmq.Delivery]) -> None:
        self._done.update(each.properties[_TICKET] for each in batch)

    def take(self, ticket: str) -> bool:
        """Whether this store is done."""
        found = ticket in self._done
        self._done.discard(ticket)
        return found


class ResultInbox:
    """Stores results of a group at once; threads may share it."""

    def __init__(self, client: popmq.Client, topic: str, group: str) -> None:
        self._client, self._topic, self._group = client, topic, group
        self._turn = threading.Lock()
        self._tickets = _Tickets()

    def store(self, message_id: str, result: popmq.Result) -> None:
        """The group keeps it when this returns. The inbox is made if it does not exist. Raises TryLater."""
        ticket = secrets.token_hex(8)
        message = self._tickets.message(message_id, result, ticket)
        try:
            self._client.send(self._topic, message)
        except popmq.errors.TopicNotFound:
            self._client.topics.create(self._topic, type="LITE")
            self._client.send(self._topic, message)
        with self._turn:
            while not self._tickets.take(ticket):
                self._tickets.acked(self._ack_some())

    def _ack_some(self) -> list[popmq.Delivery]:
        lite = [self._tickets.lite_topic]
        batch = self._client.pop(self._topic, self._group, 256, wait=_WAIT_S, invisible=_LEASE_S, lite_topics=lite)
        if batch:
            self._client.ack(batch, results=self._tickets.results(batch))
        return batch


class AsyncResultInbox:
    """The same with an AsyncClient; the tasks of its event loop may share it."""

    def __init__(self, client: popmq.AsyncClient, topic: str, group: str) -> None:
        self._client, self._topic, self._group = client, topic, group
        self._turn = asyncio.Lock()
        self._tickets = _Tickets()

    async def store(self, message_id: str, result: popmq.Result) -> None:
        """As ResultInbox.store."""
        ticket = secrets.token_hex(8)
        message = self._tickets.message(message_id, result, ticket)
        try:
            await self._client.send(self._topic, message)
        except popmq.errors.TopicNotFound:
            await self._client.topics.create(self._topic, type="LITE")
            await self._client.send(self._topic, message)
        async with self._turn:
            while not self._tickets.take(ticket):
                self._tickets.acked(await self._ack_some())

    async def _ack_some(self) -> list[popmq.Delivery]:
        lite = [self._tickets.lite_topic]
        batch = await self._client.pop(
            self._topic, self._group, 256, wait=_WAIT_S, invisible=_LEASE_S, lite_topics=lite
        )
        if batch:
            await self._client.ack(batch, results=self._tickets.results(batch))
        return batch
