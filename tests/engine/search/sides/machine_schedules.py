"""Schedules at random: made, paused, run, over crashes, down times and set clocks, where local time changes.

The model knows cron from the other side: it looks at every minute, or at every local date, and never asks cronsim. What
has to be right is the sequence of message ids of each schedule: none missing, none twice, none of another time.
"""

import shutil
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.embedded.rules.schedules import occurrences
from popmq_server.errors import Refused
from tests.engine.rig import DAY, HOUR, MINUTE, SECOND, Rig, parsed
from tests.engine.search.model.model_facts import must

SLOT = 30 * MINUTE
NAMES = ("ann", "bob", "cat")
#: The evenings before clocks change in Berlin; in New York they change a week and three weeks apart from that.
STARTS = [datetime(2026, 3, 28, 18, tzinfo=UTC), datetime(2026, 10, 24, 18, tzinfo=UTC)]


class Times(NamedTuple):
    """An expression; None: `*`."""

    minutes: tuple[int, ...] | None
    hours: tuple[int, ...] | None
    weekdays: tuple[int, ...] | None  # 0 = Sunday

    def text(self) -> str:
        parts = [self.minutes, self.hours, None, None, self.weekdays]
        return " ".join("*" if part is None else ",".join(map(str, part)) for part in parts)


def is_of(values: tuple[int, ...] | None, value: int) -> bool:
    return values is None or value in values


