"""The calls that finish or change deliveries: AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue.

    the handle is              ack                       dead letter               new time
    of a live delivery         OK                        OK                        OK
    of a finished delivery     OK, while remembered      OK                        INVALID_RECEIPT_HANDLE
    lapsed, forged, damaged    INVALID_RECEIPT_HANDLE    INVALID_RECEIPT_HANDLE    INVALID_RECEIPT_HANDLE

Most changes of the time keep the handle; so every answer has it, refusals too: clients continue with the handle in the
answer. An ack has one result per entry, and one overall code if all results agree, since clients take MULTIPLE_RESULTS
for success.

Clients repeat a call until they get one of these two codes. Some repeat a dead letter until they get OK. The broker
tells a finished delivery from a lapsed one by memory (remembered.py), a dead letter also by looking for it, which works
after a restart. The history knows of acks too, but a look-up costs too much for an ack, and late acks come in storms.
"""

from collections.abc import Iterable

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_server.contract.capabilities import SNOOZE
from popmq_server.contract.commands import (
    Ack,
    Acked,
    Change,
    ChangeInvisibleTime,
    Renewed,
    queries,
)
from popmq_server.contract.engine import Engine
from popmq_server.errors import Refused, lapsed
from popmq_server.monitoring.metrics import Metrics
from popmq_server.protocols.rocketmq import leases
from popmq_server.protocols.rocketmq.call import RocketmqCall
from popmq_server.protocols.rocketmq.clients import Client, ConnectedClients, RocketmqServicer
from popmq_server.protocols.rocketmq.names import group_name, topic_name
from popmq_server.protocols.rocketmq.remembered import FinishedHandles, NewestHandles
from popmq_server.protocols.rocketmq.status import (
    OK,
    OK_ENCODED,
    Declined,
    status_of,
)
from popmq_server.protocols.traffic import Traffic
from popmq_server.protocols.validation import ENTRIES_MAX, INVISIBLE_MS_MAX
from popmq_server.values.message import length_prefixed, varint

_MIXED = pb.Status(code=pb.MULTIPLE_RESULTS, message="see the entries")
#: A shorter delay of Node's push consumers counts as none: they double the first delay of the group's backoff.
NO_DELAY_MS = 10_000


