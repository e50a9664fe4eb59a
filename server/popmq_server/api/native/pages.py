"""Pages of lists: page_size and page_token of a request, next_page_token of its answer.

A token says where the next page begins: a name, or a text of the engine's own. It is not secret, and remains valid
after a restart. A row that is added, removed or moved between two pages may be on none of them or on two; every other
row is on one.
"""

from collections.abc import Callable, Sequence
from typing import Protocol, TypedDict, TypeVar

from popmq_server.api.native.requests import ENTRIES_MAX
from popmq_server.clock import pause
from popmq_server.model.message import check_range

R = TypeVar("R")
#: Rows of an answer that are made in one turn of the event loop: some milliseconds.
ROWS_A_TURN = 500


class Sized(Protocol):
    """A request for a list that is answered whole unless it names a size."""

    @property
    def page_size(self) -> int: ...

    @property
    def page_token(self) -> str: ...


class Page(TypedDict):
    """The fields of a Listing."""

    rows_max: int
    after: str


def asked(request: Sized) -> Page:
    """The page that a request asks for; without a size it asks for everything. Raises Refused."""
    return {"rows_max": check_range(request.page_size, "page_size", 0, ENTRIES_MAX), "after": request.page_token}


async def in_turns(rows: Sequence[R], add: Callable[[R], None]) -> None:
    """Adds each row to an answer; lets other calls run in between."""
    for number, row in enumerate(rows, 1):
        add(row)
        if number % ROWS_A_TURN == 0:
            await pause(0)


def cut(rows: list[R], request: Sized, name: Callable[[R], str]) -> tuple[list[R], str]:
    """(a page of a list that is in memory, its rows by name, and the token of the next page)."""
    page = asked(request)
    behind = sorted((row for row in rows if name(row) > page["after"]), key=name)
    shown = behind[: page["rows_max"] or None]
    return shown, name(shown[-1]) if len(shown) < len(behind) else ""
