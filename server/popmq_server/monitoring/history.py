"""An hour of numbers in memory: a point each STEP_MS, of the whole broker, each topic, and each group in each topic.

    number   0   1   2  …  120  121 …            samples since the first one; a sample while the broker is down has none
    slot     0   1   2  …  120   0  …            of the ring: one more than is shown, which the running sample writes
    Series   sent₀ sent₁ … sent₁₂₀ bytes₀ …      one array of floats, column by column

A value has seven digits, as a float of four bytes has: enough for a chart. A topic with two groups takes 9 KB.
One that the engine does not know is UNKNOWN, and so are sums with it, and the oldest with it.
For the event loop's thread; `sampling.py` fills it, `history_format.py` keeps it across a restart.
"""

import math
from array import array
from collections.abc import Iterable, Sequence
from itertools import islice
from operator import add
from typing import NamedTuple

#: Half a minute: an hour is then a point every six units of a chart, and a sample costs a thousandth of its time.
STEP_MS = 30_000
HOUR_MS = 3_600_000
POINTS = HOUR_MS // STEP_MS
SLOTS = POINTS + 1
#: Topics, and pairs of a group and a topic, that have a series: all of them together take 10 MB at most.
TOPICS_MAX = 2000
PAIRS_MAX = 2000
#: Series whose sums are made in one turn of the event loop: some 1 ms.
SERIES_A_TURN = 10
UNKNOWN = math.nan


class TopicPoint(NamedTuple):
    """The numbers of one topic at one time. Rates are means since the point before. `bytes`: stored."""

    sent_per_s: float = 0.0
    sent_bytes_per_s: float = 0.0
    bytes: float = 0.0


class PairPoint(NamedTuple):
    """The numbers of one group in one topic. `retries` wait for another attempt; `dead`: in all topics of the group."""

    popped_per_s: float = 0.0
    acked_per_s: float = 0.0
    backlog: float = 0.0
    in_flight: float = 0.0
    retries: float = 0.0
    oldest_s: float = 0.0
    dead: float = 0.0


class BrokerPoint(NamedTuple):
    """The numbers of the broker. Lateness: the mean, in seconds, of what became visible since the point before."""

    leases_late_s: float = 0.0
    delayed_late_s: float = 0.0
    used_bytes: float = 0.0


class Point(NamedTuple):
    """One row of an answer: sums over what was asked for, and the oldest of all. `broker`: only of the whole broker."""

    time_ms: int
    topic: TopicPoint
    pair: PairPoint
    broker: BrokerPoint | None


def known(value: float) -> float | None:
    """The value; None for UNKNOWN."""
    return None if math.isnan(value) else value


def oldest(one: float, other: float) -> float:
    """The greater of two ages."""
    return UNKNOWN if math.isnan(one) or math.isnan(other) else max(one, other)


TOPIC_COLUMNS, PAIR_COLUMNS, BROKER_COLUMNS = (len(kind._fields) for kind in (TopicPoint, PairPoint, BrokerPoint))
#: Columns of a pair that are added up; the last two are not: the oldest is a maximum, and dead letters are of a group.
_SUMS = (PAIR_COLUMNS - 2) * SLOTS
Pair = tuple[str, str]  # group, topic


class Series:
    """The values of one thing. `began`: the number of its first sample. `seen`: of its newest one."""

    __slots__ = ("began", "seen", "values")

    def __init__(self, columns: int, began: int, values: "array[float] | None" = None) -> None:
        self.values = array("f", bytes(4 * columns * SLOTS)) if values is None else values
        self.began = self.seen = began

    def note(self, number: int, row: Sequence[float]) -> None:
        """Takes the values of a sample."""
        self.values[number % SLOTS :: SLOTS] = array("f", row)
        self.seen = number


