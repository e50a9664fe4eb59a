"""popmq.v1: an operator's requests to official RocketMQ 5 clients, sent over the clients' Telemetry streams.

GetClientStack    the stacks of the client's threads
VerifyMessage     whether a push consumer can handle a message: its listener gets the message once, out of turn
"""

from google.protobuf.message import Message

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract.commands import queries
from popmq_server.contract.engine import Commands
from popmq_server.contract.rights import Need
from popmq_server.errors import Refused
from popmq_server.protocols import validation
from popmq_server.protocols.access import access_keys
from popmq_server.protocols.native import requests
from popmq_server.protocols.native.requests import read
from popmq_server.protocols.rocketmq.clients import ConnectedClients
from popmq_server.protocols.rocketmq.messages import DeliveredRow, delivered
from popmq_server.protocols.rocketmq.names import resource_of
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
        code, text = await self._clients.stack(_client_id(request.client_id))
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
            raise Refused(
                "MESSAGE_NOT_FOUND",
                f"queue {request.queue} of topic {topic!r} has no message at offset {offset}",
                field="offset",
                action=f"find its place by its id or a key: popmq message {topic} --id ID",
            )
        message = delivered(DeliveredRow(*page.rows[0])._replace(attempt=1), resource_of(topic), "NORMAL")
        code, text = await self._clients.verify(client_id, topic, message)
        return pb.VerifyMessageResponse(code=code, text=text)


def _client_id(text: str) -> str:
    return check_text(text, "client_id", validation.CLIENT_ID_BYTES_MAX, required=True)
