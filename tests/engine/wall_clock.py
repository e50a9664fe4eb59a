"""A clock whose wall time a test sets by hand, as an operator or NTP does."""

from popmq_server.clock import SystemClock
from tests.engine.rig import Rig


class WallClock:
    """A wall clock and a monotonic one, moved by the test."""

    def __init__(self) -> None:
        self.wall_s = 1_700_000_000.0
        self.passed_ns = 5_000_000_000

    def clock(self) -> SystemClock:
        """The clock of one process."""
        return SystemClock(lambda: self.wall_s, lambda: self.passed_ns)

    def advance(self, ms: int) -> None:
        """Moves both clocks."""
        self.wall_s += ms / 1000
        self.passed_ns += ms * 1_000_000

    def step(self, ms: int) -> None:
        """Sets the wall clock."""
        self.wall_s += ms / 1000

    def reboot(self) -> None:
        """The monotonic clock starts again at zero."""
        self.passed_ns = 0


def restarted(rig: Rig, wall_clock: WallClock) -> None:
    """The machine reboots: the broker starts on the same store, with the same wall clock."""
    rig.core.close()
    wall_clock.reboot()
    rig.clock = wall_clock.clock()
    rig._start()
