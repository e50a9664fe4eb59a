"""Sends the due messages of schedules: each message and the next due time in one commit (schedules.py).

    due by the wall clock ──▶ those late by more than GRACE_MS were missed: the broker was down, paused or full
                              SKIP  sends none of them
                              ONCE  sends the latest that is due, for all of them
                              ALL   sends the last MISSED_MAX, in order

A step of the wall clock forward makes occurrences due; those that it passes by more than GRACE_MS are missed. A step
back by up to AHEAD_MAX_MS waits until the clock has reached its old time again: no occurrence is sent twice. A larger
step corrects a wrong clock, so the schedule continues from the corrected time (`turn`). The timer runs
on the broker's clock, so a step of the wall clock is noticed within a minute, when other maintenance runs.
"""

import logging

from popmq_server.clock import SAVED_AHEAD_MAX_MS
from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.rules.schedules import cron, schedules
from popmq_server.embedded.rules.topics import registry
from popmq_server.embedded.state.events import Event
from popmq_server.embedded.state.jobs import RETRY_MS, Job, Timed
from popmq_server.embedded.state.space import GROW, MESSAGE_BYTES
from popmq_server.embedded.state.tx import Tx
from popmq_server.errors import Refused
from popmq_server.values.records import Schedule

#: An occurrence that is later than this was missed; schedules have a resolution of a minute.
GRACE_MS = 60_000
#: Missed occurrences of one schedule that ALL sends.
MISSED_MAX = 100
#: Occurrences of one gap that are examined and counted.
COUNTED_MAX = 1000
#: A wall clock that is set back by more than this had been wrong.
AHEAD_MAX_MS = SAVED_AHEAD_MAX_MS
#: Messages and bytes of one piece; one message is always allowed.
MESSAGES_MAX = 256
BYTES_MAX = 4 << 20
#: Interval between two attempts to read a schedule: its time zone may be missing on this machine.
UNREADABLE_MS = 60_000


class Occurring(Job):
    """Sends due occurrences; one step is one piece. A schedule whose message finds no pages does not block others."""

    name = "schedules"

    def next_ms(self, tx: Tx) -> int | None:
        """When the first occurrence is due on the broker's clock, as far ahead as it is on the wall clock."""
        due_ms = tx.state.schedule_due
        if due_ms and any(until_ms > tx.now_ms for until_ms in self.postponed.values()):
            return min(max(_on_our_clock(tx, one.next_ms), self.not_before(one.name)) for one in _with_next(tx))
        if not due_ms:
            return None
        return _on_our_clock(tx, due_ms)

    def step(self, tx: Tx, work: Timed) -> None:
        left = _Left(self.at_most(MESSAGES_MAX), self.at_most(BYTES_MAX))
        due = [one for one in _with_next(tx) if one.next_ms <= tx.wall_ms and not self.waits(tx, one.name)]
        for schedule in sorted(due, key=lambda one: (one.next_ms, one.name)):
            if not left.any:
                break
            self.alone = schedule.name if self.at_most(MESSAGES_MAX) == 1 else None
            if not _occur(tx, schedule, left):
                self.postpone(tx.now_ms + RETRY_MS)
                break
        schedules.find_first(tx)


def _with_next(tx: Tx) -> list[Schedule]:
    """The schedules that have a next occurrence."""
    return [one for one in tx.state.schedules.values() if one.next_ms > 0]


def _on_our_clock(tx: Tx, due_ms: int) -> int:
    """A time of the wall clock as one of the broker's clock; now if it has passed."""
    return tx.now_ms + max(0, due_ms - tx.wall_ms)


class _Left:
    """The messages and bytes that one piece may still send."""

    def __init__(self, messages: int, size: int) -> None:
        self._messages, self._bytes = messages, size

    @property
    def any(self) -> bool:
        return self._messages > 0 and self._bytes > 0

    def take(self, size: int) -> None:
        self._messages -= 1
        self._bytes -= size