class AckService(RocketmqServicer):
    """`held`: handles delivered to clients that do not send handles."""

    def __init__(
        self, engine: Engine, clients: ConnectedClients, held: NewestHandles, traffic: Traffic, metrics: Metrics
    ) -> None:
        super().__init__(engine, clients, traffic, metrics)
        self._held = held
        self._finished = FinishedHandles()

    async def AckMessage(self, request: rpc.AckMessageRequest, call: RocketmqCall) -> rpc.AckMessageResponse | bytes:
        """Acks each entry; returns one result per entry, in order."""
        topic, group = _names(request, call)
        if not 0 < len(request.entries) <= ENTRIES_MAX:
            raise Declined(pb.BAD_REQUEST, f"{len(request.entries)} entries, there must be 1–{ENTRIES_MAX}")
        texts = [entry.receipt_handle for entry in request.entries]
        try:
            answer: Acked = await self._engine.execute(Ack(group, tuple(texts)))
        except Refused as refused:
            answer = Acked([_over(refused)] * len(texts), {})
        for text, result in zip(texts, answer.results, strict=True):
            if result is None:
                self._finished.add(text, group)
        if not any(answer.results):
            self._count(group, answer)
            return _acked(request.entries, texts)
        statuses = [self._status(text, group, result, call) for text, result in zip(texts, answer.results, strict=True)]
        if any(result is not None and result.code == "INVALID_HANDLE" for result in answer.results):
            await self._check_topic(topic)
        self._count(group, answer)
        entries = [
            rpc.AckMessageResultEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status)
            for entry, status in zip(request.entries, statuses, strict=True)
        ]
        alike = len({status.code for status in statuses}) == 1
        return rpc.AckMessageResponse(status=statuses[0] if alike else _MIXED, entries=entries)

    def _status(self, text: str, group: str, result: Refused | None, call: RocketmqCall) -> pb.Status:
        if result is None or (result.code == "HANDLE_LAPSED" and self._finished.has(text, group)):
            return OK
        self._metrics.refusals.labels(result.code).inc()
        return status_of(result, call.language)

    def _count(self, group: str, answer: Acked) -> None:
        self._traffic.served("Ack", group)
        for topic, done in answer.topics.items():
            self._traffic.moved("Ack", group, topic, done)

    async def ChangeInvisibleDuration(
        self, request: rpc.ChangeInvisibleDurationRequest, call: RocketmqCall
    ) -> rpc.ChangeInvisibleDurationResponse:
        """The lease ends invisible_duration from now; 0 releases the message. Returns the handle from now on."""
        client = self._clients.heard(call)
        topic, group = _names(request, call)
        invisible_ms = request.invisible_duration.ToMilliseconds()
        if not 0 <= invisible_ms <= INVISIBLE_MS_MAX:
            size = "large" if invisible_ms > 0 else "small"  # clients look for the reference's words
            raise Declined(
                pb.ILLEGAL_INVISIBLE_TIME,
                f"the invisibleTime is too {size}: invisible_duration is {invisible_ms} ms, 0 to 12 h are allowed",
            )
        handle = request.receipt_handle
        change = _changed(handle, invisible_ms, call, client)
        if request.suspend:  # not counted; suspends a whole lite topic: later messages of it go back, too
            can_snooze = SNOOZE.name not in self._engine.info().lacking
            change = Change(handle, "release", invisible_ms, snooze=can_snooze)
        renewed = await self._change(topic, group, change)
        return rpc.ChangeInvisibleDurationResponse(status=OK, receipt_handle=renewed or request.receipt_handle)

    async def ForwardMessageToDeadLetterQueue(
        self, request: rpc.ForwardMessageToDeadLetterQueueRequest, call: RocketmqCall
    ) -> rpc.ForwardMessageToDeadLetterQueueResponse:
        """Moves a message to the dead letter topic because the client gave up. OK also for a repeat."""
        topic, group = _names(request, call)
        text = request.receipt_handle or await self._held_by(call, group, request.message_id)
        reason = f"the client gave up after {request.delivery_attempt} of {request.max_delivery_attempts} attempts"
        try:
            await self._change(topic, group, Change(text, "reject", 0, False, reason))
            self._finished.add(text, group)
        except Refused as refused:
            if refused.code != "HANDLE_LAPSED":
                raise
        return rpc.ForwardMessageToDeadLetterQueueResponse(status=OK)

    async def _held_by(self, call: RocketmqCall, group: str, message_id: str) -> str:
        """The handle of a message that a client names only by its id; "" if it holds no such message.

        After a restart only the store knows it.
        """
        holder = leases.holder(call.client_id)
        if handle := self._held.find(holder, group, message_id):
            return handle
        handle = await self._engine.ask(queries.SessionHandle(holder, group, message_id)) if message_id else ""
        if handle:
            self._held.add(holder, group, message_id, handle)
        return handle

    async def _change(self, topic: str, group: str, change: Change) -> str:
        """Executes one change; returns the new handle if there is one. Raises Refused."""
        try:
            (result,) = await self._engine.execute(ChangeInvisibleTime(group, (change,)))
        except Refused as refused:
            raise _over(refused) from None
        if isinstance(result, Refused):
            if result.code == "INVALID_HANDLE":
                await self._check_topic(topic)
            raise result
        self._traffic.served("ChangeInvisibleTime", group)
        self._traffic.moved("ChangeInvisibleTime", group, "", 1)
        return result.handle if isinstance(result, Renewed) else ""

    async def _check_topic(self, topic: str) -> None:
        """Raises Refused when the topic in the request does not exist. Called for invalid handles only: a valid one
        names its topic. Leases of a deleted topic are lapsed: at that answer clients drop them, at TOPIC_NOT_FOUND they
        retry forever.
        """
        await self._engine.ask(queries.Topics(topic))


def _names(request: object, call: RocketmqCall) -> tuple[str, str]:
    """(topic, group) of a request that has both."""
    return (
        topic_name(request.topic, call.namespace),  # type: ignore[attr-defined]  # requests share no base class
        group_name(request.group, call.namespace),  # type: ignore[attr-defined]  # requests share no base class
    )


def _over(refused: Refused) -> Refused:
    """The refusal of each handle in a request that was refused because its group is gone. Raises any other one."""
    if refused.code != "GROUP_NOT_FOUND":
        raise refused
    return lapsed("receipt_handle")


def _acked(entries: Iterable[rpc.AckMessageEntry], texts: list[str]) -> bytes:
    """An AckMessageResponse in which every entry is OK, encoded by hand as in sending.py.

    AckMessageResponse: 1 status · 2 entries. AckMessageResultEntry: 1 message_id · 2 receipt_handle · 3 status.
    """
    parts = [b"\x0a" + OK_ENCODED]
    for entry, handle in zip(entries, length_prefixed(list(map(str.encode, texts))), strict=True):
        name = entry.message_id.encode()
        named = b"\x0a" + varint(len(name)) + name if name else b""
        result = named + b"\x12" + handle + b"\x1a" + OK_ENCODED
        parts += (b"\x12", varint(len(result)), result)
    return b"".join(parts)


def _changed(handle: str, invisible_ms: int, call: RocketmqCall, client: Client) -> Change:
    """Node's push consumers send 0, or doubles of its first delay, when they mean the group's backoff; taken
    literally, 0 would let them retry at once, forever.
    """
    if call.is_node and client.renews and invisible_ms < NO_DELAY_MS:
        return Change(handle, "release", None)
    return Change(handle, "extend", invisible_ms) if invisible_ms else Change(handle, "release", 0)
