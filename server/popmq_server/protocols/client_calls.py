"""popmq.v1: an operator's requests to official RocketMQ 5 clients, sent over the clients' Telemetry streams.

GetClientStack    the stacks of the client's threads
VerifyMessage     whether a push consumer can handle a message: its listener gets the message once, out of turn
"""

from google.protobuf.message import Message

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract.commands import AskClient, queries
from popmq_server.contract.commands.sessions import ClientAnswer, ShownMessage
from popmq_server.contract.engine import Commands
from popmq_server.contract.rights import Need
from popmq_server.errors import Refused, message_not_there
from popmq_server.protocols import validation
from popmq_server.protocols.access import access_keys
from popmq_server.protocols.native import requests
from popmq_server.protocols.native.requests import read
from popmq_server.protocols.rocketmq.clients import ConnectedClients
from popmq_server.values.message import check_range, check_text


class ClientCallsService:
    """`clients`: the clients of apache.rocketmq.v2."""

    def __init__(self, engine: Commands, clients: ConnectedClients) -> None:
        self._engine = engine
        self._clients = clients

    async def GetClientStack(self, raw: bytes) -> Message:
        """Returns the client's answer, after at most 5 s."""
        access_keys.check(Need("admin"))
        request = read(pb.GetClientStackRequest, raw)
        code, text = await self._asked(_client_id(request.client_id), None)
        return pb.GetClientStackResponse(code=code, text=text)

    async def VerifyMessage(self, raw: bytes) -> Message:
        """Returns whether the client handled the message, after at most 5 s."""
        access_keys.check(Need("admin"))
        request = read(pb.VerifyMessageRequest, raw)
        client_id = _client_id(request.client_id)
        topic = validation.topic_name(request.topic)
        offset = check_range(request.offset, "offset", 0, requests.INT64_MAX)
        page = await self._engine.ask(queries.Browse(topic, request.queue, offset, 1, requests.POP_BYTES))
        if [at for _, _, _, at, _ in page.rows] != [offset]:
            raise message_not_there(topic, request.queue, offset)
        data, stored_ms, queue, _, _ = page.rows[0]
        shown = ShownMessage(topic, data, stored_ms, queue, offset)
        code, text = await self._asked(client_id, shown)
        return pb.VerifyMessageResponse(code=code, text=text)

    async def _asked(self, client_id: str, shown: ShownMessage | None) -> ClientAnswer:
        """Here, or by the engine: a client of another gateway."""
        try:
            return await self._clients.ask(client_id, shown)
        except Refused as refused:
            if refused.code != "CLIENT_NOT_FOUND":
                raise
            place = (shown.topic, shown.queue, shown.offset) if shown else ()
            try:
                return await self._engine.ask(AskClient(client_id, *place))
            except Refused as elsewhere:
                raise (refused if elsewhere.code == refused.code else elsewhere) from None


def _client_id(text: str) -> str:
    return check_text(text, "client_id", validation.CLIENT_ID_BYTES_MAX, required=True)
