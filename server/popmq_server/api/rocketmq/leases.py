"""Session leases, as this face has them: what a push consumer holds lasts as long as the client is heard of.

    ReceiveMessage with auto_renew     Pop.session under `holder`      LEASE_MS from now on
    any call of the client             `Renewals`                      LEASE_MS from then on, CAP_MS after the pop
    NotifyClientTermination            `release`                       back at once

See session_lease.py.
"""

import asyncio
import functools
from collections.abc import Callable
from typing import Any

from popmq_server.access import access_keys
from popmq_server.commands import ReleaseSession, RenewSession
from popmq_server.engine.engine import Engine

#: So long after the last sign of life a message is another client's.
LEASE_MS = 60_000
#: A listener that takes longer than this for one message is taken to be stuck, however lively its client is.
CAP_MS = 3 * 3_600_000
#: A client is renewed once in this time at most, however much it says.
EVERY_MS = 15_000


def holder(client_id: str) -> str:
    """Whose leases these are. Ids can be guessed: with access keys each key has clients of its own."""
    key = access_keys.caller()
    return f"{key.name}/{client_id}" if key else client_id


class Renewals:
    """Renewals on their way: a call does not wait for the one that it began, but for a heartbeat's answer."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._running: dict[str, asyncio.Future[None]] = {}  # the last one of each holder

    def begin(self, client_id: str) -> None:
        """The client was heard of."""
        name, task = holder(client_id), asyncio.ensure_future(renew(self._engine, client_id))
        self._running[name] = task
        task.add_done_callback(functools.partial(self._ended, name))

    async def over(self, client_id: str) -> None:
        """Returns when what the client began is done, or has failed."""
        if task := self._running.get(holder(client_id)):
            await asyncio.wait((task,))

    def _ended(self, name: str, task: asyncio.Future[None]) -> None:
        if self._running.get(name) is task:
            del self._running[name]
        if not task.cancelled():
            task.exception()  # the broker is busy, or stops: the next sign of life tries again


async def renew(engine: Engine, client_id: str) -> None:
    """The client was heard of."""
    name = holder(client_id)
    await _all(engine, lambda after: RenewSession(name, LEASE_MS, CAP_MS, after))


async def release(engine: Engine, client_id: str) -> None:
    """The client has ended."""
    name = holder(client_id)
    await _all(engine, lambda after: ReleaseSession(name, after))


async def _all(engine: Engine, piece: Callable[[int], Any]) -> None:
    """Piece by piece, behind what others ask meanwhile."""
    _, after = await engine.execute(piece(0))
    while after:
        _, after = await engine.execute(piece(after))
