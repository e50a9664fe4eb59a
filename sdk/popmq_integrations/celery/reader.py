"""Reads queues for the channels of one connection: an event loop in a thread, with a parked Pop for each topic.

thread "popmq-reader"                                          thread of the worker
Pop ─▶ lease is renewed from now on ─▶ deque, a byte into a socket ─▶ hub or drain_events ─▶ callback
◀── ack, release, reject: gathered by the client, sent in one request ◀────────────────────────┘
"""

import asyncio
import atexit
import logging
import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, TypeVar

import popmq
from popmq.errors import ClientClosed, PopMQError, TryLater

log = logging.getLogger("popmq.celery")

T = TypeVar("T")

#: Seconds that one Pop waits in the broker.
WAIT_S = 20.0
#: Messages of one Pop, and what a channel without a limit holds.
BATCH, UNLIMITED = 256, 1_000
#: Seconds between two looks for exchanges to which other programs have bound the queue of a consumer.
LOOK_S = 20.0
#: Seconds until a Pop that failed is tried again; the client itself has tried for longer.
AGAIN_S = 0.5


class Budget:
    """How many messages a channel may hold unsettled. Only the reader's thread uses it."""

    def __init__(self) -> None:
        self.limit = 0  # 0: no limit
        self.held: set[popmq.Delivery] = set()
        self._room = asyncio.Event()

    def room(self) -> int:
        """How many more; below 1: none."""
        return (self.limit or UNLIMITED) - len(self.held)

    def changed(self, limit: int | None = None) -> None:
        """What is held; or the limit, to `limit`."""
        self.limit = self.limit if limit is None else limit
        if self.room() > 0:
            self._room.set()

    async def wait(self) -> int:
        """Waits until there is room."""
        while self.room() < 1:
            self._room.clear()
            await self._room.wait()
        return self.room()


@dataclass(eq=False)
class Feed:
    """One consumer: what it reads, and what takes its messages."""

    group: str
    topics: list[str]
    budget: Budget
    deliver: Callable[[popmq.Delivery], None]
    one_by_one: bool  # `drain_events` returns after each of its messages: who waits for replies counts its calls
    tasks: list["asyncio.Task[None]"] = field(default_factory=list)
    looking: "asyncio.Task[None] | None" = None


