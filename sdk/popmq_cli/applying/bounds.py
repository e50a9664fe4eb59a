"""The bounds of settings and names, as the broker has them: so a wrong file is refused before anything is changed."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import popmq
from popmq_cli.shared.output import seconds, size

_DAY = 86_400.0
_YEARS = 3650 * _DAY
_INT64, _UINT64 = (1 << 63) - 1, (1 << 64) - 1
#: Numbers of bytes, which the file may have with a unit.
SIZES = {"max_bytes", "message_bytes", "send_bytes_per_s"}
#: Characters of a name, by kind.
_NAME_MAX = {"topics": 127, "groups": 120, "schedules": 100}
_NAME = re.compile(r"[A-Za-z0-9_.\-]+")


class Bound(NamedTuple):
    """The least and the largest value of a setting. `or_zero`: 0 is allowed too, and means none."""

    least: float
    most: float
    or_zero: bool = False


_FAIR = {"in_flight_max": Bound(0, 1_000_000), "messages_per_s": Bound(0, 1_000_000)}
#: By class and field; durations in seconds.
BOUNDS: dict[type[Any], dict[str, Bound]] = {
    popmq.Topic: {"queues": Bound(1, 1024), "unique_ids": Bound(0, _DAY)},
    popmq.Retention: {"keep": Bound(60, _YEARS), "max_bytes": Bound(1 << 20, _INT64, True)},
    popmq.Quota: {
        "send_messages_per_s": Bound(0, _UINT64),
        "send_bytes_per_s": Bound(0, _UINT64),
        "message_bytes": Bound(0, 4 << 20),
        "pop_messages_per_s": Bound(0, _UINT64),
    },
    popmq.LiteTopics: {"topics_max": Bound(1, 1_000_000), "ttl": Bound(60, _YEARS)},
    popmq.Group: {
        "max_attempts": Bound(1, 1000),
        "backoff": Bound(0, _DAY / 2),
        "invisible": Bound(1, _DAY / 2),
        "share_number": Bound(0, 10_000),
        "in_flight_max": Bound(1, 1_000_000),
        "subscription_expiry": Bound(3600, _YEARS, True),
        "snoozes_max": Bound(1, 10_000),
        "results_keep": Bound(60, _YEARS, True),
    },
    popmq.FairKeys: _FAIR,
    popmq.FairKeyLimits: _FAIR,
}


def fault_of_name(kind: str, name: str) -> str | None:
    """What is wrong with a name; None: nothing."""
    if not _NAME.fullmatch(name):
        return "a name may only have letters, digits, '_', '-' and '.'"
    most = _NAME_MAX[kind]
    return None if len(name) <= most else f"the name has {len(name)} characters, at most {most} are allowed"


def fault_of_value(kind: type[Any], field: str, value: float) -> str | None:
    """What is wrong with a number or a duration; None: nothing."""
    bound = BOUNDS.get(kind, {}).get(field)
    if bound is None or bound.least <= value <= bound.most or (bound.or_zero and value == 0):
        return None
    show: Any = size if field in SIZES else seconds if isinstance(value, float) else str
    return f"it must be {show(bound.least)} – {show(bound.most)}{', or 0 for none' if bound.or_zero else ''}"
