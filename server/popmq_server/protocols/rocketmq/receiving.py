"""Delivers messages: ReceiveMessage.

    status OK · message · message · … · delivery_timestamp        or      status MESSAGE_NOT_FOUND · delivery_timestamp

The wait is what the client asks for, at most 20 s, and MARGIN_MS less than its deadline: an empty answer arrives before
the client gives up. When a client breaks off, messages not yet sent are released at once, attempt not counted. The
message being sent counts as an attempt and returns after a pause: one that is too large for the client's gRPC must end
as a dead letter and not be delivered forever.

Clients drop what they have of an answer that breaks off. A session lease of such messages would last as long as the
client, so these return too, uncounted; after a pause, so that the next answer is smaller. For the same reason an answer
that was written is followed until it has arrived (popmq_http2/server/arrivals.py):

    the client breaks off before that    the largest message counts: the client's gRPC may have refused it
    the connection ends before that      all are released at once, uncounted

    auto_renew                a session lease, which lasts as long as the client (leases.py); ignores invisible_duration
    else                      invisible_duration, 1 s – 12 h
    filter_expression         replaces the group's filter: consumers of one group with different filters replace each
                              other's, as in the reference, and the log warns of it
    attempt_id                a repeat gets the same messages, while they are leased
    message_queue             its topic; its id counts only where a share number is set
    batch_size                1–32; 32 when unset or larger

A push consumer asks again at once: one client 46 times a second. So the refusal of its poll comes REFUSED_MS after the
request, or when the poll ends.

An error is a status too, and the stream ends with gRPC's OK: clients avoid an endpoint whose calls fail in gRPC.
"""

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Sequence

from google.protobuf.duration_pb2 import Duration

from popmq_http2 import Arrival
from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_server.clock import Clock
from popmq_server.contract.commands import (
    Change,
    ChangeInvisibleTime,
    Pop,
    Popped,
    PoppedRow,
    bytes_of,
)
from popmq_server.contract.engine import Engine
from popmq_server.errors import Refused
from popmq_server.monitoring.metrics import Metrics
from popmq_server.protocols.rocketmq import leases
from popmq_server.protocols.rocketmq.call import RocketmqCall
from popmq_server.protocols.rocketmq.clients import Client, ConnectedClients, RocketmqServicer
from popmq_server.protocols.rocketmq.lite import LiteService
from popmq_server.protocols.rocketmq.messages import DeliveredRow, delivered, response
from popmq_server.protocols.rocketmq.names import group_name, topic_name
from popmq_server.protocols.rocketmq.remembered import Filters, NewestHandles
from popmq_server.protocols.rocketmq.status import OK, Declined
from popmq_server.protocols.traffic import Traffic
from popmq_server.protocols.validation import INVISIBLE_MS_MAX, INVISIBLE_MS_MIN, check_filter
from popmq_server.values.filters import filter as filters
from popmq_server.values.message import length_prefixed

MESSAGES_MAX = 32
BYTES_MAX = 16 << 20
POLL_MS_MAX = 20_000
#: How long the refusal of a push consumer's poll takes.
REFUSED_MS = 1_000
#: The answer is sent this long before the client's deadline.
MARGIN_MS = 400
#: Default timeout of a client's other calls: when it names no poll time, half of this is taken off its deadline.
REQUEST_TIMEOUT_MS = 3_000
ATTEMPT_ID_MAX = 256
#: The pause before a message returns if its client broke off while it received it: as in the reference.
BROKEN_OFF_MS = 1_000
#: Go 5.0.0 to 5.0.1-rc.4 leave the type of a tag filter unset.
_KINDS = {pb.FILTER_TYPE_UNSPECIFIED: "tag", pb.TAG: "tag", pb.SQL: "sql92"}

#: Why a message was released.
_TRIED, _GONE = "the client disconnected while it read the message", "the client went away"
_NOTHING = pb.Status(code=pb.MESSAGE_NOT_FOUND, message="no new message")


