"""Asks the database of an outbox, on a connection of its own: opened when it is needed, and again after an error."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from popmq._async.concurrency import Mutex, finished
from popmq._async.outbox.connections import Reached, connect
from popmq._outbox import verdicts
from popmq._outbox.verdicts import Kind, Steps, Verdict
from popmq.errors import ClientClosed

T = TypeVar("T")


class Asking:
    """Questions of the checker and of what ends messages: one at a time."""

    def __init__(self, database: Any) -> None:
        self._database = database
        self._mutex = Mutex()
        self._reached: Reached | None = None
        self._prepared = self._closed = False

    async def prepare(self) -> None:
        """Connects, and makes what boxes need. Raises ClientClosed; what the library raises."""
        if self._closed or not self._prepared:
            await self._run(lambda kind: kind.prepare())
            self._prepared = True

    async def ended(self, places: Sequence[str]) -> list[Verdict]:
        """How the transactions of these places ended. Raises ClientClosed; what the library raises."""
        return await self._run(lambda kind: verdicts.ended(kind, places))

    async def delete(self, places: Sequence[str]) -> None:
        """Deletes the markers of messages that have ended."""
        await self._run(lambda kind: kind.delete(places))

    async def close(self) -> None:
        """Closes the connection, for good: the client may still be asked by the broker."""
        async with self._mutex:
            self._closed = True
            await self._close()

    async def _run(self, steps: Callable[[Kind], Steps[T]]) -> T:
        async with self._mutex:
            if self._closed:
                raise ClientClosed("this outbox was closed")
            if self._reached is None:
                self._reached = await connect(self._database)
            try:
                return await self._reached.run(steps(self._reached.kind))
            except BaseException:
                await self._close()
                raise

    async def _close(self) -> None:
        reached, self._reached = self._reached, None
        if reached is not None:
            with contextlib.suppress(Exception):  # of a library, about a connection that is broken anyway
                await finished(reached.close())
