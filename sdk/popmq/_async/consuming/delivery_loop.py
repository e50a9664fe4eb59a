"""`async for delivery in consumer`, the same for consumers that pop and consumers that pull."""

from collections.abc import AsyncGenerator, Callable
from typing import Any

from popmq._async.closing import AsyncClosing
from popmq._async.concurrency import Turn, interrupted
from popmq.message import Delivery


class AsyncDeliveryLoop(AsyncClosing):
    """Iteration over deliveries that ends by closing the consumer. Consumers add `_take` and `close`."""

    def __init__(self) -> None:
        self._turn = Turn()
        self._then: Callable[[], Any] | None = None  # to be called when it is closed

    def _interrupted(self) -> bool:
        """Whether this is a signal handler in the middle of the loop, which then has to close the consumer itself."""
        return interrupted(self._turn)

    async def _closed(self) -> None:
        then, self._then = self._then, None
        if then is not None:
            await then()

    def stop(self) -> None:
        """Ends the loop after the delivery that is being handled."""
        raise NotImplementedError

    async def _take(self) -> Delivery | None:
        """The next delivery, waiting for one; None: the consumer has stopped."""
        raise NotImplementedError

    async def __aiter__(self) -> AsyncGenerator[Delivery, None]:
        """The deliveries; leaving the loop closes the consumer."""
        try:
            while (delivery := await self._take()) is not None:
                yield delivery
        finally:
            await self.close()

    async def __anext__(self) -> Delivery:
        """The next delivery. Several threads or tasks may call it at a time."""
        delivery = await self._take()
        if delivery is None:
            await self.close()
            raise StopAsyncIteration
        return delivery
