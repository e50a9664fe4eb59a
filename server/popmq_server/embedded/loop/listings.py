"""Queries whose rows come in pieces, each of one commit, with other commands in between.

joined     up to its `rows_max` rows                            a Listing
counted    up to `count` rows, and the total number             Delayed, Transactions: the first piece has it
browsed    up to its `messages_max` messages and `bytes_max`    Browse
leases     a page of rows; the total number takes a walk over all leases
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Protocol

from popmq_server.contract.commands import bytes_of, queries
from popmq_server.contract.commands.numbers import (
    CountedRows,
    DelayedMessage,
    HalfMessage,
    LeaseNumbers,
    LeasePage,
    Page,
    R,
    Rows,
)
from popmq_server.contract.commands.queries import Browse, Delayed, Leases, Listing, Transactions
from popmq_server.contract.operations import A, Operation
from popmq_server.embedded.loop.parked_pulls import PIECE_BYTES, PIECE_MESSAGES
from popmq_server.values.message import RECORD_HEAD_BYTES, RETRY_PREFIX

#: Pieces of one search for delayed messages.
PIECES_MAX = 50


class Runs(Protocol):
    """Runs one piece."""

    async def run(self, operation: Operation[A]) -> A:
        """The answer of one commit."""


async def joined(engine: Runs, query: Listing[R]) -> Rows[R]:
    """The rows of a list."""
    return await joined_by(engine.run, query)


async def joined_by(run: Callable[[Listing[R]], Awaitable[Rows[R]]], query: Listing[R]) -> Rows[R]:
    """The rows of a list, of which `run` gets the pieces."""
    answer = await run(query)
    while answer.after and not 0 < query.rows_max <= len(answer):
        left = query.rows_max - len(answer) if query.rows_max else 0
        more = await run(replace(query, after=answer.after, rows_max=left))
        answer += more
        answer.after = more.after
    return answer


async def delayed(engine: Runs, query: Delayed) -> CountedRows[DelayedMessage]:
    """Delayed messages, and their number. A piece that ended with `bytes_max` is the last one, and so is the last of
    PIECES_MAX of a search.
    """
    rows, total = await engine.run(query)
    pieces = PIECES_MAX if query.message_id or query.key else 0
    while rows.after and len(rows) < query.count and (pieces := pieces - 1):
        left = query.bytes_max - sum(len(row.data) for row in rows)
        if query.bytes_max and left <= 0:
            break
        piece = replace(query, count=query.count - len(rows), after=rows.after, bytes_max=left)
        more = (await engine.run(piece)).rows
        rows += more
        rows.after = more.after
    return CountedRows(rows, total)


async def transactions(engine: Runs, query: Transactions) -> CountedRows[HalfMessage]:
    """Half messages, and their number."""
    rows, total = await engine.run(query)
    while rows.after and len(rows) < query.count:
        more = (await engine.run(replace(query, count=query.count - len(rows), after=rows.after))).rows
        rows += more
        rows.after = more.after
    return CountedRows(rows, total)


async def browsed(engine: Runs, query: Browse) -> Page:
    """A page of a queue; that of a retry topic is one piece."""
    if query.topic.startswith(RETRY_PREFIX):
        return await engine.run(query)
    whole = page = await engine.run(_piece(query, query.offset, query.messages_max, query.bytes_max))
    while page.full and page.rows:
        left = query.messages_max - len(whole.rows)
        bytes_left = query.bytes_max - bytes_of(whole.rows) - RECORD_HEAD_BYTES * len(whole.rows)
        if left <= 0 or bytes_left <= 0:
            break
        page = await engine.run(_piece(query, page.next_offset, left, bytes_left, rest_bytes=bytes_left))
        whole = page._replace(rows=[*whole.rows, *page.rows])
    return whole


def _piece(query: Browse, offset: int, messages: int, size: int, rest_bytes: int = 0) -> Browse:
    """Returns the command for one piece: see parked_pulls.py."""
    return replace(
        query,
        offset=offset,
        messages_max=min(messages, PIECE_MESSAGES),
        bytes_max=min(size, PIECE_BYTES),
        rest_bytes=rest_bytes,
    )


async def leases(engine: Runs, query: Leases) -> LeasePage:
    """A page after the first one ends the walk when it is full: it has no total."""
    rows, total, after, page = list[LeaseNumbers](), 0, query.after, ""
    while True:
        left = query.leases_max - len(rows)
        more, met, after = await engine.run(replace(query, leases_max=left, after=after))
        rows, total = rows + more, total + met
        if after and not page and len(rows) == query.leases_max:
            page = after
        if not after or (page and query.after):
            return LeasePage(rows, 0 if query.after else total, page)


#: Handlers of the commands that these functions answer.
BY_LISTINGS = (
    queries.Topics.awaited_by(joined)
    | queries.GroupSettings.awaited_by(joined)
    | queries.Subscriptions.awaited_by(joined)
    | queries.Owners.awaited_by(joined)
    | queries.MessageGroups.awaited_by(joined)
    | queries.Schedules.awaited_by(joined)
    | Delayed.awaited_by(delayed)
    | Transactions.awaited_by(transactions)
    | Browse.awaited_by(browsed)
    | Leases.awaited_by(leases)
)
