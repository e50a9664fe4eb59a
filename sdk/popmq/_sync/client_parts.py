# Written by sdk/twin.py from popmq/_async/client_parts.py: change that one.
"""Lazily created parts of a client: a call that only lists topics creates none of them."""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Any, TypeVar

from popmq._consuming.clock import Clock
from popmq._runtime.later import made_once
from popmq._sync.transport.wire import Wire

if TYPE_CHECKING:
    from popmq._calls.message_rows import Numbering
    from popmq._sync.background.checker import Checker
    from popmq._sync.background.replies import Replies
    from popmq._sync.background.send_gatherer import SendGatherer
    from popmq._sync.consuming.consumer import Consumer
    from popmq._sync.consuming.delivery_loop import DeliveryLoop
    from popmq._sync.consuming.parts import Parts
    from popmq._sync.consuming.pull_consumer import PullConsumer

T = TypeVar("T")

#: Seconds that the end of a program waits for a broker that does not answer.
EXIT_S = 1.0


class ClientParts:
    """What works beside the calls of a client."""

    client_id: str
    reply: Any  # of the client: typed there
    _wire: Wire
    _clock: Clock
    _consumers: weakref.WeakSet[Consumer]
    _pull_consumers: weakref.WeakSet[PullConsumer]

    @made_once
    def _numbering(self) -> Numbering:
        from popmq._calls.message_rows import Numbering

        return Numbering()

    @made_once
    def _gatherer(self) -> SendGatherer:
        from popmq._sync.background.send_gatherer import SendGatherer

        return SendGatherer(self._wire, self._numbering)

    @made_once
    def _checker(self) -> Checker:
        from popmq._sync.background.checker import Checker

        return Checker(self._wire, self.client_id)

    @made_once
    def _replies(self) -> Replies:
        from popmq._sync.background.replies import Replies

        return Replies(self._wire, self.client_id, self._numbering)

    @made_once
    def _parts(self) -> Parts:
        self._wire.check()
        from popmq._sync.consuming.parts import parts_of

        return parts_of(self._wire, self._clock, self.client_id, self._numbering, self.reply)

    def _stop_consumers(self) -> list[DeliveryLoop]:
        """Stops all, and returns them."""
        consumers: list[DeliveryLoop] = [*alive(self._consumers), *alive(self._pull_consumers)]
        for consumer in consumers:
            consumer.stop()
        return consumers

    def _leave(self) -> None:
        """At the end of the program, for consumers whose loop was not left: closes them, and releases what their
        handlers held. The client can still be used, by what else is done at the end.
        """
        if "_parts" not in self.__dict__ or self._wire.without_threads():
            return
        self._wire.closes_within(EXIT_S)
        consumers = self._stop_consumers()
        self._parts.settler.release_held("the program ended")
        for consumer in consumers:
            consumer.close()
        self._parts.settler.flush(closing=True)

    def _stop_parts(self) -> None:
        """Tells the broker how deliveries ended, closes the connection, and ends what runs in the background.

        The connection is closed first: it ends the calls that a worker would otherwise wait for.
        """
        made = self.__dict__
        if "_replies" in made:
            self._replies.stop()
        if "_checker" in made:
            self._checker.stop()
        if "_parts" in made:
            self._parts.settler.flush(closing=True)
            self._parts.scheduler.clear()
            self._parts.heartbeats.close()
        self._wire.close()
        if "_parts" in made:
            self._parts.settler.stop()
            self._parts.scheduler.stop()


def alive(consumers: weakref.WeakSet[T]) -> list[T]:
    """Those that are there, also while other threads make some."""
    while True:
        with contextlib.suppress(RuntimeError):  # it has changed during this
            return list(consumers)


class Namespace:
    """Calls of one client about one subject, such as `client.topics`."""

    def __init__(self, wire: Wire, client_id: str) -> None:
        self._wire = wire
        self._client_id = client_id
