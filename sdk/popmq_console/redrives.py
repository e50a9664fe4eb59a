"""Redriving many dead letters: piece by piece beside the pages, which show how far it is.

browse a piece ──▶ select by origin and reason ──▶ redrive these offsets ──▶ count ──▶ the next piece

Only dead letters that exist at the start are redriven: a message that fails again at once becomes a new dead letter,
and would otherwise be redriven forever. A piece is one call, so the broker serves others in between. Messages that
were redriven stay so when the order ends early.
"""

import asyncio
import contextlib

import popmq
from popmq import errors

#: Dead letters that one call reads, or delivers again.
PIECE = 500


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
        self.error = ""
        self._task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        """Whether there is more to do."""
        return self._task is not None and not self._task.done()

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
        topic, offset, end = dead_letter_topic(self.group), 0, -1
        try:
            while end < 0 or offset < end:
                page = await self._client.browse(topic, 0, offset, PIECE)
                if end < 0:
                    end, self.total = page.max_offset, page.max_offset - page.min_offset
                await self._piece([one for one in page.deliveries if one.offset < end])
                if page.next_offset <= offset:
                    break
                offset = page.next_offset
                self.looked_at = min(offset, end) - (end - self.total)
            self.looked_at = self.total
        except errors.PopMQError as error:
            self.error = str(error)

    async def _piece(self, deliveries: list[popmq.Delivery]) -> None:
        offsets = [one.offset for one in deliveries if fits(one, self.origin, self.reason)]
        if offsets:
            done = await self._client.redrive(self.group, offsets)
            self.redriven += done.redriven
            self.failed += len(done.failures)
