"""Session leases: what push consumers of apache.rocketmq.v2 hold, which renew nothing (`auto_renew`).

A message is leased once for the consumeTimeoutMinute of its group, so that any gateway takes its ack, also after this
one died. What a client holds is remembered here only to give it back early: when the client says goodbye here, its
leases end after RELEASED_MS. After a gateway's death they end by themselves.
"""

import contextlib
from collections import OrderedDict
from collections.abc import Iterable

from popmq_remoting.requests import popping
from popmq_server.cluster import names
from popmq_server.cluster.brokers import Brokers, in_lanes, succeeded
from popmq_server.cluster.refusals import Asked
from popmq_server.cluster.shared import Shared
from popmq_server.cluster.signed.handles import SignedDelivery
from popmq_server.contract.commands import ReleaseSession, RenewSession, queries
from popmq_server.errors import Refused

#: A lease of 0 is 4 s slower at some brokers, and no faster at others.
RELEASED_MS = 1_000
#: Handles of all clients; beyond, the oldest are forgotten, and their leases end by themselves.
HELD_MAX = 200_000


class Held:
    """Handles that clients hold, by client and group."""

    def __init__(self) -> None:
        #: By handle: (client, group, message id).
        self._handles: OrderedDict[str, tuple[str, str, str]] = OrderedDict()
        self._of_client: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._handles)

    def add(self, client: str, group: str, rows: Iterable[tuple[str, str]]) -> None:
        """`rows`: (handle, message id)."""
        for handle, message_id in rows:
            self._handles[handle] = (client, group, message_id)
            self._of_client.setdefault(client, set()).add(handle)
        while len(self._handles) > HELD_MAX:
            self.remove(next(iter(self._handles)))

    def remove(self, handle: str) -> None:
        """Forgets a handle: its delivery was acked, released or rejected."""
        found = self._handles.pop(handle, None)
        if found is not None:
            handles = self._of_client[found[0]]
            handles.discard(handle)
            if not handles:
                del self._of_client[found[0]]

    def renamed(self, handle: str, new: str) -> None:
        """Replaces the handle of a delivery, after a change of its lease."""
        if (found := self._handles.get(handle)) is not None:
            self.remove(handle)
            self.add(found[0], found[1], [(new, found[2])])

    def leave(self, client: str) -> list[tuple[str, str]]:
        """(handle, group) of all that a client held."""
        handles = list(self._of_client.get(client, ()))
        found = [(handle, self._handles[handle][1]) for handle in handles]
        for handle in handles:
            self.remove(handle)
        return found

    def handle_of(self, client: str, group: str, message_id: str) -> str:
        """The handle of a message by its id; "" if it is not held here."""
        for handle in self._of_client.get(client, ()):
            if self._handles[handle][1:] == (group, message_id):
                return handle
        return ""


class SessionLeases:
    """The contract's calls about session leases, for messages that this process delivered."""

    def __init__(self, shared: Shared, held: Held) -> None:
        self._brokers, self._handles, self._held = shared.brokers, shared.handles, held

    async def renew(self, command: RenewSession) -> int:
        """Does nothing: session leases have their full length from the start."""
        return 0

    async def release(self, command: ReleaseSession) -> int:
        """Releases the messages of a client that has ended. If a broker refuses, they come again after their leases."""
        held = self._held.leave(command.client)

        async def one(each: tuple[str, str]) -> None:
            handle, group = each
            with contextlib.suppress(Refused):
                await given_back(self._brokers, self._handles.read(handle, group), group)

        await in_lanes(held, one)
        return len(held)

    async def handle_of(self, query: queries.SessionHandle) -> str:
        """The handle of a message by its id; "" if another gateway delivered it, and the client stops repeating."""
        return self._held.handle_of(query.client, query.group, query.message_id)


async def given_back(brokers: Brokers, delivery: SignedDelivery, group: str) -> None:
    """Ends a lease soon. Raises Refused."""
    request = popping.change(delivery.topic, names.broker_group(group), delivery.handle, RELEASED_MS)
    await brokers.call(Asked(delivery.handle.broker, group=group), request, succeeded)


BY_SESSION_LEASES = (
    RenewSession.awaited_by(SessionLeases.renew)
    | ReleaseSession.awaited_by(SessionLeases.release)
    | queries.SessionHandle.awaited_by(SessionLeases.handle_of)
)
