"""Reads of one queue from an offset on, by any number of pulls (11): brokers give 32 messages at a time, 8 from disk.

    a pull ─▶ messages in their order ─▶ compared with the filter again, as brokers compare hashes of tags
                                         without those that were redriven for another group
                                         until there are enough, or the queue ends
      └─▶ without a filter, the pulls that follow are asked for meanwhile

The numbers of the queue tell what an answer without messages means; brokers of different releases say it in different
ways.
"""

import asyncio
from dataclasses import dataclass, field, replace

from popmq_remoting import CALLS, ResponseCode
from popmq_remoting.messages import properties
from popmq_remoting.messages.stored import StoredMessage
from popmq_remoting.requests import pulling
from popmq_remoting.requests.pulling import BrokerPull, PulledQueue
from popmq_server.cluster import names
from popmq_server.cluster.brokers import Brokers
from popmq_server.cluster.catalog.topics import KnownTopic
from popmq_server.cluster.layout import QueuePlace
from popmq_server.cluster.messages import own
from popmq_server.cluster.messages.from_broker import message_bytes
from popmq_server.cluster.refusals import Asked
from popmq_server.contract.commands import ReadRow
from popmq_server.errors import unavailable
from popmq_server.values.filters import filter as filters
from popmq_server.values.filters.filter import Filter

#: Messages of one pull, as many as a broker gives at most unless its operator says otherwise.
PULL_MESSAGES = 1024
#: Pulls that are under way while an answer is looked at.
PULLS_AHEAD = 4
#: Bytes of a pull for the gateway itself.
SOME_BYTES = 4 << 20
#: Pulls without a message that matches, after which the answer says how far it came.
PULLS_MAX = 64
_PASSED_OVER = frozenset(("NO_MATCHED_MESSAGE", "MESSAGE_WAS_REMOVING", "OFFSET_FOUND_NULL"))


@dataclass(frozen=True)
class Reading:
    """What to read. `group`: as PopMQ calls it; "" = a reader without one. `number`: of the queue, in the rows.

    `end_offset` 0: no bound. `body` False: without bodies. `attempts`: rows have them; else 0.
    """

    topic: KnownTopic
    place: QueuePlace
    group: str
    number: int
    offset: int
    messages_max: int
    bytes_max: int
    filter: Filter = filters.EVERYTHING
    end_offset: int = 0
    body: bool = True
    attempts: bool = True
    #: Messages that were redriven for another group are shown too.
    redriven: bool = False


@dataclass
class Read:
    """What was found. `status`: of popmq.v1.PullStatus. `next_offset`: after all that was looked at."""

    status: str
    next_offset: int
    least: int
    most: int
    rows: list[ReadRow] = field(default_factory=list)
    full: bool = False
    passed_over: int = 0

    @property
    def more(self) -> bool:
        """Whether the queue has messages after it."""
        return self.next_offset < self.most


