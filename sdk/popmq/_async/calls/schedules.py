"""Calls of schedules. See popmq.schedule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from popmq._async.client_parts import Namespace
from popmq._runtime.later import Later
from popmq.duration import Duration

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from popmq._calls import schedule_calls
    from popmq.message import Body, Message
    from popmq.schedule import Missed, Schedule
else:
    schedule_calls = Later("popmq._calls.schedule_calls")


class AsyncScheduleCalls(Namespace):
    """Creates, shows, pauses, runs and deletes schedules. Needs the right `admin`."""

    async def create(
        self,
        name: str,
        cron: str,
        topic: str,
        message: Message | Body,
        *,
        tz: str | ZoneInfo = "UTC",
        missed: Missed = "once",
        timeout: Duration | None = None,
    ) -> Schedule:
        """Makes the broker send `message` to `topic` at each time of `cron` in the zone `tz`, each time once.

        `name`: as of a topic, ≤ 100 characters. `cron`: minute, hour, day of month, month, day of week, or @hourly,
        @daily, @weekly, @monthly, @yearly. `missed`: what is sent of occurrences that are over a minute late: "skip"
        none, "once" the latest, "all" the last 100. `message`: ≤ 256 KiB, without an id, a delay or a transaction.
        One that exists with the same settings is returned. Raises AlreadyExists, TopicNotFound, InvalidField.
        """
        return await self._wire.run(
            schedule_calls.create_schedule(name, cron, topic, message, tz, missed), timeout=timeout
        )

    async def get(self, name: str, upcoming: int = 0, *, timeout: Duration | None = None) -> Schedule:
        """One schedule, with its next `upcoming` times (≤ 100). Raises ScheduleNotFound."""
        return await self._wire.run(schedule_calls.get_schedule(name, upcoming), timeout=timeout)

    async def delete(self, name: str, *, timeout: Duration | None = None) -> None:
        """Deletes a schedule; messages that it has sent stay. Raises ScheduleNotFound."""
        await self._wire.run(schedule_calls.delete_schedule(name), timeout=timeout)

    async def pause(self, name: str, *, timeout: Duration | None = None) -> Schedule:
        """Pauses a schedule: no message is sent for its occurrences until it is resumed. Raises ScheduleNotFound."""
        return await self._wire.run(schedule_calls.pause_schedule(name), timeout=timeout)

    async def resume(self, name: str, *, timeout: Duration | None = None) -> Schedule:
        """Resumes a schedule: it continues with the first occurrence after now. Raises ScheduleNotFound."""
        return await self._wire.run(schedule_calls.resume_schedule(name), timeout=timeout)

    async def run(self, name: str, *, timeout: Duration | None = None) -> str:
        """Sends its message now, in addition to its occurrences; returns the message id. Raises ScheduleNotFound, and
        what a send to the topic raises. It is not retried when the answer is lost, because that could send it twice.
        """
        return await self._wire.run(schedule_calls.run_schedule(name), timeout=timeout)

    async def list(self, *, timeout: Duration | None = None) -> list[Schedule]:
        """All schedules, by name."""
        return await self._wire.run(schedule_calls.list_schedules(), timeout=timeout)
