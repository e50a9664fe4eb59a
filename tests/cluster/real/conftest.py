"""A real RocketMQ with two masters, and gateways in front of it. `make test-cluster`; needs Java 17 and Maven.

POPMQ_ROCKETMQ names a folder with the jars of another version; POPMQ_NAMESRV, host:port, a cluster that runs already.
Topics and groups have names of the test's own.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from harness.rocketmq_cluster import RocketMQCluster
from popmq_remoting import Cluster, ClusterSettings
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.cluster.signed.secrets import Secrets
from tests.cluster.gateway import SECRET


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


@pytest.fixture(scope="session")
def name_server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[str]:
    """host:port of the name server of a cluster with the brokers a and b."""
    if running := os.environ.get("POPMQ_NAMESRV"):
        yield running
        return
    jars: Path = request.getfixturevalue("jars")
    with RocketMQCluster(tmp_path_factory.mktemp("rocketmq"), jars, ("a", "b")) as cluster:
        yield cluster.name_server


class Rig:
    """Gateways of one cluster, and names of the test's own."""

    def __init__(self, name_server: str) -> None:
        self.name_server = name_server
        own = uuid.uuid4().hex[:10]
        self.topic, self.group = f"shop.t{own}", f"shop.g{own}"

    @asynccontextmanager
    async def gateway(self, secret: bytes = SECRET) -> AsyncIterator[ClusterEngine]:
        """A gateway's engine, closed at the end."""
        cluster = Cluster(ClusterSettings([self.name_server], f"gateway-{uuid.uuid4().hex}"))
        engine = ClusterEngine(cluster, Secrets([secret]), wall_ms)
        try:
            yield engine
        finally:
            engine.close_waits()
            await engine.close()
            await cluster.close()


@pytest.fixture
def rig(name_server: str) -> Rig:
    return Rig(name_server)
