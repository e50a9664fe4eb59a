"""Positions in topics, as users write them: earliest, latest, a time, or offsets by topic and queue."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

#: Topic → queue → offset; -1 = the end, -2 = the first message.
Offsets = Mapping[str, Mapping[int, int]]
Start = Literal["earliest", "latest"] | datetime
Place = Start | Offsets

LATEST, EARLIEST = -1, -2
#: Times that the broker takes. No message is older, or will be younger.
FIRST_MOMENT, LAST_MOMENT = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 1, 1, tzinfo=UTC)
_TIME = "earliest, latest, a time with its zone like 2026-01-31T12:00:00Z, or milliseconds since 1970"
_OFFSETS_OF_A_GROUP = (
    "offsets as JSON need mode=offsets, or move the group by `popmq offsets reset TOPIC GROUP --queue 0=4711`"
)
_OFFSETS = '{"topic": {"queue": offset}}, in which -2 is the first message and -1 the end'


class OffsetError(ValueError):
    """The checkpoint holds an offset that this release cannot read."""


def start(text: str) -> Start:
    """A start position. Raises ValueError with the valid forms."""
    word = text.strip()
    if word.startswith("{"):
        raise ValueError(f"{_TIME}; {_OFFSETS_OF_A_GROUP}")
    if word.lower() == "earliest":
        return "earliest"
    if word.lower() == "latest":
        return "latest"
    try:
        moment = datetime.fromtimestamp(int(word) / 1000, UTC) if word.isdigit() else datetime.fromisoformat(word)
    except (ValueError, OverflowError, OSError):
        raise ValueError(_TIME) from None
    if moment.tzinfo is None:
        raise ValueError(_TIME)
    return clamped(moment)


def clamped(moment: datetime) -> datetime:
    """A time in UTC that the broker takes; one without a zone is in this machine's."""
    try:
        return min(max(moment.astimezone(UTC), FIRST_MOMENT), LAST_MOMENT)
    except (OverflowError, ValueError, OSError):  # in the first or the last year that Python knows
        return FIRST_MOMENT if moment.year < FIRST_MOMENT.year else LAST_MOMENT


def place(text: str) -> Place:
    """A start position, or offsets as JSON. Raises ValueError with the valid forms."""
    return _offsets(text) if text.lstrip().startswith("{") else start(text)


def _offsets(text: str) -> Offsets:
    """The form of Spark's Kafka source, so that the texts of a migration stay as they are."""
    try:
        return {str(topic): _queues(queues) for topic, queues in json.loads(text).items()}
    except (ValueError, AttributeError, TypeError):
        raise ValueError(_OFFSETS) from None


def _queues(queues: Mapping[str, Any]) -> dict[int, int]:
    """Queues and offsets of one topic. Keys of JSON are texts; true and 1.0 are not offsets."""
    found = {int(queue): offset for queue, offset in queues.items()}
    if any(type(offset) is not int or offset < EARLIEST for offset in found.values()):
        raise ValueError
    return found
