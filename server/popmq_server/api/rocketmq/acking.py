"""What a client does with its deliveries: AckMessage, ChangeInvisibleDuration, ForwardMessageToDeadLetterQueue.

    the handle is              ack                       dead letter               another time
    of a live delivery         OK                        OK                        OK
    of one that was done       OK, while remembered      OK                        INVALID_RECEIPT_HANDLE
    lapsed, forged, damaged    INVALID_RECEIPT_HANDLE    INVALID_RECEIPT_HANDLE    INVALID_RECEIPT_HANDLE

The handle is the same through all changes of the time, so it is answered as it came, also with a refusal: clients go on
with what is answered. Entries of an ack are answered in their places, with one code where all fared alike, since
clients take MULTIPLE_RESULTS for success.

Clients repeat a call until they hear one of these two codes, some a dead letter until they hear OK. A done delivery is
told from a lapsed one by memory (remembered.py), a dead letter also by looking for it: it outlives a restart. The
history could tell of acks too, but a look into it costs what an ack may not, and late acks come in storms.
"""

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_server.api.native.native import NativeService
from popmq_server.api.native.requests import ENTRIES_MAX, INVISIBLE_MS_MAX
from popmq_server.api.rocketmq import leases
from popmq_server.api.rocketmq.call import Call
from popmq_server.api.rocketmq.clients import Client, Clients
from popmq_server.api.rocketmq.names import group_name, topic_name
from popmq_server.api.rocketmq.remembered import Finished, Held
from popmq_server.api.rocketmq.status import OK, Declined, status_of
from popmq_server.commands import Ack, Acked, Change, ChangeInvisibleTime, Look
from popmq_server.engine.engine import Engine
from popmq_server.engine.metrics import Metrics
from popmq_server.errors import Refused, lapsed
from popmq_server.model.message import Handle, read_handle

_MIXED = pb.Status(code=pb.MULTIPLE_RESULTS, message="see the entries")
#: Delays under this are none at all: Node's push consumers take the seconds of a backoff for milliseconds.
NO_DELAY_MS = 10_000


class AckService:
    """`held`: what was given out to clients that name no handle."""

    def __init__(self, engine: Engine, clients: Clients, held: Held, native: NativeService, metrics: Metrics) -> None:
        self._engine = engine
        self._clients = clients
        self._held = held
        self._native = native
        self._metrics = metrics
        self._finished = Finished()

    async def AckMessage(self, request: rpc.AckMessageRequest, call: Call) -> rpc.AckMessageResponse:
        """An entry for each entry, in their order."""
        topic, group = _names(request, call)
        if not 0 < len(request.entries) <= ENTRIES_MAX:
            raise Declined(pb.BAD_REQUEST, f"{len(request.entries)} entries, allowed are 1–{ENTRIES_MAX}")
        texts = [entry.receipt_handle for entry in request.entries]
        try:
            answer: Acked = await self._engine.execute(Ack(group, tuple(map(_handle, texts))))
        except Refused as refused:
            answer = Acked([_over(refused)] * len(texts), {})
        for text, result in zip(texts, answer.results, strict=True):
            if result is None:
                self._finished.add(text, group)
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

    def _status(self, text: str, group: str, result: Refused | None, call: Call) -> pb.Status:
        if result is None or (result.code == "HANDLE_LAPSED" and self._finished.has(text, group)):
            return OK
        self._metrics.refusals.labels(result.code).inc()
        return status_of(result, call.language)

    def _count(self, group: str, answer: Acked) -> None:
        self._native.served("Ack", group)
        for topic, done in answer.topics.items():
            self._native.moved("Ack", group, topic, done)

    async def ChangeInvisibleDuration(
        self, request: rpc.ChangeInvisibleDurationRequest, call: Call
    ) -> rpc.ChangeInvisibleDurationResponse:
        """The lease ends so long from now, 0: now. The handle stays the same."""
        client = self._clients.heard(call)
        topic, group = _names(request, call)
        invisible_ms = request.invisible_duration.ToMilliseconds()
        if not 0 <= invisible_ms <= INVISIBLE_MS_MAX:
            raise Declined(pb.ILLEGAL_INVISIBLE_TIME, f"invisible_duration is {invisible_ms} ms, 0 to 12 h are allowed")
        handle = read_handle(request.receipt_handle, "receipt_handle")
        change = _changed(handle, invisible_ms, call, client)
        if request.suspend:  # of the whole lite topic: what is behind it goes back, and nobody gets any of it meanwhile
            change = Change(handle, "release", invisible_ms)
        await self._change(topic, group, change)
        return rpc.ChangeInvisibleDurationResponse(status=OK, receipt_handle=request.receipt_handle)

    async def ForwardMessageToDeadLetterQueue(
        self, request: rpc.ForwardMessageToDeadLetterQueueRequest, call: Call
    ) -> rpc.ForwardMessageToDeadLetterQueueResponse:
        """The client gives up on a message. OK also when it did so before."""
        topic, group = _names(request, call)
        text = request.receipt_handle or self._held.find(leases.holder(call.client_id), group, request.message_id)
        reason = f"the client gave up after {request.delivery_attempt} of {request.max_delivery_attempts} attempts"
        try:
            await self._change(topic, group, Change(read_handle(text, "receipt_handle"), "reject", 0, False, reason))
            self._finished.add(text, group)
        except Refused as refused:
            if refused.code != "HANDLE_LAPSED":
                raise
        return rpc.ForwardMessageToDeadLetterQueueResponse(status=OK)

    async def _change(self, topic: str, group: str, change: Change) -> None:
        """One change, or Refused."""
        try:
            (result,) = await self._engine.execute(ChangeInvisibleTime(group, (change,)))
        except Refused as refused:
            raise _over(refused) from None
        if isinstance(result, Refused):
            if result.code == "INVALID_HANDLE":
                await self._check_topic(topic)
            raise result
        self._native.served("ChangeInvisibleTime", group)
        self._native.moved("ChangeInvisibleTime", group, "", 1)

    async def _check_topic(self, topic: str) -> None:
        """A handle knows its topic, so only who has none is told that the topic in the request is none. Of a topic that
        was deleted leases are over: that answer lets clients drop what they hold, the other one has them ask for ever.
        """
        await self._engine.execute(Look("topics", (topic,)))


def _names(request: object, call: Call) -> tuple[str, str]:
    """(topic, group) of a request that has both."""
    return (
        topic_name(request.topic, call.namespace),  # type: ignore[attr-defined]
        group_name(request.group, call.namespace),  # type: ignore[attr-defined]
    )


def _over(refused: Refused) -> Refused:
    """What a refused request means for its handles: those of a group that was deleted are over. Else raises it."""
    if refused.code != "GROUP_NOT_FOUND":
        raise refused
    return lapsed("receipt_handle")


def _handle(text: str) -> Handle | Refused:
    try:
        return read_handle(text)
    except Refused as refused:
        return refused


def _changed(handle: Handle, invisible_ms: int, call: Call, client: Client) -> Change:
    """Node's push consumers say 0, or milliseconds, when they mean the group's backoff: theirs is not to retry at
    once, for ever.
    """
    if call.is_node and client.renews and invisible_ms < NO_DELAY_MS:
        return Change(handle, "release", None)
    return Change(handle, "extend", invisible_ms) if invisible_ms else Change(handle, "release", 0)
