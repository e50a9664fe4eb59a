"""Lite topics: SyncLiteSubscription, and pops of LITE topics.

    PARTIAL_ADD       ADD, with where the group begins          COMPLETE_ADD      REPLACE, each 30 s, as a keep-alive
    PARTIAL_REMOVE    REMOVE                                    COMPLETE_REMOVE   DROP

    offset_option     policy LAST, MIN, MAX · offset n · tail_n: n before where the group is · timestamp ms

NotifyClientTermination drops the set as well. ReceiveMessage of a LITE topic pops all lite topics that its client has
subscribed to. The engine's refusal of a plain Pop reveals that a topic is LITE; the service remembers that, so only the
first receive needs two Pops.

Where lite topics are exclusive, a client that lost one is notified, if its language handles the command: Go's other
clients would end at it, and Python and Node ignore it.
"""

import asyncio
from dataclasses import replace

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_server.contract.commands import (
    LiteSynced,
    Pop,
    Popped,
    SyncLite,
)
from popmq_server.contract.engine import BasicEngine
from popmq_server.errors import Refused
from popmq_server.protocols.rocketmq import leases
from popmq_server.protocols.rocketmq.call import RocketmqCall
from popmq_server.protocols.rocketmq.clients import ConnectedClients
from popmq_server.protocols.rocketmq.names import group_name, topic_name
from popmq_server.protocols.rocketmq.status import OK, Declined, not_one_of

_ACTIONS = {
    pb.PARTIAL_ADD: "ADD",
    pb.PARTIAL_REMOVE: "REMOVE",
    pb.COMPLETE_ADD: "REPLACE",
    pb.COMPLETE_REMOVE: "DROP",
}
_POLICIES = {pb.OffsetOption.LAST: "LAST", pb.OffsetOption.MIN: "MIN", pb.OffsetOption.MAX: "MAX"}
_KINDS = {"offset": "OFFSET", "tail_n": "TAIL", "timestamp": "TIMESTAMP"}
_TOLD = ("JAVA", "GO", "DOTNET")
#: The number of topics remembered as LITE.
TOPICS_MAX = 10_000


class LiteService:
    """The engine stores the subscriptions; this service only remembers which topics are LITE."""

    def __init__(self, engine: BasicEngine, clients: ConnectedClients) -> None:
        self._engine = engine
        self._clients = clients
        self._topics: set[str] = set()
        self._telling: set[asyncio.Future[None]] = set()

    async def SyncLiteSubscription(
        self, request: rpc.SyncLiteSubscriptionRequest, call: RocketmqCall
    ) -> rpc.SyncLiteSubscriptionResponse:
        """Changes the set of lite topics that a client pops."""
        client = self._clients.heard(call)
        topic, group = topic_name(request.topic, call.namespace), group_name(request.group, call.namespace)
        action = _ACTIONS.get(request.action)
        if action is None:
            raise not_one_of("action", request.action, map(pb.LiteSubscriptionAction.Name, _ACTIONS))
        names = tuple(request.lite_topic_set) if action != "DROP" else ()
        start = _start(request.offset_option) if request.HasField("offset_option") else None
        holder = leases.holder(call.client_id)
        answer: LiteSynced = await self._engine.execute(SyncLite(topic, group, holder, action, names, start))
        client.is_lite = True
        self._remember(topic)
        for evicted, name in answer.evicted:
            self._tell(evicted, name)
        return rpc.SyncLiteSubscriptionResponse(status=OK)

    async def pop(self, command: Pop, waiting_ms: int) -> Popped:
        """Pops a topic, LITE or not."""
        if command.topic in self._topics:
            try:
                return await self._engine.pop(_of_lites(command), waiting_ms)
            except Refused as refused:
                if (refused.code, refused.field) != ("INVALID_FIELD", "topic"):
                    raise
                self._topics.discard(command.topic)  # deleted, and created again with another type
        try:
            return await self._engine.pop(command, waiting_ms)
        except Refused as refused:
            if (refused.code, refused.field) != ("INVALID_FIELD", "lite_topics"):
                raise
        self._remember(command.topic)
        return await self._engine.pop(_of_lites(command), waiting_ms)

    def _remember(self, topic: str) -> None:
        if len(self._topics) < TOPICS_MAX:
            self._topics.add(topic)

    def _tell(self, holder: str, name: str) -> None:
        """Notifies a client that it has lost a lite topic, if its language handles the command."""
        client = self._clients.held_by(holder)
        if client is not None and client.is_lite and client.language in _TOLD:
            notify = rpc.NotifyUnsubscribeLiteCommand(lite_topic=name)
            sending = self._clients.tell(client, rpc.TelemetryCommand(notify_unsubscribe_lite_command=notify))
            task = asyncio.ensure_future(sending)
            self._telling.add(task)
            task.add_done_callback(self._notified)

    def _notified(self, task: asyncio.Task[object]) -> None:
        self._telling.discard(task)
        if not task.cancelled():
            task.exception()  # the stream broke; the client's next REPLACE does not get the lite topic back anyway


def _of_lites(command: Pop) -> Pop:
    """The Pop without filter and queues, which mean nothing for lite topics."""
    return replace(command, lite=(), filter=None, filter_wins=False, queues=(), of_queue=-1)


def _start(option: pb.OffsetOption) -> tuple[str, int]:
    """Where the group is to begin. Raises Declined for an unknown policy or a negative number."""
    kind = option.WhichOneof("offset_type")
    if kind is None or kind == "policy":
        name = _POLICIES.get(option.policy)
        if name is None:
            raise not_one_of("offset_option.policy", option.policy, map(pb.OffsetOption.Policy.Name, _POLICIES))
        return name, 0
    number = int(getattr(option, kind))
    if number < 0:
        raise Declined(pb.ILLEGAL_OFFSET, f"offset_option.{kind} is {number}")
    return _KINDS[kind], number
