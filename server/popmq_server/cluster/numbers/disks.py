"""The disks of the brokers: the fullest one is that of the cluster, since its broker refuses sends first."""

import re

from popmq_remoting import Response
from popmq_remoting.requests import bodies, topics
from popmq_server.cluster.brokers import Brokers, whole
from popmq_server.cluster.refusals import Asked
from popmq_server.contract.commands.numbers import StoreNumbers
from popmq_server.errors import Refused

#: The sizes in a text of a broker, such as "Total : 252.0 GiB, Free : 214.4 GiB".
_CAPACITY = re.compile(r"Total : ([\d.]+) (\w+), Free : ([\d.]+) (\w+)")
_UNITS = {unit: 1 << 10 * power for power, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))}


async def fullest(brokers: Brokers) -> StoreNumbers:
    """Used and free bytes of the fullest disk, to a tenth of their unit. Raises Refused."""
    answers = await brokers.of_each(await brokers.masters(), lambda _: topics.runtime_info(), _disk, Asked(""))
    disks = [answer for answer in answers.values() if isinstance(answer, StoreNumbers)]
    if not disks:
        refusals = {broker: answer for broker, answer in answers.items() if isinstance(answer, Refused)}
        if refusals:
            whole(refusals)
        raise Refused("UNSUPPORTED", "brokers do not say how full their disks are", action="look at their disks")
    return max(disks, key=lambda disk: disk.used_bytes / max(1, disk.used_bytes + disk.disk_free_bytes))


def _disk(answer: Response) -> StoreNumbers | None:
    total, free = sizes(str(bodies.table(answer.expect(), "table").get("commitLogDirCapacity", "")))
    return None if total is None or free is None else StoreNumbers(None, max(0, int(total - free)), int(free), None)


def sizes(capacity: str) -> tuple[float | None, float | None]:
    """The bytes of a disk, and those of them that are free, from a broker's text; None if nobody can read it."""
    found = _CAPACITY.search(capacity)
    if found is None or found[2] not in _UNITS or found[4] not in _UNITS:
        return None, None
    return float(found[1]) * _UNITS[found[2]], float(found[3]) * _UNITS[found[4]]
