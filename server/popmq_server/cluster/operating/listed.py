"""The brokers for a client of this gateway: what `popmq cluster brokers` shows, and how many requests are in flight."""

from collections import Counter

from popmq_remoting.routing.route import MASTER
from popmq_server.cluster.numbers.disks import sizes
from popmq_server.cluster.operating.survey import Seen, survey
from popmq_server.cluster.remembered import Remembered
from popmq_server.cluster.shared import Shared
from popmq_server.contract.commands import queries
from popmq_server.contract.commands.numbers import ClusterBroker, ClusterBrokers

#: How long an answer is used again, however many ask; and what a broker may take until it counts as silent.
AGAIN_S, ANSWER_S = 2.0, 3.0


class BrokerLists:
    """Lists the brokers."""

    def __init__(self, shared: Shared) -> None:
        self._brokers, self._now_ms = shared.brokers, shared.now_ms
        self._seen = Remembered[str, list[Seen]](self._look)

    async def _look(self, _: str) -> list[Seen]:
        return await survey(self._brokers, self._now_ms() / 1000, anew=False, within_s=ANSWER_S)

    async def listed(self, _: queries.Brokers) -> ClusterBrokers:
        """Raises Refused UNAVAILABLE while no name server has answered."""
        seen = await self._seen.get("", AGAIN_S)
        in_flight = Counter[str]()
        for (address, _purpose), numbers in self._brokers.cluster.numbers().items():
            in_flight[address] += numbers.in_flight
        heard_s = self._brokers.cluster.heard_s_ago()
        age_ms = None if heard_s is None else round(heard_s * 1000)
        return ClusterBrokers([_row(each, in_flight[each.address]) for each in seen], age_ms)

    def close(self) -> None:
        """Ends what is being asked."""
        self._seen.close()


def _row(seen: Seen, in_flight: int) -> ClusterBroker:
    tells = seen.id == MASTER and not seen.error
    total, free = sizes(seen.disk)
    return ClusterBroker(
        seen.broker,
        seen.id,
        seen.address,
        seen.version,
        replicas=seen.replicas if tells else None,
        in_sync=seen.in_sync if tells else None,
        ahead_ms=None if seen.ahead_s is None else round(seen.ahead_s * 1000),
        disk_bytes=None if total is None else int(total),
        disk_free_bytes=None if free is None else int(free),
        in_flight=in_flight,
        error=seen.error,
    )


BY_BROKERS = queries.Brokers.awaited_by(BrokerLists.listed)
