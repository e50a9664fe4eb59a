"""What both halves of the SDK know about libraries of databases. None is imported before a program uses it."""

import importlib
import os
import re
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote, urlsplit

from popmq._outbox import mysql, postgresql, sqlite
from popmq._outbox.verdicts import Kind, Rows
from popmq.errors import MissingLibrary

KINDS: dict[str, Kind] = {"postgresql": postgresql, "sqlite": sqlite, "mysql": mysql, "mariadb": mysql}
#: What a message leaves a row in, until it has ended.
MARKED = (sqlite, mysql)
#: By the first name of the module of a class. Those of asyncio have names that say so.
LIBRARIES = (
    *("sqlalchemy", "django", "psycopg", "psycopg2", "asyncpg", "aiosqlite", "sqlite3"),
    *("pymysql", "MySQLdb", "aiomysql"),
)
ASYNC = re.compile(r"sqlalchemy\.ext\.asyncio|asyncpg|aiosqlite|aiomysql|psycopg\.(\w+\.)*Async")
_URL = re.compile(r"postgres(?:ql)?(?:\+\w+)?://")
_MYSQL_URL = re.compile(r"(?:mysql|mariadb)(?:\+\w+)?://")
_ANY_URL = re.compile(r"[A-Za-z][\w+.-]*://")


def library_of(given: object, is_async: bool) -> str:
    """The library of a connection, a session or an engine; "" for what is of none.

    Raises TypeError for one that is of asyncio, where this half is not, or the reverse. Connections of SQLite that are
    not of asyncio are in both: they are so fast that they may block an event loop.
    """
    for kind in type(given).__mro__:
        library = kind.__module__.partition(".")[0]
        if library in LIBRARIES:
            name = f"{kind.__module__}.{kind.__qualname__}"
            if (ASYNC.match(name) is not None) != is_async and library != "sqlite3":
                raise TypeError(f"{name} is for {'popmq.Outbox' if is_async else 'popmq.AsyncOutbox'}")
            return library
    return ""


def kind_of(name: str) -> Kind:
    """The kind of a database, by the name that its library has for it. Raises TypeError."""
    if name not in KINDS:
        raise TypeError(
            f"an outbox knows PostgreSQL, MySQL and SQLite, not {name!r}: use an outbox table (docs/recipes/outbox.md)"
        )
    return KINDS[name]


def in_transaction(driver: Any) -> bool:
    """Whether a connection of any driver is in a transaction, after it has run a statement."""
    if hasattr(driver, "is_in_transaction"):  # asyncpg
        return bool(driver.is_in_transaction())
    if hasattr(driver, "in_transaction"):  # sqlite3, aiosqlite
        return bool(driver.in_transaction)
    if hasattr(driver, "get_autocommit"):  # PyMySQL, aiomysql; mysqlclient, which does not say what the server knows
        return not driver.get_autocommit() or bool(getattr(driver, "server_status", 0) & _IN_TRANSACTION)
    if hasattr(driver, "info"):  # psycopg, psycopg2: as libpq
        return int(driver.info.transaction_status) != 0
    return not getattr(driver, "autocommit", False)  # pg8000


#: In each answer of a MySQL.
_IN_TRANSACTION = 1


def tuples(rows: Iterable[Any]) -> Rows:
    """Rows as tuples, whatever the program has its connection make of them."""
    return [tuple(row.values()) if hasattr(row, "values") else tuple(row) for row in rows]


def url_of(database: object) -> str:
    """The URL of a PostgreSQL, without a driver that SQLAlchemy would read; "" for what is none."""
    text = database if isinstance(database, str) else ""
    return "postgresql://" + text.partition("://")[2] if _URL.match(text) else ""


def mysql_of(database: object) -> dict[str, Any]:
    """Where the URL of a MySQL leads, by the names of its libraries; empty for what is none.

    Raises ValueError for a URL with parameters: each library has others, and one that is ignored may be that of TLS.
    """
    text = database if isinstance(database, str) else ""
    if not _MYSQL_URL.match(text):
        return {}
    url = urlsplit(text)
    if url.query:
        raise ValueError(
            f"an outbox reads no parameters of a MySQL URL, such as {url.query.partition('=')[0]!r}: give an engine of "
            "SQLAlchemy, or a function that returns a new connection"
        )
    given = {
        "host": url.hostname,
        "port": url.port,
        "user": url.username and unquote(url.username),
        "password": url.password and unquote(url.password),
        "database": unquote(url.path[1:]),
    }
    return {name: value for name, value in given.items() if value}


def leaves_marker(place: str) -> bool:
    """Whether a row is to be deleted when the message of this place has ended."""
    return any(kind.PLACE.fullmatch(place) for kind in MARKED)


def path_of(database: object) -> str:
    """The path of an SQLite database; "" for what is none.

    Raises ValueError for one that only one process can see, and for the URL of another database.
    """
    path = os.fspath(database) if isinstance(database, (str, os.PathLike)) else ""
    if path == ":memory:" or (isinstance(database, str) and not path):
        raise ValueError(_IN_MEMORY)
    if isinstance(database, str) and (scheme := _ANY_URL.match(database)):  # the rest may have a password
        raise ValueError(
            f"an outbox opens no {scheme[0]} URL: give postgresql://…, mysql://… or mariadb://…, the path of an SQLite "
            "file, an engine of SQLAlchemy, or a function that returns a new connection"
        )
    return str(path)


def check_database(database: object, is_async: bool) -> None:
    """Raises TypeError, ValueError for what an outbox cannot open."""
    if url_of(database) or mysql_of(database) or path_of(database):
        return
    library = library_of(database, is_async)
    opens = hasattr(database, "connect") if library in ("sqlalchemy", "django") else not library and callable(database)
    if not opens:
        raise refusal(database, WANTED_DATABASE)
    if library and _is_in_memory(library, database):
        raise ValueError(_IN_MEMORY)


def _is_in_memory(library: str, database: Any) -> bool:
    """Whether an engine of SQLAlchemy, or a connection of Django, is of an SQLite database in memory."""
    if library == "django":
        return database.vendor == "sqlite" and bool(database.is_in_memory_db())
    url = database.url
    is_sqlite = url.get_backend_name() == "sqlite"
    return is_sqlite and (not url.database or ":memory:" in url.database or url.query.get("mode") == "memory")


def one_of(*names: str) -> Any:
    """The first of these libraries that is installed. Raises MissingLibrary."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    raise MissingLibrary(f"an outbox of this database needs {' or '.join(names)}", action=f"pip install {names[0]}")


def refusal(given: object, wanted: str) -> TypeError:
    """The error for what is of no library."""
    return TypeError(f"{given!r:.80}, of type {type(given).__name__}, is no {wanted}")


_IN_MEMORY = "this database ends with its process: an outbox needs one that others can ask, in a file"
WANTED_CONNECTION = "session or connection of SQLAlchemy, Django, psycopg, asyncpg, PyMySQL or sqlite3"
WANTED_DATABASE = "URL, path, engine of SQLAlchemy, connection of Django, nor a function that returns a new connection"
