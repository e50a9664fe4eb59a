"""How many bytes a group has before it: brokers count messages, so their mean size is that of a sample.

    the messages before the group in a queue ─▶ up to SAMPLES places, evenly apart ─▶ some messages at each (11)

Each queue has its own mean, kept for a while, and as long as the sample is of most of the backlog.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from popmq_server.cluster.brokers import Brokers, in_lanes
from popmq_server.cluster.catalog.topics import KnownTopic
from popmq_server.cluster.layout import QueuePlace
from popmq_server.cluster.pulling.reading import Reader, Reading
from popmq_server.contract.commands import bytes_of
from popmq_server.errors import Refused

#: Places of a sample, shared by the queues of a topic, at least one of each; and messages at each place.
SAMPLES, SAMPLE_MESSAGES, SAMPLE_BYTES = 16, 8, 64 << 10
KEPT_S = 15.0
#: The share of a backlog that a sample has to be of.
COVERED = 0.8
MEANS_MAX = 20_000


class Backlog(NamedTuple):
    """The messages of a queue from `at` to before `most`."""

    place: QueuePlace
    at: int
    most: int

    @property
    def messages(self) -> int:
        return max(0, self.most - self.at)

    def is_covered(self, other: "Backlog") -> bool:
        """Whether most of this backlog was in the other one."""
        return min(self.most, other.most) - max(self.at, other.at) >= COVERED * self.messages


class _Mean(NamedTuple):
    """A mean size, of which backlog, and when it was measured."""

    size: float
    backlog: Backlog
    measured_s: float


class Sizes:
    """Estimates the bytes that a group has before it."""

    def __init__(self, brokers: Brokers) -> None:
        self._reader = Reader(brokers)
        self._loop = asyncio.get_running_loop()
        #: By topic, group and queue.
        self._means: OrderedDict[tuple[str, str, QueuePlace], _Mean] = OrderedDict()

    async def behind(self, topic: KnownTopic, group: str, backlogs: Sequence[Backlog]) -> list[int]:
        """An estimate of the bytes of each backlog. `group`: whose it is. Raises Refused."""
        total = sum(each.messages for each in backlogs)
        found = [0] * len(backlogs)

        async def one(index: int) -> None:
            backlog = backlogs[index]
            key = (topic.broker_name, group, backlog.place)
            mean, now_s = self._means.get(key), self._loop.time()
            if mean is None or now_s - mean.measured_s >= KEPT_S or not backlog.is_covered(mean.backlog):
                size = await self._mean(topic, backlog, -(-SAMPLES * backlog.messages // total))
                mean = _Mean(size, backlog, now_s)
                self._keep(key, mean)
            found[index] = round(mean.size * backlog.messages)

        await in_lanes([index for index, each in enumerate(backlogs) if each.messages], one)
        return found

    async def _mean(self, topic: KnownTopic, backlog: Backlog, samples: int) -> float:
        """Of up to `samples` places, from the middle of each stretch."""
        stretch = max(SAMPLE_MESSAGES, backlog.messages // samples)
        size = count = 0
        for begin in range(backlog.at, backlog.most, stretch):
            at = max(begin, min(begin + (stretch - SAMPLE_MESSAGES) // 2, backlog.most - SAMPLE_MESSAGES))
            try:
                read = await self._reader.read(
                    Reading(topic, backlog.place, "", 0, at, SAMPLE_MESSAGES, SAMPLE_BYTES, redriven=True)
                )
            except Refused as refused:
                if refused.code == "UNAVAILABLE":
                    raise
                break  # no topic any more
            size, count = size + bytes_of(read.rows), count + len(read.rows)
        return size / count if count else 0.0

    def _keep(self, key: tuple[str, str, QueuePlace], mean: _Mean) -> None:
        self._means[key] = mean
        self._means.move_to_end(key)
        if len(self._means) > MEANS_MAX:
            self._means.popitem(last=False)
