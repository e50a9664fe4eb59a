"""What operators ask of a client that is connected to another gateway, or is a native one: brokers relay it.

    ask ─▶ 307, or 309 to the broker that has the message ─▶ each other gateway (neighbours.py) ─▶ there `stack`,
           `consume` ─▶ the client ─▶ its answer, the whole way back
        ─▶ if no gateway has the client: the same to a native client, by a group that has it as a member

The broker waits 10 s for a gateway, which waits 5 s for the client.
"""

import json
from typing import Any

from popmq_remoting import Request, Response, ResponseCode
from popmq_remoting.errors import BadFormat
from popmq_remoting.messages import properties, stored
from popmq_remoting.requests import bodies, members
from popmq_server.cluster import names
from popmq_server.cluster.brokers import in_lanes
from popmq_server.cluster.layout import QueuePlace
from popmq_server.cluster.members.members import Members
from popmq_server.cluster.members.neighbours import CLIENT, HOLDER, Neighbours
from popmq_server.cluster.messages.from_broker import message_bytes
from popmq_server.cluster.names import GATEWAYS
from popmq_server.cluster.pulling.reading import Reader, Reading
from popmq_server.cluster.refusals import Asked
from popmq_server.cluster.shared import Shared
from popmq_server.contract.commands import AskClient
from popmq_server.contract.commands.sessions import AsksClient, ClientAnswer, ShownMessage
from popmq_server.errors import Refused, client_not_found, message_not_there

#: Our member of the answers: native clients have none, and read none.
_CODE = "popmqCode"
_DONE = "CR_SUCCESS"


class Relays:
    """Asks clients of other gateways through the brokers."""

    def __init__(self, shared: Shared, members: Members, neighbours: Neighbours) -> None:
        self._brokers, self._topics, self._groups = shared.brokers, shared.topics, shared.groups
        self._layouts, self._members, self._neighbours = shared.layouts, members, neighbours
        self._reader = Reader(shared.brokers)

    async def ask(self, query: AskClient) -> ClientAnswer:
        """Raises Refused CLIENT_NOT_FOUND, MESSAGE_NOT_FOUND, UNAVAILABLE."""
        if query.topic:
            return await self._verified(query)

        def request_to(gateway: str) -> Request:
            return members.running_info(GATEWAYS, gateway, with_stack=True)

        if (answer := await self._neighbours.ask(query.client, request_to, _stack)) is not None:
            return answer
        group = await self._group_of(query.client)
        request = members.running_info(names.broker_group(group), query.client, with_stack=True)
        for broker in await self._brokers.masters():
            found = await self._brokers.call(Asked(broker, group=group), request, _stack)
            if found is not None:
                return found
        raise client_not_found(query.client)

    async def _group_of(self, client: str) -> str:
        """A group that has the client as a member."""
        found = list[str]()

        async def look(group: str) -> None:
            if not found and client in await self._members.ids(group):
                found.append(group)

        await in_lanes(sorted(await self._groups.all()), look)
        if not found:
            raise client_not_found(client)
        return found[0]

    async def _verified(self, query: AskClient) -> ClientAnswer:
        topic = await self._topics.get(query.topic)
        place: QueuePlace = (await self._layouts.of(topic)).place(topic.name, query.queue)
        asked = Reading(topic, place, "", query.queue, query.offset, 1, 1)
        pulled = await self._reader.pull(asked)
        offset_ids = [each.offset_id for each in pulled.messages if each.queue_offset == query.offset]
        if not offset_ids:
            raise message_not_there(topic.name, query.queue, query.offset)

        def request_to(client: str, group: str = GATEWAYS) -> Request:
            return members.consume_directly(group, client, topic.broker_name, offset_ids[0], place.broker)

        answer = await self._neighbours.ask(query.client, request_to, _consumed, place.broker)
        if answer is not None:
            return answer
        group = await self._group_of(query.client)
        request = request_to(query.client, names.broker_group(group))
        answer = await self._brokers.call(Asked(place.broker, topic.name, group), request, _consumed)
        if answer is None:
            raise client_not_found(query.client)
        return answer

    # ── What brokers ask of clients that are connected here ──────────────────────────────────────────────────────────

    async def stack(self, request: Request) -> Response:
        """307."""
        if HOLDER in request.fields:
            return self._neighbours.answer(request)
        answer = await self._answer(request, None)
        if isinstance(answer, Response):
            return answer
        said: dict[str, Any] = {"properties": {}, "subscriptionSet": [], "mqTable": {}, "statusTable": {}}
        return _ok(said | {"jstack": answer.text, _CODE: answer.code})

    async def consume(self, request: Request) -> Response:
        """309, with the message. Raises BadFormat."""
        (message,) = stored.read_all(request.body)
        topic = await self._topics.get(names.shown(message.topic))
        broker = request.fields.get("brokerName", "")
        queue = await self._layouts.number(topic, broker, message.queue_id)
        data = message_bytes(message, properties.read(message.properties))
        shown = ShownMessage(topic.name, data, message.stored_ms, queue, message.queue_offset)
        answer = await self._answer(request, shown)
        if isinstance(answer, Response):
            return answer
        result = _DONE if answer.code == "OK" else "CR_LATER"
        said = {"order": False, "autoCommit": True, "consumeResult": result, "spentTimeMills": 0}
        return _ok(said | {"remark": answer.text, _CODE: answer.code})

    async def _answer(self, request: Request, shown: ShownMessage | None) -> ClientAnswer | Response:
        """What the client says, or why nothing."""
        group, client = names.shown(request.fields.get("consumerGroup", "")), request.fields.get("clientId", "")
        asks: AsksClient | None
        if group == GATEWAYS:
            client = request.fields.get(CLIENT, "")
            asks = self._members.sessions.asks(client)
        else:
            session = self._members.sessions.get((group, client))
            asks = session.asks if session is not None else None
        if asks is None:
            return Response(ResponseCode.CONSUMER_NOT_ONLINE, f"client {client} cannot be asked")
        try:
            return await asks(shown)
        except Refused as refused:
            return Response(ResponseCode.SYSTEM_ERROR, refused.message)


def _ok(said: dict[str, Any]) -> Response:
    return Response(ResponseCode.SUCCESS, "", {}, json.dumps(said).encode())


def _said(answer: Response) -> dict[str, Any] | None:
    """None: the broker knows no such client, or its gateway cannot ask it. Raises BrokerRefused, BadFormat."""
    absent = answer.code == ResponseCode.SYSTEM_ERROR and "not online" in answer.remark
    if absent or answer.code == ResponseCode.CONSUMER_NOT_ONLINE:
        return None
    return bodies.members(answer.expect())


def _stack(answer: Response) -> ClientAnswer | None:
    said = _said(answer)
    return None if said is None else ClientAnswer(_text(said, _CODE) or "OK", _text(said, "jstack"))


def _consumed(answer: Response) -> ClientAnswer | None:
    said = _said(answer)
    if said is None:
        return None
    result = _text(said, "consumeResult")
    return ClientAnswer(_text(said, _CODE) or ("OK" if result == _DONE else result), _text(said, "remark"))


def _text(said: dict[str, Any], name: str) -> str:
    value = said.get(name)
    if value is not None and not isinstance(value, str):
        raise BadFormat(f"{name} of a client's answer is no text")
    return value or ""


BY_RELAYS = AskClient.awaited_by(Relays.ask)
