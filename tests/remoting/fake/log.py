"""What a broker has stored: topics, queues, records, groups and their positions."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.remoting.writers import stored_message


@dataclass
class Record:
    """A message in a queue. `properties` is the text of all of them."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    body: bytes
    properties: str
    stored_ms: int
    born_ms: int = 0
    sys_flag: int = 0
    reconsume_times: int = 0

    def raw(self, topic: str | None = None, extra: str = "") -> bytes:
        """As it is stored; a retried one is handed out under its first topic, with its handle."""
        return stored_message(
            topic or self.topic,
            self.body,
            (self.properties + extra).encode(),
            queue_id=0 if topic else self.queue_id,
            queue_offset=self.queue_offset,
            commit_log_offset=self.commit_log_offset,
            sys_flag=self.sys_flag,
            born_ms=self.born_ms,
            stored_ms=self.stored_ms,
            store_host="127.0.0.1",
            reconsume_times=self.reconsume_times,
        )

    def property(self, name: str) -> str:
        pairs = (entry.partition("\x01") for entry in self.properties.split("\x02"))
        return next((value for key, _, value in pairs if key == name), "")


@dataclass
class Topic:
    """Its queues are numbered from 0."""

    queues: list[list[Record]]
    perm: int = 6
    attributes: dict[str, str] = field(default_factory=dict)


class Log:
    """`arrived` is set, and replaced, whenever a message was stored."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.topics: dict[str, Topic] = {}
        self.groups: dict[str, dict[str, Any]] = {}
        #: Committed offsets by group, topic and queue.
        self.offsets: dict[tuple[str, str, int], int] = {}
        #: Resets that the group has not seen: its next pop or pull of the queue takes them.
        self.resets: set[tuple[str, str, int]] = set()
        #: Where a queue begins, if its first messages were deleted.
        self.least: dict[tuple[str, int], int] = {}
        self.by_place: dict[int, Record] = {}
        self.arrived = asyncio.Event()

    def create(self, topic: str, queues: int, perm: int = 6, attributes: dict[str, str] | None = None) -> None:
        known = self.topics.setdefault(topic, Topic([]))
        known.perm = perm
        known.attributes.update(attributes or {})
        known.queues += [[] for _ in range(queues - len(known.queues))]

    def append(self, topic: str, queue_id: int, body: bytes, properties: str, **more: int) -> Record:
        """Stores a message; topics of a group are made at their first one."""
        if topic not in self.topics:
            self.create(topic, 1)
        queue = self.topics[topic].queues[queue_id]
        place = len(self.by_place) * 100
        record = Record(topic, queue_id, len(queue), place, body, properties, self.now_ms(), **more)
        queue.append(record)
        self.by_place[place] = record
        self.wake()
        return record

    def wake(self) -> None:
        """Lets parked requests look again."""
        self.arrived.set()
        self.arrived = asyncio.Event()

    async def until(self, found: Callable[[], bool], wait_ms: int) -> bool:
        """Waits until it is so, or the time is over."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + wait_ms / 1000
        while not found():
            left_s = until_s - loop.time()
            if left_s <= 0:
                return False
            try:
                await asyncio.wait_for(self.arrived.wait(), left_s)
            except TimeoutError:
                return found()
        return True

    def has(self, topic: str, queue_id: int) -> bool:
        return topic in self.topics and 0 <= queue_id < len(self.topics[topic].queues)
