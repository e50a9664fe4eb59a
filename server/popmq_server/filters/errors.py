"""What is said of a filter that cannot be used, and where in its text."""

from popmq_server.errors import Refused

#: Of either kind of filter.
TEXT_BYTES_MAX = 8 << 10


def refusal(kind: str, text: str, offset: int, why: str, action: str = "") -> Refused:
    """FILTER_INVALID with a place: lines and columns from 1, the offset in characters from 0."""
    line = text.count("\n", 0, offset) + 1
    column = offset - (text.rfind("\n", 0, offset) + 1) + 1
    return Refused(
        "FILTER_INVALID",
        f"line {line}, column {column} (offset {offset}): {why}",
        field=f"filter.{kind}",
        action=action or "correct the expression at this place; docs/filters.md has the grammar",
    )
