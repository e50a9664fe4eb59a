"""A broker's clock, as it is learnt from the times of its pops: the median of the last ten differences.

A pop carries `bornTime`, the broker's time at which it was asked. One that lies more than 500 ms before is answered
`POLLING_TIMEOUT` at once; one in the future does a pop no harm. So until something is learnt, pops name a time far
ahead, and the first answer teaches. 0 is never sent: with access control, 5.3.3 refuses every such pop.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection

SAMPLES = 10
#: A sample is as exact as half of the way there and back. Answers that took longer were parked, or say little.
ROUND_TRIP_MS_MAX = 1_000
#: Added to the time of pops before anything is learnt: clocks that differ by more need an operator.
UNLEARNT_MS = 15 * 60_000


class BrokerClock:
    """`now_ms`: our own clock, in ms since 1970."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._samples_ms: deque[int] = deque(maxlen=SAMPLES)
        #: How far it is ahead of ours; 0 until learnt.
        self.ahead_ms = 0

    @property
    def is_learnt(self) -> bool:
        return bool(self._samples_ms)

    def learn(self, broker_ms: int, asked_ms: int) -> None:
        """The broker wrote this time into its answer to a request that we sent at `asked_ms`, by our clock."""
        now_ms = self._now_ms()
        if 0 <= now_ms - asked_ms <= ROUND_TRIP_MS_MAX:
            sample_ms = broker_ms - (asked_ms + now_ms) // 2
            if abs(sample_ms - self.ahead_ms) > ROUND_TRIP_MS_MAX:
                self._samples_ms.clear()  # no sample is so wrong: one of the clocks was set
            self._samples_ms.append(sample_ms)
            self.ahead_ms = _median(self._samples_ms)

    def forget(self) -> None:
        """The broker runs on another machine now."""
        self._samples_ms.clear()
        self.ahead_ms = 0

    def now_ms(self) -> int:
        """Its time now. For the ends of leases, and bornTime of requests that are parked."""
        return self._now_ms() + self.ahead_ms

    def pop_born_ms(self) -> int:
        """bornTime of a pop that is not parked: never before the broker's time, however wrong the samples are."""
        return self.now_ms() + (ROUND_TRIP_MS_MAX // 2 if self.is_learnt else UNLEARNT_MS)


def _median(samples_ms: Collection[int]) -> int:
    """As statistics.median, towards 0: that module loads decimals and fractions, a tenth of this package's import."""
    ordered, middle = sorted(samples_ms), len(samples_ms) // 2
    return ordered[middle] if len(ordered) % 2 else int((ordered[middle - 1] + ordered[middle]) / 2)
