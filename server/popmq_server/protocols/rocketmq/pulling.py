"""Reading by queue and offset: PullMessage, UpdateOffset, GetOffset, QueryOffset. docs/pull.md describes pulling.

    status OK · message · … · next_offset       status MESSAGE_NOT_FOUND or ILLEGAL_OFFSET · next_offset

    this protocol              popmq.v1
    PullMessage                Pull, without an offset to commit; the filter of the request wins
    UpdateOffset               UpdateOffsets of one queue
    GetOffset, QueryOffset     QueryOffsets: the committed offset, the ends, the first offset at a time
    next_offset                after everything that was read; the queue's begin or end, if the offset is not in it

The first PullMessage or UpdateOffset of a group without a position in the topic sets the group's consume mode there to
PULL, as the SDK's pull consumer does. A group that pops gets PRECONDITION_FAILED for both calls, until an operator
switches it.
"""

from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import TypeVar

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_server.contract.commands import (
    OffsetsOfQueue,
    Pull,
    Pulled,
    QueryOffsets,
    SetConsumeMode,
    UpdateOffsets,
    bytes_of,
    queries,
)
from popmq_server.contract.engine import Engine
from popmq_server.errors import Refused
from popmq_server.monitoring.metrics import Metrics
from popmq_server.protocols.rocketmq.call import RocketmqCall
from popmq_server.protocols.rocketmq.clients import ConnectedClients, RocketmqServicer
from popmq_server.protocols.rocketmq.messages import DeliveredRow, delivered, time_ms
from popmq_server.protocols.rocketmq.names import group_name, topic_name
from popmq_server.protocols.rocketmq.receiving import (
    BYTES_MAX,
    MESSAGES_MAX,
    filter_of,
    wait_ms,
)
from popmq_server.protocols.rocketmq.status import OK, Declined, not_one_of
from popmq_server.protocols.traffic import Traffic

T = TypeVar("T")

#: The number of (group, topic) pairs remembered as having a position.
BEGUN_MAX = 10_000
_ILLEGAL = frozenset({"OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_BADLY"})
_NOTHING = pb.Status(code=pb.MESSAGE_NOT_FOUND, message="no new message")


