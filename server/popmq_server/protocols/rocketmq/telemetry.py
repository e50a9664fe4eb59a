"""The stream between a client and the broker, and the client's life cycle: Telemetry, Heartbeat, termination.

client                              broker
settings ─────────────────────────▶ merged with the broker's settings
         ◀───────────────────────── status OK, settings                      each time; to Node three times
         ◀───────────────────────── recover_orphaned_transaction_command     clients.py

Merged settings, and the clients that depend on them:

    producer     exponential backoff        clients of three languages refuse to start without one
                 max_body_size > 0          0 would forbid every send
    consumer     the group's backoff        in whole seconds, since one client reads no finer; exponential for Node,
                                            which takes the seconds for milliseconds, so these are what they say
                 fifo                       read once, at the start: whether a client delivers in order
                 long polling > 0           unset is a loop without a pause in one client
"""

import asyncio
import functools
import logging
import re
from collections.abc import AsyncIterator

from google.protobuf.message import DecodeError

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_server.contract.commands import queries
from popmq_server.contract.commands.sessions import Heartbeat
from popmq_server.contract.engine import BasicEngine
from popmq_server.contract.rights import Need
from popmq_server.errors import Refused
from popmq_server.protocols.access import access_keys, request_size
from popmq_server.protocols.access.call_context import CallContext
from popmq_server.protocols.access.open_streams import OpenStream, OpenStreams
from popmq_server.protocols.refusals import refuse
from popmq_server.protocols.rocketmq import leases
from popmq_server.protocols.rocketmq.call import RocketmqCall, TelemetryStream, call_of
from popmq_server.protocols.rocketmq.clients import TOPICS_MAX, Client, ConnectedClients
from popmq_server.protocols.rocketmq.names import group_name, topic_name
from popmq_server.protocols.rocketmq.status import OK, Declined, status_of
from popmq_server.values import limits
from popmq_server.values.message import BODY_BYTES_MAX
from popmq_server.values.records import Group

log = logging.getLogger("popmq.protocols")

