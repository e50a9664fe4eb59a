"""Whether a gateway reaches its cluster: looked at again and again, for /readyz and for the log.

    look ─▶ the name servers: all brokers ─▶ each master: its version ─▶ reached, if one of them answers
                └── no answer ─▶ why            └── none answers ─▶ why

Name servers that are silent later do no harm: what they said is known. A cluster that is away is waited for; no restart
of the gateway would help.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from popmq_remoting import RemotingError, Route
from popmq_remoting.requests import bodies, topics
from popmq_server.clock import pause
from popmq_server.cluster.brokers import Brokers
from popmq_server.errors import Refused, unavailable

log = logging.getLogger("popmq.cluster")

#: Seconds between two looks while the cluster is not reached, and later; and the limit of one look.
WAIT_S, AGAIN_S, LOOK_S = 0.5, 5.0, 3.0
#: Seconds between two lines of the log that say the same: what the gateway waits for.
QUIET_S = 60.0
#: How long `ready` waits for the first look. Beside a running cluster that takes some ms.
FIRST_S = 0.9


class Reach:
    """Looks at the cluster again and again. `namesrv`, `cluster`: the settings of these names.

    `reached`: called once the cluster is reached, and again as long as it raises Refused.
    """

    def __init__(
        self,
        brokers: Brokers,
        namesrv: tuple[str, ...],
        cluster: str,
        seconds: Callable[[], float],
        reached: Callable[[], Awaitable[None]],
    ) -> None:
        self._reached, self._has_learnt = reached, False
        self._brokers, self._cluster, self._seconds = brokers, cluster, seconds
        self._servers = ", ".join(namesrv)
        self._looked = asyncio.Event()
        self._why = f"waiting for the name servers {self._servers}"
        self._said_s = -QUIET_S
        #: The version, such as V5_3_3, of each master that has answered, by the broker's name.
        self.versions: dict[str, str] = {}

    def start(self) -> None:
        """Starts to look, in a task of its own."""
        self._task = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        """Ends that task."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def ready(self) -> None:
        """Returns if the cluster was reached when it was looked at last. Raises Refused UNAVAILABLE, which says why."""
        if not self._looked.is_set():
            looked = asyncio.ensure_future(self._looked.wait())
            await asyncio.wait((looked,), timeout=FIRST_S)
            looked.cancel()
        if self._why:
            raise unavailable(self._why)

    async def _run(self) -> None:
        while True:
            before, self._why = self._why, await self._look()
            self._say(before)
            self._looked.set()
            await self._learn()
            await pause(WAIT_S if self._why else AGAIN_S)

    async def _learn(self) -> None:
        """Once, when each master answers. Until then brokers themselves refuse what they lack."""
        if not self._why and not self._has_learnt:
            try:
                await self._reached()
                self._has_learnt = True
            except Refused as refused:
                log.info("it is not known yet what the cluster lacks: %s", refused.message)

    def _say(self, before: str) -> None:
        now_s = self._seconds()
        if self._why and (not before or now_s - self._said_s >= QUIET_S):
            log.warning("%s", self._why)
            self._said_s = now_s
        elif before and not self._why:
            named = ", ".join(f"{name} ({version})" for name, version in sorted(self.versions.items()))
            log.info("the cluster is reached: %s", named)
            self._said_s = -QUIET_S

    async def _look(self) -> str:
        """What is waited for; "" if the cluster is reached."""
        until_s = asyncio.get_running_loop().time() + LOOK_S
        try:
            route = await self._brokers.cluster.brokers(until_s)
        except RemotingError as error:
            return f"waiting for the name servers {self._servers}: {error}"
        masters = self._brokers.members(route)
        if why := self._unclear(route, masters):
            return why
        answers = dict(zip(masters, await asyncio.gather(*(self._asked(one, until_s) for one in masters)), strict=True))
        refusals = {name: answer for name, answer in answers.items() if isinstance(answer, RemotingError)}
        self.versions |= {name: answer for name, answer in answers.items() if isinstance(answer, str)}
        if len(refusals) < len(answers):
            return ""
        reasons = "; ".join(f"{name}: {error}" for name, error in sorted(refusals.items()))
        return f"waiting for a master of the cluster: {reasons}"

    def _unclear(self, route: Route, masters: list[str]) -> str:
        """Why nobody can say which brokers are meant; "" if that is clear."""
        clusters = sorted({broker.cluster for broker in route.brokers.values()})
        if not clusters:
            return f"waiting for brokers: the name servers {self._servers} know none"
        if not masters:
            known = ", ".join(clusters)
            return f"the name servers know no cluster {self._cluster!r}, but {known}: name one of them by --cluster"
        if not self._cluster and len(clusters) > 1:
            return f"the name servers know the clusters {', '.join(clusters)}: name one of them by --cluster"
        return ""

    async def _asked(self, broker: str, until_s: float) -> str | RemotingError:
        """The version of its master, or what went wrong."""
        try:
            answer = await self._brokers.cluster.call(broker, topics.runtime_info(), until_s)
            return str(bodies.table(answer.expect(), "table").get("brokerVersionDesc", "unknown"))
        except RemotingError as error:
            return error
