"""The engine that the fixtures of tests/wire, tests/sdk and tests/cli serve: the embedded one, or a real RocketMQ.

    POPMQ_ON_CLUSTER=127.0.0.1:9876 pytest tests/sdk        the name server; harness/on_cluster.py starts a cluster

With a cluster, `broker` and `popmq_broker` are a gateway in this process, with names of the test's own
(own_names.py); choosing.py says which tests run.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from popmq import testing
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.options import Options
from tests.on_cluster.own_names import own_names
from tests.on_cluster.removing import remove

#: The name server of the cluster that the tests run on; "": they run on the embedded engine.
ON_CLUSTER = os.environ.get("POPMQ_ON_CLUSTER", "")


class Gateway(EmbeddedBroker):
    """A gateway, started and stopped as an embedded broker is. It has no folder, and the clock of the machine."""

    def __init__(self, port: int = 0, **options: Any) -> None:
        super().__init__(Path("none"), port=port)
        plain = Options(engine="rocketmq", namesrv=(ON_CLUSTER,), port=port, metrics_port=0, tls_port=0)
        self._options = plain._replace(**options)


class GatewayBroker(testing.Broker):
    """What the fixture `popmq_broker` gives: stopped and started, it has the same topics, groups and messages."""

    def __init__(self) -> None:
        super().__init__(Path("none"), None)

    def start(self) -> None:
        """Starts a gateway on the port that the one before had."""
        if not self._port:
            self._port = self._clients.enter_context(testing._kept_port()).getsockname()[1]
        self._embedded = Gateway(self._port)
        self._embedded.start()


@contextmanager
def gateway(**options: Any) -> Iterator[Gateway]:
    """One gateway with names of the test's own; its topics and groups are removed afterwards."""
    with own_names() as prefix:
        try:
            served = Gateway(**options)
            with served:
                yield served
        finally:
            remove(ON_CLUSTER, prefix)


@contextmanager
def gateway_broker() -> Iterator[GatewayBroker]:
    """The same, as `popmq_broker`."""
    with own_names() as prefix:
        try:
            with GatewayBroker() as served:
                yield served
        finally:
            remove(ON_CLUSTER, prefix)


@pytest.fixture
def popmq_broker() -> Iterator[GatewayBroker]:
    """In place of the fixture of popmq.testing."""
    with gateway_broker() as served:
        yield served
