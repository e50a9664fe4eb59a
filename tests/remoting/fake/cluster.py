"""Name servers and brokers together."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType

from popmq_remoting.routing.cluster import ClusterSettings
from popmq_remoting.wire.signature import Credentials
from tests.remoting.fake.broker import FakeBroker, loop_ms
from tests.remoting.fake.name_server import FakeNameServer, Registered


class FakeCluster:
    """`async with FakeCluster(("a", "b")) as fake:` – brokers by name, and as many name servers as asked for."""

    def __init__(
        self,
        brokers: Iterable[str] = ("a",),
        name_servers: int = 1,
        secrets: Mapping[str, str] | None = None,
        skew_ms: int = 0,
        tls: ssl.SSLContext | None = None,
        now_ms: Callable[[], int] = loop_ms,
    ) -> None:
        self.brokers = {name: FakeBroker(name, secrets, skew_ms, now_ms=now_ms) for name in brokers}
        for name, broker in self.brokers.items():
            broker.registers = functools.partial(self.register, name)
        self.name_servers = [FakeNameServer() for _ in range(name_servers)]
        self._tls = tls

    async def __aenter__(self) -> FakeCluster:
        for server in (*self.name_servers, *self.brokers.values()):
            await server.start(self._tls)
        self.register()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in (*self.name_servers, *self.brokers.values()):
            await server.stop()

    def settings(self, credentials: Credentials | None = None) -> ClusterSettings:
        return ClusterSettings([server.address for server in self.name_servers], "client-1", credentials)

    def create(self, topic: str, queues: int = 2, group: str | None = "g") -> None:
        """A topic, and a group, on every broker; name servers know it at once."""
        for broker in self.brokers.values():
            broker.log.create(topic, queues)
            if group:
                broker.log.groups[group] = {"groupName": group, "retryMaxTimes": 16}
        self.register()

    def register(self, *names: str) -> None:
        """Brokers tell the name servers what they have: these, or all."""
        for name in names or self.brokers:
            broker = self.brokers[name]
            topics = {
                topic: (len(each.queues), len(each.queues), each.perm) for topic, each in broker.log.topics.items()
            }
            for server in self.name_servers:
                server.brokers[name] = Registered({0: broker.address}, topics)

    def forget(self) -> None:
        """Name servers were restarted: they know no broker."""
        for server in self.name_servers:
            server.brokers.clear()