class Reader:
    """The messages of one connection. Its methods are called from other threads than its own."""

    def __init__(self, client: Callable[[], popmq.AsyncClient], invisible: Any) -> None:
        self._make = client
        self._invisible = invisible
        self._process = os.getpid()
        self._arrived: deque[tuple[Feed, popmq.Delivery] | Exception] = deque()
        self._requeued: set[asyncio.Task[Any]] = set()  # on their way to the broker
        self._feeds: set[Feed] = set()
        self.socket, self._bell = socket.socketpair()
        self._bell.setblocking(False)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="popmq-reader", daemon=True)
        self._thread.start()
        self._client = self._run(self._open)
        atexit.register(self.close)

    async def _open(self) -> popmq.AsyncClient:
        return self._make()

    def _run(self, work: Callable[..., Coroutine[Any, Any, T]], *given: Any) -> T:
        """Does something in the reader's thread, and waits for it."""
        self._check()
        return asyncio.run_coroutine_threadsafe(work(*given), self._loop).result()

    def soon(self, work: Callable[..., object], *given: Any) -> None:
        """Does something in the reader's thread. Raises ClientClosed."""
        self._check()
        self._loop.call_soon_threadsafe(work, *given)

    def _check(self) -> None:
        if self._process != os.getpid():
            raise ClientClosed("this connection was made before a fork", action="make a new one in the child")
        if self._loop.is_closed():
            raise ClientClosed("this connection is closed, and what it held was given back", action="make a new one")

    # ── Consumers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self, feed: Feed) -> None:
        """Reads for a consumer from now on."""
        self._run(self._start, feed)

    async def _start(self, feed: Feed) -> None:
        self._feeds.add(feed)
        feed.tasks += [asyncio.create_task(self._read(feed, topic)) for topic in feed.topics[len(feed.tasks) :]]
        feed.looking = feed.looking or asyncio.create_task(self._look(feed))

    async def _look(self, feed: Feed) -> None:
        """Reads what another program has bound the queue to meanwhile, too."""
        while True:
            await asyncio.sleep(LOOK_S)
            with suppress(PopMQError):
                bound = [each.topic for each in await self._client.groups.subscriptions(feed.group)]
                feed.topics += [topic for topic in bound if topic not in feed.topics]
                await self._start(feed)

    async def _read(self, feed: Feed, topic: str) -> None:
        while True:
            room = min(await feed.budget.wait(), BATCH)
            try:
                batch = await self._client.pop(topic, feed.group, room, wait=WAIT_S, invisible=self._invisible)
            except TryLater as error:
                log.warning("topic %s cannot be read now, and is tried again: %s", topic, error)
                await asyncio.sleep(AGAIN_S)
                continue
            except Exception as error:  # the consumer's thread raises it
                self._arrive([error])
                return
            taken = batch[: max(0, feed.budget.room())]  # less, if another topic of this channel was faster
            for delivery in batch[len(taken) :]:
                give_back(delivery)
            for delivery in taken:
                feed.budget.held.add(delivery.__enter__())  # its lease is renewed from now on
            self._arrive([(feed, delivery) for delivery in taken])

    def _arrive(self, arrived: Sequence[tuple[Feed, popmq.Delivery] | Exception]) -> None:
        self._arrived.extend(arrived)
        self._ring(len(arrived))

    def _ring(self, waiting: int) -> None:
        if waiting > 0:
            with suppress(BlockingIOError):  # full of bytes that were not read yet
                self._bell.send(b"\0")

    def stop(self, feed: Feed) -> None:
        """Reads no more for a consumer, and gives back what it did not get yet."""
        self._run(self._stop, feed)
        for each in [each for each in list(self._arrived) if not isinstance(each, Exception) and each[0] is feed]:
            self._arrived.remove(each)
            self.settle(feed.budget, each[1], give_back)

    async def _stop(self, feed: Feed) -> None:
        self._feeds.discard(feed)
        ending = [task for task in (feed.looking, *feed.tasks) if task is not None]
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    # ── Messages ───────────────────────────────────────────────────────────────────────────────────────────────────

    def drain(self, timeout: float | None) -> None:
        """Hands over what has arrived; waits up to `timeout` seconds, or for ever. Raises socket.timeout."""
        until = None if timeout is None else monotonic() + timeout
        while not self._arrived:
            left = None if until is None else until - monotonic()
            if left is not None and left <= 0:
                raise TimeoutError
            self.socket.settimeout(left)
            self.socket.recv(4096)
        for _ in range(len(self._arrived)):
            if not self._arrived or not self._hand_over():  # a consumer was cancelled by the one before
                return

    def readable(self) -> None:
        """Hands over the next message, for an event loop that has seen bytes in `socket`.

        Only one: between two of them the worker's loop sends the ack of a task that has run in its process, which a
        kill would else repeat.
        """
        self.socket.setblocking(False)
        with suppress(BlockingIOError):
            self.socket.recv(4096)
        self._ring(len(self._arrived) - 1)
        if self._arrived:
            self._hand_over()

    def _hand_over(self) -> bool:
        """Gives a consumer what has arrived for it. False: not more at once. Raises what a Pop has raised."""
        arrived = self._arrived.popleft()
        if isinstance(arrived, Exception):
            raise arrived
        feed, delivery = arrived
        feed.deliver(delivery)
        return not feed.one_by_one

    def get(self, topics: list[str], group: str, budget: Budget) -> popmq.Delivery | None:
        """One message, without waiting."""
        return self._run(self._get, topics, group, budget)

    async def _get(self, topics: list[str], group: str, budget: Budget) -> popmq.Delivery | None:
        await asyncio.gather(*self._requeued, return_exceptions=True)  # they are in the queue again
        for topic in topics:
            for delivery in await self._client.pop(topic, group, 1, invisible=self._invisible):
                budget.held.add(delivery.__enter__())
                return delivery
        return None

    def settle(self, budget: Budget, delivery: popmq.Delivery, how: Callable[[popmq.Delivery], None]) -> None:
        """Ends a delivery, in the background. Raises ClientClosed."""
        self.soon(self._settle, budget, delivery, how)

    def _settle(self, budget: Budget, delivery: popmq.Delivery, how: Callable[[popmq.Delivery], None]) -> None:
        if delivery in budget.held:
            budget.held.discard(delivery)
            if how is requeue:
                self._requeued.add(task := asyncio.create_task(self._requeue(delivery)))
                task.add_done_callback(self._requeued.discard)
            else:
                how(delivery)
                delivery.__exit__(None, None, None)
            budget.changed()

    async def _requeue(self, delivery: popmq.Delivery) -> None:
        try:
            await self._client.release(delivery, 0.0)
            delivery.__exit__(None, None, None)
        except PopMQError as error:
            log.warning("message %s comes back when its lease ends: %s", delivery.message_id, error)

    def close(self) -> None:
        """Sends what is outstanding, and ends the thread. In a forked child: nothing."""
        atexit.unregister(self.close)
        if self._process != os.getpid() or self._loop.is_closed():
            return
        self._run(self._end)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self.socket.close()
        self._bell.close()

    async def _end(self) -> None:
        """At the end of a program that has not closed the connection, its consumers are still there."""
        for feed in [*self._feeds]:
            await self._stop(feed)
            for delivery in [*feed.budget.held]:
                self._settle(feed.budget, delivery, give_back)
        await self._client.close()


def requeue(delivery: popmq.Delivery) -> None:
    """A consumer wants it to be delivered again, and the attempt counts."""
    delivery.release(0.0)


def give_back(delivery: popmq.Delivery) -> None:
    """Nobody has begun with it: the next consumer gets it, and no attempt counts."""
    delivery.release(0.0, uncounted=True)
