"""Cron expressions in a time zone: which times they name, also where the clocks change."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest

from popmq_server.embedded.rules.schedules import cron


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 1000


def first(expression: str, zone: str, after: str, count: int = 3) -> list[str]:
    found = islice(cron.occurrences(expression, zone, ms(after)), count)
    return [datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%m-%dT%H:%M") for at_ms in found]


def test_an_occurrence_is_wall_time_in_its_zone() -> None:
    assert first("0 9 * * 1-5", "Europe/Berlin", "2026-01-30T12:00") == ["02-02T08:00", "02-03T08:00", "02-04T08:00"]
    assert first("0 9 * * *", "UTC", "2026-01-30T09:00", 1) == ["01-31T09:00"], "the time itself is over"
    assert first("@daily", "", "2026-01-30T12:00", 1) == ["01-31T00:00"]


def test_a_time_that_spring_leaves_out_comes_once_after_the_gap() -> None:
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


def test_every_matching_minute_comes_where_clocks_go_back_by_half_an_hour() -> None:
    found = first("* 3 * * 0", "Australia/Lord_Howe", "2026-04-04T15:00", 61)
    assert (found[0], found[59], found[60]) == ("04-04T16:30", "04-04T17:29", "04-11T16:30")
    assert first("*/30 1 * * *", "Australia/Lord_Howe", "2026-04-04T14:00", 4) == [
        "04-04T14:30",
        "04-04T15:00",  # 01:30 a second time
        "04-05T14:30",
        "04-05T15:00",
    ]


def test_a_minute_after_a_gap_of_half_an_hour_is_not_passed_over() -> None:
    found = first("45 * * * *", "Australia/Lord_Howe", "2026-10-03T14:30", 3)
    assert found == ["10-03T15:15", "10-03T15:45", "10-03T16:45"], "01:45, 02:45 behind the gap from 02:00, 03:45"


def test_no_minute_of_an_hour_that_midnight_leaves_out_comes() -> None:
    found = first("* 0 * * *", "America/Havana", "2026-03-07T05:58", 2)  # on 8 March midnight is 01:00
    assert found == ["03-07T05:59", "03-09T04:00"]


#: Zones whose clocks change by half an hour, at midnight, by two hours, over the date line; and two usual ones.
CHANGES = [
    ("Australia/Lord_Howe", "2026-04-04T15:00"),
    ("Australia/Lord_Howe", "2026-10-03T15:30"),
    ("Antarctica/Troll", "2026-03-29T01:00"),
    ("Antarctica/Troll", "2026-10-25T01:00"),
    ("America/Havana", "2026-03-08T05:00"),
    ("America/Havana", "2026-11-01T05:00"),
    ("Asia/Pyongyang", "2018-05-04T15:00"),
    ("Asia/Kathmandu", "1985-12-31T18:30"),
    ("America/Caracas", "2016-05-01T07:00"),
    ("Pacific/Apia", "2011-12-30T10:00"),
    ("Europe/Berlin", "2026-03-29T01:00"),
    ("America/New_York", "2026-11-01T06:00"),
]


@pytest.mark.parametrize(("zone", "change"), CHANGES, ids=lambda text: text.replace("/", "-"))
@pytest.mark.parametrize(
    ("expression", "minutes", "hours"),
    [
        ("* * * * *", range(60), range(24)),
        ("*/7 * * * *", range(0, 60, 7), range(24)),
        ("45 * * * *", (45,), range(24)),
        ("0,20 */2 * * *", (0, 20), range(0, 24, 2)),
        ("* 0-3 * * *", range(60), range(4)),
    ],
)
def test_an_expression_with_a_star_matches_each_local_minute_when_clocks_change(
    zone: str, change: str, expression: str, minutes: Sequence[int], hours: Sequence[int]
) -> None:
    around = range(ms(change) - 30 * 3_600_000, ms(change) + 30 * 3_600_000, 60_000)
    local = [(at, datetime.fromtimestamp(at / 1000, ZoneInfo(zone))) for at in around]
    expected = [at for at, time in local if time.minute in minutes and time.hour in hours]
    found = takewhile(lambda at: at <= around[-1], cron.occurrences(expression, zone, around[0] - 1))
    assert list(found) == expected


@pytest.mark.parametrize(
    "wrong",
    ["", "* * * *", "* * * * * *", "61 * * * *", "0 0 30 2 *", "0 0 * 2 MON#6", "a b c d e", "MON#1/2 * * * MON#1/2"],
)
def test_a_cron_expression_that_is_malformed_or_never_matches_is_an_error(wrong: str) -> None:
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
