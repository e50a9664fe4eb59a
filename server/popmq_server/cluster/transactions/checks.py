"""Checks: brokers ask a gateway about half messages that nobody has ended, and it asks a live producer of the topic.

    join      the topic is a producers' group of this gateway's heartbeats (34) to each master, while it has a stream
    39     ─▶ a transaction id of its own, signed ─▶ a stream of the topic, in turn ─▶ EndTransaction at any gateway
    close     after a topic's last stream the gateway leaves the group (35): a broker asks each of its members in turn

A check that finds no stream with room is dropped: its broker counts it, and asks again.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Self

from popmq_remoting import RemotingError, Request, Response
from popmq_remoting.messages import properties
from popmq_remoting.requests import members, sending
from popmq_server.cluster import names
from popmq_server.cluster.messages.from_broker import message_bytes
from popmq_server.cluster.shared import Shared
from popmq_server.cluster.signed import transactions
from popmq_server.cluster.signed.transactions import SignedHalf
from popmq_server.contract.commands import Check
from popmq_server.contract.commands.numbers import StreamNumbers
from popmq_server.errors import Refused, invalid, unavailable
from popmq_server.values.records import Topic

#: Checks queued for a slow producer; further ones go to another producer, or come later. A broker counts each try, and
#: gives up after 15.
CHECKS_QUEUED_MAX = 1_000
CHECKS_QUEUED_BYTES_MAX = 8 << 20
#: How soon a broker that comes back knows the producers here.
BEAT_S = 10.0


class CheckStream:
    """One live producer, as the contract's ProducerStream."""

    def __init__(
        self, client_id: str, topics: frozenset[str], since_ms: int, closed: "Callable[[CheckStream], None]"
    ) -> None:
        self.client_id, self.topics, self.since_ms = client_id, topics, since_ms
        self._closed = closed
        #: By topic and message id: a broker that asks again names the same message at another place.
        self._queued: dict[tuple[str, str], Check] = {}
        self._something = asyncio.Event()
        self._ended = False
        self._refused: Refused | None = None

    def offer(self, message_id: str, check: Check) -> bool:
        """Queues a check. False if the stream has ended, or has no room."""
        size = sum(len(each.data) for each in self._queued.values())
        if self._ended or len(self._queued) >= CHECKS_QUEUED_MAX or size >= CHECKS_QUEUED_BYTES_MAX:
            return False
        self._queued[check.topic, message_id] = check
        self._something.set()
        return True

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Check:
        while not self._ended and not self._queued:
            self._something.clear()
            await self._something.wait()
        if self._refused is not None:
            raise self._refused
        if self._ended:
            raise StopAsyncIteration
        return self._queued.pop(next(iter(self._queued)))

    def end(self, refused: Refused | None = None) -> None:
        """Only the first call counts."""
        if not self._ended:
            self._ended, self._refused = True, refused
            self._something.set()

    def close(self) -> None:
        """What was queued is asked again by its broker."""
        self.end()
        self._closed(self)


class Producers:
    """All streams of this gateway."""

    def __init__(self, shared: Shared) -> None:
        self._brokers, self._topics = shared.brokers, shared.topics
        self._secrets, self._background, self._now_ms = shared.secrets, shared.background, shared.now_ms
        self._loop = asyncio.get_running_loop()
        self._streams: list[CheckStream] = []
        #: By topic, as PopMQ calls it.
        self._of_topic: dict[str, deque[CheckStream]] = {}
        self._changed = asyncio.Event()
        self._beating: asyncio.Task[None] | None = None
        self._stops = False

    async def join(self, client: str, topics: tuple[str, ...]) -> CheckStream:
        """A new stream. Raises Refused."""
        for index, name in enumerate(topics):
            field = f"hello.transaction_topics[{index}]"
            _check_takes_half_messages((await self._topics.get(name, field)).settings, field)
        if self._stops:
            raise unavailable("the gateway is stopping")
        stream = CheckStream(client, frozenset(topics), self._now_ms(), self._left)
        self._streams.append(stream)
        for name in stream.topics:
            self._of_topic.setdefault(name, deque()).append(stream)
        self._changed.set()
        if self._beating is None:
            self._beating = self._loop.create_task(self._beat())
        return stream

    def _left(self, stream: CheckStream) -> None:
        if stream not in self._streams:
            return
        self._streams.remove(stream)
        for name in stream.topics:
            self._of_topic[name].remove(stream)
            if not self._of_topic[name]:
                del self._of_topic[name]
                self._background.start("leaving a group of producers", self._leave(name))

    def streams(self) -> list[StreamNumbers]:
        """The live streams, oldest first."""
        return [StreamNumbers(each.client_id, tuple(sorted(each.topics)), each.since_ms) for each in self._streams]

    # ── What brokers are told ────────────────────────────────────────────────────────────────────────────────────────

    def heartbeat(self) -> Request:
        """What this gateway says of itself to each broker."""
        groups = sorted(map(names.broker_topic, self._of_topic))
        return members.heartbeat(self._brokers.cluster.client_id, groups)

    async def _beat(self) -> None:
        """While there are streams, each master has a connection to this gateway, and knows its groups."""
        while self._streams:
            self._changed.clear()
            await self._each_master(lambda address: self._brokers.cluster.peer(address).beat())
            try:
                async with asyncio.timeout(BEAT_S):
                    await self._changed.wait()
            except TimeoutError:
                pass
        self._beating = None

    async def _leave(self, topic: str) -> None:
        request = members.unregister(self._brokers.cluster.client_id, producer=names.broker_topic(topic))
        until_s = self._brokers.until_s()
        if topic not in self._of_topic:
            await self._each_master(lambda address: self._brokers.cluster.peer(address).call(request, until_s))
        if topic in self._of_topic:  # joined again meanwhile
            self._changed.set()

    async def _each_master(self, tell: Callable[[str], Awaitable[object]]) -> None:
        """`tell`: by address. A master that does not answer is told the next time."""

        async def one(broker: str) -> None:
            with contextlib.suppress(RemotingError):
                await tell(await self._brokers.cluster.address(broker, self._brokers.until_s()))

        try:
            masters = await self._brokers.masters()
        except Refused:
            return
        await asyncio.gather(*map(one, masters))

    # ── What brokers ask ─────────────────────────────────────────────────────────────────────────────────────────────

    async def asked(self, request: Request) -> Response | None:
        """A check (39), which expects no answer. Raises BadFormat."""
        found = sending.check(request)
        topic = names.shown(found.half.topic)
        check = Check(
            transactions.write(self._secrets, SignedHalf(found.broker, found.half, from_check=True)),
            topic,
            found.number,
            message_bytes(found.message, properties.read(found.message.properties)),
        )
        streams = self._of_topic.get(topic, deque())
        for _ in range(len(streams)):
            stream = streams[0]
            streams.rotate(-1)
            if stream.offer(found.half.message_id, check):
                break
        return None

    def close(self) -> None:
        """Ends all streams: the process stops."""
        self._stops = True
        for stream in self._streams:
            stream.end(unavailable("the gateway is stopping"))
        if self._beating is not None:
            self._beating.cancel()


def _check_takes_half_messages(topic: Topic, field: str) -> None:
    if topic.type == "NORMAL" or topic.is_dead_letter:
        raise invalid(
            f"topic {topic.name!r} has type {topic.type}: it does not accept half messages",
            field=field,
            action="leave it out, or create a topic of another type, e.g. TRANSACTION",
        )
