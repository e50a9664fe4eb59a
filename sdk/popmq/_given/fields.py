"""Fields of requests as the contract has them: times, filters, and how many entries there may be; checks of what a
caller gave for which protobuf makes none.
"""

import math
from datetime import datetime
from numbers import Integral, Real
from typing import Any, TypeVar

from popmq.duration import Duration, seconds_of
from popmq.errors import InvalidField
from popmq_proto.v1 import popmq_pb2 as pb

T = TypeVar("T")

#: The contract's limit of entries in one request.
ENTRIES_MAX = 4096


def text(value: Any, field: str) -> str:
    """`value`. Raises TypeError for what is no text."""
    if not isinstance(value, str):
        raise TypeError(f"{field} is {value!r:.80}, of type {type(value).__name__}: give a str")
    return value


def instance(value: Any, kind: type[T], field: str) -> T | None:
    """`value` if it is None or of this class. Raises TypeError."""
    if value is not None and not isinstance(value, kind):
        raise TypeError(f"{field} is {value!r:.80}: give a popmq.{kind.__name__}")
    return value


def ms(duration: Duration, field: str = "") -> int:
    """A duration as whole milliseconds, less than one as 1: 0 means none. Raises InvalidField, which names `field`."""
    seconds = duration if type(duration) is float else seconds_of(duration, field)
    return round(seconds * 1000) or int(seconds > 0)


#: The last millisecond of the year 9999, the last one of a datetime.
LAST_MS = 253_402_300_799_999


def moment_ms(moment: datetime | float) -> int:
    """A time, or seconds since 1970 UTC, as whole milliseconds, rounded up so that it is not too early.

    A datetime before 1970 counts as 1970; one without a zone is local time, as everywhere in Python. Raises
    InvalidField for anything else.
    """
    try:
        seconds = moment.timestamp() if isinstance(moment, datetime) else moment
    except (ValueError, OverflowError):  # local time of the first or last day that there is, beyond it in UTC
        return 0 if isinstance(moment, datetime) and moment.year == 1 else LAST_MS
    if isinstance(seconds, bool) or not isinstance(seconds, Real) or not math.isfinite(seconds):
        raise InvalidField(
            f"{moment!r} is not a time", code="INVALID_FIELD", action="give a datetime, or seconds since 1970"
        )
    found = -(-round((int(seconds) if isinstance(seconds, Integral) else float(seconds)) * 1_000_000) // 1000)
    return max(0, min(found, LAST_MS)) if isinstance(moment, datetime) else found


def filter_row(tag: str | None, sql: str | None) -> pb.Filter | None:
    """A filter of the contract; None when neither is given. Raises InvalidField for both, TypeError."""
    if tag is not None and sql is not None:
        raise InvalidField(
            "tag and sql are both given", code="INVALID_FIELD", field="filter", action="filter by one of them"
        )
    if sql is not None:
        return pb.Filter(sql92=text(sql, "sql"))
    return None if tag is None else pb.Filter(tag=text(tag, "tag"))
