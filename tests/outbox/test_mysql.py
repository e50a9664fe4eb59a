"""What MySQL tells of a transaction, which an outbox relies on."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pymysql
import pytest

import popmq
from harness.mariadb import MariaDB
from popmq import errors
from popmq._outbox.libraries import mysql_of
from tests.outbox.conftest import TOPIC
from tests.outbox.ways import CREATE

pytestmark = pytest.mark.slow

Seen = Callable[[], list[str]]


@pytest.fixture
def connect(mysql_url: str) -> Iterator[Callable[..., Any]]:
    """Opens connections, with an empty table of orders."""
    opened: list[Any] = []

    def open(**options: Any) -> Any:
        opened.append(pymysql.connect(**mysql_of(mysql_url), **options))
        return opened[-1]

    with closing(open(autocommit=True)) as first, first.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS popmq_outbox")
        cursor.execute(CREATE)
    yield open
    for one in opened[1:]:
        one.close()


def run(connection: Any, sql: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall())


def test_a_connection_in_autocommit_sends_only_in_a_transaction(
    connect: Callable[..., Any], mysql_url: str, client: popmq.Client, seen: Seen
) -> None:
    connection = connect(autocommit=True)
    with popmq.Outbox(client, mysql_url) as outbox, outbox(connection) as box:
        with pytest.raises(errors.OutsideTransaction):
            box.send(TOPIC, "outside")
        connection.begin()
        box.send(TOPIC, "inside")
        connection.commit()
    assert (seen(), client.transactions.list().total) == (["inside"], 0)


def test_markers_of_messages_that_have_ended_are_deleted(
    connect: Callable[..., Any], mysql_url: str, client: popmq.Client
) -> None:
    connection = connect()
    with popmq.Outbox(client, mysql_url) as outbox:
        for number in range(3):
            with outbox(connection) as box:
                box.send(TOPIC, str(number))
            connection.commit()
        assert outbox.flush(30.0)
    (only,) = run(connect(), "SELECT id FROM popmq_outbox")
    assert only == ("name",)


def test_who_asks_locks_nothing_that_other_transactions_write(
    connect: Callable[..., Any], mysql_url: str, client: popmq.Client, seen: Seen
) -> None:
    """Three transactions that go on, one of which has rolled a savepoint back, while one asks about all of them."""
    connections = [connect() for _ in range(3)]
    with popmq.Outbox(client, mysql_url) as outbox:
        for number, connection in enumerate(connections):
            with outbox(connection) as box:
                box.send(TOPIC, str(number))
                run(connection, "SAVEPOINT mine")
                box.send(TOPIC, f"dropped {number}")
                run(connection, "ROLLBACK TO SAVEPOINT mine")
            assert not outbox.flush(0.05)
        connections[0].commit()
        connections[1].rollback()
        connections[2].commit()
        assert outbox.flush(30.0)
    assert sorted(seen()) == ["0", "2"]


def test_a_crash_of_the_server_rolls_back_what_had_not_committed(
    connect: Callable[..., Any], mariadb: MariaDB, client: popmq.Client, seen: Seen
) -> None:
    committed, open = connect(), connect()
    with popmq.Outbox(client, mariadb.url) as outbox:
        with outbox(open) as box:
            box.send(TOPIC, "open")
        with outbox(committed) as box:
            box.send(TOPIC, "committed")
            committed.commit()
        mariadb.kill()
        mariadb.start()
        assert outbox.flush(60.0)
    assert (seen(), client.transactions.list().total) == (["committed"], 0)


def test_a_server_that_is_read_only_cannot_tell(
    connect: Callable[..., Any], mysql_url: str, client: popmq.Client, seen: Seen, caplog: pytest.LogCaptureFixture
) -> None:
    connection, operator = connect(), connect(autocommit=True)
    with popmq.Outbox(client, mysql_url) as outbox:
        with outbox(connection) as box:
            box.send(TOPIC, "one")
        run(operator, "SET GLOBAL read_only = 1")
        try:
            assert outbox.flush(30.0)
        finally:
            run(operator, "SET GLOBAL read_only = 0")
        connection.commit()
    assert "the server that was asked is read-only" in caplog.text
    assert (seen(), client.transactions.list().total) == ([], 1)
