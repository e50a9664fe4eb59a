"""Every bound and pause of a connection, with its reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PeerLimits:
    """Seconds, bytes and numbers. Tests change some of them."""

    #: To connect, with TLS. On the loopback of a data centre this takes a millisecond.
    connect_s: float = 1.0
    #: Requests under way on a connection. Brokers park long polls, so there may be many without any load.
    in_flight: int = 4_096
    #: Bytes of these requests, and of what the system has not taken yet: a broker that reads nothing holds no more.
    in_flight_bytes: int = 64 << 20
    #: What a caller above these two is told to wait.
    busy_retry_ms: int = 100
    #: Pauses between attempts to connect: a dead broker costs its callers nothing, and is noticed soon when it is back.
    breaker_first_s: float = 1.0
    breaker_most_s: float = 5.0
    #: Before a kept connection is made again: a server that closes each one at once costs little.
    again_s: float = 0.1
    #: Brokers forget a client after 120 s without a heartbeat.
    heartbeat_s: float = 30.0
    #: Seconds to answer a heartbeat; then the connection is given up: its broker is stopped, or the network is gone.
    heartbeat_answer_s: float = 5.0
    #: Seconds in which nothing comes although calls wait, after which a heartbeat asks whether the server is there.
    #: Until it answers, calls that have the choice are made elsewhere.
    silent_s: float = 1.0
    #: Seconds unused after which a connection is replaced: servers close silent ones after 120 s, maybe just now.
    idle_s: float = 100.0
    #: Pauses before a request is repeated that a broker answered with BUSY: its queue empties in some milliseconds.
    busy_first_s: float = 0.02
    busy_most_s: float = 0.5
    #: Requests of the broker that are being answered: as many checks of transactions as one read may have.
    broker_requests: int = 1_000
