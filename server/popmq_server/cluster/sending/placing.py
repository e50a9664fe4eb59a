"""Where a send goes: a broker that takes the topic's messages, and a queue of it.

In turn, so that queues fill alike. A broker that could not be reached, or would not, is left out for a while (AVOID_S),
and one that stands still until it speaks; when all are left out, none is.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterator

from popmq_remoting import RemotingError, ResponseCode, Route, TooBusy, Unreachable
from popmq_remoting.errors import BrokerRefused, DeadlineOver
from popmq_server.cluster.layout import QueuePlace

AVOID_S = 1.0
#: Codes that say that this broker stored nothing, and that another one may take the message.
_ELSEWHERE = frozenset(
    (
        *(ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST),
        *(ResponseCode.NOT_LEADER, ResponseCode.GO_AWAY, ResponseCode.VERSION_NOT_SUPPORTED),
    )
)


class Placing:
    """Chooses broker and queue of each send. `is_silent`: whether a broker lets calls wait."""

    def __init__(self, is_silent: Callable[[str], bool]) -> None:
        self._is_silent = is_silent
        self._loop = asyncio.get_running_loop()
        self._turn = itertools.count()
        self._avoided: dict[str, float] = {}

    def places(self, route: Route) -> Iterator[QueuePlace]:
        """A queue of each broker that may be written to, the best first. Empty if there is none."""
        turn, now_s = next(self._turn), self._loop.time()
        brokers = sorted(broker for broker, queues in route.queues.items() if queues.is_writable)
        if not brokers:
            return
        start = turn % len(brokers)
        turned = brokers[start:] + brokers[:start]
        for broker in sorted(turned, key=lambda broker: self._is_left_out(broker, now_s)):
            yield QueuePlace(broker, turn // len(brokers) % route.queues[broker].write)

    def _is_left_out(self, broker: str, now_s: float) -> bool:
        return self._avoided.get(broker, 0.0) > now_s or self._is_silent(broker)

    def failed(self, broker: str) -> None:
        """Leaves a broker out for a while: a send to it failed."""
        self._avoided[broker] = self._loop.time() + AVOID_S


def may_go_elsewhere(error: RemotingError) -> bool:
    """Whether the failed send surely stored nothing, and another broker may store the message."""
    if isinstance(error, BrokerRefused):
        return error.code in _ELSEWHERE
    return isinstance(error, Unreachable | TooBusy) or (isinstance(error, DeadlineOver) and not error.maybe_done)