class ReceiveService(RocketmqServicer):
    """One generator per stream. service.py writes what it yields, and closes it however the stream ends.

    `held`: handles delivered to clients that do not send handles.
    """

    def __init__(
        self,
        engine: Engine,
        clients: ConnectedClients,
        held: NewestHandles,
        clock: Clock,
        traffic: Traffic,
        metrics: Metrics,
        lite: LiteService | None = None,
    ) -> None:
        super().__init__(engine, clients, traffic, metrics)
        self._lite = lite or LiteService(engine, clients)
        self._held = held
        self._clock = clock
        self._filters = Filters()
        self._deliveries = leases.Deliveries()
        self._releasing: set[asyncio.Task[object]] = set()

    async def ReceiveMessage(
        self, request: rpc.ReceiveMessageRequest, call: RocketmqCall
    ) -> AsyncGenerator[rpc.ReceiveMessageResponse | bytes, None]:
        """Streams the status, then the messages, then the time.

        A message counts as written when the next one is requested: before that the stream may have broken off.
        """
        client = self._clients.heard(call)
        client.renews = client.renews or request.auto_renew
        waiting_ms, began_ms = wait_ms(request, call, client), self._clock.now_ms()
        try:
            command = self._pop(request, call)
            popped = await self._popped(command, waiting_ms, client)
        except (Declined, Refused):
            if request.auto_renew:
                await self._clients.hold(min(REFUSED_MS, waiting_ms) - (self._clock.now_ms() - began_ms))
            raise
        if command.filter is not None:  # after the Pop, which checked the names and the access key
            self._filters.used(command.group, command.topic, filters.make(*command.filter), self._clock.now_ms())
        delivery = self._deliveries.begin(command) if command.session and popped.rows else None
        begun = written = 0
        try:
            yield rpc.ReceiveMessageResponse(status=OK if popped.rows else _NOTHING)
            handles = length_prefixed(popped.handles)
            named = pb.Message(topic=request.message_queue.topic).SerializeToString()
            for row, handle in zip(popped.rows, handles, strict=True):
                begun += 1
                # The bytes of a plain message, unless its client needs the handle remembered.
                encoded = None if call.language == "CPP" else response(row, handle, named, popped.type)
                yield encoded or self._message(request, call, command, popped.type, row)
                written += 1
        finally:
            if written < len(popped.rows):
                self._release_unwritten(command, popped, written, begun, delivery)
        if delivery is not None:
            self._follow(command, popped, delivery, call)
        self._count(command, popped)
        time = rpc.ReceiveMessageResponse()
        time.delivery_timestamp.FromMilliseconds(self._clock.now_ms())
        yield time

    async def _popped(self, command: Pop, waiting_ms: int, client: Client) -> Popped:
        """Pops and waits; finds nothing when the client says goodbye meanwhile."""
        task = asyncio.current_task()
        assert task is not None
        client.polls.add(task)
        use = self._traffic.recent.began("pops", command.group, command.topic, client.client_id)
        try:
            return await self._lite.pop(command, waiting_ms)
        except Refused as refused:
            self._metrics.limited_by(refused, command.group, command.topic)
            self._traffic.recent.refused(use)
            raise
        except asyncio.CancelledError:
            if not client.gone or task.uncancel():
                raise
            return Popped([], 0, 0, 0)
        finally:
            client.polls.discard(task)

    def _pop(self, request: rpc.ReceiveMessageRequest, call: RocketmqCall) -> Pop:
        """The Pop for a request. Raises Declined for what the protocol does not allow."""
        topic = topic_name(request.message_queue.topic, call.namespace)
        group = group_name(request.group, call.namespace)
        wanted = filter_of(request, topic, group)
        invisible_ms = 0 if request.auto_renew else _invisible_ms(request.invisible_duration)
        if len(request.attempt_id) > ATTEMPT_ID_MAX:
            raise Declined(pb.BAD_REQUEST, f"attempt_id has over {ATTEMPT_ID_MAX} characters")
        return Pop(
            topic,
            group,
            of_queue=-1 if call.is_node else request.message_queue.id,  # Node always names queue 0
            max_messages=min(request.batch_size, MESSAGES_MAX) if request.batch_size > 0 else MESSAGES_MAX,
            max_bytes=BYTES_MAX,
            invisible_ms=invisible_ms,
            client_id=leases.holder(call.client_id),
            attempt_id=request.attempt_id,
            filter=wanted,
            filter_wins=True,
            session=request.auto_renew,
            release_if_gone=True,
        )

    def _message(
        self,
        request: rpc.ReceiveMessageRequest,
        call: RocketmqCall,
        command: Pop,
        topic_type: str,
        row: PoppedRow,
    ) -> rpc.ReceiveMessageResponse:
        """The response for one message, of any kind."""
        data, stored_ms, queue, offset, attempt, raw_handle = row
        text = raw_handle.decode()
        message = delivered(
            DeliveredRow(data, stored_ms, queue, offset, attempt, text), request.message_queue.topic, topic_type
        )
        if call.language == "CPP":
            self._held.add(command.client_id, command.group, message.system_properties.message_id, text)
        return rpc.ReceiveMessageResponse(message=message)

    def _release_unwritten(
        self, command: Pop, popped: Popped, written: int, begun: int, delivery: leases.SessionAnswer | None
    ) -> None:
        """Releases what the client did not get. A message being written may have arrived, or be why the client left:
        its attempt counts. A lease with a time of its own goes on for those before it.
        """
        if delivery is not None and not self._deliveries.end(delivery):
            return
        handles = _handles(popped)
        before = () if delivery is None else handles[:written]
        self._release(command, tried=handles[written:begun], paused=before, unread=handles[begun:])

    def _follow(self, command: Pop, popped: Popped, delivery: leases.SessionAnswer, call: RocketmqCall) -> None:
        """Releases the messages of an answer that was written and does not arrive."""
        if call.on_arrival is None:
            self._deliveries.end(delivery)
            return
        handles, sizes = _handles(popped), [len(row[0]) for row in popped.rows]  # messages are not kept
        largest = sizes.index(max(sizes))
        caller = contextvars.copy_context()  # of this call, with the access key that the engine checks
        call.on_arrival(lambda arrival: caller.run(self._followed, command, handles, largest, delivery, arrival))

    def _followed(
        self, command: Pop, handles: list[str], largest: int, delivery: leases.SessionAnswer, arrival: Arrival
    ) -> None:
        if not self._deliveries.end(delivery) or arrival is Arrival.ARRIVED:
            return
        if arrival is Arrival.LOST:
            self._release(command, unread=handles)
        else:
            tried = handles.pop(largest)
            self._release(command, tried=[tried], paused=handles)

    def _release(
        self, command: Pop, tried: Sequence[str] = (), paused: Sequence[str] = (), unread: Sequence[str] = ()
    ) -> None:
        """Releases messages: `tried` counted and `paused` uncounted, both after a pause, `unread` uncounted at once.

        Those tried come first: in a FIFO topic the release of a message releases later ones of its message group.
        Runs in the background: the generator is being closed, perhaps by a cancellation, and must not block.
        """
        changes = (
            *(Change(one, "release", BROKEN_OFF_MS, False, _TRIED) for one in tried),
            *(Change(one, "release", BROKEN_OFF_MS, True, _GONE) for one in paused),
            *(Change(one, "release", 0, True, _GONE) for one in unread),
        )
        task = asyncio.ensure_future(self._engine.execute(ChangeInvisibleTime(command.group, changes)))
        self._releasing.add(task)
        task.add_done_callback(self._released)

    def _released(self, task: asyncio.Task[object]) -> None:
        self._releasing.discard(task)
        if not task.cancelled():
            task.exception()  # the broker stops, or the group was deleted: the leases expire

    def _count(self, command: Pop, popped: Popped) -> None:
        self._traffic.served("Pop", command.group, command.topic)
        size = bytes_of(popped.rows)
        self._traffic.moved("Pop", command.group, command.topic, len(popped.rows), size)


