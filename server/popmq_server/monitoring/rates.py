"""Message rates over the last minute: counts by second in a ring. For the event loop's thread."""

from popmq_server.clock import Clock

WINDOW_S = 60


class Rates:
    """`add` counts, `per_second` averages over the last WINDOW_S seconds, at first over those since the start."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_ms = clock.now_ms()
        self._rings: dict[tuple[str, str, str], dict[int, int]] = {}

    def add(self, what: str, group: str, topic: str, count: int) -> None:
        """Counts `count` messages now."""
        if count:
            key = what, group, topic
            if (ring := self._rings.get(key)) is None:
                ring = self._rings[key] = {}
            second = self._clock.now_ms() // 1000
            if second in ring:
                ring[second] += count
                return
            ring[second] = count
            if len(ring) > 2 * WINDOW_S:
                self._forget(ring, second)

    def per_second(self, what: str, group: str, topic: str) -> float:
        """Messages per second over the last WINDOW_S seconds, idle ones included."""
        ring = self._rings.get((what, group, topic))
        if not ring:
            return 0.0
        now_ms = self._clock.now_ms()
        self._forget(ring, now_ms // 1000)
        return sum(ring.values()) / min(WINDOW_S, max(1.0, (now_ms - self._began_ms) / 1000))

    def forget(self, *, group: str = "", topic: str = "") -> None:
        """Drops the counts of a deleted group or topic: one created later under that name starts at zero."""
        for key in [key for key in self._rings if (group and key[1] == group) or (topic and key[2] == topic)]:
            del self._rings[key]

    @staticmethod
    def _forget(ring: dict[int, int], second: int) -> None:
        for old in [old for old in ring if old <= second - WINDOW_S]:
            del ring[old]
