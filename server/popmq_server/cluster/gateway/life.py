"""The life of the cluster engine: a client of the cluster, served, and closed (contract/life.py). It has no folder."""

import asyncio
import os
import pathlib
import socket

from popmq_remoting import Cluster
from popmq_remoting.errors import BadFormat
from popmq_server.clock import Clock, stopwatch
from popmq_server.cluster.access import ReplacedFiles, cluster_settings, handle_secrets
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.cluster.gateway.counting import broker_numbers, counted, members, parked
from popmq_server.cluster.gateway.reach import Reach
from popmq_server.cluster.numbers.scraped import Scraped
from popmq_server.contract.engine import RoomForAnswers
from popmq_server.contract.life import EngineNumbers, GatewayNumbers, Kept, Words
from popmq_server.errors import StartError
from popmq_server.monitoring.gateway_metrics import GatewayMetrics
from popmq_server.monitoring.metrics import Metrics
from popmq_server.options import Options


class ClusterLife:
    """The Life of a gateway. `failed` is never done: a gateway waits for its cluster."""

    words = Words("the cluster", "the gateway failed", "another gateway goes on", "it has left the cluster")

    def __init__(self, options: Options, clock: Clock, metrics: Metrics, room: RoomForAnswers | None = None) -> None:
        self._options, self._clock, self._room = options, clock, room
        self._counts = GatewayMetrics(metrics.registry)
        self.labels = {"engine": "rocketmq"}

    async def start(self) -> ClusterEngine:
        """Reads the files; its cluster may come later. Raises StartError."""
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        secrets = handle_secrets(self._options)
        settings = cluster_settings(self._options, f"{socket.gethostname()}@{os.getpid()}@popmq")
        try:
            # A step of the wall clock would make what was learnt of the brokers' clocks wrong.
            self._cluster = Cluster(
                settings, now_ms=self._clock.now_ms, observe=lambda called: counted(called, self._counts)
            )
        except BadFormat as error:
            raise StartError(str(error)) from None
        options = self._options
        self.engine = ClusterEngine(
            self._cluster, secrets, self._clock.now_ms, options.cluster, options.member_connections, self._room
        )
        self._files = ReplacedFiles(options, self._cluster, secrets)
        self._reach = Reach(self.engine.shared.brokers, options.namesrv, options.cluster, stopwatch, self.engine.learn)
        self._reach.start()
        self._scraped = Scraped(self.engine.listings)
        return self.engine

    async def alive(self) -> None:
        """Returns at once: a gateway without its cluster is alive, since no restart brings the cluster back."""

    async def ready(self) -> None:
        """Returns when a route can be read, and a master answers. Raises Refused."""
        await self._reach.ready()

    def reload(self) -> list[str]:
        """Reads the files with the user at the brokers and the secret of handles again; returns what changed."""
        return self._files.reload()

    def parked(self) -> int:
        """Calls that wait for messages."""
        return self.engine.parked()

    async def numbers(self) -> EngineNumbers:
        """The numbers for a scrape; those of topics and groups are some seconds old."""
        topics, groups = await self._scraped.numbers()
        cluster, engine = self._cluster, self.engine
        gateway = GatewayNumbers(
            broker_numbers(cluster, self._reach.versions),
            cluster.heard_s_ago(),
            parked(cluster),
            engine.sends.gathered,
            engine.ends.lookups,
            members(cluster),
        )
        return EngineNumbers(topics, groups, producers=len(engine.producers.streams()), gateway=gateway)

    def certificate_folder(self) -> pathlib.Path | None:
        """None: a gateway keeps nothing, so no certificates either."""

    def history(self) -> Kept | None:
        """None: a gateway keeps nothing, so its history begins with each start."""

    def close_waits(self) -> None:
        """Answers calls that wait."""
        self.engine.close_waits()

    async def close(self) -> None:
        """Lets what is under way end, then leaves the brokers."""
        await self._reach.close()
        self._scraped.close()
        await self.engine.close()
        await self._cluster.close()
