"""Session leases, as this face has them: what a push consumer holds lasts as long as the client is heard of.

    ReceiveMessage with auto_renew     Pop.session under `holder`      LEASE_MS from now on
    any call of the client             `renew`                         LEASE_MS from then on, CAP_MS after the pop
    NotifyClientTermination            `release`                       back at once

See session_lease.py.
"""

from collections.abc import Callable
from typing import Any

from popmq_server import access
from popmq_server.commands import ReleaseSession, RenewSession
from popmq_server.engine import Engine

#: So long after the last sign of life a message is another client's.
LEASE_MS = 60_000
#: A listener that takes longer than this for one message is taken to be stuck, however lively its client is.
CAP_MS = 3 * 3_600_000


def holder(client_id: str) -> str:
    """Whose leases these are. Ids can be guessed: with access keys each key has clients of its own."""
    key = access.caller()
    return f"{key.name}/{client_id}" if key else client_id


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
