"""The libraries of databases, each as a session or connection with the few things that a test does in a transaction."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.integrations.django import project

CREATE = "CREATE TABLE IF NOT EXISTS orders (number int)"


def insert(number: int) -> str:
    return f"INSERT INTO orders VALUES ({number})"


@dataclass(frozen=True)
class Way:
    """One library. `database`: what its outbox is given; a context manager each for a transaction and a savepoint."""

    connection: Any
    database: Any
    execute: Callable[[str], Any]
    transaction: Callable[[], AbstractContextManager[Any]]
    savepoint: Callable[[], AbstractContextManager[Any]]


@contextmanager
def psycopg(url: str, path: Path) -> Iterator[Way]:
    import psycopg

    with psycopg.connect(url) as connection:
        yield Way(connection, url, connection.execute, connection.transaction, connection.transaction)


@contextmanager
def psycopg2(url: str, path: Path) -> Iterator[Way]:
    import psycopg2

    connection = psycopg2.connect(url)

    def execute(sql: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql)

    yield Way(connection, lambda: autocommitting(psycopg2.connect(url)), execute, lambda: connection, by_sql(execute))
    connection.close()


def autocommitting(connection: Any) -> Any:
    connection.autocommit = True
    return connection


def by_sql(execute: Callable[[str], Any]) -> Callable[[], AbstractContextManager[None]]:
    """A savepoint of which the library knows nothing."""

    @contextmanager
    def savepoint() -> Iterator[None]:
        execute("SAVEPOINT mine")
        try:
            yield
        except BaseException:
            execute("ROLLBACK TO SAVEPOINT mine")
            raise
        execute("RELEASE SAVEPOINT mine")

    return savepoint


@contextmanager
def sqlite3(url: str, path: Path) -> Iterator[Way]:
    import sqlite3

    connection = sqlite3.connect(path)
    connection.execute(CREATE)
    connection.row_factory = sqlite3.Row
    yield Way(connection, path, connection.execute, lambda: connection, by_sql(connection.execute))
    connection.close()


@contextmanager
def _session(url: str) -> Iterator[Way]:
    import sqlalchemy
    from sqlalchemy.orm import Session

    engine = sqlalchemy.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql(CREATE)
    with Session(engine) as session:
        execute = lambda sql: session.execute(sqlalchemy.text(sql))  # noqa: E731
        yield Way(session, engine, execute, session.begin, session.begin_nested)
    engine.dispose()


def session(url: str, path: Path) -> AbstractContextManager[Way]:
    return _session(url.replace("://", "+psycopg://"))


def session_on_sqlite(url: str, path: Path) -> AbstractContextManager[Way]:
    return _session(f"sqlite:///{path}")


@contextmanager
def core(url: str, path: Path) -> Iterator[Way]:
    import sqlalchemy

    engine = sqlalchemy.create_engine(url.replace("://", "+psycopg2://"))
    with engine.connect() as connection:
        yield Way(connection, engine, connection.exec_driver_sql, connection.begin, connection.begin_nested)
    engine.dispose()


def _django(alias: str, url: str, path: Path) -> AbstractContextManager[Way]:
    project.configure(postgresql=project.postgresql(url), file=project.sqlite(path))
    return _way_of(alias)


@contextmanager
def _way_of(alias: str) -> Iterator[Way]:
    from django.db import connections, transaction

    connection = connections[alias]

    def execute(sql: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql)

    execute(CREATE)
    atomic = lambda: transaction.atomic(using=alias)  # noqa: E731
    yield Way(connection, connection, execute, atomic, atomic)
    connection.close()


def django(url: str, path: Path) -> AbstractContextManager[Way]:
    return _django("postgresql", url, path)


def django_on_sqlite(url: str, path: Path) -> AbstractContextManager[Way]:
    return _django("file", url, path)


@contextmanager
def _mysql(library: str, url: str) -> Iterator[Way]:
    from popmq._outbox.libraries import mysql_of

    connection = pytest.importorskip(library).connect(**mysql_of(url))

    def execute(sql: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql)

    @contextmanager
    def transaction() -> Iterator[None]:
        try:
            yield
        except BaseException:
            connection.rollback()
            raise
        connection.commit()

    execute(CREATE)
    yield Way(connection, url, execute, transaction, by_sql(execute))
    connection.close()


def pymysql(url: str, path: Path) -> AbstractContextManager[Way]:
    return _mysql("pymysql", url)


def mysqlclient(url: str, path: Path) -> AbstractContextManager[Way]:
    return _mysql("MySQLdb", url)


def session_on_mysql(url: str, path: Path) -> AbstractContextManager[Way]:
    return _session(url.replace("://", "+pymysql://"))


def django_on_mysql(url: str, path: Path) -> AbstractContextManager[Way]:
    pytest.importorskip("MySQLdb")
    project.configure(mysql=project.mysql(url))
    return _way_of("mysql")


#: Those that are given the URL of a MariaDB.
MYSQL = (pymysql, mysqlclient, session_on_mysql, django_on_mysql)
BLOCKING = (*MYSQL, psycopg, psycopg2, sqlite3, session, session_on_sqlite, core, django, django_on_sqlite)


@dataclass(frozen=True)
class AsyncWay:
    """The same of asyncio."""

    connection: Any
    database: Any
    execute: Callable[[str], Awaitable[Any]]
    transaction: Callable[[], AbstractAsyncContextManager[Any]]
    savepoint: Callable[[], AbstractAsyncContextManager[Any]]


def by_statements(connection: Any, database: Any, execute: Callable[[str], Awaitable[Any]]) -> AsyncWay:
    """Of a connection that begins a transaction by itself, and ends it by `commit` and `rollback`."""

    @asynccontextmanager
    async def transaction() -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            await connection.rollback()
            raise
        await connection.commit()

    @asynccontextmanager
    async def savepoint() -> AsyncIterator[None]:
        await execute("SAVEPOINT mine")
        try:
            yield
        except BaseException:
            await execute("ROLLBACK TO SAVEPOINT mine")
            raise

    return AsyncWay(connection, database, execute, transaction, savepoint)


@asynccontextmanager
async def asyncpg(url: str, path: Path) -> AsyncIterator[AsyncWay]:
    import asyncpg

    pool = await asyncpg.create_pool(url, min_size=1, max_size=1)
    async with pool, pool.acquire() as connection:
        yield AsyncWay(connection, url, connection.execute, connection.transaction, connection.transaction)


@asynccontextmanager
async def async_psycopg(url: str, path: Path) -> AsyncIterator[AsyncWay]:
    from psycopg import AsyncConnection
    from psycopg.rows import dict_row

    async with await AsyncConnection.connect(url, row_factory=dict_row) as connection:
        opened = lambda: AsyncConnection.connect(url, autocommit=True)  # noqa: E731
        yield AsyncWay(connection, opened, connection.execute, connection.transaction, connection.transaction)


@asynccontextmanager
async def _async_session(url: str) -> AsyncIterator[AsyncWay]:
    import sqlalchemy
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    engine = create_async_engine(url)
    async with engine.begin() as connection:
        await connection.exec_driver_sql(CREATE)
    async with AsyncSession(engine) as session:
        execute = lambda sql: session.execute(sqlalchemy.text(sql))  # noqa: E731
        yield AsyncWay(session, engine, execute, session.begin, session.begin_nested)
    await engine.dispose()


def async_session_on_mysql(url: str, path: Path) -> AbstractAsyncContextManager[AsyncWay]:
    return _async_session(url.replace("://", "+aiomysql://"))


@asynccontextmanager
async def aiomysql(url: str, path: Path) -> AsyncIterator[AsyncWay]:
    import aiomysql

    from popmq._outbox.libraries import mysql_of

    where = mysql_of(url)
    connection = await aiomysql.connect(db=where.pop("database"), **where)

    async def execute(sql: str) -> None:
        async with connection.cursor() as cursor:
            await cursor.execute(sql)

    await execute(CREATE)
    yield by_statements(connection, url, execute)
    connection.close()


ASYNC_MYSQL = (aiomysql, async_session_on_mysql)


def async_session(url: str, path: Path) -> AbstractAsyncContextManager[AsyncWay]:
    return _async_session(url.replace("://", "+asyncpg://"))


def async_session_on_sqlite(url: str, path: Path) -> AbstractAsyncContextManager[AsyncWay]:
    return _async_session(f"sqlite+aiosqlite:///{path}")


@asynccontextmanager
async def aiosqlite(url: str, path: Path) -> AsyncIterator[AsyncWay]:
    import aiosqlite

    async with aiosqlite.connect(path) as connection:
        await connection.execute(CREATE)
        yield by_statements(connection, path, connection.execute)


ASYNC = (*ASYNC_MYSQL, asyncpg, async_psycopg, async_session, async_session_on_sqlite, aiosqlite)


class Stop(Exception):
    """Ends a block without more."""
