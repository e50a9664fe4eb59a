"""Redriving many dead letters: piece by piece beside the pages, which show how far it is.

browse a piece ──▶ select by origin and reason ──▶ redrive these offsets ──▶ count ──▶ the next piece

Only dead letters that exist at the start are redriven: a message that fails again at once becomes a new dead letter,
and would otherwise be redriven forever. A piece is one call, so the broker serves others in between. Messages that
were redriven stay so when the order ends early. While the broker is away, an order waits and then goes on.
"""

import asyncio
import contextlib

import popmq
from popmq import errors

#: Dead letters that one call reads, or delivers again.
PIECE = 500
#: Seconds until a piece is tried again.
AGAIN_S = 2.0


def dead_letter_topic(group: str) -> str:
    """The topic that holds a group's dead letters."""
    return f"%DLQ%{group}"


def fits(delivery: popmq.Delivery, origin: str, reason: str) -> bool:
    """Whether a dead letter is one of those asked for; empty = all.

    Reasons are compared without case: they are texts of exceptions, which people type from memory.
    """
    letter = delivery.dead_letter
    if letter is None:
        return not origin and not reason
    return (not origin or letter.topic == origin) and reason.lower() in letter.reason.lower()


class Redrive:
    """One order: all dead letters of a group that are there now, of this origin and with this text in their reason."""

    def __init__(self, client: popmq.AsyncClient, group: str, origin: str, reason: str) -> None:
        self._client = client
        self.group, self.origin, self.reason = group, origin, reason
        self.redriven = self.failed = self.looked_at = self.total = 0
        self.error = ""  # why it ended early
        self.trouble = ""  # why it waits
        self._offset, self._end = 0, -1
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether there is more to do."""
        return self._task is not None and not self._task.done()

    @property
    def complete(self) -> bool:
        """Whether it has come to the end."""
        return not self.running and not self.error and self.looked_at == self.total

    def start(self) -> None:
        """Begins, in the running event loop."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Ends between two pieces; dead letters that were redriven stay redriven."""
        if self._task:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def wait(self) -> None:
        """Returns when it has ended."""
        if self._task:
            await self._task

    async def _run(self) -> None:
        """Until the end, a refusal or `stop`. While the broker is away or full, the same piece is tried again."""
        try:
            while self._end < 0 or self._offset < self._end:
                try:
                    await self._step()
                    self.trouble = ""
                except errors.TryLater as error:
                    self.trouble = error.message
                    await asyncio.sleep(AGAIN_S)
            self.looked_at = self.total
        except errors.PopMQError as error:
            self.error = str(error)

    async def _step(self) -> None:
        """The next piece. Raises PopMQError."""
        page = await self._client.messages.browse(dead_letter_topic(self.group), 0, self._offset, PIECE)
        if self._end < 0:
            self._end, self.total = page.max_offset, page.max_offset - page.min_offset
        await self._piece([one for one in page.deliveries if one.offset < self._end])
        self._offset = page.next_offset if page.next_offset > self._offset else self._end
        self.looked_at = min(self._offset, self._end) - (self._end - self.total)

    async def _piece(self, deliveries: list[popmq.Delivery]) -> None:
        offsets = [one.offset for one in deliveries if fits(one, self.origin, self.reason)]
        if offsets:
            done = await self._client.dead_letters.redrive(self.group, offsets)
            self.redriven += done.redriven
            self.failed += len(done.failures)