def _occur(tx: Tx, schedule: Schedule, left: _Left) -> bool:
    """Sends the due occurrences of one schedule, as many as are left; False if the store has no room."""
    try:
        due = cron.last_of(schedule.cron, schedule.zone, schedule.next_ms, tx.wall_ms, COUNTED_MAX)
        after_ms = cron.following(schedule.cron, schedule.zone, tx.wall_ms) or 0
    except cron.CronError as error:
        failed = _failed(tx, schedule, str(error))
        schedules.store_next(tx, failed._replace(next_ms=tx.wall_ms + UNREADABLE_MS, looked_ms=tx.wall_ms))
        return True
    wanted = _wanted(schedule.missed, due, tx.wall_ms)
    if len(wanted) < len(due):
        schedule = _skipped(tx, schedule, len(due) - len(wanted))
    for index, at_ms in enumerate(wanted):
        if not left.any or not _room(tx, schedule):
            schedules.store_next(tx, schedule._replace(next_ms=at_ms, looked_ms=tx.wall_ms))
            return not left.any or index > 0
        schedule = _send(tx, schedule, at_ms, left)
    schedules.store_next(tx, schedule._replace(next_ms=after_ms, looked_ms=tx.wall_ms))
    return True


def _wanted(missed: str, due: list[int], wall_ms: int) -> list[int]:
    """The due occurrences that are sent."""
    if missed == "ALL":
        return due[-MISSED_MAX:]
    if missed == "ONCE":
        return due[-1:]
    return [at_ms for at_ms in due if wall_ms - at_ms <= GRACE_MS]


def _room(tx: Tx, schedule: Schedule) -> bool:
    kept = tx.kv.get("cronmsg", schedule.name.encode())
    return tx.room.has(GROW, (0 if kept is None else len(kept)) + MESSAGE_BYTES)


def _send(tx: Tx, schedule: Schedule, at_ms: int, left: _Left) -> Schedule:
    """Sends one occurrence, or notes why the topic refuses it."""
    if at_ms > tx.wall_ms:
        broken("schedule_never_early", name=schedule.name, at_ms=at_ms, wall_ms=tx.wall_ms)
    try:
        message = schedules.message_at(tx, schedule, at_ms)
        schedules.send(tx, schedule, message)
    except Refused as refused:
        return _failed(tx, schedule, refused.message)
    left.take(len(message.data))
    text = f"schedule {schedule.name!r} sent {message.message_id}"
    tx.tell(Event("schedule_sent", "", schedule.topic, 1, text, logging.DEBUG))
    return schedule._replace(last_ms=at_ms, sent=schedule.sent + 1)


def _failed(tx: Tx, schedule: Schedule, why: str) -> Schedule:
    text = f"schedule {schedule.name!r} could not send to topic {schedule.topic!r}: {why}"
    tx.tell(Event("schedule_failed", "", _label(tx, schedule), 1, text))
    return schedule._replace(failed=schedule.failed + 1, error=why)


def _skipped(tx: Tx, schedule: Schedule, count: int) -> Schedule:
    text = f"schedule {schedule.name!r} was late: {count} occurrences are left out (--missed {schedule.missed.lower()})"
    tx.tell(Event("schedule_skipped", "", _label(tx, schedule), count, text))
    return schedule._replace(skipped=schedule.skipped + count)


def _label(tx: Tx, schedule: Schedule) -> str:
    """The topic for the metrics, which have names of existing topics only."""
    return schedule.topic if registry.topic(tx, schedule.topic) is not None else ""


def turn(tx: Tx) -> bool:
    """Computes the next occurrence again for schedules whose time came from a wall clock far ahead of this one."""
    for schedule in tx.state.schedules.values():
        if schedule.next_ms and schedule.looked_ms - tx.wall_ms > AHEAD_MAX_MS:
            try:
                schedules.put(tx, schedules.found_next(tx, schedule))
            except cron.CronError as error:
                schedules.put(tx, _failed(tx, schedule, str(error))._replace(looked_ms=tx.wall_ms))
    return False
