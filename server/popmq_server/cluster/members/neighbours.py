"""The other gateways of the cluster: this one asks them about a client, through the brokers.

    show     this gateway is a member of GATEWAYS at each master, from its first client on
    ask      38 of GATEWAYS ─▶ 307 or 309 to each other member, which brokers relay with all its fields ─▶ its answer

Brokers make the group by themselves, whether they make others or not, since its name is of their own kind. Where the
user of this gateway may not use it, no gateway knows of another one.
"""

import asyncio
import json
import math
import uuid
from collections.abc import Callable
from typing import TypeVar

from popmq_remoting import RemotingError, Request, Response, ResponseCode
from popmq_remoting.requests import bodies, members
from popmq_remoting.requests.members import Membership
from popmq_server.cluster.members.connections import MemberConnections
from popmq_server.cluster.names import GATEWAYS
from popmq_server.cluster.refusals import Asked
from popmq_server.cluster.shared import Shared
from popmq_server.errors import Refused

T = TypeVar("T")

#: Fields of our own: whose stack or listener is asked for, whose calls, and how many ms ago the last one was.
CLIENT, HOLDER = "popmqClient", "popmqHolder"
_HEARD = "popmqHeardMs"
#: How soon a master that is new, or back, knows this gateway.
SHOWN_S = 10.0


class Neighbours:
    """`heard_s`: seconds since a client, by the name under which it holds leases, made a call here; inf: never."""

    def __init__(self, shared: Shared, heard_s: Callable[[str], float]) -> None:
        self._brokers, self._background, self._heard_s = shared.brokers, shared.background, heard_s
        self._loop = asyncio.get_running_loop()
        self.name = f"{shared.brokers.cluster.client_id}@{uuid.uuid4().hex}"
        self._connections = MemberConnections(shared.brokers, 1, "gateway ")
        self._shown_s = float("-inf")

    def show(self) -> None:
        """Lets the other gateways find this one, soon."""
        if self._loop.time() - self._shown_s >= SHOWN_S:
            self._shown_s = self._loop.time()
            self._background.start("meeting other gateways", self._connections.join(self.name, Membership(GATEWAYS)))

    async def _gateways(self) -> dict[str, str]:
        """A broker that reaches each gateway, by the gateway's name, of this one too. Raises Refused."""
        found: dict[str, str] = {}
        request, asked = members.member_ids(GATEWAYS), Asked("", group=GATEWAYS)
        answers = await self._brokers.of_each(await self._brokers.masters(), lambda _: request, members.ids, asked)
        for broker, ids in answers.items():
            if not isinstance(ids, Refused):
                found |= dict.fromkeys(ids, broker)
        return found

    async def heard_s(self, holder: str) -> float | None:
        """Seconds since a client made a call at another gateway, inf: never; None if that cannot be known now."""
        try:
            known = await self._gateways()
        except Refused:
            return None
        if known.pop(self.name, None) is None:
            return None
        answers = await asyncio.gather(*(self._heard_at(name, known[name], holder) for name in known))
        told = [each for each in answers if each is not None]
        return min(told, default=math.inf) if len(told) == len(answers) else None

    async def _heard_at(self, name: str, broker: str, holder: str) -> float | None:
        request = members.running_info(GATEWAYS, name, with_stack=False)
        request = request._replace(fields={**request.fields, HOLDER: holder})
        try:
            return await self._brokers.tried(Asked(broker), request, _read, self._brokers.until_s())
        except (RemotingError, Refused):
            return None

    def answer(self, request: Request) -> Response:
        """The answer to another gateway's `heard_s`."""
        heard_s = self._heard_s(request.fields[HOLDER])
        said = {_HEARD: None if math.isinf(heard_s) else round(heard_s * 1000)}
        return Response(ResponseCode.SUCCESS, "", {}, json.dumps(said).encode())

    async def ask(
        self, client: str, request_to: Callable[[str], Request], read: Callable[[Response], T | None], broker: str = ""
    ) -> T | None:
        """What the gateway of a client answers; None if no other gateway has it. `request_to`: by the gateway's name.

        `broker`: that relays, or "" for any. Raises Refused if a gateway that may have the client gives no answer.
        """
        others = await self._gateways()
        others.pop(self.name, None)

        async def one(name: str) -> T | None:
            request = request_to(name)
            request = request._replace(fields={**request.fields, CLIENT: client})
            return await self._brokers.call(Asked(broker or others[name], group=GATEWAYS), request, read)

        answers = await asyncio.gather(*map(one, others), return_exceptions=True)
        for each in answers:
            if each is not None and not isinstance(each, BaseException):
                return each
        for each in answers:
            if isinstance(each, BaseException):
                raise each
        return None


def _read(answer: Response) -> float:
    """Raises BrokerRefused, BadFormat."""
    said = bodies.members(answer.expect())
    return bodies.number(said, _HEARD) / 1000 if said.get(_HEARD) is not None else math.inf