class History:
    """The series of one broker. A sample is `begin`, a `note` for each thing, `end`; readers see it from `end` on."""

    def __init__(self) -> None:
        self.number = 0
        self.times_ms = [0] * SLOTS
        self.broker = Series(TOPIC_COLUMNS + PAIR_COLUMNS + BROKER_COLUMNS, 0)
        self.topics: dict[str, Series] = {}
        self.pairs: dict[Pair, Series] = {}

    def begin(self, now_ms: int) -> None:
        """Begins a sample."""
        self.times_ms[self.number % SLOTS] = now_ms

    def note_topic(self, topic: str, row: TopicPoint) -> None:
        """Adds a topic to the sample; one beyond TOPICS_MAX is left out."""
        if (series := self.topics.get(topic)) is None:
            if len(self.topics) >= TOPICS_MAX:
                return
            series = self.topics[topic] = Series(TOPIC_COLUMNS, self.number)
        series.note(self.number, row)

    def note_pair(self, pair: Pair, row: PairPoint) -> None:
        """Adds a group in a topic to the sample; one beyond PAIRS_MAX is left out."""
        if (series := self.pairs.get(pair)) is None:
            if len(self.pairs) >= PAIRS_MAX:
                return
            series = self.pairs[pair] = Series(PAIR_COLUMNS, self.number)
        series.note(self.number, row)

    def end(self, topics: TopicPoint, pairs: PairPoint, broker: BrokerPoint) -> None:
        """Ends the sample: with the sums over everything, also over what has no series. Drops what is gone."""
        self.broker.note(self.number, (*topics, *pairs, *broker))
        self.topics = {name: series for name, series in self.topics.items() if series.seen == self.number}
        self.pairs = {pair: series for pair, series in self.pairs.items() if series.seen == self.number}
        self.number += 1

    def forget(self, *, group: str = "", topic: str = "") -> None:
        """Drops the series of a deleted group or topic: one created later under that name is a new one."""
        self.topics.pop(topic, None)
        for pair in [pair for pair in self.pairs if pair[0] == group or pair[1] == topic]:
            del self.pairs[pair]

    def whole(self, now_ms: int) -> list[Point]:
        """The points of the whole broker."""
        columns = _columns(self.broker.values)
        pairs_from, broker_from = TOPIC_COLUMNS, TOPIC_COLUMNS + PAIR_COLUMNS
        return [
            Point(
                self.times_ms[slot],
                TopicPoint(*(column[slot] for column in columns[:pairs_from])),
                PairPoint(*(column[slot] for column in columns[pairs_from:broker_from])),
                BrokerPoint(*(column[slot] for column in columns[broker_from:])),
            )
            for slot in self.slots(now_ms, 0)
        ]

    def slots(self, now_ms: int, began: int) -> list[int]:
        """The slots of the last hour from the sample `began` on, the oldest first."""
        numbers = range(max(began, self.number - POINTS), self.number)
        return [slot for number in numbers if self.times_ms[slot := number % SLOTS] > now_ms - HOUR_MS]

    def left_out(self, topics: Iterable[str], pairs: Iterable[Pair]) -> bool:
        """Whether one of these has no series because as many others as are kept have one."""
        beyond = len(self.topics) >= TOPICS_MAX and any(topic not in self.topics for topic in topics)
        return beyond or (len(self.pairs) >= PAIRS_MAX and any(pair not in self.pairs for pair in pairs))


class Sums:
    """Adds up series of a History, piece by piece: the points are those of the moment when it was made."""

    def __init__(self, history: History, topics: Iterable[str], pairs: Iterable[Pair], now_ms: int) -> None:
        self._times_ms = history.times_ms
        found = [history.topics[topic] for topic in topics if topic in history.topics]
        named = [(pair[0], history.pairs[pair]) for pair in pairs if pair in history.pairs]
        self._left = iter([*((None, series) for series in found), *named])
        began = min((series.began for series in (*found, *(series for _, series in named))), default=history.number)
        self._slots = history.slots(now_ms, began)
        self._topics: Sequence[float] = array("f", bytes(4 * TOPIC_COLUMNS * SLOTS))
        self._sums: Sequence[float] = array("f", bytes(4 * _SUMS))
        self._oldest: Sequence[float] = array("f", bytes(4 * SLOTS))
        self._dead: dict[str, Sequence[float]] = {}

    def take(self) -> bool:
        """Adds the next SERIES_A_TURN series; False: there were none."""
        took = False
        for group, series in islice(self._left, SERIES_A_TURN):
            took = True
            if group is None:
                self._topics = list(map(add, self._topics, series.values))
                continue
            values = series.values
            self._sums = list(map(add, self._sums, values[:_SUMS]))
            self._oldest = list(map(oldest, self._oldest, values[_SUMS : _SUMS + SLOTS]))
            dead = values[_SUMS + SLOTS :]
            self._dead[group] = list(map(max, self._dead.get(group, dead), dead))
        return took

    def points(self) -> list[Point]:
        """The points since the first of the series began; call it after `take` has returned False."""
        topics, pairs = _columns(self._topics), _columns(self._sums)
        return [
            Point(
                self._times_ms[slot],
                TopicPoint(*(column[slot] for column in topics)),
                PairPoint._make((*(column[slot] for column in pairs), self._oldest[slot], self._dead_at(slot))),
                None,
            )
            for slot in self._slots
        ]

    def _dead_at(self, slot: int) -> float:
        return sum(dead[slot] for dead in self._dead.values())


def _columns(values: Sequence[float]) -> list[Sequence[float]]:
    return [values[begin : begin + SLOTS] for begin in range(0, len(values), SLOTS)]
