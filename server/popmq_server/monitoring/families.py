"""Counters and histograms that are cheap to count: a call of one message changes five of them.

They keep plain numbers, and become metrics at a scrape. prometheus-client's own check, lock and look for exemplars at
each change: five times the calls. In exchange each family here may be changed by one thread only: what calls count
belongs to the event loop, what commits count to the writer.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric


class Count:
    """One number of a CounterFamily."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1) -> None:
        """Adds `amount`, which is not negative."""
        self.value += amount


class Counts(dict[tuple[str, ...], Count]):
    """The counts of a family by their label values; one that is asked for begins at 0."""

    def __missing__(self, values: tuple[str, ...]) -> Count:
        made = self[values] = Count()
        return made


class CounterFamily:
    """Counts by labels. Without labels it is shown from the start, with them after its first count."""

    def __init__(self, name: str, text: str, labels: Sequence[str], registry: CollectorRegistry | None) -> None:
        """`registry`: None: the caller registers it later, or never shows it."""
        self._name, self._text, self._labels = name, text, labels
        self.counts = Counts()
        if not labels:
            self.labels()
        if registry is not None:
            registry.register(self)

    def labels(self, *values: str) -> Count:
        """The count of these label values."""
        return self.counts[values]

    def value(self, *values: str) -> float:
        """The count of these label values; 0 before their first one."""
        found = self.counts.get(values)
        return found.value if found is not None else 0.0

    def inc(self, amount: float = 1) -> None:
        """Adds to the count without labels."""
        self.counts[()].value += amount

    def remove(self, *values: str) -> None:
        """Drops the count of these label values."""
        self.counts.pop(values, None)

    def names(self) -> list[tuple[str, ...]]:
        """The label values of all counts."""
        return list(self.counts)

    def describe(self) -> Iterator[Metric]:
        yield CounterMetricFamily(self._name, self._text, labels=self._labels)

    def collect(self) -> Iterator[Metric]:
        """The family for a scrape, which runs on another thread: `list` copies the counts in one step."""
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for values, count in list(self.counts.items()):
            family.add_metric(values, count.value)
        yield family


class Observed:
    """One histogram of a HistogramFamily: how many values each bucket has, and their sum."""

    __slots__ = ("_bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Counts a value in the first bucket whose bound is not below it."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value


class HistogramFamily:
    """Histograms by labels. `bounds`: upper bounds of the buckets, ascending; the last bucket has none."""

    def __init__(
        self,
        name: str,
        text: str,
        labels: Sequence[str],
        bounds: tuple[float, ...],
        registry: CollectorRegistry | None,
    ) -> None:
        """`registry`: as of CounterFamily."""
        self._name, self._text, self._labels, self._bounds = name, text, labels, bounds
        self._found: dict[tuple[str, ...], Observed] = {}
        if not labels:
            self.labels()
        if registry is not None:
            registry.register(self)

    def labels(self, *values: str) -> Observed:
        """The histogram of these label values."""
        if (found := self._found.get(values)) is None:
            found = self._found[values] = Observed(self._bounds)
        return found

    def observe(self, value: float) -> None:
        """Counts a value in the histogram without labels."""
        self._found[()].observe(value)

    def describe(self) -> Iterator[Metric]:
        yield HistogramMetricFamily(self._name, self._text, labels=self._labels)

    def collect(self) -> Iterator[Metric]:
        """The family for a scrape. Its sum may lack a value that its buckets have."""
        family = HistogramMetricFamily(self._name, self._text, labels=self._labels)
        names = [*map(_shown, self._bounds), "+Inf"]
        for values, observed in list(self._found.items()):
            buckets = list(zip(names, accumulate(observed.counts), strict=True))
            family.add_metric(values, buckets, observed.sum)
        yield family


def _shown(bound: float) -> str:
    """A bound as prometheus-client writes it."""
    return str(float(bound))
