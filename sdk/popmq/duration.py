"""Durations as they are given to the SDK: seconds, a timedelta, or a text such as "90s" or "1h30m"."""

import math
import re
from datetime import timedelta
from numbers import Real
from typing import Any, cast

from popmq.errors import InvalidField

Duration = float | timedelta | str

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)?")
#: The contract has milliseconds in an int64.
_MOST_S = 1e15
_UNITS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def seconds_of(duration: Duration, field: str = "") -> float:
    """A duration in seconds. A text without a unit is seconds. Raises InvalidField, which names `field`."""
    if isinstance(duration, timedelta):
        return duration.total_seconds()
    if type(duration).__name__ == "timedelta64":  # of numpy: a number too, but of any unit
        given: Any = duration
        duration = cast(float, given / type(given)(1, "s"))
    if isinstance(duration, str):
        found = _PART.findall(duration)
        if found and "".join(number + unit for number, unit in found) == duration:
            seconds = math.fsum(min(float(number), 2 * _MOST_S) * _UNITS[unit] for number, unit in found)
            if seconds <= _MOST_S:
                return seconds
    elif isinstance(duration, Real) and not isinstance(duration, bool) and abs(duration) <= _MOST_S:
        return float(duration)
    raise InvalidField(
        f"{duration!r} is not a duration",
        code="INVALID_FIELD",
        field=field,
        action='give seconds, a timedelta, or a text: "90s", "1.5s", "250ms", "10m", "1h30m" or "3d"',
    )


def seconds_or_none(duration: Duration | None, field: str = "") -> float | None:
    """The same for a duration that may be left out."""
    return None if duration is None else seconds_of(duration, field)


def in_seconds(settings: Any, *names: str) -> None:
    """Converts these fields of frozen settings, which were given as any durations. Raises InvalidField."""
    for name in names:
        object.__setattr__(settings, name, seconds_of(getattr(settings, name), name))
