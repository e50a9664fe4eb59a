"""Times as they are typed and as they are shown.

    2026-01-31T12:00              local time              2026-01-31T12:00Z, 2026-01-31 12:00+01:00
    1h  +1h  -1h                  by this duration from now: a bare one is in the direction that the option expects
    now, today, "tomorrow 9:00"   local days; without a time of day: at midnight

Times are shown in UTC with its suffix, in a form that every option accepts.
"""

import re
from datetime import datetime, time, timedelta

from popmq.duration import seconds_of
from popmq.errors import InvalidField

_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_DAY = re.compile(rf"({'|'.join(_DAYS)})(?:[ T]+(\d\d?):(\d\d)(?::(\d\d))?)?")
_FORMS = 'write 2026-01-31, 2026-01-31T12:00, 2026-01-31T12:00Z, 1h, +10m, now, or "tomorrow 9:00"'


def moment_of(text: str, now: datetime, ahead: bool = False) -> datetime:
    """The time that `text` means, with a zone. `now` has the local zone. Raises ValueError, with the forms to write."""
    if text == "now":
        return now
    try:
        if day := _DAY.fullmatch(text):
            hour, minute, second = (int(part or 0) for part in day.groups()[1:])
            at = time(hour, minute, second)
            return datetime.combine(now.date() + timedelta(days=_DAYS[day[1]]), at).astimezone()
        if text[:1] in ("+", "-") or not re.search(r"[-:]", text):
            sign = {"+": 1, "-": -1}.get(text[:1], 1 if ahead else -1)
            return now + sign * timedelta(seconds=seconds_of(text.lstrip("+-")))
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, InvalidField):
        raise ValueError(f"{text!r} is not a time: {_FORMS}") from None


def moment(ms: int | None) -> str:
    """A time to the second, in UTC; "–" for none, and for one that is unknown."""
    return _written(ms, "seconds") if ms else "–"


def exact(ms: int) -> str:
    """A time to the millisecond, in UTC."""
    return _written(ms, "milliseconds")


def _written(ms: int, timespec: str) -> str:
    """A time in UTC; one that has no date is a number. Senders name some times, and may name any number."""
    try:
        return (datetime(1970, 1, 1) + timedelta(milliseconds=ms)).isoformat(timespec=timespec) + "Z"
    except OverflowError:
        return f"{ms} ms"
