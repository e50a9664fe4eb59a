"""What each broker can do: its version (28) and its settings (26), asked for once a minute.

older than 5.1.3      no call to it: it has no acks in batches, and answers of other forms
recalls off, or none  the capability `recall` is lacking, as soon as one broker lacks it
older than 5.4        no PRIORITY topics
"""

import asyncio
import contextvars
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from popmq_remoting import Cluster, RemotingError, ResponseCode
from popmq_remoting.errors import BrokerRefused
from popmq_remoting.requests import bodies, topics
from popmq_server.contract import capabilities as can
from popmq_server.contract.capabilities import Capability

Version = tuple[int, ...]

FLOOR: Version = (5, 1, 3)
RECALLS: Version = (5, 3, 2)
PRIORITIES: Version = (5, 4)
#: How long it is believed, and what a question in the background may take.
FRESH_S, ASK_S = 60.0, 5.0


class Facts(NamedTuple):
    """`text`: its version as it says it, such as V5_3_3. `settings`: by their names."""

    version: Version
    text: str
    settings: Mapping[str, str]

    def is_on(self, setting: str, default: bool) -> bool:
        """A setting that is true or false. `default`: that of brokers which do not name it."""
        return self.settings.get(setting, str(default)).strip().lower() == "true"


class Features:
    """Of the brokers of a cluster, by their names."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._loop = asyncio.get_running_loop()
        self._known: dict[str, tuple[Facts, float]] = {}
        self._asking: dict[str, asyncio.Task[Facts]] = {}

    async def of(self, broker: str, until_s: float) -> Facts:
        """Raises RemotingError if nothing is known of it, and it does not answer."""
        known = self._known.get(broker)
        if known is not None and self._loop.time() - known[1] < FRESH_S:
            return known[0]
        task = self._asking.get(broker)
        if task is None:
            task = self._loop.create_task(self._ask(broker), context=contextvars.Context())
            self._asking[broker] = task
            task.add_done_callback(lambda done: self._asked(broker, done))
        if known is not None:
            return known[0]
        async with asyncio.timeout_at(until_s):
            return await asyncio.shield(task)

    async def expect_served(self, broker: str, until_s: float) -> None:
        """Raises BrokerRefused for one that is too old. One that does not answer is not judged."""
        try:
            facts = await self.of(broker, until_s)
        except (RemotingError, TimeoutError):
            return
        if facts.version < FLOOR:
            why = f"its version is {facts.text}, and gateways need {'.'.join(map(str, FLOOR))}"
            raise BrokerRefused(ResponseCode.VERSION_NOT_SUPPORTED, why, broker)

    async def _ask(self, broker: str) -> Facts:
        until_s = self._loop.time() + ASK_S
        said = bodies.table((await self._cluster.call(broker, topics.runtime_info(), until_s)).expect(), "table")
        settings = topics.properties_of(await self._cluster.call(broker, topics.broker_config(), until_s))
        text = str(said.get("brokerVersionDesc", ""))
        facts = Facts(version_of(text), text, settings)
        self._known[broker] = facts, self._loop.time()
        return facts

    def _asked(self, broker: str, task: asyncio.Task[Facts]) -> None:
        del self._asking[broker]
        if not task.cancelled():
            task.exception()  # whoever asked may have gone, or had older facts

    def close(self) -> None:
        """Ends what is being asked."""
        for task in list(self._asking.values()):
            task.cancel()


def version_of(text: str) -> Version:
    """From V5_3_3, or V5_3_3_SNAPSHOT. One that nobody can read is taken for a new one."""
    numbers = [int(part) for part in text.removeprefix("V").split("_") if part.isascii() and part.isdecimal()]
    return tuple(numbers) or (99,)


def lacking(facts: Iterable[Facts]) -> frozenset[Capability]:
    """What one of the brokers lacks, so that the cluster does."""
    recalls = all(each.version >= RECALLS and each.is_on("recallMessageEnable", False) for each in facts)
    return frozenset() if recalls else frozenset((can.RECALL,))
