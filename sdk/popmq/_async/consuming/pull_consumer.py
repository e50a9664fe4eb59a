"""`async for delivery in client.pull_consume(topic, group)`: reads a share of a topic's queues until it is stopped."""

import logging
from collections.abc import Sequence

from popmq._async.concurrency import Lock, Stop
from popmq._async.consuming.arrivals import Arrivals
from popmq._async.consuming.delivery_loop import AsyncDeliveryLoop
from popmq._async.consuming.parts import Parts
from popmq._async.consuming.puller import PullContext
from popmq._async.consuming.send_backs import SendBacks
from popmq._async.consuming.share import Share
from popmq._async.consuming.upkeep import Upkeep
from popmq._consuming.pull_settings import FAILED_S, PullSettings
from popmq._runtime import forks
from popmq._transport.call_retries import Stopped
from popmq.errors import TryLater
from popmq.message import Delivery
from popmq.pull import PullState

log = logging.getLogger("popmq.consumer")


class AsyncPullConsumer(AsyncDeliveryLoop):
    """Deliveries of the queues that this consumer reads; made by `AsyncClient.pull_consume` and `broadcast_consume`.

    It pulls in the background, ahead of its handlers. It outlives a broker that restarts. It ends by `stop()`, by
    leaving its loop or its `async with`: then it commits its progress and releases its queues at once.
    """

    def __init__(self, parts: Parts, options: PullSettings, share: Share) -> None:
        super().__init__()
        self._parts = parts
        self._options = options
        self._stop = Stop()
        self._born = forks.count
        self._started = False
        self._kept = False  # its upkeep is a job of the scheduler
        lock = Lock()
        self._arrivals = Arrivals(lock)
        self._send_backs = SendBacks(parts.wire, parts.clock, parts.client_id, options, self._arrivals.wake)
        self._context = PullContext(
            parts.wire,
            parts.clock,
            options,
            lock,
            self._arrivals,
            self._send_backs,
            look=parts.scheduler.wake,
            rebalance=lambda: self._upkeep.rebalance(),
        )
        self._upkeep = Upkeep(self._context, share, self._stop)

    @property
    def topic(self) -> str:
        """What it reads."""
        return self._options.topic

    @property
    def group(self) -> str:
        """For whom; "" when it broadcasts."""
        return self._options.group

    def stop(self) -> None:
        """Ends the loop after the delivery that is being handled. May be called from other threads and from signal
        handlers.
        """
        self._stop.set()

    def stopped(self) -> bool:
        """Whether it ends, or has ended."""
        return self._stop.is_set()

    def pause(self) -> None:
        """Pulls nothing and delivers nothing until `resume`. Its queues stay its own, and progress is committed."""
        self._context.paused = True

    def resume(self) -> None:
        """Goes on."""
        self._context.paused = False
        self._upkeep.wake()
        self._arrivals.wake()

    def queues(self) -> Sequence[PullState]:
        """What it holds of each queue that it has, the retry topic first."""
        return self._upkeep.states()

    async def close(self) -> None:
        """Stops, sends back what failed, commits, and releases its queues. Unsettled messages come again elsewhere.

        In a signal handler that interrupts the loop or this it only stops: what was interrupted closes the consumer.
        """
        if self._parts.wire.without_threads():
            return
        self.stop()
        if self._interrupted():
            return
        async with self._turn:  # so that a signal handler that interrupts this does not wait for it
            if self._kept:
                self._kept = False
                self._parts.scheduler.remove(self._upkeep)
            await self._upkeep.close()
            await self._send_backs.stop()
        await self._closed()

    async def _take(self) -> Delivery | None:
        if forks.without_threads(self._born):
            self._parts.wire.check()
        async with self._turn:
            if not self._started:
                await self._start()
            while not self._stop.is_set():
                delivery = self._arrivals.next(self._parts.clock.now(), self._context.paused)
                if delivery is not None:
                    return delivery
                if not await self._arrivals.wait(self._options.until_idle) and await self._read_out():
                    self._stop.set()
            return None

    async def _read_out(self) -> bool:
        """Whether nothing is left, after nothing came for `until_idle` seconds. Asks the broker too: a message that
        comes again may still be on its way.
        """
        return self._idle() and not await self._upkeep.asks_for_more() and self._idle()

    def _idle(self) -> bool:
        """Whether nothing is known to be left. What failed may come again: idle time counts from the last outcome."""
        return self._send_backs.due() is None and self._upkeep.idle() and not self._arrivals.news()

    async def _start(self) -> None:
        self._parts.wire.check_home()  # before this event loop is bound: it may be the wrong one
        self._parts.scheduler.bind()
        self._send_backs.bind()
        self._stop.watch(self._arrivals.wake)
        if not self._kept:
            self._kept = True
            self._parts.scheduler.add(self._upkeep)
        while not self._stop.is_set():
            try:
                await self._upkeep.open()
            except Stopped:
                return
            except TryLater as error:
                log.warning("topic %s cannot be read and is tried again: %s", self.topic, error)
                await self._stop.wait(FAILED_S)
            else:
                break
        self._started = True
        self._parts.scheduler.wake()
