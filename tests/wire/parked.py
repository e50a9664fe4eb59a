"""Tells a test that a call is parked, which no answer shows, without polling."""

import threading

from tests.wire.stubs import CALL_S


class Parked:
    """Counts the waits that have begun since the test began."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = threading.Condition()

    def add(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait_for(self, count: int, within_s: float = CALL_S) -> None:
        """Returns once `count` calls have parked."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._count >= count, within_s), f"{self._count} of {count} parked"
