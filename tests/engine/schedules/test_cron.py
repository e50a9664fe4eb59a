"""Cron expressions in a time zone: which times they name, also where the clocks change."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from itertools import islice, pairwise

import pytest

from popmq_server.schedules import cron


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1000


def first(expression: str, zone: str, after: str, count: int = 3) -> list[str]:
    found = islice(cron.occurrences(expression, zone, ms(after)), count)
    return [datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%m-%dT%H:%M") for at_ms in found]


def test_an_occurrence_is_wall_time_in_its_zone() -> None:
    assert first("0 9 * * 1-5", "Europe/Berlin", "2026-01-30T12:00") == ["02-02T08:00", "02-03T08:00", "02-04T08:00"]
    assert first("0 9 * * *", "UTC", "2026-01-30T09:00", 1) == ["01-31T09:00"], "the time itself is over"
    assert first("@daily", "", "2026-01-30T12:00", 1) == ["01-31T00:00"]


def test_a_time_that_spring_leaves_out_comes_once_behind_the_gap() -> None:
    assert first("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00") == ["03-29T01:00", "03-30T00:30", "03-31T00:30"]
    assert first("0,30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", 2) == ["03-29T01:00", "03-30T00:00"]


def test_a_time_that_autumn_repeats_comes_once() -> None:
    assert first("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00") == ["10-25T00:30", "10-26T01:30", "10-27T01:30"]
    inside_the_second_pass = "2026-10-25T01:10"
    assert first("30 2 * * *", "Europe/Berlin", inside_the_second_pass, 1) == ["10-26T01:30"]


def test_every_hour_is_every_hour_on_both_days() -> None:
    for day, hours in (("2026-03-29", 23), ("2026-10-25", 25), ("2026-06-01", 24)):
        begin = datetime.fromisoformat(f"{day}T00:00").astimezone(UTC)  # any zone: the length of the local day counts
        begin_ms = next(cron.occurrences("0 0 * * *", "Europe/Berlin", ms(f"{day}T00:00") - 4 * 3_600_000))
        end_ms = next(cron.occurrences("0 0 * * *", "Europe/Berlin", begin_ms))
        found = list(cron.last_of("0 * * * *", "Europe/Berlin", begin_ms, end_ms - 1, 1000))
        assert len(found) == hours, (day, begin)
        assert {after - before for before, after in pairwise(found)} == {3_600_000}


@pytest.mark.parametrize(
    "wrong",
    ["", "* * * *", "* * * * * *", "61 * * * *", "0 0 30 2 *", "0 0 * 2 MON#6", "a b c d e", "MON#1/2 * * * MON#1/2"],
)
def test_what_cannot_be_read_or_never_comes_is_an_error(wrong: str) -> None:
    with pytest.raises(cron.CronError):
        cron.check(wrong, "UTC")


@pytest.mark.parametrize("zone", ["Mars", "../etc/passwd", "Europe", "/etc/localtime", "a\0b"])
def test_an_unknown_zone_is_an_error(zone: str) -> None:
    with pytest.raises(cron.CronError, match="IANA"):
        cron.check("* * * * *", zone)


def test_the_last_occurrences_of_years_of_minutes_are_found_without_a_walk_over_all() -> None:
    began = time.process_time()
    found = cron.last_of("* * * * *", "Europe/Berlin", ms("2016-01-01T00:00"), ms("2026-01-01T00:00"), 100)
    assert time.process_time() - began < 1, "five million minutes would take forty seconds"
    assert (len(found), found[-1], found[0]) == (100, ms("2026-01-01T00:00"), ms("2025-12-31T22:21"))


def test_fewer_than_asked_for_are_all_of_them_both_ends_included() -> None:
    day, last = ms("2026-01-01T00:00"), ms("2026-01-04T00:00")
    assert cron.last_of("0 0 * * *", "UTC", day, last, 100) == [day + at * 86_400_000 for at in range(4)]
    assert cron.last_of("0 0 * * *", "UTC", day, last, 2) == [last - 86_400_000, last]
    assert cron.last_of("0 0 * * *", "UTC", day + 1, last - 1, 100) == [day + at * 86_400_000 for at in (1, 2)]
