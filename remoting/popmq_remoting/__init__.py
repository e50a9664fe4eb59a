"""A client of RocketMQ's remoting protocol on asyncio: name servers, brokers, and all that travels between them and us.

It knows nothing of PopMQ, imports only the standard library, and keeps nothing that matters: handles, ids and positions
are in the callers' hands or in the brokers.

    Cluster (routing/)      route(topic) ─▶ RouteMemory, NameServers        call(broker, request, until_s) ─▶ Response
       │                    clock(broker) ─▶ BrokerClock
       ▼
    Peer (connection/)      one address: breaker, connects when needed, heartbeats, BUSY again, GO_AWAY once more
       ▼
    PeerLink (connection/)  one socket, one write in a turn of the event loop
       ▼
    Multiplexer (connection/)   requests by number, bounded; no socket
       ▼
    wire/                   frames, headers, signatures        requests/  makes each Request, reads its Response
    loose_json, names       bodies of older brokers, names     messages/, pops/  records, batches, handles, acks

What an engine calls:

    Cluster(ClusterSettings(…), on_request, heartbeat)  one for a process; close() at its end
    await cluster.route(topic, until_s)             brokers and queues of a topic, or None
    cluster.doubt(topic), broker_lacks(topic, b)    what an answer showed about a route
    await cluster.brokers(until_s)                  all brokers, for what goes to each master
    await cluster.call(broker, request, until_s)    to its master; purpose=WAITS for long polls
    cluster.is_silent(broker)                       whether it lets calls wait now: others are better asked
    cluster.peer(address, purpose, heartbeat)       a member's own connection; keep(), beat(), close_peer
    cluster.name_servers.tell_all(request, until_s) writes to all name servers
    cluster.clock(broker)                           now_ms, pop_born_ms; learn(popTime, asked) after each pop
    cluster.sign_with(credentials)                  another user, or another secret of this one
    Cluster(…, observe=…)                           told of each call: broker, outcome, seconds
    cluster.numbers()                               for metrics
    requests.sending.send(…) … .sent(answer)        and so on: a function for each request, a reader for its answer

Each call ends by `until_s`, a time of the event loop's clock, with an answer or a RemotingError (errors.py), whose
`maybe_done` says whether the broker may have carried it out. Nothing that may have been carried out is repeated here.

docs/decisions/0048-own-remoting-client.md says why it is our own.
"""

from popmq_remoting.codes import RequestCode, ResponseCode
from popmq_remoting.connection.limits import PeerLimits
from popmq_remoting.connection.peer import Peer
from popmq_remoting.connection.tls import ClusterTls, TlsMode
from popmq_remoting.errors import (
    BadFormat,
    BrokerRefused,
    ConnectionLost,
    DeadlineOver,
    RemotingError,
    TooBusy,
    Unreachable,
)
from popmq_remoting.routing.broker_clock import BrokerClock
from popmq_remoting.routing.cluster import CALLS, WAITS, Called, Cluster, ClusterSettings
from popmq_remoting.routing.route import BrokerAddresses, Route, TopicQueues
from popmq_remoting.wire.command import Request, Response
from popmq_remoting.wire.signature import Credentials

__all__ = [
    "CALLS",
    "WAITS",
    "BadFormat",
    "BrokerAddresses",
    "BrokerClock",
    "BrokerRefused",
    "Called",
    "Cluster",
    "ClusterSettings",
    "ClusterTls",
    "ConnectionLost",
    "Credentials",
    "DeadlineOver",
    "Peer",
    "PeerLimits",
    "RemotingError",
    "Request",
    "RequestCode",
    "Response",
    "ResponseCode",
    "Route",
    "TlsMode",
    "TooBusy",
    "TopicQueues",
    "Unreachable",
]
