"""Routes and assignments: QueryRoute, and QueryAssignment, which push consumers poll.

There is one broker, and clients reach it already: the route echoes the endpoints that the client itself used, so it
works through address translation, in containers, and with names that only the client knows.

Clients compare a new route or assignment with the old one and restart what differs, so answers must be stable. One of
them reads queue 0 only; every topic has that queue, and a Pop of it gets messages of all queues, unless a share number
is set.
"""

import ipaddress
import socket
from collections.abc import Iterable
from itertools import accumulate

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_server.contract.commands import AssignmentOf, queries
from popmq_server.contract.engine import BasicEngine
from popmq_server.protocols.rocketmq.call import RocketmqCall
from popmq_server.protocols.rocketmq.messages import TYPE_NUMBERS
from popmq_server.protocols.rocketmq.names import group_name, topic_name
from popmq_server.protocols.rocketmq.status import OK, Declined
from popmq_server.values import permission
from popmq_server.values.records import Topic

#: The broker's name in routes: clients tell brokers apart by it.
BROKER = "popmq"
#: Limits of the endpoints that a client sends. HOST_LETTERS_MAX is also that of all hosts in an answer, where each
#: queue repeats them: else an answer would be a thousand times as large as its request.
ADDRESSES_MAX, HOST_LETTERS_MAX = 64, 255
PERMISSIONS = {"READ_WRITE": pb.READ_WRITE, "READ_ONLY": pb.READ, "WRITE_ONLY": pb.WRITE, "NO_ACCESS": pb.NONE}
#: In an assignment: any queue.
ANY_QUEUE = -1


class RouteService:
    """`advertise` sets the broker's address, for clients that do not send the endpoints they used."""

    def __init__(self, engine: BasicEngine) -> None:
        self._engine = engine
        self._advertised = pb.Endpoints()

    def advertise(self, host: str, port: int) -> None:
        """A broker that listens on all addresses advertises the machine's name."""
        try:
            ip = ipaddress.ip_address(host)
        except ValueError:
            scheme = pb.DOMAIN_NAME
        else:
            scheme = pb.IPv6 if ip.version == 6 else pb.IPv4
            if ip.is_unspecified:
                scheme, host = pb.DOMAIN_NAME, socket.gethostname()
        self._advertised = pb.Endpoints(scheme=scheme, addresses=[pb.Address(host=host, port=port)])

    async def QueryRoute(self, request: rpc.QueryRouteRequest, call: RocketmqCall) -> rpc.QueryRouteResponse:
        """One entry per queue, in order, always the same."""
        endpoints = self._endpoints(request.endpoints)
        topic = await self._topic(topic_name(request.topic, call.namespace))
        queues = [_queue(request.topic, number, topic, endpoints) for number in range(topic.queues)]
        return rpc.QueryRouteResponse(status=OK, message_queues=queues)

    async def QueryAssignment(
        self, request: rpc.QueryAssignmentRequest, call: RocketmqCall
    ) -> rpc.QueryAssignmentResponse:
        """Assigns the whole topic to every consumer: the broker delivers each message to one of them.

        Where queues are shared, by the group or by SetConsumeMode, a consumer that sends heartbeats gets queues of its
        own and some of others. In a group that pulls, each queue belongs to one consumer.
        """
        endpoints = self._endpoints(request.endpoints)
        name, group = topic_name(request.topic, call.namespace), group_name(request.group, call.namespace)
        topic = await self._topic(name)
        permission.check_topic_read(topic)
        queues = [
            _queue(request.topic, number, topic, endpoints) for number in await self._assigned(topic, group, call)
        ]
        return rpc.QueryAssignmentResponse(status=OK, assignments=[pb.Assignment(message_queue=one) for one in queues])

    async def _assigned(self, topic: Topic, group: str, call: RocketmqCall) -> tuple[int, ...]:
        """Queue numbers; ReceiveMessage uses them only where a share number is set.

        In a group that pulls, a client without a heartbeat yet gets no queues: all belong to other clients.
        """
        found = await self._engine.ask(AssignmentOf(topic.name, group, call.client_id))
        if found.mode == "PULL":
            return found.queues
        if topic.type == "FIFO":
            return (0,)
        return (ANY_QUEUE,) if call.is_node or not found.queues else found.queues

    async def _topic(self, name: str) -> Topic:
        rows = await self._engine.ask(queries.Topics(name))
        topic: Topic = rows[0].topic
        return topic

    def _endpoints(self, asked: pb.Endpoints) -> pb.Endpoints:
        """The endpoints for the answer. Raises Declined ILLEGAL_ACCESS_POINT when no client can have used them."""
        if not asked.addresses or asked.scheme == pb.ADDRESS_SCHEME_UNSPECIFIED:
            return self._advertised
        if asked.scheme == pb.DOMAIN_NAME and len(asked.addresses) > 1:
            raise Declined(
                pb.ILLEGAL_ACCESS_POINT, "endpoints with the scheme DOMAIN_NAME must have exactly one address"
            )
        if len(asked.addresses) > ADDRESSES_MAX:
            raise Declined(pb.ILLEGAL_ACCESS_POINT, f"endpoints have {ADDRESSES_MAX} addresses at most")
        for address in asked.addresses:
            if not address.host.strip() or len(address.host) > HOST_LETTERS_MAX or not 0 < address.port < 65536:
                raise Declined(pb.ILLEGAL_ACCESS_POINT, f"{address.host[:40]!r}:{address.port} is not an address")
        return pb.Endpoints(scheme=asked.scheme, addresses=_few(asked.addresses))


def _few(addresses: Iterable[pb.Address]) -> list[pb.Address]:
    """The first addresses, each once, as far as HOST_LETTERS_MAX suffices for the hosts: a long name, or 17 of IPv4."""
    distinct = {(address.host, address.port): address for address in addresses}
    lengths = accumulate(len(address.host) for address in distinct.values())
    return [address for address, so_far in zip(distinct.values(), lengths, strict=True) if so_far <= HOST_LETTERS_MAX]


def _queue(resource: pb.Resource, number: int, topic: Topic, endpoints: pb.Endpoints) -> pb.MessageQueue:
    """A queue of a route. Those of dead letters and results are read-only for clients: the broker writes them."""
    allowed = PERMISSIONS[topic.permission]
    return pb.MessageQueue(
        topic=resource,
        id=number,
        permission=pb.READ if topic.is_own and allowed == pb.READ_WRITE else allowed,
        broker=pb.Broker(name=BROKER, id=0, endpoints=endpoints),
        accept_message_types=[TYPE_NUMBERS.get(topic.type, pb.NORMAL)],
    )
