"""Connections that fail in ways that no end of them can see at once.

The first connection of a relay is spared: it makes the topics and groups, before the load. On a busy machine that takes
longer than connections last here.
"""

from __future__ import annotations

import asyncio
import contextlib
import random

from tests.crash.cluster.parts.relay import READ_BYTES, Balancer, CuttingBalancer, Stream


class ResettingRelay(CuttingBalancer):
    """While `cutting`, each connection ends after 1 to ANSWERS_MAX bytes of answers, each number as likely."""

    ANSWERS_MAX = 60_000

    def __init__(self, port: int, chance: random.Random) -> None:
        super().__init__([port], chance)
        self.cutting, self._spare = True, 1

    async def passed(self, near: Stream, far: Stream) -> None:
        """Requests always arrive; the answer is what is cut."""
        self._spare, spared = 0, self._spare
        if spared or not self.cutting:
            await Balancer.passed(self, near, far)
            return
        left = [self._chance.randrange(1, self.ANSWERS_MAX)]
        requests = asyncio.ensure_future(self._copy(near.reader, far.writer))
        await self._cut_copy(far, near, left)
        requests.cancel()


class MuteRelay(Balancer):
    """While `cutting`, one direction of a connection carries nothing any more after some time, or both.

    Nobody is told: no end of the stream, no reset. Some seconds later the connection is dropped.
    """

    MUTE_S = 1.5

    def __init__(self, port: int, chance: random.Random) -> None:
        super().__init__([port])
        self._chance = chance
        self.cutting, self.cuts, self._spare = True, 0, 1

    async def passed(self, near: Stream, far: Stream) -> None:
        self._spare, spared = 0, self._spare
        if spared or not self.cutting:
            await super().passed(near, far)
            return
        directions = self._chance.choice([(True, False), (False, True), (True, True)])
        mute = [asyncio.Event() if muted else None for muted in directions]
        copies = asyncio.gather(
            self._carry(near.reader, far.writer, mute[0]), self._carry(far.reader, near.writer, mute[1])
        )
        ended, _ = await asyncio.wait([copies], timeout=self._chance.uniform(0.2, 2.5))
        if ended or not self.cutting:
            await copies
            return
        self.cuts += 1
        for one in mute:
            if one is not None:
                one.set()
        await asyncio.wait([copies], timeout=self.MUTE_S)
        copies.cancel()
        near.writer.transport.abort()
        far.writer.transport.abort()
        with contextlib.suppress(asyncio.CancelledError):
            await copies

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, mute: asyncio.Event | None
    ) -> None:
        """Carries bytes, and drops them once it is muted."""
        try:
            with contextlib.suppress(OSError):
                while data := await reader.read(READ_BYTES):
                    if mute is None or not mute.is_set():
                        writer.write(data)
                        await writer.drain()
        finally:
            writer.close()
