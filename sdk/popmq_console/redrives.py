"""Redriving many dead letters: piece by piece beside the pages, which show how far it is.

browse a piece ──▶ select by origin and reason ──▶ redrive these offsets ──▶ count ──▶ the next piece

Only dead letters that exist at the start are redriven: a message that fails again at once becomes a new dead letter,
and would otherwise be redriven forever. A piece is one call, so the broker serves others in between. Messages that
were redriven stay so when the order ends early. While the broker is away, an order waits and then goes on.
"""

import asyncio
import contextlib
from collections.abc import Sequence

import popmq
from popmq import errors

#: Dead letters that one call reads, or delivers again.
PIECE = 500
#: Seconds until a piece is tried again, and that a call for all of them may take.
AGAIN_S, ALL_S = 2.0, 60.0


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


async def queues_of(client: popmq.AsyncClient, group: str, is_cluster: bool) -> list[int]:
    """The queues that hold dead letters of a group: a cluster has some on each broker, other engines have one.

    Raises TopicNotFound where a group of a cluster has none yet.
    """
    if not is_cluster:
        return [0]
    return [one.queue for one in await client.offsets.query(dead_letter_topic(group))]


async def redriven(
    client: popmq.AsyncClient, group: str, letters: Sequence[popmq.Delivery], is_cluster: bool
) -> popmq.Redriven:
    """Delivers these again: by offsets, or by ids where several queues have offsets of their own."""
    if is_cluster:
        return await client.dead_letters.redrive(group, message_ids=[one.message_id for one in letters])
    return await client.dead_letters.redrive(group, [one.offset for one in letters])


class Redrive:
    """One order: all dead letters of a group that are there now, of this origin and with this text in their reason."""

    def __init__(
        self, client: popmq.AsyncClient, group: str, origin: str, reason: str, is_cluster: bool = False
    ) -> None:
        self._client, self._is_cluster = client, is_cluster
        self.group, self.origin, self.reason = group, origin, reason
        self.redriven = self.failed = self.looked_at = self.total = 0
        self.error = ""  # why it ended early
        self.trouble = ""  # why it waits
        #: By queue: where its next piece begins, and its end when the order was given.
        self._left: dict[int, tuple[int, int]] | None = None
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
            while self._left is None or self._left:
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
        if self._left is None:
            left = await self._begin()
            if self._is_cluster and not (self.origin or self.reason):
                left = await self._all()
            self._left = left
            return
        queue, (offset, end) = next(iter(self._left.items()))
        page = await self._client.messages.browse(dead_letter_topic(self.group), queue, offset, PIECE)
        await self._piece([one for one in page.deliveries if one.offset < end])
        following = min(page.next_offset, end) if page.next_offset > offset else end
        self.looked_at += following - offset
        self._left[queue] = following, end
        if following == end:
            del self._left[queue]

    async def _begin(self) -> dict[int, tuple[int, int]]:
        """Both ends of each queue that has some."""
        found: dict[int, tuple[int, int]] = {}
        for queue in await queues_of(self._client, self.group, self._is_cluster):
            page = await self._client.messages.browse(dead_letter_topic(self.group), queue, 0, 1)
            if page.min_offset < page.max_offset:
                found[queue] = page.min_offset, page.max_offset
        self.total = sum(end - begin for begin, end in found.values())
        return found

    async def _all(self) -> dict[int, tuple[int, int]]:
        """Brokers of a cluster keep dead letters that were redriven: only the gateway knows where it was last time."""
        done = await self._client.dead_letters.redrive(self.group, timeout=ALL_S)
        self.redriven, self.failed = done.redriven, len(done.failures)
        return {}

    async def _piece(self, deliveries: list[popmq.Delivery]) -> None:
        fitting = [one for one in deliveries if fits(one, self.origin, self.reason)]
        if fitting:
            done = await redriven(self._client, self.group, fitting, self._is_cluster)
            self.redriven += done.redriven
            self.failed += len(done.failures)