def _handles(popped: Popped) -> list[str]:
    return [handle.decode() for handle in popped.handles]


def filter_of(
    request: rpc.ReceiveMessageRequest | rpc.PullMessageRequest, topic: str, group: str
) -> tuple[str, str] | None:
    """(kind, text) of the valid filter of a request; None means the group's own. Raises Declined or Refused."""
    if not request.HasField("filter_expression"):
        return None
    expression = request.filter_expression
    kind = _KINDS.get(expression.type)
    if kind is None:
        raise Declined(pb.ILLEGAL_FILTER_EXPRESSION, "the filter's type is neither TAG nor SQL")
    check_filter(kind, expression.expression, topic, group)
    return kind, expression.expression or ("*" if kind == "tag" else "")


def _invisible_ms(asked: Duration) -> int:
    invisible_ms = asked.ToMilliseconds()
    if not INVISIBLE_MS_MIN <= invisible_ms <= INVISIBLE_MS_MAX:
        size = "large" if invisible_ms > INVISIBLE_MS_MAX else "small"  # clients look for the reference's words
        raise Declined(
            pb.ILLEGAL_INVISIBLE_TIME,
            f"the invisibleTime is too {size}: invisible_duration is {invisible_ms} ms, 1 s to 12 h are allowed",
        )
    return invisible_ms


def wait_ms(request: rpc.ReceiveMessageRequest | rpc.PullMessageRequest, call: RocketmqCall, client: Client) -> int:
    """How long to wait, in ms. A near deadline shortens the wait and is never an error.

    The reference refuses a deadline that leaves less than 5 s, so its clients cannot wait for a second or two.
    """
    remaining_s = call.remaining_s()
    remaining_ms = POLL_MS_MAX + MARGIN_MS if remaining_s is None else int(remaining_s * 1000)
    return min(_poll_ms(request, remaining_ms, client), POLL_MS_MAX, max(0, remaining_ms - MARGIN_MS))


def _poll_ms(request: rpc.ReceiveMessageRequest | rpc.PullMessageRequest, remaining_ms: int, client: Client) -> int:
    """The poll time of a request, or the time that its deadline leaves. Raises Declined ILLEGAL_POLLING_TIME.

    Clients that name no poll time set the deadline to the poll time plus the timeout of other calls.
    """
    if not request.HasField("long_polling_timeout"):
        return max(0, remaining_ms - (client.timeout_ms or REQUEST_TIMEOUT_MS) // 2)
    asked_ms: int = request.long_polling_timeout.ToMilliseconds()
    if asked_ms < 0:
        raise Declined(pb.ILLEGAL_POLLING_TIME, f"long_polling_timeout is {asked_ms} ms")
    return asked_ms