def between(times: Times, zone: ZoneInfo, after_ms: int, until_ms: int) -> list[int]:
    """Every occurrence after the one time, up to the other."""
    if times.minutes is None or times.hours is None:
        slots = range(after_ms // SLOT * SLOT, until_ms + 1, SLOT)
        return [at for slot in slots for at in of_slot(times, zone, slot) if after_ms < at <= until_ms]
    found = set()
    day = datetime.fromtimestamp(after_ms / 1000, zone).date() - timedelta(days=1)
    last = datetime.fromtimestamp(until_ms / 1000, zone).date()
    while day <= last:
        if is_of(times.weekdays, day.isoweekday() % 7):
            found |= {instant(day, hour, minute, zone) for hour in times.hours for minute in times.minutes}
        day += timedelta(days=1)
    return sorted(at_ms for at_ms in found if after_ms < at_ms <= until_ms)


def of_slot(times: Times, zone: ZoneInfo, slot_ms: int) -> list[int]:
    """The occurrences of half an hour, in which local time does not jump."""
    local = datetime.fromtimestamp(slot_ms / 1000, zone)
    if not (is_of(times.weekdays, local.isoweekday() % 7) and is_of(times.hours, local.hour)):
        return []
    minutes = range(30) if times.minutes is None else [minute - local.minute for minute in times.minutes]
    return [slot_ms + minute * MINUTE for minute in minutes if 0 <= minute < 30]


def instant(day: date, hour: int, minute: int, zone: ZoneInfo) -> int:
    """The first occurrence of a local time; for one inside a gap, the first minute after the gap."""
    local = datetime.combine(day, time_of_day(hour, minute))
    while True:
        at = local.replace(tzinfo=zone).astimezone(UTC)
        if at.astimezone(zone).replace(tzinfo=None) == local:
            return round(at.timestamp()) * 1000
        local += timedelta(minutes=1)


def following(times: Times, zone: ZoneInfo, after_ms: int) -> int:
    for days in (1, 3, 9, 16):
        if found := between(times, zone, after_ms, after_ms + days * DAY):
            return found[0]
    raise AssertionError("every expression here matches once a week, but in the week whose clock jumps over its hour")


@dataclass
class Known:
    """A schedule as the model knows it."""

    times: Times
    zone: ZoneInfo
    missed: str
    next_ms: int
    looked_ms: int
    sent: list[str] = field(default_factory=list)
    skipped: int = 0
    paused: bool = False

    def occur(self, name: str, wall_ms: int) -> None:
        """Sends the due occurrences that the policy demands."""
        if self.paused or self.next_ms > wall_ms:
            return
        due = between(self.times, self.zone, self.next_ms - 1, wall_ms)[-occurrences.COUNTED_MAX :]
        wanted = due[-occurrences.MISSED_MAX :]
        if self.missed != "ALL":
            wanted = due[-1:] if self.missed == "ONCE" else [at for at in due if wall_ms - at <= occurrences.GRACE_MS]
        self.sent += [f"{name}@{shown(at_ms)}" for at_ms in wanted]
        self.skipped += len(due) - len(wanted)
        self.look(wall_ms)

    def look(self, wall_ms: int) -> None:
        self.next_ms, self.looked_ms = following(self.times, self.zone, wall_ms), wall_ms


def shown(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


some_minutes = st.sampled_from([None, (0,), (30,), (0, 30), (59,), (1, 2, 3)])
some_hours = st.sampled_from([None, (2,), (1, 2, 3), (0,), (3,), tuple(range(24))])
some_days = st.sampled_from([None, None, (0,), (1, 2, 3, 4, 5), (6,)])
zones = st.sampled_from(["Europe/Berlin", "Europe/Berlin", "America/New_York", "UTC", "Australia/Lord_Howe"])


class Scheduled(RuleBasedStateMachine):
    """One topic, three names."""

    @initialize(start=st.sampled_from(STARTS))
    def begin(self, start: datetime) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="popmq-schedules-"))
        self.clock = FakeClock(round(start.timestamp()) * 1000)
        self.rig = Rig(self.folder / "data", clock=self.clock, map_bytes=1 << 26)
        self.rig.topic("t", by_age=True, keep_ms=1000 * DAY)
        self.known: dict[str, Known] = {}
        self.told: dict[str, list[str]] = {}
        self.offset = 0

    def teardown(self) -> None:
        if hasattr(self, "rig"):
            self.rig.abandon()
            shutil.rmtree(self.folder)

    def settle(self) -> None:
        self.rig.settle()
        for name, known in self.known.items():
            known.occur(name, self.clock.wall_ms())

    # ── Operators ────────────────────────────────────────────────────────────────────────────────────────────────

    @rule(
        name=st.sampled_from(NAMES),
        times=st.builds(Times, some_minutes, some_hours, some_days),
        zone=zones,
        missed=st.sampled_from(["SKIP", "ONCE", "ALL"]),
    )
    def create(self, name: str, times: Times, zone: str, missed: str) -> None:
        data = pb.Message(message_id=name, body=b"x").SerializeToString()
        command = ask.CreateSchedule(name, times.text(), zone, "t", missed, ask.NewMessage(data, "", name))
        (answer,) = self.rig.run(command)
        if name in self.known:
            same = (self.known[name].times, self.known[name].zone.key, self.known[name].missed) == (times, zone, missed)
            must(isinstance(answer, Refused) != same, "a schedule of this name exists", answer)
            return
        must(not isinstance(answer, Refused), "a new schedule", answer)
        self.known[name] = Known(times, ZoneInfo(zone), missed, 0, 0)
        self.known[name].look(self.clock.wall_ms())
        self.told[name] = []
        self.settle()

    @rule(name=st.sampled_from(NAMES), paused=st.booleans())
    def pause(self, name: str, paused: bool) -> None:
        (answer,) = self.rig.run(ask.PauseSchedule(name, paused))
        must(isinstance(answer, Refused) == (name not in self.known), "pause", answer)
        if name in self.known and self.known[name].paused != paused:
            self.known[name].paused = paused
            self.known[name].look(self.clock.wall_ms())
        self.settle()

    @rule(name=st.sampled_from(NAMES))
    def run_now(self, name: str) -> None:
        (answer,) = self.rig.run(ask.RunSchedule(name))
        if name in self.known:
            known = self.known[name]
            must(answer == f"{name}@{shown(self.clock.wall_ms())}+{len(known.sent)}", "the id of a run", answer)
            known.sent.append(answer)
        self.settle()

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        self.compare()  # a deleted schedule has no counts any more
        (answer,) = self.rig.run(ask.DeleteSchedule(name))
        must(isinstance(answer, Refused) == (name not in self.known), "delete", answer)
        if name in self.known:
            del self.known[name], self.told[name]

    # ── Time, and what happens to the broker ─────────────────────────────────────────────────────────────────────

    @rule(
        ms=st.sampled_from([SECOND, 59 * SECOND, MINUTE, 7 * MINUTE, HOUR, HOUR, 5 * HOUR, DAY]),
        times=st.integers(1, 4),
    )
    def time_passes(self, ms: int, times: int) -> None:
        for _ in range(times):
            self.rig.skip(ms)
            self.settle()

    @rule(ms=st.sampled_from([0, SECOND, MINUTE, HOUR, 3 * HOUR, 2 * DAY]), clean=st.booleans())
    def down(self, ms: int, clean: bool) -> None:
        if clean:
            self.rig.core.close()
        else:
            self.rig.abandon()
        self.rig.skip(ms)
        self.rig._start()
        self.settle()

    @rule()
    def lose_a_commit(self) -> None:
        """Killed after the work of a commit and before its end."""
        self.rig.skip(MINUTE)
        tx = self.rig.core._begin()
        self.rig.core._timed(tx)
        tx.abort()
        self.rig.crash()
        self.settle()

    @rule(ms=st.sampled_from([-2 * DAY, -2 * HOUR, -59 * MINUTE, -SECOND, SECOND, 59 * MINUTE, 2 * DAY]))
    def set_the_clock(self, ms: int) -> None:
        self.clock.step_wall(ms)
        self.rig.skip(MINUTE + SECOND)
        wall_ms = self.clock.wall_ms()
        for known in self.known.values():
            if not known.paused and known.looked_ms - wall_ms > occurrences.AHEAD_MAX_MS:
                known.look(wall_ms)
        self.settle()

    # ── What is compared ─────────────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def compare(self) -> None:
        if not hasattr(self, "rig"):
            return
        page = self.rig.browse("t", 0, self.offset)
        self.offset = page.next_offset
        for row in page.rows:
            message = parsed(row[0])
            self.told[message.properties["popmq_schedule"]].append(message.message_id)
        for name, known in self.known.items():
            must(self.told[name] == known.sent, "what a schedule sent", name, self.told[name][-5:], known.sent[-5:])
            (row_,) = self.rig.look(queries.Schedules(name=name))
            counted = (row_.schedule.sent, row_.schedule.skipped, row_.schedule.failed)
            must(counted == (len(known.sent), known.skipped, 0), "its counts", counted, known.skipped)
            must(row_.schedule.next_ms == (0 if known.paused else known.next_ms), "its next", row_, known.next_ms)

    @invariant()
    def check(self) -> None:
        if hasattr(self, "rig"):
            must(self.rig.findings() == [], "fsck", self.rig.findings())
