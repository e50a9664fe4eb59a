# Written by sdk/twin.py from popmq/_async/consuming/delivery_loop.py: change that one.
"""`for delivery in consumer`, the same for consumers that pop and consumers that pull."""

from collections.abc import Callable, Generator
from typing import Any

from popmq._sync.closing import Closing
from popmq._sync.concurrency import Turn, interrupted
from popmq.message import Delivery


class DeliveryLoop(Closing):
    """Iteration over deliveries that ends by closing the consumer. Consumers add `_take` and `close`."""

    def __init__(self) -> None:
        self._turn = Turn()
        self._then: Callable[[], Any] | None = None  # to be called when it is closed

    def _interrupted(self) -> bool:
        """Whether this is a signal handler in the middle of the loop, which then has to close the consumer itself."""
        return interrupted(self._turn)

    def _closed(self) -> None:
        then, self._then = self._then, None
        if then is not None:
            then()

    def stop(self) -> None:
        """Ends the loop after the delivery that is being handled."""
        raise NotImplementedError

    def _take(self) -> Delivery | None:
        """The next delivery, waiting for one; None: the consumer has stopped."""
        raise NotImplementedError

    def __iter__(self) -> Generator[Delivery, None, None]:
        """The deliveries; leaving the loop closes the consumer."""
        try:
            while (delivery := self._take()) is not None:
                yield delivery
        finally:
            self.close()

    def __next__(self) -> Delivery:
        """The next delivery. Several threads or tasks may call it at a time."""
        delivery = self._take()
        if delivery is None:
            self.close()
            raise StopIteration
        return delivery
