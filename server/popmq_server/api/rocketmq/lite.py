"""Lite topics: SyncLiteSubscription, and which topics are read by them.

    PARTIAL_ADD       ADD, with where the group begins          COMPLETE_ADD      REPLACE, each 30 s: a sign of life
    PARTIAL_REMOVE    REMOVE                                    COMPLETE_REMOVE   DROP

    offset_option     policy LAST, MIN, MAX · offset n · tail_n: n before where the group is · timestamp ms

NotifyClientTermination drops the set as well. A ReceiveMessage of a LITE topic gets what its client has subscribed to,
of all lite topics together. Whether a topic is one the engine says when it is popped as another; that is remembered,
so only the first receive asks twice.

Where lite topics are exclusive, clients that lost one are told, as far as they understand it: Go's other clients would
end at this command, and Python and Node ignore it.
"""

import asyncio
from typing import Any

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_server.api.rocketmq import leases
from popmq_server.api.rocketmq.call import Call
from popmq_server.api.rocketmq.clients import Clients
from popmq_server.api.rocketmq.names import group_name, topic_name
from popmq_server.api.rocketmq.status import OK, Declined
from popmq_server.commands import LiteSynced, Pop, Popped, SyncLite
from popmq_server.engine.engine import Engine
from popmq_server.errors import Refused

_ACTIONS = {
    pb.PARTIAL_ADD: "ADD",
    pb.PARTIAL_REMOVE: "REMOVE",
    pb.COMPLETE_ADD: "REPLACE",
    pb.COMPLETE_REMOVE: "DROP",
}
_POLICIES = {pb.OffsetOption.LAST: "LAST", pb.OffsetOption.MIN: "MIN", pb.OffsetOption.MAX: "MAX"}
_KINDS = {"offset": "OFFSET", "tail_n": "TAIL", "timestamp": "TIMESTAMP"}
_TOLD = ("JAVA", "GO", "DOTNET")
#: Topics of which it is remembered that they are LITE.
TOPICS_MAX = 10_000


class LiteService:
    """The engine has the names; here is only remembered which topics are LITE."""

    def __init__(self, engine: Engine, clients: Clients) -> None:
        self._engine = engine
        self._clients = clients
        self._topics: set[str] = set()
        self._telling: set[asyncio.Future[None]] = set()

    async def SyncLiteSubscription(
        self, request: rpc.SyncLiteSubscriptionRequest, call: Call
    ) -> rpc.SyncLiteSubscriptionResponse:
        """Changes the set of a client, which is to pop what it names."""
        client = self._clients.heard(call)
        topic, group = topic_name(request.topic, call.namespace), group_name(request.group, call.namespace)
        action = _ACTIONS.get(request.action)
        if action is None:
            raise Declined(pb.BAD_REQUEST, f"{request.action} is no action")
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
        """A Pop of whatever type the topic has."""
        if command.topic in self._topics:
            try:
                return await self._engine.pop(_of_lites(command), waiting_ms)
            except Refused as refused:
                if (refused.code, refused.field) != ("INVALID_FIELD", "topic"):
                    raise
                self._topics.discard(command.topic)  # deleted, and made anew as another type
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
        """A client that knows the command hears that it has lost a lite topic."""
        client = self._clients.held_by(holder)
        if client is not None and client.is_lite and client.language in _TOLD:
            notify = rpc.NotifyUnsubscribeLiteCommand(lite_topic=name)
            told = self._clients.tell(client, rpc.TelemetryCommand(notify_unsubscribe_lite_command=notify))
            task = asyncio.ensure_future(told)
            self._telling.add(task)
            task.add_done_callback(self._told)

    def _told(self, task: asyncio.Future[Any]) -> None:
        self._telling.discard(task)
        if not task.cancelled():
            task.exception()  # the stream broke: the client's next REPLACE does not get it back all the same


def _of_lites(command: Pop) -> Pop:
    """The filter of a lite consumer says nothing, and queues there are none."""
    return command._replace(lite=(), filter=None, filter_wins=False, queues=())


def _start(option: pb.OffsetOption) -> tuple[str, int]:
    """Where the group is to begin. Raises Declined for what is none."""
    kind = option.WhichOneof("offset_type")
    if kind is None or kind == "policy":
        name = _POLICIES.get(option.policy)
        if name is None:
            raise Declined(pb.BAD_REQUEST, f"{option.policy} is no policy of an offset_option")
        return name, 0
    number = int(getattr(option, kind))
    if number < 0:
        raise Declined(pb.ILLEGAL_OFFSET, f"offset_option.{kind} is {number}")
    return _KINDS[kind], number
