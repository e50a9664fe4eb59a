"""The brokers of a cluster as they are now: masters and replicas, versions, settings, replication, clocks, disks."""

import asyncio
import re
from collections.abc import Mapping
from typing import NamedTuple

from popmq_remoting import RemotingError, Response, ResponseCode
from popmq_remoting.requests import bodies, members, topics
from popmq_remoting.routing.route import MASTER
from popmq_server.cluster import names
from popmq_server.cluster.brokers import CALL_S, Brokers

_RUNTIME = re.compile(r"(\d+) days, (\d+) hours, (\d+) minutes, (\d+) seconds")
_SECONDS = (86_400, 3_600, 60, 1)


class Seen(NamedTuple):
    """One process of a broker. `ahead_s`: its clock before ours, by whole seconds, if it tells.

    `replicas`: that a master is connected with, and those of them that have all it has. `shuts_out`: why the user of
    the gateways may not be in their group, "" if it may. `error`: why it did not answer, "" if it did.
    """

    broker: str
    id: int
    address: str
    version: str = ""
    settings: Mapping[str, str] = {}
    replicas: int = 0
    in_sync: int = 0
    ahead_s: float | None = None
    disk: str = ""
    shuts_out: str = ""
    error: str = ""

    @property
    def role(self) -> str:
        """Of the process: a replica may be master later."""
        return "master" if self.id == MASTER else "replica"


async def survey(brokers: Brokers, now_s: float, *, anew: bool = True, within_s: float = CALL_S) -> list[Seen]:
    """All processes that the name servers know, sorted. Raises Refused if none knows any.

    `now_s`: the time of day. `anew`: name servers are asked now. `within_s`: how long a broker has for its answers.
    """
    await brokers.masters(anew=anew)
    route = await brokers.cluster.brokers(brokers.until_s())
    known = [
        (name, id, address)
        for name in sorted(brokers.members(route))
        for id, address in sorted(route.brokers[name].addresses.items())
    ]
    return list(
        await asyncio.gather(*(_seen(brokers, Seen(name, id, address), now_s, within_s) for name, id, address in known))
    )


async def _seen(brokers: Brokers, known: Seen, now_s: float, within_s: float) -> Seen:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    until_s = min(brokers.until_s(), began_s + within_s)
    try:
        peer = brokers.cluster.peer(known.address)
        said = bodies.table((await peer.call(topics.runtime_info(), until_s)).expect(), "table")
        ahead_s = _ahead_s(said, now_s + loop.time() - began_s)
        settings = topics.properties_of(await peer.call(topics.broker_config(), until_s))
        replicas, in_sync, shuts_out = 0, 0, ""
        if known.id == MASTER:
            replicas, in_sync = _replicas(await peer.call(topics.replication(), until_s))
            # What ends no membership changes nothing, and needs the same right as one.
            left = await peer.call(members.unregister(brokers.cluster.client_id, consumer=names.GATEWAYS), until_s)
            shuts_out = left.remark if left.code == ResponseCode.NO_PERMISSION else ""
    except RemotingError as error:
        return known._replace(error=str(error))
    version, disk = str(said.get("brokerVersionDesc", "")), str(said.get("commitLogDirCapacity", ""))
    return known._replace(
        version=version,
        settings=settings,
        replicas=replicas,
        in_sync=in_sync,
        ahead_s=ahead_s,
        disk=disk,
        shuts_out=shuts_out,
    )


def _ahead_s(said: Mapping[str, object], now_s: float) -> float | None:
    """Brokers tell when they began, and for how many seconds they have run."""
    ran = _RUNTIME.search(str(said.get("runtime", "")))
    began = str(said.get("bootTimestamp", ""))
    if ran is None or not began.isdecimal():
        return None
    ran_s = sum(int(count) * seconds for count, seconds in zip(ran.groups(), _SECONDS, strict=True))
    # The seconds are cut: on average half of one is missing.
    return int(began) / 1000 + ran_s + 0.5 - now_s


def _replicas(answer: Response) -> tuple[int, int]:
    """Those that are connected, and those in sync; none where a broker does not tell."""
    if answer.code:
        return 0, 0
    said = bodies.members(answer)
    connected = said.get("haConnectionInfo") or []
    return len(connected) if isinstance(connected, list) else 0, bodies.number(said, "inSyncSlaveNums")
