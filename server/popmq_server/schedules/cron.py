"""Cron expressions in a time zone: the only module that imports cronsim. Pure functions; times in ms since 1970 UTC.

    "0 9 * * 1-5"  minute, hour, day of month, month, day of week, as in Debian's cron; @daily and the like

When the clocks change, Debian's rules hold, as cronsim follows them:

    fixed times ("30 2 * * *")        a time that is skipped in spring comes with the first minute after the gap;
                                      one that comes twice in autumn counts once, the first time
    `*` in minutes or hours           by elapsed time: `0 * * * *` is every hour, 23 times in spring, 25 in autumn

Occurrences are always read forward and strictly ascending, so none of them comes twice.
"""

import functools
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo

from cronsim import CronSim, CronSimError

_MINUTE_MS = 60_000
#: The longest expression that is read.
EXPRESSION_MAX = 256
#: No time after this is asked for: datetime ends in the year 9999.
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


class CronError(ValueError):
    """An expression or a time zone that cannot be read. The text says which, and what is expected."""


def check(expression: str, zone: str) -> None:
    """Raises CronError if the expression or the zone cannot be read, or no time of the next 50 years matches."""
    now_ms = 1_767_225_600_000  # any time does: what has no match in 50 years from here has none
    if following(expression, zone, now_ms) is None:
        raise CronError(f"no time matches {expression!r}: there is no such day")


def following(expression: str, zone: str, after_ms: int) -> int | None:
    """The first occurrence after a time; None if there is none in the next 50 years. Raises CronError."""
    return next(occurrences(expression, zone, after_ms), None)


def occurrences(expression: str, zone: str, after_ms: int) -> Iterator[int]:
    """All occurrences after a time, ascending. Raises CronError."""
    if not 0 <= after_ms < _END_MS:
        return
    begin = datetime.fromtimestamp(after_ms // 1000, _zone(zone))
    last_ms = after_ms
    for found in _started(expression, begin):
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


def _started(expression: str, begin: datetime) -> Iterator[datetime]:
    text = NAMES.get(expression.strip().lower(), expression)
    if len(text) > EXPRESSION_MAX:
        raise CronError(f"the cron expression has {len(text)} characters, at most {EXPRESSION_MAX} are allowed")
    if len(text.split()) != _FIELDS:
        raise CronError(
            f"{expression!r} has {len(text.split())} fields; a cron expression has five: minute, hour, day of month, "
            "month, day of week"
        )
    try:
        return iter(CronSim(text, begin))
    except (CronSimError, AssertionError, ValueError, LookupError) as error:
        raise CronError(f"the cron expression {expression!r} cannot be read: {error or 'it is malformed'}") from None


@functools.lru_cache(maxsize=256)
def _zone(name: str) -> tzinfo:
    if name in ("", "UTC"):
        return UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise CronError(
            f"there is no time zone {name!r}; names are those of the IANA database: Europe/Berlin"
        ) from None
