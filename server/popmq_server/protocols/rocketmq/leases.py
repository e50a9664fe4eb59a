"""Session leases of push consumers: they last as long as the client makes calls.

    ReceiveMessage with auto_renew     Pop.session under `holder`      for as long as the engine says
    any call of the client             `Renewals`                      as long again from then on
    NotifyClientTermination            `release`                       visible again at once
    the answer does not arrive         `Deliveries`                    visible again at once, or after a pause

The embedded engine's rules: session_lease.py.
"""

import asyncio
import functools
from collections.abc import Hashable
from typing import NamedTuple

from popmq_server.contract.commands import Pop, ReleaseSession, RenewSession
from popmq_server.contract.engine import Commands
from popmq_server.protocols.access import access_keys

#: Minimum interval between two renewals of one client.
EVERY_MS = 15_000


def holder(client_id: str) -> str:
    """The name under which a client holds leases. Ids can be guessed, so each access key has its own clients."""
    key = access_keys.caller()
    return f"{key.name}/{client_id}" if key else client_id


class Renewals:
    """Renewals that are running. Only the answer to a heartbeat waits for them."""

    def __init__(self, engine: Commands) -> None:
        self._engine = engine
        self._running: dict[str, asyncio.Future[None]] = {}  # the last one of each holder

    def begin(self, client_id: str) -> None:
        """Starts a renewal for a client that made a call."""
        name, task = holder(client_id), asyncio.ensure_future(renew(self._engine, client_id))
        self._running[name] = task
        task.add_done_callback(functools.partial(self._ended, name))

    async def over(self, client_id: str) -> None:
        """Returns when the client's latest renewal is done, or has failed."""
        if task := self._running.get(holder(client_id)):
            await asyncio.wait((task,))

    def _ended(self, name: str, task: asyncio.Future[None]) -> None:
        if self._running.get(name) is task:
            del self._running[name]
        if not task.cancelled():
            task.exception()  # the broker is busy, or stops: the client's next call tries again


class SessionAnswer(NamedTuple):
    """An answer with messages under a session lease."""

    attempt: Hashable
    number: int


class Deliveries:
    """Deliveries that may still be lost. A client that draws a new attempt id never asks for a lost one again, and its
    other calls would renew the lease.

    A repeat of an attempt id delivers the same handles; from then on only that delivery can lose them.
    """

    def __init__(self) -> None:
        self._numbers = 0
        self._latest: dict[Hashable, int] = {}

    def begin(self, command: Pop) -> SessionAnswer:
        """Messages were popped for a client."""
        self._numbers += 1
        named = command.client_id, command.group, command.topic, command.attempt_id
        delivery = SessionAnswer(named if command.attempt_id else self._numbers, self._numbers)
        self._latest[delivery.attempt] = delivery.number
        return delivery

    def end(self, delivery: SessionAnswer) -> bool:
        """Notes that a delivery arrived or failed. Returns False if that was known, or its attempt was repeated."""
        if self._latest.get(delivery.attempt) != delivery.number:
            return False
        del self._latest[delivery.attempt]
        return True


async def renew(engine: Commands, client_id: str) -> None:
    """Renews the leases of a client."""
    await engine.execute(RenewSession(holder(client_id)))


async def release(engine: Commands, client_id: str) -> None:
    """Ends the leases of a client that has ended."""
    await engine.execute(ReleaseSession(holder(client_id)))
