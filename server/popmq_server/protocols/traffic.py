"""Counts what clients of both protocols have moved: for the metrics, the rates of GetStats, and the list of clients."""

from popmq_server.clock import Clock
from popmq_server.monitoring.metrics import Metrics
from popmq_server.monitoring.rates import Rates
from popmq_server.protocols.access.recent_calls import RecentCalls


class Traffic:
    """The requests that were served, and the messages that they moved. `recent`: the clients that called lately."""

    def __init__(self, clock: Clock, metrics: Metrics, rates: Rates) -> None:
        self.recent = RecentCalls(clock)
        self._metrics = metrics
        self._rates = rates

    def served(self, method: str, group: str, topic: str = "") -> None:
        """Counts a request whose names are known to exist."""
        self._metrics.requests.counts[method, group, topic].value += 1

    def moved(self, method: str, group: str, topic: str, messages: int, size: int = 0) -> None:
        """Counts messages and bytes for the metrics and for the rates of GetStats."""
        if messages:
            self._metrics.messages.counts[method, group, topic].value += messages
            self._rates.add(method, group, topic, messages)
        if size:
            self._metrics.bytes.counts[method, group, topic].value += size
