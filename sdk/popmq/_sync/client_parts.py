# Written by sdk/twin.py from popmq/_async/client_parts.py: change that one.
"""Lazily created parts of a client: a call that only lists topics creates none of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from popmq._calls.later import made_once
from popmq._consuming.clock import Clock
from popmq._sync.transport.wire import Wire

if TYPE_CHECKING:
    from popmq._calls.send_calls import Numbering
    from popmq._sync.background.checker import Checker
    from popmq._sync.background.replies import Replies
    from popmq._sync.background.send_gatherer import SendGatherer
    from popmq._sync.consuming.parts import Parts


class ClientParts:
    """What works beside the calls of a client."""

    client_id: str
    reply: Any  # of the client: typed there
    _wire: Wire
    _clock: Clock

    @made_once
    def _numbering(self) -> Numbering:
        from popmq._calls.send_calls import Numbering

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
        from popmq._sync.consuming.parts import parts_of

        self._wire.check()
        return parts_of(self._wire, self._clock, self.client_id, self._numbering, self.reply)

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