class Reader:
    """Reads queues from an offset on."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers

    async def read(self, asked: Reading, first: PulledQueue | None = None) -> Read:
        """Raises Refused. `first`: the answer of a pull that waited."""
        ahead = _Ahead(self, asked)
        try:
            return await self._read(asked, ahead, first)
        finally:
            ahead.close()

    async def _read(self, asked: Reading, ahead: "_Ahead", first: PulledQueue | None) -> Read:
        found, passed, bytes_left = Read("", asked.offset, 0, 0), "", asked.bytes_max
        for _ in range(PULLS_MAX):
            pulled = first or await ahead.pulled(found.next_offset, asked.messages_max - len(found.rows))
            first = None
            found.least, found.most = pulled.min_offset, pulled.max_offset
            ahead.ask(pulled, asked.messages_max - len(found.rows), bytes_left)
            if pulled.messages:
                looked_at = found.next_offset
                bytes_left = _take(asked, found, pulled, bytes_left)
                passed = "NO_MATCHED_MESSAGE" if found.next_offset > looked_at else passed
            elif (outside := _outside(found.next_offset, pulled)) is not None:
                if not (found.rows or passed):
                    found.status, found.next_offset = outside
                break
            elif pulled.code != ResponseCode.PULL_OFFSET_MOVED:  # else the operator's reset of the group, told once
                passed = pulled.status if pulled.status in _PASSED_OVER else "OFFSET_FOUND_NULL"
                found.next_offset = max(found.next_offset, min(pulled.next_offset, pulled.max_offset))
            if found.full or not found.more or 0 < asked.end_offset <= found.next_offset:
                break
        if asked.end_offset:
            found.next_offset = min(found.next_offset, max(asked.end_offset, asked.offset))
        found.status = "FOUND" if found.rows else found.status or passed or "OFFSET_FOUND_NULL"
        return found

    async def pull(self, asked: Reading, wait_ms: int = 0, purpose: str = CALLS) -> PulledQueue:
        """One pull. `wait_ms`: how long the broker may park it. Raises Refused."""
        kind = {"tag": "TAG", "sql92": "SQL92"}.get(asked.filter.kind)
        request = pulling.pull(
            BrokerPull(
                asked.topic.broker_name,
                names.reading_group(asked.group),
                asked.place.queue_id,
                asked.offset,
                min(asked.messages_max, PULL_MESSAGES),
                wait_ms,
                asked.filter.text if kind else "*",
                kind or "TAG",
                asked.bytes_max,
            )
        )
        told = Asked(asked.place.broker, asked.topic.name, asked.group, "filter")
        calling = self._brokers.call if asked.group else self._brokers.as_reader
        return await calling(told, request, pulling.pulled, wait_ms=wait_ms, purpose=purpose)

    async def some(
        self, topic: KnownTopic, place: QueuePlace, offset: int, messages_max: int = 32
    ) -> tuple[list[StoredMessage], int]:
        """The messages of one pull, for whomever they are, and the offset behind all that it passed over.

        There may be none, and more behind: what brokers are removing. Raises Refused.
        """
        pulled = await self.pull(Reading(topic, place, "", 0, offset, messages_max, SOME_BYTES))
        if pulled.messages:
            return pulled.messages, pulled.messages[-1].queue_offset + 1
        if pulled.next_offset <= offset:
            raise unavailable(f"broker {place.broker} has no message at {offset} of {topic.name!r}: {pulled.status}")
        return [], pulled.next_offset

    async def at(self, topic: KnownTopic, place: QueuePlace, offset: int) -> StoredMessage | None:
        """The message at exactly this place; None: there is none."""
        found = (await self.pull(Reading(topic, place, "", 0, offset, 1, SOME_BYTES))).messages
        return found[0] if found and found[0].queue_offset == offset else None


class _Ahead:
    """Pulls of one read that are under way: of the places where the next ones will begin, if nothing is left out."""

    def __init__(self, reader: Reader, asked: Reading) -> None:
        self._reader, self._asked = reader, asked
        self._loop = asyncio.get_running_loop()
        self._under_way: dict[int, asyncio.Task[PulledQueue]] = {}

    async def pulled(self, offset: int, messages_max: int) -> PulledQueue:
        """The pull from here. Raises Refused."""
        task = self._under_way.pop(offset, None)
        if task is not None:
            return await task
        return await self._reader.pull(replace(self._asked, offset=offset, messages_max=messages_max))

    def ask(self, pulled: PulledQueue, room: int, bytes_left: int) -> None:
        """Asks for what follows an answer, as far as it can be needed. With a filter nobody knows where that begins."""
        count = len(pulled.messages)
        if self._asked.filter.kind or not count or pulled.next_offset != pulled.messages[0].queue_offset + count:
            return
        size = sum([len(message.body) for message in pulled.messages])
        for step in range(1, PULLS_AHEAD + 1):
            offset = pulled.next_offset + (step - 1) * count
            wanted = min(count, room - step * count)
            end_offset = min(pulled.max_offset, self._asked.end_offset or pulled.max_offset)
            if wanted <= 0 or offset >= end_offset or step * size >= bytes_left:
                return
            if offset not in self._under_way:
                asking = self._reader.pull(replace(self._asked, offset=offset, messages_max=wanted))
                task = self._under_way[offset] = self._loop.create_task(asking)
                task.add_done_callback(_looked_at)

    def close(self) -> None:
        """Nobody needs the rest."""
        for task in self._under_way.values():
            task.cancel()


def _looked_at(task: "asyncio.Task[PulledQueue]") -> None:
    """Nobody may have needed it."""
    if not task.cancelled():
        task.exception()


def _take(asked: Reading, found: Read, pulled: PulledQueue, bytes_left: int) -> int:
    """Adds the messages of a pull while they fit, the first one always; returns what is left of the bytes."""
    for message in pulled.messages:
        if 0 < asked.end_offset <= message.queue_offset:
            found.next_offset = message.queue_offset
            return bytes_left
        row = _row(asked, message)
        if row is not None and found.rows and len(row[0]) > bytes_left:
            found.full = True
            return bytes_left
        found.next_offset = message.queue_offset + 1
        if row is not None:
            found.rows.append(row)
            bytes_left -= len(row[0])
        elif not asked.filter.kind:
            found.passed_over += 1
    found.next_offset = max(found.next_offset, min(pulled.next_offset, pulled.max_offset))
    found.full = len(found.rows) >= asked.messages_max or bytes_left <= 0
    return bytes_left


def _outside(offset: int, pulled: PulledQueue) -> tuple[str, int] | None:
    """(status, next offset) where there is nothing to read at this offset."""
    least, most = pulled.min_offset, pulled.max_offset
    if most <= 0:
        return "NO_MESSAGE_IN_QUEUE", 0
    if offset < least:
        return "OFFSET_TOO_SMALL", least
    if offset == most:
        return "OFFSET_OVERFLOW_ONE", most
    return ("OFFSET_OVERFLOW_BADLY", most) if offset > most else None


def _row(asked: Reading, message: StoredMessage) -> ReadRow | None:
    """None: it is not for this reader."""
    found = properties.read(message.properties)
    if message.topic.startswith(names.RETRY_TOPIC_PREFIX):  # when it came back is nothing that its producer said
        found = {name: value for name, value in found.items() if not name.startswith("TIMER_")}
    if not asked.redriven and own.is_for_another(found, asked.group):
        return None
    data = message_bytes(message if asked.body else message._replace(body=b""), found)
    if asked.filter.kind == "tag" and not asked.filter.matches(data):
        return None
    attempt = message.reconsume_times + 1 if asked.attempts else 0
    return data, message.stored_ms, asked.number, message.queue_offset, attempt
