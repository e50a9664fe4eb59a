"""The clients of Spark's driver and tasks in all modes, and what these need of the broker's engine."""

import os

import popmq
from popmq_spark.options import BrokerOptions, OptionError

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


def expect_owners(client: popmq.Client, mode: str) -> None:
    """Raises OptionError where the engine has no owners: nothing would tell what a lease held, so no batch is exact."""
    _expect(client, "owners", mode, "read with mode=offsets: a range of offsets can be read again")


def expect_stages(client: popmq.Client) -> None:
    """Raises OptionError where the engine cannot commit staged rows."""
    _expect(
        client,
        "stages",
        "delivery = exactly-once",
        "write with delivery = at-least-once and a column message_id that follows from the row, so that readers know a "
        "repeat",
    )


def _expect(client: popmq.Client, capability: str, what: str, instead: str) -> None:
    info = client.info()
    if capability in info.lacking:
        raise OptionError(f"popmq: {what} needs {capability}, which the engine {info.engine} lacks; {instead}")
