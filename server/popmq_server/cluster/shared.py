"""What all parts of the engine stand on: calls to brokers, what exists, signatures, the time."""

from collections.abc import Callable

from popmq_remoting import Cluster
from popmq_server.cluster.background import Background
from popmq_server.cluster.brokers import CALL_S, Brokers
from popmq_server.cluster.catalog.groups import Groups
from popmq_server.cluster.catalog.layouts import Layouts
from popmq_server.cluster.catalog.modes import Modes
from popmq_server.cluster.catalog.topics import Topics
from popmq_server.cluster.signed.handles import Handles
from popmq_server.cluster.signed.secrets import Secrets


class Shared:
    """Given to each part; one for a process. `now_ms`: the time of day, as RocketMQ has it. `name`: as of Brokers."""

    def __init__(self, cluster: Cluster, secrets: Secrets, now_ms: Callable[[], int], name: str = "") -> None:
        self.now_ms = now_ms
        self.brokers = Brokers(cluster, name)
        self.topics = Topics(self.brokers)
        self.groups = Groups(self.brokers)
        self.layouts = Layouts(self.brokers)
        self.modes = Modes(self.brokers)
        self.secrets = secrets
        self.handles = Handles(secrets)
        self.background = Background()

    async def close(self) -> None:
        """Lets what is under way end."""
        await self.background.close(CALL_S)
        for each in (self.brokers.features, self.topics, self.groups, self.layouts, self.modes):
            each.close()
