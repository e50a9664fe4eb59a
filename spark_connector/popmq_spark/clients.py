"""The clients with which Spark's driver and its tasks call the broker, in all modes."""

import os

import popmq
from popmq_spark.options import BrokerOptions

#: Spark keeps an executor's Python process for many tasks, and the connection with it. The key holds the process id
#: because those processes are forked: a connection must not be used on both sides of a fork.
_clients: dict[tuple[int, BrokerOptions, float], popmq.Client] = {}


def client_of(broker: BrokerOptions, patience: float) -> popmq.Client:
    """This process's client of a broker, which stays connected for later tasks."""
    key = os.getpid(), broker, patience
    if key not in _clients:
        _clients[key] = connect(broker, patience)
    return _clients[key]


def connect(broker: BrokerOptions, patience: float) -> popmq.Client:
    """A client whose calls are retried for `patience` seconds, because a failed call ends a task or the query."""
    return popmq.Client(
        broker.endpoint,
        timeouts=popmq.Timeouts.all(patience),
        tls=broker.tls,
        tls_ca=broker.tls_ca or None,
        client_cert=broker.client_cert or None,
        client_key=broker.client_key or None,
        access_key=broker.access_key or None,
        secret=broker.secret or None,
    )
