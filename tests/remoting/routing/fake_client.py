"""A client of a fake cluster, and what its tests ask of it again and again."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from popmq_remoting import Cluster, Credentials, Request
from popmq_remoting.connection.link import OnRequest
from popmq_remoting.errors import RemotingError
from popmq_remoting.requests import sending
from popmq_remoting.requests.sending import SendTarget
from tests.remoting.connection.peers import now_s
from tests.remoting.fake.broker import loop_ms
from tests.remoting.fake.cluster import FakeCluster


@asynccontextmanager
async def client(
    fake: FakeCluster,
    on_request: OnRequest | None = None,
    heartbeat: Callable[[], Request] | None = None,
    credentials: Credentials | None = None,
) -> AsyncIterator[Cluster]:
    """A client, closed at the end; its clock is the brokers' but for their skew."""
    cluster = Cluster(fake.settings(credentials), on_request, heartbeat, now_ms=loop_ms, draw=lambda: 0.5)
    try:
        yield cluster
    finally:
        await cluster.close()


def soon() -> float:
    return now_s() + 5.0


async def brokers_of(cluster: Cluster, topic: str) -> list[str]:
    route = await cluster.route(topic, soon())
    return sorted(route.queues) if route else []


async def error_of(call: Awaitable[object]) -> RemotingError:
    with pytest.raises(RemotingError) as caught:
        await call
    return caught.value


async def send(
    cluster: Cluster, body: bytes, own: dict[str, str] | None = None, queue_id: int = 0
) -> sending.SendOutcome:
    target = SendTarget("t", "producers", queue_id, "a")
    request = sending.send(target, body, own or {}, loop_ms())
    return sending.sent(await cluster.call("a", request, soon()))
