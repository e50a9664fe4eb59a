"""Schedules: what the broker sends at the times of a cron expression. Times are ms since 1970 UTC (`…_ms`)."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from popmq.message import Message

#: Which occurrences are sent that are over a minute late: nothing, the latest one, or the last 100.
Missed = Literal["skip", "once", "all"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """A message that the broker sends to `topic` at each time of `cron`, each time once.

    Each message has the id `name@2026-01-31T08:00:00Z` and the properties `popmq_schedule` (the name) and
    `popmq_scheduled_for` (the time, UTC).
    """

    name: str
    cron: str  # minute, hour, day of month, month, day of week
    topic: str
    message: Message
    tz: str = "UTC"  # a name of the IANA database
    missed: Missed = "once"
    paused: bool = False
    created_ms: int = 0
    next_ms: int = 0  # the next occurrence; 0: none
    last_ms: int = 0  # the occurrence that was sent last; 0: none yet
    sent: int = 0  # messages
    skipped: int = 0  # occurrences that were missed and not sent
    failed: int = 0  # occurrences that the topic refused
    error: str = ""  # why, of the last of them
    upcoming_ms: tuple[int, ...] = ()  # the next occurrences that `client.schedules.get` asked for

    @property
    def upcoming(self) -> list[datetime]:
        """The next occurrences that were asked for, in UTC."""
        return [datetime.fromtimestamp(at_ms / 1000, UTC) for at_ms in self.upcoming_ms]
