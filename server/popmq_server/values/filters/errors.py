"""The refusal of an invalid filter, with the place in its text."""

from popmq_server.errors import Refused

#: Limit for both kinds of filter: the longest tag that a RocketMQ client may send can be subscribed to.
TEXT_BYTES_MAX = 16 << 10


def check_bytes(kind: str, text: str) -> None:
    """Raises Refused if the text is too long. Counts bytes only of a text that may be."""
    if len(text) * 4 > TEXT_BYTES_MAX and len(text.encode()) > TEXT_BYTES_MAX:
        raise refusal(kind, text, 0, f"the text has {len(text.encode())} bytes, at most {TEXT_BYTES_MAX} are allowed")


def refusal(kind: str, text: str, offset: int, why: str, action: str = "") -> Refused:
    """FILTER_INVALID with a place: line and column from 1, offset in characters from 0."""
    line = text.count("\n", 0, offset) + 1
    column = offset - (text.rfind("\n", 0, offset) + 1) + 1
    return Refused(
        "FILTER_INVALID",
        f"line {line}, column {column} (offset {offset}): {why}",
        field=f"filter.{kind}",
        action=action or "correct the expression at this place; docs/filters.md has the grammar",
    )
