"""What a gateway's metrics show of its cluster: calls as they end, and the state of its connections at a scrape."""

from collections import defaultdict
from collections.abc import Mapping

from popmq_remoting import CALLS, WAITS, Called, Cluster, Response, ResponseCode
from popmq_remoting.connection.peer import PeerNumbers
from popmq_server.cluster.members.connections import OF_CLIENTS
from popmq_server.contract.life import BrokerNumbers
from popmq_server.monitoring.gateway_metrics import GatewayMetrics

_CODES: dict[int, str] = {code.value: code.name for code in ResponseCode}


def counted(called: Called, metrics: GatewayMetrics) -> None:
    """Counts a call. An answer that the gateway expects, such as "no message", has its code like any other."""
    if isinstance(called.outcome, Response):
        code = _CODES.get(called.outcome.code) or f"CODE_{called.outcome.code}"
    else:
        code = type(called.outcome).__name__
    metrics.called(called.broker, code, called.seconds, is_parked=called.purpose == WAITS)


def broker_numbers(cluster: Cluster, versions: Mapping[str, str]) -> list[BrokerNumbers]:
    """The numbers of each broker that is known or connected, by its name."""
    names = cluster.names()
    peers = defaultdict[str, list[PeerNumbers]](list)
    for (address, purpose), numbers in cluster.numbers().items():
        if purpose in (CALLS, WAITS):
            peers[names.get(address, address)].append(numbers)
    return [
        BrokerNumbers(
            name,
            in_flight=sum(peer.in_flight for peer in peers[name]),
            reconnects=sum(max(0, peer.connects - 1) for peer in peers[name]),
            breaker_open=any(peer.breaker_open for peer in peers[name]),
            ahead_s=clock.ahead_ms / 1000 if (clock := cluster.clock(name)).is_learnt else None,
            version=versions.get(name, ""),
        )
        for name in sorted({*names.values(), *peers})
    ]


def parked(cluster: Cluster) -> int:
    """Requests that wait at brokers for messages."""
    return sum(peer.in_flight for (_, purpose), peer in cluster.numbers().items() if purpose == WAITS)


def members(cluster: Cluster) -> int:
    """Connections that stand for clients."""
    return sum(purpose.startswith(OF_CLIENTS) for _, purpose in cluster.numbers())
