"""Clients: members and producers that brokers know (203, 328), native ones included, and those of this gateway.

A client that pops where no queues are shared is known at its own gateway alone. Producers of another gateway are one
client there, with the topics of all of them.
"""

import asyncio
import itertools

from popmq_remoting.requests import members
from popmq_server.cluster import names
from popmq_server.cluster.brokers import LANES, whole
from popmq_server.cluster.members.sessions import Sessions
from popmq_server.cluster.refusals import Asked
from popmq_server.cluster.shared import Shared
from popmq_server.cluster.transactions.checks import Producers
from popmq_server.contract.commands import Clients
from popmq_server.contract.commands.numbers import ClientNumbers, Consumer, StreamNumbers
from popmq_server.errors import Refused


class ClientLists:
    """Lists clients."""

    def __init__(self, shared: Shared, sessions: Sessions, producers: Producers) -> None:
        self._brokers, self._groups = shared.brokers, shared.groups
        self._sessions, self._producers = sessions, producers

    async def listed(self, asked: Clients) -> ClientNumbers:
        """By group and name. Raises Refused."""
        groups = sorted(await self._groups.all())
        if asked.group:
            groups = [(await self._groups.get(asked.group)).name]
        rest = iter(group for group in groups if group >= asked.behind[0])
        found = list[Consumer]()
        while some := list(itertools.islice(rest, LANES)):
            for rows in await asyncio.gather(*map(self._of_group, some)):
                found += [row for row in rows if (row.group, row.client) > asked.behind]
            if 0 < asked.rows_max <= len(found):
                return ClientNumbers(found[: asked.rows_max], [])
        return ClientNumbers(found, [] if asked.group else [*self._producers.streams(), *await self._elsewhere()])

    async def _elsewhere(self) -> list[StreamNumbers]:
        """Producers that are not at this gateway, by name; a native one tells its group, and no topic."""
        request = members.all_producers()
        answers = await self._brokers.of_each(
            await self._brokers.masters(), lambda _: request, members.producers_by_group, Asked("")
        )
        topics, own = await self._brokers.all_topics(), self._brokers.cluster.client_id
        last_ms, named = dict[str, int](), dict[str, set[str]]()
        for answer in answers.values():
            for group, producers in ({} if isinstance(answer, Refused) else answer).items():
                for client, heard_ms in producers:
                    last_ms[client] = max(heard_ms, last_ms.get(client, 0))
                    named.setdefault(client, set()).update({names.shown(group)} if group in topics else ())
        return [StreamNumbers(each, tuple(sorted(named[each])), last_ms[each]) for each in sorted(named) if each != own]

    async def _of_group(self, group: str) -> list[Consumer]:
        """What a gateway does not know of a client is None, or empty."""
        request = members.consumers(names.broker_group(group))
        answers = await self._brokers.of_each(
            await self._brokers.masters(), lambda _: request, members.connections, Asked("", group=group)
        )
        answered = [answer for answer in answers.values() if not isinstance(answer, Refused)]
        if not answered:
            whole(answers)
        rows = {each.client_id: Consumer(each.client_id, group, (), None, None) for each in itertools.chain(*answered)}
        for client, session in self._sessions.of_group(group):
            rows[client] = Consumer(client, group, tuple(sorted(session.topics)), session.last_ms, None)
        return [rows[client] for client in sorted(rows)]


BY_CLIENTS = Clients.awaited_by(ClientLists.listed)
