"""What an outbox does not take, and says so before it sends anything."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import popmq
from popmq import errors
from popmq._outbox.libraries import kind_of
from popmq.testing import Broker
from tests.outbox.conftest import TOPIC


@pytest.fixture
def connection(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(tmp_path / "shop.db")
    yield connection
    connection.close()


@pytest.fixture
def outbox(client: popmq.Client, tmp_path: Path) -> Iterator[popmq.Outbox]:
    with popmq.Outbox(client, tmp_path / "shop.db") as outbox:
        yield outbox


def test_a_connection_in_autocommit_is_refused_and_nothing_is_sent(
    outbox: popmq.Outbox, connection: sqlite3.Connection, client: popmq.Client
) -> None:
    connection.isolation_level = None
    with outbox(connection) as box, pytest.raises(errors.OutsideTransaction, match="begin one, or turn autocommit off"):
        box.send(TOPIC, "one")
    assert client.transactions.list().total == 0


def test_a_box_sends_in_its_block_only(outbox: popmq.Outbox, connection: sqlite3.Connection) -> None:
    box = outbox(connection)
    with pytest.raises(RuntimeError, match="send in its `with` block"):
        box.send(TOPIC, "one")
    with box:
        pass
    with pytest.raises(RuntimeError, match="send in its `with` block"):
        box.send(TOPIC, "one")


@pytest.mark.parametrize("wrong", [5, object(), "orders", None])
def test_what_is_no_connection_is_refused(outbox: popmq.Outbox, wrong: Any) -> None:
    with outbox(wrong) as box, pytest.raises(TypeError, match="is no session or connection of SQLAlchemy"):
        box.send(TOPIC, "one")


@pytest.mark.parametrize(("database", "error"), [(":memory:", ValueError), ("", ValueError), (5, TypeError)])
def test_a_database_that_cannot_be_asked_is_refused_where_it_is_given(
    client: popmq.Client, database: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        popmq.Outbox(client, database)


@pytest.mark.parametrize(
    "url",
    ["sqlite://", "sqlite:///:memory:", "sqlite:///file::memory:?uri=true", "sqlite:///file:a?mode=memory&uri=true"],
)
async def test_an_engine_of_a_database_in_memory_is_refused(
    popmq_broker: Broker, client: popmq.Client, url: str
) -> None:
    pool = pytest.importorskip("sqlalchemy.pool").NullPool
    engine = pytest.importorskip("sqlalchemy").create_engine(url, poolclass=pool)
    with pytest.raises(ValueError, match="ends with its process"):
        popmq.Outbox(client, engine)
    engine = pytest.importorskip("sqlalchemy.ext.asyncio").create_async_engine(
        url.replace(":", "+aiosqlite:", 1), poolclass=pool
    )
    async with popmq_broker.async_client() as async_client:
        with pytest.raises(ValueError, match="ends with its process"):
            popmq.AsyncOutbox(async_client, engine)


def test_a_connection_or_session_is_no_database_since_an_outbox_needs_one_of_its_own(
    client: popmq.Client, connection: sqlite3.Connection
) -> None:
    engine = pytest.importorskip("sqlalchemy").create_engine("sqlite:///a")
    with pytest.importorskip("sqlalchemy.orm").Session(engine) as session:
        for wrong in (connection, session):
            with pytest.raises(TypeError, match="is no URL, path, engine"):
                popmq.Outbox(client, wrong)


@pytest.mark.parametrize("url", ["mysql://me:secret@host/shop?ssl_ca=a", "mariadb+pymysql://host/shop?unix_socket=/a"])
def test_parameters_of_a_mysql_url_are_refused_and_not_ignored(client: popmq.Client, url: str) -> None:
    with pytest.raises(ValueError, match=r"such as '(ssl_ca|unix_socket)': give an engine of SQLAlchemy") as error:
        popmq.Outbox(client, url)
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("scheme", ["sqlite://", "oracle://", "redis://"])
def test_a_url_of_another_database_is_refused_with_what_may_be_given(client: popmq.Client, scheme: str) -> None:
    with pytest.raises(ValueError, match=rf"opens no {scheme} URL: give postgresql://…, .* path of an SQLite") as error:
        popmq.Outbox(client, f"{scheme}me:secret@host/shop.db")
    assert "secret" not in str(error.value)


def test_a_closed_outbox_opens_no_box(
    outbox: popmq.Outbox, connection: sqlite3.Connection, client: popmq.Client
) -> None:
    with outbox(connection) as box:
        box.send(TOPIC, "before")
    connection.rollback()
    outbox.close()
    with pytest.raises(errors.ClientClosed, match="this outbox was closed"), outbox(connection):
        pytest.fail("the box is open")
    assert client.transactions.list().total == 0


async def test_each_client_has_its_own_outbox(popmq_broker: Broker, client: popmq.Client, tmp_path: Path) -> None:
    asyncio_engine = pytest.importorskip("sqlalchemy.ext.asyncio").create_async_engine(
        f"sqlite+aiosqlite:///{tmp_path}/a"
    )
    engine = pytest.importorskip("sqlalchemy").create_engine(f"sqlite:///{tmp_path}/a")
    with pytest.raises(TypeError, match=r"AsyncEngine is for popmq\.AsyncOutbox"):
        popmq.Outbox(client, asyncio_engine)
    async with popmq_broker.async_client() as async_client:
        with pytest.raises(TypeError, match=r"Engine is for popmq\.Outbox"):
            popmq.AsyncOutbox(async_client, engine)
    await asyncio_engine.dispose()
    engine.dispose()


def test_another_database_is_named() -> None:
    with pytest.raises(TypeError, match=r"not 'oracle': use an outbox table \(docs/recipes/outbox\.md\)"):
        kind_of("oracle")


def test_a_message_that_the_broker_refuses_leaves_the_others_to_the_transaction(
    outbox: popmq.Outbox, connection: sqlite3.Connection, client: popmq.Client
) -> None:
    with outbox(connection) as box, pytest.raises(errors.PartlyRefused):
        box.send(TOPIC, ["good", ""])
    assert len(box.receipts) == 1
    connection.rollback()
    assert outbox.flush(30.0)
    assert client.transactions.list().total == 0


def test_a_topic_that_takes_no_half_messages_is_refused(
    outbox: popmq.Outbox, connection: sqlite3.Connection, client: popmq.Client
) -> None:
    client.topics.create("plain")
    with outbox(connection) as box, pytest.raises(errors.PopMQError, match="NORMAL"):
        box.send("plain", "one")
