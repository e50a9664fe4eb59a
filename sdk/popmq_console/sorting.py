"""The order of a list on a page: by any of its columns, in either direction, as the URL says.

    ?sort=messages   the smallest first        ?sort=-messages   the greatest first

A column of numbers begins with the greatest, one of texts from A to Z; a second click on its title turns it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

T = TypeVar("T")
#: By title, which ends in # above numbers: what rows are ordered by; None = the column has no order.
Columns = Mapping[str, Callable[[T], Any] | None]


@dataclass(frozen=True, slots=True)
class Title:
    """The title of a column, and what a click on it sorts by; "" = nothing."""

    text: str
    number: bool
    sort: str
    now: str  # ascending, descending or none: the current order by this column


@dataclass(frozen=True, slots=True)
class Ordered(Generic[T]):
    """Rows in their order, the titles above them, and the order as the URL has it; "" = as the page makes it."""

    items: Sequence[T]
    titles: Sequence[Title]
    sort: str


def ordered(rows: Iterable[T], columns: Columns[T], sort: str) -> Ordered[T]:
    """The rows in the order `sort`; in their own if no column has this name. Equal rows keep their order."""
    named = {_name(title): key for title, key in columns.items() if key}
    name, items = sort.removeprefix("-"), list(rows)
    if key := named.get(name):
        order = key  # an unknown number is less than every other one
        items.sort(key=lambda row: ((value := order(row)) is not None, value), reverse=sort.startswith("-"))
    else:
        sort = ""
    return Ordered(items, [_title(title, sort if key else None) for title, key in columns.items()], sort)


def _name(title: str) -> str:
    return title.rstrip("#").lower()


def _title(title: str, sort: str | None) -> Title:
    text, number, name = title.rstrip("#"), title.endswith("#"), _name(title)
    if sort is None:
        return Title(text, number, "", "none")
    up, down = name, f"-{name}"
    now = "ascending" if sort == up else "descending" if sort == down else "none"
    other = down if now == "ascending" or (number and now == "none") else up
    return Title(text, number, other, now)
