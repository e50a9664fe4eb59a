"""Work that no caller waits for: a release of leases, a dead letter. A failure is a line in the log."""

import asyncio
import contextvars
import logging
from collections.abc import Coroutine

from popmq_server.errors import Refused

log = logging.getLogger("popmq.cluster")


class Background:
    """Work that no client waits for, so without a client's deadline."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, what: str, work: Coroutine[object, object, object]) -> None:
        """`what`: for the log, as in "… was not done"."""
        task = self._loop.create_task(self._run(what, work), context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, what: str, work: Coroutine[object, object, object]) -> None:
        try:
            await work
        except Refused as refused:
            log.warning("%s was not done: %s", what, refused.message)
        except Exception:
            log.exception("%s was not done", what)

    async def close(self, timeout_s: float) -> None:
        """Waits for what is under way."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=timeout_s)
