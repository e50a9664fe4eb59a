"""Stores messages, and ends delayed ones and transactions: SendMessage, RecallMessage, EndTransaction.

    SendMessage      all messages checked ──▶ one Send ──▶ one entry each, and their common status if they agree
    delayed          the entry has a recall handle     ──▶ RecallMessage, once
    half             the entry has a transaction id    ──▶ EndTransaction, by the producer or after a check-back

Official clients send one message per request and read one entry. The broker ignores the queue that a client chose:
each language hashes message groups in its own way, so only the broker's choice keeps the order across languages. A send
that is retried after a lost answer has the same message id and is stored again, as in the reference; topics with unique
ids (docs/protocol.md) store it once.
"""

from google.protobuf.message import Message

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_server.contract.commands import (
    End,
    EndTransaction,
    NewMessage,
    Place,
    Recall,
    Send,
    Sent,
    queries,
)
from popmq_server.errors import Refused
from popmq_server.protocols import validation
from popmq_server.protocols.rocketmq import messages
from popmq_server.protocols.rocketmq.call import RocketmqCall
from popmq_server.protocols.rocketmq.clients import RocketmqServicer
from popmq_server.protocols.rocketmq.names import topic_name
from popmq_server.protocols.rocketmq.status import (
    OK,
    OK_ENCODED,
    Declined,
    status_of,
)
from popmq_server.values.message import check_messages_total, varint
from popmq_server.values.plain import head

_OK_FIELD = b"\x0a" + OK_ENCODED
_TYPES = {kind: frozenset((kind,)) for kind in messages.TYPE_NUMBERS}


class SendService(RocketmqServicer):
    """The calls of producers."""

    async def SendMessage(self, request: rpc.SendMessageRequest, call: RocketmqCall) -> Message | bytes:
        """Stores all messages, or refuses the request as a whole if one is invalid or not of the topic's type."""
        command = _send(request, call)
        if "TRANSACTION" in command.types:
            await self._clients.produces(self._clients.heard(call), command.topic)
        try:
            answer: Sent = await self._engine.execute(command)
        except Refused as refused:
            self._metrics.limited_by(refused, "", command.topic)
            raise
        outgoing = command.valid
        if answer.places is None:
            self._count(command, len(outgoing), command.bytes, call)
            return _stored(outgoing, answer.first)
        entries = [_entry(message, place, call) for message, place in zip(outgoing, answer.places, strict=True)]
        sizes = [
            len(message.data) for message, entry in zip(outgoing, entries, strict=True) if entry.status.code == pb.OK
        ]
        self._count(command, len(sizes), sum(sizes), call)
        codes = {entry.status.code for entry in entries}
        status = (
            entries[0].status if len(codes) == 1 else pb.Status(code=pb.MULTIPLE_RESULTS, message="see the entries")
        )
        return rpc.SendMessageResponse(status=status, entries=entries)

    def _count(self, command: Send, stored: int, size: int, call: RocketmqCall) -> None:
        self._traffic.served("Send", "", command.topic)
        self._traffic.recent.began("sends", "", command.topic, call.client_id)
        self._traffic.moved("Send", "", command.topic, stored, size)

    async def RecallMessage(self, request: rpc.RecallMessageRequest, call: RocketmqCall) -> rpc.RecallMessageResponse:
        """OK means that the message will never be delivered."""
        name = topic_name(request.topic, call.namespace)
        rows = await self._engine.ask(queries.Topics(name))
        if rows[0].topic.type != "DELAY":
            raise Declined(pb.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, f"{name} is not a topic for delayed messages")
        message_id = await self._engine.execute(Recall(name, request.recall_handle))
        return rpc.RecallMessageResponse(status=OK, message_id=message_id)

    async def EndTransaction(
        self, request: rpc.EndTransactionRequest, call: RocketmqCall
    ) -> rpc.EndTransactionResponse:
        """Commits or rolls back. An unspecified resolution changes nothing: the broker checks back later."""
        topic_name(request.topic, call.namespace)
        if request.resolution == pb.TRANSACTION_RESOLUTION_UNSPECIFIED:
            return rpc.EndTransactionResponse(status=OK)
        asked = End(request.transaction_id, request.resolution == pb.COMMIT)
        (ended,) = await self._engine.execute(EndTransaction((asked,)))
        if isinstance(ended, Refused):
            raise ended
        return rpc.EndTransactionResponse(status=OK)


def _send(request: rpc.SendMessageRequest, call: RocketmqCall) -> Send:
    """Raises Declined for the first invalid message."""
    given = request.messages
    if not given:
        raise Declined(pb.MESSAGE_CORRUPTED, "there is no message in the request")
    if len(given) == 1:  # as official clients send them
        topic = topic_name(given[0].topic, call.namespace)
        entry, kind = messages.new_message(given[0])  # its own limits are below those of a request
        return Send(validation.sent_name(topic), (entry,), bytes=len(entry.data), types=_TYPES[kind])
    first = given[0].topic
    name = topic_name(first, call.namespace)
    if any(each.topic != first and topic_name(each.topic, call.namespace) != name for each in given):
        raise Declined(pb.MESSAGE_CORRUPTED, "all messages of a request must have the same topic")
    outgoing, types = zip(*map(messages.new_message, given), strict=True)
    total = sum([len(entry.data) for entry in outgoing])
    name = validation.sent_name(name)
    check_messages_total(len(outgoing), total, validation.ENTRIES_MAX, validation.SEND_BYTES_MAX)
    return Send(name, outgoing, bytes=total, types=frozenset(types))


def _stored(outgoing: tuple[NewMessage, ...], first: int) -> bytes:
    """A SendMessageResponse of messages with consecutive offsets, encoded by hand: a tenth of the cost of objects.

    SendMessageResponse: 1 status · 2 entries. SendResultEntry: 1 status · 2 message_id · 4 offset.
    """
    parts = [_OK_FIELD]
    for offset, message in enumerate(outgoing, first):
        message_id = message.message_id.encode()
        entry = _OK_FIELD + head(b"\x12", len(message_id)) + message_id
        if offset:
            entry += b"\x20" + varint(offset)
        parts += (head(b"\x12", len(entry)), entry)
    return b"".join(parts)


def _entry(message: NewMessage, place: Place | Refused, call: RocketmqCall) -> rpc.SendResultEntry:
    if isinstance(place, Refused):
        return rpc.SendResultEntry(status=status_of(place, call.language), message_id=message.message_id)
    return rpc.SendResultEntry(
        status=OK,
        message_id=message.message_id,
        transaction_id=place.transaction_id,
        offset=place.offset,
        recall_handle=place.recall_handle,
    )
