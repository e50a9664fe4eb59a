"""Connections of the libraries that block, each as a function that runs SQL. Its twin has those of asyncio."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple, TypeVar

from popmq._outbox import libraries
from popmq._outbox.libraries import in_transaction, kind_of, tuples
from popmq._outbox.verdicts import Kind, Rows, Steps

T = TypeVar("T")

#: Raises TypeError or ValueError for a database that `connect` does not know.
check_database = partial(libraries.check_database, is_async=False)


class Reached(NamedTuple):
    """A connection. `close` ends it, if it was opened here."""

    kind: Kind
    query: Callable[[str], Rows]
    in_transaction: Callable[[], bool]
    close: Callable[[], Any]

    def run(self, steps: Steps[T]) -> T:
        """Runs SQL until the steps have their result. They get an error of the library too, since they may know it."""
        try:
            sql = next(steps)
            while True:
                try:
                    rows = self.query(sql)
                except Exception as error:
                    sql = steps.throw(error)
                else:
                    sql = steps.send(rows)
        except StopIteration as done:
            result: T = done.value
            return result


def reach(given: Any) -> Reached:
    """A session or connection of the user. Raises TypeError."""
    driver = partial(in_transaction, given)
    match libraries.library_of(given, is_async=False):
        case "sqlalchemy":
            return _sqlalchemy(given if hasattr(given, "exec_driver_sql") else given.connection())
        case "django":
            return Reached(
                kind_of(given.vendor), _by(given.cursor), partial(_django_in_transaction, given), given.close
            )
        case "psycopg":
            cursor = partial(given.cursor, row_factory=libraries.one_of("psycopg.rows").tuple_row)
            return Reached(kind_of("postgresql"), _by(cursor), driver, given.close)
        case "psycopg2":
            return Reached(kind_of("postgresql"), _by(given.cursor), driver, given.close)
        case "pymysql" | "MySQLdb":
            return Reached(kind_of("mysql"), _by(given.cursor), driver, given.close)
        case "sqlite3":
            return Reached(kind_of("sqlite"), _by(given.cursor), driver, given.close)
    raise libraries.refusal(given, libraries.WANTED_CONNECTION)


def connect(database: Any) -> Reached:
    """A connection of its own in autocommit, which any thread may use, one at a time. Raises TypeError, ValueError."""
    if url := libraries.url_of(database):
        psycopg = libraries.one_of("psycopg", "psycopg2")
        connection = psycopg.connect(url)
        connection.autocommit = True
        return reach(connection)
    if where := libraries.mysql_of(database):
        return reach(libraries.one_of("pymysql", "MySQLdb").connect(**where, autocommit=True))
    if path := libraries.path_of(database):
        return reach(sqlite3.connect(path, isolation_level=None, check_same_thread=False))
    library = libraries.library_of(database, is_async=False)
    if library == "sqlalchemy":
        connection = database.connect().execution_options(isolation_level="AUTOCOMMIT")
        driver = connection.connection.driver_connection
        connection.detach()  # the pool of the program is for the program
        return reach(connection)._replace(close=driver.close)
    if library == "django":
        connection = libraries.one_of("django.db").connections.create_connection(database.alias)
        connection.inc_thread_sharing()
        return reach(connection)
    if callable(database):
        return reach(database())
    raise libraries.refusal(database, libraries.WANTED_DATABASE)


def _sqlalchemy(connection: Any) -> Reached:
    def query(sql: str) -> Rows:
        result = connection.exec_driver_sql(sql)
        return tuples(result) if result.returns_rows else []

    driver = connection.connection.driver_connection
    return Reached(kind_of(connection.dialect.name), query, partial(in_transaction, driver), connection.close)


def _by(cursor: Callable[[], Any]) -> Callable[[str], Rows]:
    """Runs each statement by a new cursor, as any DB-API has it."""

    def query(sql: str) -> Rows:
        with closing(cursor()) as opened:
            opened.execute(sql)
            return tuples(opened.fetchall()) if opened.description else []

    return query


def _django_in_transaction(connection: Any) -> bool:
    return connection.in_atomic_block or not connection.get_autocommit()
