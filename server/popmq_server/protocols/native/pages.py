"""Pages of lists: page_size and page_token of a request, next_page_token of its answer.

A token says where the next page begins: a check over the list that it belongs to, then a name, or a text of the
engine's own. It is not secret, and remains valid after a restart. A row that is added, removed or moved between two
pages may be on none of them or on two; every other row is on one.
"""

from binascii import crc32
from collections.abc import Callable, Sequence
from typing import Protocol, TypedDict, TypeVar, cast

from google.protobuf.message import Message

from popmq_server.clock import pause
from popmq_server.errors import not_a_page
from popmq_server.protocols.validation import ENTRIES_MAX
from popmq_server.values.message import check_range

R = TypeVar("R")
#: Rows of an answer that are made in one turn of the event loop: about a millisecond.
ROWS_A_TURN = 100
#: Fields of a request that may change from page to page; all other fields tell which list it is.
OF_ONE_PAGE = ("page_token", "page_size", "max_leases", "max_messages", "max_message_groups")


class Paged(Protocol):
    """A request for a list that comes in pages."""

    @property
    def page_token(self) -> str: ...


class Sized(Paged, Protocol):
    """A request for a list that is answered whole unless it names a size."""

    @property
    def page_size(self) -> int: ...


class PageFields(TypedDict):
    """The fields of a Listing."""

    rows_max: int
    after: str


def asked(request: Sized) -> PageFields:
    """The page that a request asks for; without a size it asks for everything. Raises Refused."""
    return {"rows_max": check_range(request.page_size, "page_size", 0, ENTRIES_MAX), "after": begin(request)}


def begin(request: Paged) -> str:
    """Where a page begins, as `token` was given; "" = at the first row. Raises Refused for a token of another list."""
    check, _, after = request.page_token.partition(".")
    if request.page_token and check != _check(request, after):
        raise not_a_page(request.page_token)
    return after


def token(request: Paged, after: str) -> str:
    """The next_page_token of the answer to a request; "" for an empty `after`: it was the last page."""
    return f"{_check(request, after)}.{after}" if after else ""


def _check(request: Paged, after: str) -> str:
    """Eight characters that differ between lists: of other calls, and of the same call with other fields."""
    given = cast(Message, request)
    asked = type(given)()
    asked.CopyFrom(given)
    for field in OF_ONE_PAGE:
        if field in asked.DESCRIPTOR.fields_by_name:
            asked.ClearField(field)
    text = f"{asked.DESCRIPTOR.full_name} {after} ".encode() + asked.SerializeToString(deterministic=True)
    return f"{crc32(text):08x}"


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
    return shown, token(request, name(shown[-1])) if len(shown) < len(behind) else ""
