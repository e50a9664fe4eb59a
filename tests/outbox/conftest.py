"""A PostgreSQL server for these tests, and a topic whose messages a test can count."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import popmq
from bench.peers import install
from harness.mariadb import MariaDB
from harness.postgresql import PostgreSQL
from popmq._outbox.libraries import mysql_of
from popmq.testing import Broker

TOPIC = "orders"


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of PostgreSQL's programs: Debian's package, unpacked if it is not installed."""
    try:
        return install.postgresql()
    except install.Missing as why:
        pytest.skip(f"no PostgreSQL: {why}")


@pytest.fixture
def folder() -> Iterator[Callable[[], Path]]:
    """Makes folders that the user of a server may enter."""
    made: list[Path] = []

    def make() -> Path:
        made.append(folder_for_a_server())
        return made[-1]

    yield make
    for one in made:
        shutil.rmtree(one)


def folder_for_a_server() -> Path:
    made = Path(tempfile.mkdtemp(prefix="popmq-postgresql-"))
    made.chmod(0o755)
    if not os.getuid():
        shutil.chown(made, "nobody")
    return made


@pytest.fixture(scope="session")
def server(programs: Path) -> Iterator[PostgreSQL]:
    """One server for tests that leave it as it is."""
    made = folder_for_a_server()
    with PostgreSQL(programs, made) as server:
        yield server
    shutil.rmtree(made)


@pytest.fixture
def url(server: PostgreSQL) -> str:
    """A database with an empty table of orders."""
    import psycopg

    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS orders")
        connection.execute("CREATE TABLE orders (number int)")
    return server.url


@pytest.fixture(scope="session")
def mariadb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MariaDB]:
    """One server for all tests."""
    try:
        root = install.mariadb()
    except install.Missing as why:
        pytest.skip(f"no MariaDB: {why}")
    with MariaDB(root, tmp_path_factory.mktemp("mariadb")) as server:
        yield server


@pytest.fixture
def mysql_url(mariadb: MariaDB) -> str:
    """A database, in which ways make an empty table of orders."""
    import pymysql

    with pymysql.connect(**mysql_of(mariadb.url)) as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS orders")
    return mariadb.url


@pytest.fixture
def client(popmq_broker: Broker) -> popmq.Client:
    client = popmq_broker.client()
    client.topics.create(TOPIC, queues=1, type="TRANSACTION")
    return client


@pytest.fixture
def seen(client: popmq.Client) -> Callable[[], list[str]]:
    """The visible messages of the topic, in order."""
    return lambda: [one.text() for one in client.messages.browse(TOPIC).deliveries]
