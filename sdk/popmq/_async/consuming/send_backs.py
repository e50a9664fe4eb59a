"""Sends pulled messages whose handlers failed back to the broker: in the background, many in one request."""

import itertools
import logging
from collections.abc import Callable
from typing import Any, Protocol

from popmq._async.concurrency import Stop
from popmq._async.consuming.background_sender import BackgroundSender
from popmq._async.transport.wire import Wire
from popmq._calls import pull_calls
from popmq._consuming.clock import Clock
from popmq._consuming.pull_settings import FAILED_S, PullSettings
from popmq._given.fields import ENTRIES_MAX
from popmq._transport.call_retries import Stopped
from popmq.errors import MessageNotFound, PopMQError, TryLater
from popmq.message import Delivery

log = logging.getLogger("popmq.consumer")


class CachingQueue(Protocol):
    """The queue of a message, which caches it until the broker has taken it back."""

    topic_created_ms: int

    def returned(self, offset: int, delivery: Delivery | None, error: PopMQError | None) -> None:
        """The broker's answer."""


#: Its queue, its offset, the entry of the request, and the delivery if its handler still had it.
Sent = tuple[CachingQueue, int, Any, Delivery | None]


class SendBacks(BackgroundSender):
    """What one consumer sends back. Guards call `add` from any thread.

    A message that could not be sent back stays cached and its offset is not committed: it comes again, here or
    elsewhere, whatever happens to this process.
    """

    def __init__(
        self, wire: Wire, clock: Clock, client_id: str, options: PullSettings, done: Callable[[], object]
    ) -> None:
        super().__init__(f"popmq-send-back-{options.topic}", wire, clock)
        self._done = done  # called when the broker has everything, before `due` returns None
        self._client_id = client_id
        self._options = options
        self._queued: list[Sent] = []
        self._end = Stop()

    def add(self, owner: CachingQueue, offset: int, row: Any, delivery: Delivery | None) -> None:
        """Queues a message to be sent back."""
        with self._lock:
            self._begun()
            self._queued.append((owner, offset, row, delivery))
        self._worker.wake()

    async def stop(self) -> None:
        """Ends the worker, and the request that is under way."""
        self._end.set()
        await super().stop()

    async def _step(self) -> float | None:
        with self._lock:
            some = _of_one_topic(self._queued[:ENTRIES_MAX])
            self._queued = self._queued[len(some) :]
        if some and not await self._send(some):
            return FAILED_S
        with self._lock:
            if self._queued:
                return 0.0
            if not self._idle.is_set():
                self._done()
            self._emptied()
        return None

    async def _send(self, some: list[Sent]) -> bool:
        """Sends them. False: the broker cannot be reached now."""
        options = self._options
        rows = [row for _, _, row, _ in some]
        created_ms = some[0][0].topic_created_ms
        call = pull_calls.send_back(options.topic, options.group, self._client_id, rows, created_ms)
        try:
            results = await self._wire.run(call, self._end)
        except Stopped:
            return False
        except TryLater as error:
            log.warning("group %s cannot send messages back, next try in %g s: %s", options.group, FAILED_S, error)
            self._put_back(some)
            return False
        except BaseException as error:
            if not isinstance(error, PopMQError):  # its event loop has cancelled it; closing sends them
                self._put_back(some)
                raise
            results = [error] * len(some)
        for (owner, offset, _, delivery), result in zip(some, results, strict=True):
            owner.returned(offset, delivery, self._refusal(result))
        return True

    def _put_back(self, some: list[Sent]) -> None:
        with self._lock:
            self._queued = some + self._queued

    def _refusal(self, result: Any) -> PopMQError | None:
        """The error of an entry; None when it is done, also when the broker no longer has the message."""
        if not isinstance(result, PopMQError):
            return None
        log.warning("group %s cannot send a message back: %s", self._options.group, result)
        return None if isinstance(result, MessageNotFound) else result


def _of_one_topic(sent: list[Sent]) -> list[Sent]:
    """The entries at the head that are of one topic; entries of a topic created again may follow."""
    return list(itertools.takewhile(lambda one: one[0].topic_created_ms == sent[0][0].topic_created_ms, sent))