PRODUCER_ATTEMPTS = 3
RECEIVE_BATCH = 32
LONG_POLLING_S = 20
LITE_SUBSCRIPTIONS = 2000
LITE_TOPIC_SIZE = 64
#: The reference's delays in seconds, for an unknown group or one with the default delays.
LADDER_S: tuple[int, ...] = (1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
#: Limits of a client's properties.
PROPERTIES_MAX, PROPERTIES_BYTES_MAX, PROPERTY_VALUE_MAX = 32, 4 << 10, 256
_PROPERTY = re.compile(r"(?!rocketmq\.)[a-zA-Z][a-zA-Z0-9_.-]{0,63}\Z")
_CONSUMERS = frozenset(
    {pb.PUSH_CONSUMER, pb.SIMPLE_CONSUMER, pb.PULL_CONSUMER, pb.LITE_PUSH_CONSUMER, pb.LITE_SIMPLE_CONSUMER}
)


class TelemetryService:
    """One call of `Telemetry` per stream; it lasts as long as the stream."""

    def __init__(self, engine: BasicEngine, clients: ConnectedClients, streams: OpenStreams) -> None:
        self._engine = engine
        self._clients = clients
        self._streams = streams

    async def Telemetry(self, requests: AsyncIterator[bytes], context: CallContext) -> None:
        """Runs until the client ends the stream. Sends the headers at once, because one client waits for them."""
        await context.send_initial_metadata(())
        call = call_of(context)
        try:
            call.check()
            stream = self._streams.admitted(context)
        except (Declined, Refused) as why:
            await context.write(rpc.TelemetryCommand(status=status_of(why, call.language)).SerializeToString())
            return
        try:
            async with stream:
                await self._serve(stream, stream.messages(requests), call)
        except Refused as refused:  # the key has ended: an answer might wait until the client takes others
            await refuse(context, refused)

    async def _serve(self, stream: OpenStream, requests: AsyncIterator[bytes], call: RocketmqCall) -> None:
        """Serves a client until its stream ends, or the broker stops."""
        client, outlet = self._clients.heard(call), TelemetryStream(stream.write, access_keys.caller())
        reading = asyncio.ensure_future(self._listen(requests, call, client, outlet))
        reading.add_done_callback(lambda done: done.cancelled() or done.exception())  # a client that has gone
        closing = asyncio.ensure_future(self._clients.closed.wait())
        try:
            await self._clients.attach(client, outlet)
            await asyncio.wait((reading, closing), return_when="FIRST_COMPLETED")
        finally:
            reading.cancel()
            closing.cancel()
            self._clients.detach(client, outlet)

    async def _listen(
        self, requests: AsyncIterator[bytes], call: RocketmqCall, client: Client, outlet: TelemetryStream
    ) -> None:
        """Reads until the client ends the stream, has gone, or its first settings are refused.

        Go waits for settings without limit while the stream is open; ending the stream makes its start fail.
        """
        async for raw in requests:
            self._clients.heard(call)
            if not await self._take(raw, call, client, outlet):
                return

    async def _take(self, raw: bytes, call: RocketmqCall, client: Client, outlet: TelemetryStream) -> bool:
        """Processes one command. False when the client has no agreed settings afterwards."""
        try:
            command = _read(raw)
        except (Declined, Refused) as why:
            await outlet.write(rpc.TelemetryCommand(status=status_of(why, call.language)))
            return True
        if command.WhichOneof("command") != "settings":
            self._clients.answered(client, command)
            return True
        try:
            answer = rpc.TelemetryCommand(status=OK, settings=await self._agree(command.settings, call, client))
        except asyncio.CancelledError:
            raise
        except Exception as error:
            if not isinstance(error, Declined | Refused):
                log.exception("Telemetry raised")
            answer = rpc.TelemetryCommand(status=status_of(error, call.language))
        await outlet.write(answer)
        if call.is_node and answer.HasField(
            "settings"
        ):  # with several topics it begins to wait for settings after it has asked for them
            outlet.repeat(answer)
        return client.agreed

    # ── Settings ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def _agree(self, asked: pb.Settings, call: RocketmqCall, client: Client) -> pb.Settings:
        """The client's settings, with the broker's decisions written over them."""
        _check_properties(asked)
        if max(len(asked.publishing.topics), len(asked.subscription.subscriptions)) > TOPICS_MAX:
            raise Declined(pb.BAD_REQUEST, f"settings name at most {TOPICS_MAX} topics")
        agreed = pb.Settings()
        agreed.CopyFrom(asked)
        agreed.metric.on = False
        kind = asked.WhichOneof("pub_sub")
        if kind == "publishing":
            topics = [topic_name(resource, call.namespace) for resource in asked.publishing.topics]
            _merge_producer(agreed)
            self._clients.check_names(client, len(set(topics) - client.produces))
            for topic in topics:
                access_keys.check(Need("send", topic))
                await self._clients.produces(client, topic)
        elif kind == "subscription":
            await self._merge_consumer(agreed, call, client)
        else:
            raise Declined(pb.BAD_REQUEST, "settings say neither publishing nor subscription")
        client.agreed, client.timeout_ms = True, asked.request_timeout.ToMilliseconds()
        client.type = asked.client_type
        return agreed

    async def _merge_consumer(self, agreed: pb.Settings, call: RocketmqCall, client: Client) -> None:
        subscription = agreed.subscription
        name = group_name(subscription.group, call.namespace)
        topics = frozenset(topic_name(entry.topic, call.namespace) for entry in subscription.subscriptions)
        for topic in topics or [""]:
            access_keys.check(Need("receive", topic, name))
        self._clients.reads(client, name, topics)
        group = await self._group(name)
        subscription.fifo = (group is not None and group.fifo) or await self._ordered(topics)
        subscription.receive_batch_size = RECEIVE_BATCH
        pushed = agreed.client_type in (pb.PUSH_CONSUMER, pb.LITE_PUSH_CONSUMER)
        if pushed or not subscription.long_polling_timeout.seconds:
            subscription.long_polling_timeout.FromSeconds(LONG_POLLING_S)
        subscription.lite_subscription_quota = LITE_SUBSCRIPTIONS
        subscription.max_lite_topic_size = LITE_TOPIC_SIZE
        self._merge_backoff(agreed.backoff_policy, group, call)

    def _merge_backoff(self, policy: pb.RetryPolicy, group: Group | None, call: RocketmqCall) -> None:
        """Sets the attempts and the delays, in whole seconds, at least 1: one client reads nothing finer. Node gets the
        milliseconds as seconds: its ordered push consumers try again by themselves after them, and give up with less.
        """
        policy.max_attempts = group.max_attempts if group else PRODUCER_ATTEMPTS
        delays_ms: tuple[int, ...] = tuple(seconds * 1000 for seconds in LADDER_S)
        if group is not None and group.delays_ms != limits.DELAYS_MS_DEFAULT:
            delays_ms = group.delays_ms
        if call.is_node:
            policy.exponential_backoff.initial.FromSeconds(next(filter(None, delays_ms), 0))
            policy.exponential_backoff.max.FromSeconds(max(delays_ms))
            policy.exponential_backoff.multiplier = 2
            return
        policy.customized_backoff.Clear()
        for delay_ms in delays_ms:
            policy.customized_backoff.next.add().FromSeconds(max(1, -(-delay_ms // 1000)))

    async def _group(self, name: str) -> Group | None:
        try:
            groups = await self._engine.ask(queries.GroupSettings(name))
        except Refused as refused:
            if refused.code != "GROUP_NOT_FOUND":
                raise  # some clients keep the first settings that they get, so wrong ones would stay
            return None  # ReceiveMessage reports it
        return groups[0]

    async def _ordered(self, topics: frozenset[str]) -> bool:
        """Whether one of the topics keeps an order, which its consumers have to keep too."""
        for name in sorted(topics):
            try:
                rows = await self._engine.ask(queries.Topics(name))
            except Refused as refused:
                if refused.code != "TOPIC_NOT_FOUND":
                    raise
                continue
            if rows[0].topic.type in ("FIFO", "LITE"):
                return True
        return False

    # ── Life cycle ───────────────────────────────────────────────────────────────────────────────────────────────

    async def Heartbeat(self, request: rpc.HeartbeatRequest, call: RocketmqCall) -> rpc.HeartbeatResponse:
        """Accepts unknown clients too: after a restart of the broker all clients are unknown.

        Java 5.0.3 sends no type: then that of its settings counts, as in the reference.
        """
        client = self._clients.heard(call)
        kind = request.client_type or client.type
        if kind == pb.CLIENT_TYPE_UNSPECIFIED:
            raise Declined(
                pb.UNRECOGNIZED_CLIENT_TYPE, "client_type is unset, and this client has sent no settings with it"
            )
        if kind in _CONSUMERS and request.group.name:
            name = group_name(request.group, call.namespace)
            access_keys.check(Need("receive", "", name))
            client.group = name
            await self._session(client, kind, goodbye=False)
            await self._clients.renewed(call.client_id)
        return rpc.HeartbeatResponse(status=OK)

    async def NotifyClientTermination(
        self, request: rpc.NotifyClientTerminationRequest, call: RocketmqCall
    ) -> rpc.NotifyClientTerminationResponse:
        """OK for an unknown client too, so that it need not call again."""
        client = self._clients.forget(call.client_id)
        await leases.release(self._engine, call.client_id)
        if client is not None and client.group:
            await self._session(client, client.type, goodbye=True)
        return rpc.NotifyClientTerminationResponse(status=OK)

    async def _session(self, client: Client, kind: int, *, goodbye: bool) -> None:
        """A client of this protocol receives, or pulls: it has no queues of a group in the other consume mode."""
        only = dict.fromkeys(client.topics, "PULL" if kind == pb.PULL_CONSUMER else "POP")
        try:
            await self._engine.execute(
                Heartbeat(
                    client.group,
                    client.client_id,
                    client.topics,
                    goodbye,
                    versioned=False,
                    only=only,
                    asks=functools.partial(self._clients.ask, client.client_id),
                )
            )
        except Refused:
            log.debug("no session of %s in group %s", client.client_id, client.group)


def _read(raw: bytes) -> rpc.TelemetryCommand:
    """Parses a command. Raises Declined, and Refused for more elements than any valid command has."""
    if len(raw) > request_size.FREE_BYTES:
        request_size.check(rpc.TelemetryCommand, raw)
    try:
        return rpc.TelemetryCommand.FromString(raw)
    except DecodeError:
        raise Declined(pb.BAD_REQUEST, "not a command") from None


def _check_properties(settings: pb.Settings) -> None:
    """Checks a client's properties against the limits of the protocol."""
    properties = settings.client_properties
    total = sum(len(name.encode()) + len(value.encode()) for name, value in properties.items())
    good = all(_PROPERTY.match(name) and len(value) <= PROPERTY_VALUE_MAX for name, value in properties.items())
    if not good or len(properties) > PROPERTIES_MAX or total > PROPERTIES_BYTES_MAX:
        raise Declined(
            pb.INVALID_CLIENT_PROPERTIES,
            f"at most {PROPERTIES_MAX} client properties, {PROPERTIES_BYTES_MAX} bytes in all; names of 1–64 letters, "
            f"digits, '_', '-' and '.', not beginning with rocketmq.; values of {PROPERTY_VALUE_MAX} characters",
        )


def _merge_producer(agreed: pb.Settings) -> None:
    agreed.publishing.max_body_size = BODY_BYTES_MAX
    agreed.publishing.validate_message_type = True
    policy = agreed.backoff_policy
    policy.max_attempts = PRODUCER_ATTEMPTS
    policy.exponential_backoff.initial.FromMilliseconds(10)
    policy.exponential_backoff.max.FromSeconds(1)
    policy.exponential_backoff.multiplier = 2
