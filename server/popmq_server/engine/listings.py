"""Joins the pieces of a list: each is a command of its own, so other commands run in between."""

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Any

from popmq_server.commands.queries import Listing, Query


async def joined(execute: Callable[[Any], Awaitable[Any]], query: Query[Any]) -> Any:
    """The answer of a query. A list has all its rows, or `rows_max` of them and where it continues."""
    answer = await execute(query)
    if not isinstance(query, Listing):
        return answer
    while answer.after and not 0 < query.rows_max <= len(answer):
        left = query.rows_max - len(answer) if query.rows_max else 0
        more = await execute(dataclasses.replace(query, after=answer.after, rows_max=left))
        answer += more
        answer.after = more.after
    return answer
