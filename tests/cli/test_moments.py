"""Times as they are typed: with a zone, local, relative to now, and by the names of days."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from popmq_cli.shared.moments import exact, moment, moment_of
from popmq_console import views

NOW = datetime(2026, 1, 31, 18, 30, tzinfo=UTC).astimezone()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1h", -3600), ("90s", -90), ("-10m", -600), ("+10m", 600), ("1h30m", -5400), ("now", 0), ("2", -2)],
)
def test_a_duration_is_relative_to_now(text: str, seconds: int) -> None:
    assert moment_of(text, NOW) == NOW + timedelta(seconds=seconds)


def test_a_bare_duration_lies_ahead_where_the_option_is_about_the_future() -> None:
    assert moment_of("10m", NOW, ahead=True) == NOW + timedelta(minutes=10)
    assert moment_of("-10m", NOW, ahead=True) == NOW - timedelta(minutes=10)


@pytest.mark.parametrize(
    ("text", "day", "hour", "minute"),
    [("tomorrow 9:00", 1, 9, 0), ("tomorrow", 1, 0, 0), ("today 18:05", 0, 18, 5), ("yesterday 23:59", -1, 23, 59)],
)
def test_a_day_by_name_is_a_local_day(text: str, day: int, hour: int, minute: int) -> None:
    local = (NOW + timedelta(days=day)).replace(hour=hour, minute=minute, tzinfo=None)
    assert moment_of(text, NOW) == local.astimezone()


def test_a_time_keeps_its_zone_and_is_local_without_one() -> None:
    assert moment_of("2026-01-31T12:00+01:00", NOW) == datetime(2026, 1, 31, 12, tzinfo=timezone(timedelta(hours=1)))
    assert moment_of("2026-01-31T12:00", NOW) == datetime(2026, 1, 31, 12).astimezone()
    assert moment_of("2026-01-31", NOW).utcoffset() is not None


def test_a_displayed_time_can_be_typed_as_input() -> None:
    shown = moment(1_700_000_000_000)
    assert shown == "2023-11-14T22:13:20Z"
    assert moment_of(shown, NOW).timestamp() == 1_700_000_000


@pytest.mark.parametrize("ms", [253_402_300_800_000, 1 << 62, (1 << 63) - 1, -(1 << 63), -62_135_596_800_001])
def test_every_number_of_64_bits_is_shown_as_a_time(ms: int) -> None:
    """Senders name some times, and what an earlier broker has stored of them is shown too."""
    assert (moment(ms), exact(ms), views.moment(ms)) == (f"{ms} ms",) * 3
    assert (moment(253_402_300_799_999), moment(-62_135_596_800_000)) == (
        "9999-12-31T23:59:59Z",
        "0001-01-01T00:00:00Z",
    )
    assert exact(253_402_300_799_999) == "9999-12-31T23:59:59.999Z"


@pytest.mark.parametrize("text", ["", "soon", "tomorrow 25:00", "tomorrow 9", "2026-13-01", "+", "1y", "9" * 30 + "d"])
def test_a_malformed_time_is_refused_with_the_forms_to_write(text: str) -> None:
    with pytest.raises(ValueError, match="is not a time: write 2026-01-31"):
        moment_of(text, NOW)
