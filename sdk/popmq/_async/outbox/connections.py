"""Connections of the libraries of asyncio, each as a function that runs SQL. Its twin has those that block."""

from __future__ import annotations

import inspect
import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple, TypeVar

from popmq._outbox import libraries
from popmq._outbox.libraries import in_transaction, kind_of, tuples
from popmq._outbox.verdicts import Kind, Rows, Steps

T = TypeVar("T")

#: Raises TypeError or ValueError for a database that `connect` does not know.
check_database = partial(libraries.check_database, is_async=True)


class Reached(NamedTuple):
    """A connection. `close` ends it, if it was opened here."""

    kind: Kind
    query: Callable[[str], Awaitable[Rows]]
    in_transaction: Callable[[], bool]
    close: Callable[[], Any]

    async def run(self, steps: Steps[T]) -> T:
        """Runs SQL until the steps have their result. They get an error of the library too, since they may know it."""
        try:
            sql = next(steps)
            while True:
                try:
                    rows = await self.query(sql)
                except Exception as error:
                    sql = steps.throw(error)
                else:
                    sql = steps.send(rows)
        except StopIteration as done:
            result: T = done.value
            return result


async def reach(given: Any) -> Reached:
    """A session or connection of the user. Raises TypeError."""
    driver = partial(in_transaction, given)
    match libraries.library_of(given, is_async=True):
        case "sqlalchemy":
            return await _sqlalchemy(given if hasattr(given, "exec_driver_sql") else await given.connection())
        case "asyncpg":
            return Reached(kind_of("postgresql"), partial(_by_asyncpg, given), driver, given.close)
        case "psycopg":
            cursor = partial(given.cursor, row_factory=libraries.one_of("psycopg.rows").tuple_row)
            return Reached(kind_of("postgresql"), partial(_by_psycopg, cursor), driver, given.close)
        case "aiomysql":
            return Reached(kind_of("mysql"), partial(_by_aiomysql, given), driver, given.close)
        case "aiosqlite":
            return Reached(kind_of("sqlite"), partial(_by_aiosqlite, given), driver, given.close)
        case "sqlite3":
            return Reached(kind_of("sqlite"), partial(_by_sqlite3, given), driver, given.close)
    raise libraries.refusal(given, libraries.WANTED_CONNECTION)


async def connect(database: Any) -> Reached:
    """A connection of its own in autocommit, for one task at a time. Raises TypeError, ValueError."""
    if url := libraries.url_of(database):
        library = libraries.one_of("asyncpg", "psycopg")
        if library.__name__ == "asyncpg":
            return await reach(await library.connect(url))
        return await reach(await library.AsyncConnection.connect(url, autocommit=True))
    if where := libraries.mysql_of(database):
        where["db"] = where.pop("database", None)
        return await reach(await libraries.one_of("aiomysql").connect(**where, autocommit=True))
    if path := libraries.path_of(database):
        return await reach(sqlite3.connect(path, isolation_level=None, check_same_thread=False))
    if libraries.library_of(database, is_async=True) == "sqlalchemy":
        connection = await database.connect()
        await connection.execution_options(isolation_level="AUTOCOMMIT")
        driver = (await connection.get_raw_connection()).driver_connection
        connection.sync_connection.detach()  # the pool of the program is for the program
        return (await reach(connection))._replace(close=driver.close)
    if callable(database):
        opened = database()
        return await reach(await opened if inspect.isawaitable(opened) else opened)
    raise libraries.refusal(database, libraries.WANTED_DATABASE)


async def _sqlalchemy(connection: Any) -> Reached:
    async def query(sql: str) -> Rows:
        result = await connection.exec_driver_sql(sql)
        return tuples(result) if result.returns_rows else []

    driver = (await connection.get_raw_connection()).driver_connection
    return Reached(kind_of(connection.dialect.name), query, partial(in_transaction, driver), connection.close)


async def _by_asyncpg(connection: Any, sql: str) -> Rows:
    return tuples(await connection.fetch(sql))


async def _by_psycopg(cursor: Callable[[], Any], sql: str) -> Rows:
    async with cursor() as opened:
        await opened.execute(sql)
        return tuples(await opened.fetchall()) if opened.description else []


async def _by_aiomysql(connection: Any, sql: str) -> Rows:
    async with connection.cursor() as cursor:
        await cursor.execute(sql)
        return tuples(await cursor.fetchall()) if cursor.description else []


async def _by_aiosqlite(connection: Any, sql: str) -> Rows:
    async with connection.execute(sql) as cursor:
        return tuples(await cursor.fetchall())


async def _by_sqlite3(connection: Any, sql: str) -> Rows:
    return tuples(connection.execute(sql).fetchall())
