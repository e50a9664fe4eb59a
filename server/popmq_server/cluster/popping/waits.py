"""Waiting for messages: one parked request (200054) for each broker, topic and group, however many clients wait.

    wait ─▶ in the line of each of its brokers ─▶ one of them says that there may be messages ─▶ the first in line looks
              │                                                                                    │
              └── the line's own request is parked again, as long as anybody waits ◀── `looked` ───┘

A notification takes no lease, so one that nobody needs any longer harms nobody; a parked pop could not be taken back.
It looks at no filter and no attempts: when the first in line finds nothing, the next request waits longer (20 to
500 ms). A broker that answers at once that nothing came is asked again after PAUSE_S at the earliest.
"""

import asyncio
import contextvars
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from popmq_remoting import WAITS
from popmq_remoting.requests import popping
from popmq_server.clock import pause
from popmq_server.cluster.brokers import Brokers
from popmq_server.cluster.refusals import Asked
from popmq_server.errors import Refused

#: How long one request is parked: some ways in which a message becomes ready do not wake it.
PARKED_MS, PARKED_OLD_MS = 10_000, 2_000
#: Pause after a request that was answered too soon, or refused.
PAUSE_S = 0.25
_EMPTY_FIRST_S, _EMPTY_MOST_S = 0.02, 0.5
#: Seconds that the first call in the line may take to look.
_LOOK_S = 1.0


class LineKey(NamedTuple):
    """Topic and group as brokers call them."""

    broker: str
    topic: str
    group: str
    ordered: bool


class _Line:
    """The calls that wait at one broker, in their order."""

    def __init__(self) -> None:
        self.waiting: OrderedDict[asyncio.Future[LineKey | None], None] = OrderedDict()
        self.task: asyncio.Task[None] | None = None
        self.looked = asyncio.Event()
        #: The pause before the next request, because calls that looked found nothing; 0: they found messages.
        self.pause_s = 0.0


class Waits:
    """Calls that wait for messages."""

    def __init__(self, brokers: Brokers, parked_ms: int = PARKED_MS) -> None:
        self._brokers = brokers
        self._parked_ms = parked_ms
        self._loop = asyncio.get_running_loop()
        self._lines: dict[LineKey, _Line] = {}
        self._closed = False

    @property
    def is_closed(self) -> bool:
        """Whether the process stops."""
        return self._closed

    def of(self, topic: str, group: str) -> int:
        """Calls of a group that wait for messages of a topic."""
        lines = (line for key, line in self._lines.items() if (key.topic, key.group) == (topic, group))
        return len({waiter for line in lines for waiter in line.waiting})

    @property
    def count(self) -> int:
        """Calls that wait."""
        return len({waiter for line in self._lines.values() for waiter in line.waiting})

    @property
    def parked(self) -> int:
        """Requests that are parked at brokers."""
        return len(self._lines)

    async def wait(self, keys: Sequence[LineKey], until_s: float) -> LineKey | None:
        """The first of these brokers that may have messages; None: the time is over, or the process stops.

        Whoever gets one looks there, and says what he found (`looked`).
        """
        if self._closed:
            return None
        waiter: asyncio.Future[LineKey | None] = self._loop.create_future()
        for key in keys:
            line = self._lines.setdefault(key, _Line())
            line.waiting[waiter] = None
            if line.task is None:
                # Without the deadline of the call that begins it: it serves all calls that wait.
                line.task = self._loop.create_task(self._serve(key, line), context=contextvars.Context())
        try:
            async with asyncio.timeout_at(until_s):
                return await waiter
        except TimeoutError:
            return waiter.result() if waiter.done() and not waiter.cancelled() else None  # told in the same turn
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled() and (told := waiter.result()) is not None:
                self.looked(told, found=1)  # nobody looks there now
            raise
        finally:
            for line in filter(None, map(self._lines.get, keys)):
                line.waiting.pop(waiter, None)

    def looked(self, key: LineKey, found: int, rest: int = 0) -> None:
        """The call that was told of `key` says that it has looked. `rest`: messages left; as many other calls look."""
        line = self._lines.get(key)
        if line is None:
            return
        line.pause_s = 0.0 if found else min(max(line.pause_s * 2, _EMPTY_FIRST_S), _EMPTY_MOST_S)
        for _ in range(rest):
            if not self._tell(key, line):
                break
        line.looked.set()

    def _tell(self, key: LineKey, line: _Line) -> bool:
        """Tells the first call in the line."""
        while line.waiting:
            waiter, _ = line.waiting.popitem(last=False)
            if not waiter.done():
                waiter.set_result(key)
                return True
        return False

    async def _serve(self, key: LineKey, line: _Line) -> None:
        """Parks requests while anybody waits."""
        try:
            while line.waiting:
                began_s = self._loop.time()
                found = await self._parked(key)
                if found:
                    line.looked.clear()
                    if self._tell(key, line):
                        await self._looked(line)
                    await pause(line.pause_s)
                else:
                    await pause(max(0.0, began_s + PAUSE_S - self._loop.time()))
        finally:
            if self._lines.get(key) is line:
                del self._lines[key]

    async def _looked(self, line: _Line) -> None:
        try:
            async with asyncio.timeout(_LOOK_S):
                await line.looked.wait()
        except TimeoutError:
            pass

    async def _parked(self, key: LineKey) -> bool:
        """Whether there may be messages. A broker that cannot be asked has none."""
        request = popping.notification(
            key.topic, key.group, self._parked_ms, self._brokers.now_ms(key.broker), ordered=key.ordered
        )
        asked = Asked(key.broker)
        try:
            return await self._brokers.call(
                asked, request, popping.has_messages, wait_ms=self._parked_ms, purpose=WAITS
            )
        except Refused:
            return False

    def close(self) -> None:
        """Answers all that wait: the process stops."""
        self._closed = True
        for line in list(self._lines.values()):
            for waiter in line.waiting:
                if not waiter.done():
                    waiter.set_result(None)
            if line.task is not None:
                line.task.cancel()
