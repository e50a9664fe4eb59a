"""Where a topic is: QueryRoute, and what a push consumer polls: QueryAssignment.

There is one broker, and clients reach it already: the route echoes the endpoints that the client itself used, so it
works through address translation, in containers, and by names that only the client knows.

Clients compare a new route or assignment with the old one, and begin anew what differs: answers are the same each time.
One of them reads queue 0 only, so every topic has it, and whoever names it is served from all queues.
"""

import ipaddress
import socket

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_server.api.rocketmq.call import Call
from popmq_server.api.rocketmq.messages import TYPE_NUMBERS
from popmq_server.api.rocketmq.names import group_name, topic_name
from popmq_server.api.rocketmq.status import OK, Declined
from popmq_server.commands import Look
from popmq_server.engine.engine import Engine
from popmq_server.model.records import Topic
from popmq_server.topics import permission

#: The name of the one broker: clients tell brokers apart by it.
BROKER = "popmq"
#: Bounds of what a client says of how it came: each queue of a route repeats it.
ADDRESSES_MAX, HOST_LETTERS_MAX = 64, 255
PERMISSIONS = {"READ_WRITE": pb.READ_WRITE, "READ_ONLY": pb.READ, "WRITE_ONLY": pb.WRITE, "NO_ACCESS": pb.NONE}
#: In an assignment: any queue.
ANY_QUEUE = -1


class RouteService:
    """`advertise` says where this broker is, for clients that do not tell how they reach it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._advertised = pb.Endpoints()

    def advertise(self, host: str, port: int) -> None:
        """A broker that listens on all addresses of its machine is reached by the machine's name."""
        try:
            ip = ipaddress.ip_address(host)
        except ValueError:
            scheme = pb.DOMAIN_NAME
        else:
            scheme = pb.IPv6 if ip.version == 6 else pb.IPv4
            if ip.is_unspecified:
                scheme, host = pb.DOMAIN_NAME, socket.gethostname()
        self._advertised = pb.Endpoints(scheme=scheme, addresses=[pb.Address(host=host, port=port)])

    async def QueryRoute(self, request: rpc.QueryRouteRequest, call: Call) -> rpc.QueryRouteResponse:
        """One entry for each queue, in their order, always the same."""
        endpoints = self._endpoints(request.endpoints)
        topic = await self._topic(topic_name(request.topic, call.namespace))
        queues = [_queue(request.topic, number, topic, endpoints) for number in range(topic.queues)]
        return rpc.QueryRouteResponse(status=OK, message_queues=queues)

    async def QueryAssignment(self, request: rpc.QueryAssignmentRequest, call: Call) -> rpc.QueryAssignmentResponse:
        """Every consumer polls the whole topic: the broker hands each message to one of them.

        Where queues are shared, by the group or by SetConsumeMode, a consumer that sends heartbeats is given queues of
        its own and some of others. In a group that pulls each queue belongs to one consumer.
        """
        endpoints = self._endpoints(request.endpoints)
        name, group = topic_name(request.topic, call.namespace), group_name(request.group, call.namespace)
        topic = await self._topic(name)
        permission.check_topic_read(topic)
        queues = [
            _queue(request.topic, number, topic, endpoints) for number in await self._assigned(topic, group, call)
        ]
        return rpc.QueryAssignmentResponse(status=OK, assignments=[pb.Assignment(message_queue=one) for one in queues])

    async def _assigned(self, topic: Topic, group: str, call: Call) -> tuple[int, ...]:
        """Numbers of queues. ReceiveMessage looks at them where queues are shared only.

        A group that pulls gives none to a client that has sent no heartbeat yet: all would be others' as well.
        """
        found = await self._engine.assignment(topic.name, group, call.client_id)
        if found.mode == "PULL":
            return found.queues
        if topic.type == "FIFO":
            return (0,)
        return (ANY_QUEUE,) if call.is_node or not found.queues else found.queues

    async def _topic(self, name: str) -> Topic:
        rows = await self._engine.execute(Look("topics", (name,)))
        topic: Topic = rows[0].topic
        return topic

    def _endpoints(self, asked: pb.Endpoints) -> pb.Endpoints:
        """Raises Declined ILLEGAL_ACCESS_POINT for what no client can have connected to."""
        if not asked.addresses or asked.scheme == pb.ADDRESS_SCHEME_UNSPECIFIED:
            return self._advertised
        if asked.scheme == pb.DOMAIN_NAME and len(asked.addresses) > 1:
            raise Declined(pb.ILLEGAL_ACCESS_POINT, "endpoints of the scheme DOMAIN_NAME have one address")
        if len(asked.addresses) > ADDRESSES_MAX:
            raise Declined(pb.ILLEGAL_ACCESS_POINT, f"endpoints have {ADDRESSES_MAX} addresses at most")
        for address in asked.addresses:
            if not address.host.strip() or len(address.host) > HOST_LETTERS_MAX or not 0 < address.port < 65536:
                raise Declined(pb.ILLEGAL_ACCESS_POINT, f"{address.host[:40]!r}:{address.port} is no address")
        return asked


def _queue(resource: pb.Resource, number: int, topic: Topic, endpoints: pb.Endpoints) -> pb.MessageQueue:
    """Dead letters are for readers only: the broker alone writes them."""
    allowed = PERMISSIONS[topic.permission]
    return pb.MessageQueue(
        topic=resource,
        id=number,
        permission=pb.READ if topic.is_dead_letter and allowed == pb.READ_WRITE else allowed,
        broker=pb.Broker(name=BROKER, id=0, endpoints=endpoints),
        accept_message_types=[TYPE_NUMBERS.get(topic.type, pb.NORMAL)],
    )
