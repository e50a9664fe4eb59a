"""Member connections: one for each member and master, since brokers know one client for a connection and group.

    join     a heartbeat (34) that names the client and its groups, and again each 30 s (popmq_remoting)
    leave    35 for the group; after the last one the connections are closed

Brokers tell all clients of a group from them, native ones too (38), and reach a client through them (307, 309).
"""

import asyncio
import contextlib
import itertools
from collections.abc import Awaitable, Callable, Iterable

from popmq_remoting import RemotingError, Request
from popmq_remoting.requests import members
from popmq_remoting.requests.members import Membership
from popmq_server.cluster.brokers import Brokers
from popmq_server.errors import Refused

#: What the purposes of connections begin with that stand for clients.
OF_CLIENTS = "member "


class _Member:
    """A client, its groups by the names that brokers have for them, and the masters that know it.

    `purpose`: of its connections, and of no other member's: those of a client that left may still be closing when it
    comes again.
    """

    def __init__(self, client: str, purpose: str) -> None:
        self.client, self.purpose = client, purpose
        self.groups: dict[str, Membership] = {}
        self.addresses: set[str] = set()

    def heartbeat(self) -> Request:
        return members.heartbeat(self.client, memberships=list(self.groups.values()))


class MemberConnections:
    """`members_max`: clients, each with a connection to every master. `kind`: what purposes begin with."""

    def __init__(self, brokers: Brokers, members_max: int, kind: str = OF_CLIENTS) -> None:
        self._brokers, self._members_max, self._kind = brokers, members_max, kind
        self._members: dict[str, _Member] = {}
        self._numbers = itertools.count(1)

    def __len__(self) -> int:
        return len(self._members)

    def check_room(self, client: str) -> None:
        """Raises Refused RATE_LIMITED for a client that is one too many."""
        if client not in self._members and len(self._members) >= self._members_max:
            raise Refused(
                "RATE_LIMITED",
                f"this gateway has {self._members_max} clients in groups that pull, or have a share number",
                field="client_id",
                action="start another gateway, or the operator raises --member-connections",
            )

    def reads(self, client: str, group: str, topic: str) -> bool:
        """Whether brokers know the client as a member that reads a topic. Group and topic: as brokers call them."""
        member = self._members.get(client)
        membership = member.groups.get(group) if member else None
        return membership is not None and any(each.topic == topic for each in membership.subscriptions)

    async def join(self, client: str, membership: Membership) -> None:
        """Each master that answers knows the client as a member when this returns. Raises Refused UNAVAILABLE."""
        member = self._members.get(client)
        if member is None:
            member = self._members[client] = _Member(client, f"{self._kind}{client} {next(self._numbers)}")
        is_new = member.groups.get(membership.group) != membership
        member.groups[membership.group] = membership
        addresses = await self._addresses()
        if self._members.get(client) is not member:
            return  # it left meanwhile
        before, member.addresses = member.addresses, addresses
        for gone in before - addresses:
            await self._brokers.cluster.close_peer(gone, member.purpose)
        await _together(self._tell, member, addresses if is_new else addresses - before)

    async def _addresses(self) -> set[str]:
        """Of all masters."""
        found = set[str]()
        for broker in await self._brokers.masters():
            with contextlib.suppress(RemotingError):
                found.add(await self._brokers.cluster.address(broker, self._brokers.until_s()))
        return found

    async def _tell(self, member: _Member, address: str) -> None:
        peer = self._brokers.cluster.peer(address, member.purpose, member.heartbeat)
        peer.keep()  # connects again by itself, so one that does not answer now knows the client later
        await peer.beat()

    async def leave(self, client: str, group: str) -> None:
        """`group`: as brokers call it. Nothing happens if the client is no member of it."""
        member = self._members.get(client)
        if member is None or member.groups.pop(group, None) is None:
            return
        if not member.groups:
            del self._members[client]
        until_s = self._brokers.until_s()
        request = members.unregister(client, consumer=group)

        async def left(member: _Member, address: str) -> None:
            try:
                await self._brokers.cluster.peer(address, member.purpose, member.heartbeat).call(request, until_s)
            finally:
                if not member.groups:
                    await self._brokers.cluster.close_peer(address, member.purpose)

        await _together(left, member, member.addresses)


async def _together(tell: Callable[[_Member, str], Awaitable[None]], member: _Member, addresses: Iterable[str]) -> None:
    """A master that does not answer is left out."""

    async def one(address: str) -> None:
        with contextlib.suppress(RemotingError):
            await tell(member, address)

    await asyncio.gather(*map(one, list(addresses)))
