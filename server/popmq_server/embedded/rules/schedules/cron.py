"""Cron expressions in a time zone: the only module that imports cronsim. Pure functions; times in ms since 1970 UTC.

    "0 9 * * 1-5"  minute, hour, day of month, month, day of week, as in Debian's cron; @daily and the like

When the clocks change, Debian's rules hold:

    fixed times ("30 2 * * *")        a time that is skipped in spring comes with the first minute after the gap;
                                      one that comes twice in autumn counts once, the first time
    `*` in minutes or hours           by elapsed time: `0 * * * *` is every hour, 23 times in spring, 25 in autumn

cronsim follows them for fixed times. Over `*` it steps in whole hours of elapsed time, which is wrong after a change
of half an hour (Australia/Lord_Howe). So it reads those expressions without a zone, one stretch of constant UTC offset
after the other:

    local   00:30 ──▶ 02:00 │ 01:30 ──▶ 04:00
    UTC     13:30 ──▶ 15:00 │ 15:00 ──▶ 17:30     a match counts if its UTC time lies within its stretch

Occurrences are always read forward and strictly ascending, so none of them comes twice.
"""

import functools
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo

from cronsim import CronSim, CronSimError

_MINUTE_MS = 60_000
#: The maximum length of an expression.
EXPRESSION_MAX = 256
#: No occurrence after this is computed: datetime ends in the year 9999.
_END_MS = 253_000_000_000_000
#: The usual names of expressions.
NAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_FIELDS = 5
#: Two changes of a zone's offset are further apart than this.
_STRIDE = timedelta(days=1)
_SECOND = timedelta(seconds=1)


class CronError(ValueError):
    """An expression or a time zone that cannot be read. The text says which, and what is expected."""


class ZoneError(CronError):
    """A time zone that is not in the IANA database."""


def check(expression: str, zone: str) -> None:
    """Raises CronError if the expression or the zone cannot be read, or no time of the next 50 years matches."""
    now_ms = 1_767_225_600_000  # any start will do: an expression without a match in the next 50 years has none
    if following(expression, zone, now_ms) is None:
        raise CronError(f"no time matches {expression!r}: there is no such day")


def following(expression: str, zone: str, after_ms: int) -> int | None:
    """The first occurrence after a time; None if there is none in the next 50 years. Raises CronError."""
    return next(occurrences(expression, zone, after_ms), None)


def occurrences(expression: str, zone: str, after_ms: int) -> Iterator[int]:
    """All occurrences after a time, ascending. Raises CronError."""
    if not 0 <= after_ms < _END_MS:
        return
    begin = datetime.fromtimestamp(after_ms // 1000, UTC)
    last_ms = after_ms
    for found in _found(_fields(expression), _zone(zone), begin):
        at_ms = round(found.timestamp()) * 1000
        if at_ms > last_ms:  # in the repeated hour of autumn cronsim begins at its first pass
            yield at_ms
            last_ms = at_ms


def last_of(expression: str, zone: str, first_ms: int, until_ms: int, most: int) -> list[int]:
    """The last `most` occurrences from `first_ms` to `until_ms`, both included, ascending. Raises CronError.

    Looks at windows before `until_ms` that double, so that a year of minutes costs no more than an hour of them.
    """
    window_ms = most * _MINUTE_MS
    while True:
        begin_ms = max(first_ms, until_ms - window_ms)
        found = []
        for at_ms in occurrences(expression, zone, begin_ms - 1):
            if at_ms > until_ms:
                break
            found.append(at_ms)
        if len(found) >= most or begin_ms == first_ms:
            return found[-most:]
        window_ms *= 2


def _fields(expression: str) -> list[str]:
    text = NAMES.get(expression.strip().lower(), expression)
    if len(text) > EXPRESSION_MAX:
        raise CronError(f"the cron expression has {len(text)} characters, at most {EXPRESSION_MAX} are allowed")
    fields = text.split()
    if len(fields) != _FIELDS:
        raise CronError(
            f"{expression!r} has {len(fields)} fields; a cron expression has five: minute, hour, day of month, "
            "month, day of week"
        )
    return fields


def _found(fields: list[str], zone: tzinfo, begin: datetime) -> Iterator[datetime]:
    minute, hour = fields[:2]
    if minute.startswith("*") or hour.startswith("*"):
        return _by_elapsed_time(fields, zone, begin)
    return _started(fields, begin.astimezone(zone))


def _by_elapsed_time(fields: list[str], zone: tzinfo, after: datetime) -> Iterator[datetime]:
    """All matches after a time in UTC, stretch by stretch; each in UTC."""
    begin: datetime | None = after + _SECOND
    while begin is not None:
        offset, start, begin = _offset(zone, begin), begin, None
        for local in _started(fields, (start + offset - _SECOND).replace(tzinfo=None)):
            found = local.replace(tzinfo=UTC) - offset
            begin = _change(zone, start, found)
            if begin is not None:
                break
            yield found
            start = found


def _change(zone: tzinfo, low: datetime, high: datetime) -> datetime | None:
    """The first second in (low, high] whose offset differs from that of the second before; None if there is none."""
    while low < high:
        end = min(low + _STRIDE, high)
        offset = _offset(zone, low)
        if _offset(zone, end) == offset:
            low = end
            continue
        while end - low > _SECOND:
            middle = (low + (end - low) // 2).replace(microsecond=0)
            if _offset(zone, middle) == offset:
                low = middle
            else:
                end = middle
        return end
    return None


def _offset(zone: tzinfo, at: datetime) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta()


def _started(fields: list[str], begin: datetime) -> Iterator[datetime]:
    expression = " ".join(fields)
    try:
        return iter(CronSim(expression, begin))
    except (CronSimError, AssertionError, ValueError, LookupError) as error:
        raise CronError(f"the cron expression {expression!r} cannot be read: {error or 'it is malformed'}") from None


@functools.lru_cache(maxsize=256)
def _zone(name: str) -> tzinfo:
    if name in ("", "UTC"):
        return UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ZoneError(f"there is no time zone {name!r} in the IANA database") from None
