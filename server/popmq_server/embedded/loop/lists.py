"""Answers of the embedded engine to queries whose rows come in pieces, with other commands in between.

Listing                 joined     up to its `rows_max` rows
Delayed, Transactions   counted    up to `count` rows, and the total number, which the first piece has
Browse                  browsed    up to its `messages_max` messages and `bytes_max` bytes
Leases                  leases     a page of rows; the total number takes a walk over all leases
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

from popmq_server.contract.commands import bytes_of
from popmq_server.contract.commands.numbers import LeaseNumbers, Page
from popmq_server.contract.commands.queries import (
    Browse,
    Delayed,
    Leases,
    Listing,
    Query,
    Transactions,
)
from popmq_server.embedded.loop.parked_pulls import PIECE_BYTES, PIECE_MESSAGES
from popmq_server.values.message import RECORD_HEAD_BYTES, RETRY_PREFIX

Execute = Callable[[Any], Awaitable[Any]]


async def answered(execute: Execute, query: Query[Any]) -> Any:
    """The answer of any query."""
    if isinstance(query, Listing):
        return await _joined(execute, query)
    if isinstance(query, Delayed | Transactions):
        return await _counted(execute, query)
    if isinstance(query, Browse) and not query.topic.startswith(RETRY_PREFIX):
        return await _browsed(execute, query)
    return await (_leases(execute, query) if isinstance(query, Leases) else execute(query))


async def _joined(execute: Execute, query: Listing[Any]) -> Any:
    answer = await execute(query)
    while answer.after and not 0 < query.rows_max <= len(answer):
        left = query.rows_max - len(answer) if query.rows_max else 0
        more = await execute(replace(query, after=answer.after, rows_max=left))
        answer += more
        answer.after = more.after
    return answer


async def _counted(execute: Execute, query: Delayed | Transactions) -> Any:
    rows, total = await execute(query)
    while rows.after and len(rows) < query.count:
        more, _ = await execute(replace(query, count=query.count - len(rows), after=rows.after))
        rows += more
        rows.after = more.after
    return rows, total


async def _browsed(execute: Execute, query: Browse) -> Page:
    whole = page = cast(Page, await execute(_piece(query, query.offset, query.messages_max, query.bytes_max)))
    while page.full and page.rows:
        left = query.messages_max - len(whole.rows)
        bytes_left = query.bytes_max - bytes_of(whole.rows) - RECORD_HEAD_BYTES * len(whole.rows)
        if left <= 0 or bytes_left <= 0:
            break
        page = await execute(_piece(query, page.next_offset, left, bytes_left, rest_bytes=bytes_left))
        whole = page._replace(rows=[*whole.rows, *page.rows])
    return whole


def _piece(query: Browse, offset: int, messages: int, size: int, rest_bytes: int = 0) -> Browse:
    """What one command reads: see parked_pulls.py."""
    return replace(
        query,
        offset=offset,
        messages_max=min(messages, PIECE_MESSAGES),
        bytes_max=min(size, PIECE_BYTES),
        rest_bytes=rest_bytes,
    )


async def _leases(execute: Execute, query: Leases) -> tuple[list[LeaseNumbers], int, str]:
    """A page after the first one ends the walk when it is full: it has no total."""
    rows, total, after, page = list[LeaseNumbers](), 0, query.after, ""
    while True:
        left = query.leases_max - len(rows)
        more, met, after = await execute(replace(query, leases_max=left, after=after))
        rows, total = rows + more, total + met
        if after and not page and len(rows) == query.leases_max:
            page = after
        if not after or (page and query.after):
            return rows, 0 if query.after else total, page