class PullService(RocketmqServicer):
    """The calls of pull consumers."""

    def __init__(self, engine: Engine, clients: ConnectedClients, traffic: Traffic, metrics: Metrics) -> None:
        super().__init__(engine, clients, traffic, metrics)
        self._begun: OrderedDict[tuple[str, str], None] = OrderedDict()

    async def PullMessage(
        self, request: rpc.PullMessageRequest, call: RocketmqCall
    ) -> AsyncGenerator[rpc.PullMessageResponse, None]:
        """Streams the status, then the messages, then the next offset."""
        command = _pull(request, call)
        waiting_ms = wait_ms(request, call, self._clients.heard(call))
        use = self._traffic.recent.began("pulls", command.group, command.topic, call.client_id)
        try:
            with self._metrics.limits(command.group, command.topic):
                pulled = await self._pulling(command, lambda: self._engine.pull(command, waiting_ms))
        except (Declined, Refused):
            self._traffic.recent.refused(use)
            raise
        status = _judged(pulled, command)
        self._count(command, pulled)
        yield rpc.PullMessageResponse(status=status)
        if pulled.rows:
            kind = await self._type(command.topic)
            for row in pulled.rows:
                yield rpc.PullMessageResponse(message=delivered(DeliveredRow(*row), request.message_queue.topic, kind))
        yield rpc.PullMessageResponse(next_offset=pulled.next_offset)

    async def UpdateOffset(self, request: rpc.UpdateOffsetRequest, call: RocketmqCall) -> rpc.UpdateOffsetResponse:
        """Commits the group's offset of a queue, backward too, as in the reference."""
        topic, group, queue = _names(request, call)
        if request.offset < 0:
            raise Declined(pb.ILLEGAL_OFFSET, f"the offset is {request.offset}")
        command = UpdateOffsets(topic, group, {queue: request.offset})
        try:
            await self._pulling(command, lambda: self._update(command))
        except Refused as refused:
            if not refused.field.startswith("offsets"):
                raise
            await self._queue(topic, group, queue)
            raise Declined(pb.ILLEGAL_OFFSET, refused.message) from None
        return rpc.UpdateOffsetResponse(status=OK)

    async def _update(self, command: UpdateOffsets) -> None:
        moved = await self._engine.execute(command)
        self._traffic.moved("UpdateOffsets", command.group, command.topic, moved)
        self._traffic.served("UpdateOffsets", command.group, command.topic)

    async def GetOffset(self, request: rpc.GetOffsetRequest, call: RocketmqCall) -> rpc.GetOffsetResponse:
        """Returns the committed offset."""
        topic, group, queue = _names(request, call)
        row = await self._queue(topic, group, queue)
        if row.committed < 0:
            raise Declined(pb.OFFSET_NOT_FOUND, f"group {group} has no position in topic {topic} yet")
        return rpc.GetOffsetResponse(status=OK, offset=row.committed)

    async def QueryOffset(self, request: rpc.QueryOffsetRequest, call: RocketmqCall) -> rpc.QueryOffsetResponse:
        """Where a queue begins or ends, or the first message stored at or after a time."""
        topic, queue = topic_name(request.message_queue.topic, call.namespace), _number(request.message_queue)
        policy, since_ms = request.query_offset_policy, None
        if policy == pb.TIMESTAMP:
            if not request.HasField("timestamp"):
                raise Declined(pb.BAD_REQUEST, "query_offset_policy is TIMESTAMP, but timestamp is unset")
            since_ms = time_ms(request.timestamp)
        elif policy not in (pb.BEGINNING, pb.END):
            raise not_one_of("query_offset_policy", policy, pb.QueryOffsetPolicy.keys())
        row = await self._queue(topic, "", queue, since_ms)
        found = {pb.BEGINNING: row.min_offset, pb.END: row.max_offset}.get(policy, row.at_timestamp)
        return rpc.QueryOffsetResponse(status=OK, offset=found)

    # ── Calls to the engine ──────────────────────────────────────────────────────────────────────────────────────

    async def _pulling(self, command: Pull | UpdateOffsets, act: Callable[[], Awaitable[T]]) -> T:
        """Runs a call that only groups in PULL mode may make, after `_begin`."""
        where = (command.topic, command.group)
        known = where[::-1] in self._begun
        await self._begin(*where)
        try:
            return await act()
        except Refused as refused:
            if not known or refused.code != "WRONG_CONSUME_MODE":
                raise
        self._begun.pop(where[::-1], None)  # the topic or the group may have been deleted and created again
        await self._begin(*where)
        return await act()

    async def _begin(self, topic: str, group: str) -> None:
        """Sets a group without a position to PULL; a group with a position keeps its mode.

        Checked once for each pair: a group loses its position only when it or the topic is deleted.
        """
        if (group, topic) in self._begun:
            return
        rows = await self._engine.execute(QueryOffsets(topic, group))
        if all(row.committed < 0 for row in rows):
            await self._engine.execute(SetConsumeMode(topic, group, "PULL"))
        self._begun[group, topic] = None
        if len(self._begun) > BEGUN_MAX:
            self._begun.popitem(last=False)

    async def _queue(self, topic: str, group: str, queue: int, since_ms: int | None = None) -> OffsetsOfQueue:
        """The offsets of a queue, with `at_timestamp` if a time is given. Raises Declined BAD_REQUEST."""
        rows: list[OffsetsOfQueue] = await self._engine.execute(QueryOffsets(topic, group, since_ms))
        found = next((row for row in rows if row.queue == queue), None)
        if found is None:
            raise _no_queue(topic, queue)
        return found

    async def _type(self, topic: str) -> str:
        rows = await self._engine.ask(queries.Topics(topic))
        kind: str = rows[0].topic.type
        return kind

    def _count(self, command: Pull, pulled: Pulled) -> None:
        self._traffic.served("Pull", command.group, command.topic)
        self._metrics.pulls.labels(pulled.status, command.group, command.topic).inc()
        size = bytes_of(pulled.rows)
        self._traffic.moved("Pull", command.group, command.topic, len(pulled.rows), size)


def _judged(pulled: Pulled, command: Pull) -> pb.Status:
    """The status of a Pull in this protocol. Raises Declined for a queue that the topic does not have.

    The protocol has no code for the cause of an empty answer (a filter, a hole, damage); the next offset is after it.
    """
    if pulled.status == "NO_MATCHED_LOGIC_QUEUE":
        raise _no_queue(command.topic, command.queue)
    if pulled.status in _ILLEGAL:
        return pb.Status(
            code=pb.ILLEGAL_OFFSET,
            message=f"the offset is {command.offset}, the queue has {pulled.min_offset} to {pulled.max_offset}",
        )
    return OK if pulled.rows else _NOTHING


def _pull(request: rpc.PullMessageRequest, call: RocketmqCall) -> Pull:
    topic, group, queue = _names(request, call)
    if request.offset < 0:
        raise Declined(pb.ILLEGAL_OFFSET, f"the offset is {request.offset}")
    return Pull(
        topic,
        group,
        queue,
        request.offset,
        max_messages=min(request.batch_size, MESSAGES_MAX) if request.batch_size > 0 else MESSAGES_MAX,
        max_bytes=BYTES_MAX,
        filter=filter_of(request, topic, group),
        filter_wins=True,
    )


def _names(
    request: rpc.PullMessageRequest | rpc.UpdateOffsetRequest | rpc.GetOffsetRequest, call: RocketmqCall
) -> tuple[str, str, int]:
    """(topic, group, queue) of a request."""
    topic = topic_name(request.message_queue.topic, call.namespace)
    return topic, group_name(request.group, call.namespace), _number(request.message_queue)


def _number(queue: pb.MessageQueue) -> int:
    if queue.id < 0:
        raise Declined(pb.BAD_REQUEST, f"the queue is {queue.id}: this call needs one queue")
    return queue.id


def _no_queue(topic: str, queue: int) -> Declined:
    return Declined(pb.BAD_REQUEST, f"topic {topic} has no queue {queue}")
