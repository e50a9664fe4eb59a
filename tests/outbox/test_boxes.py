"""A box sends in the user's transaction, with each library: the message is seen if and only if that commits."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path

import pytest

import popmq
from harness.broker_process import ROOT
from popmq.testing import Broker
from tests.outbox import ways
from tests.outbox.conftest import TOPIC
from tests.outbox.ways import AsyncWay, Stop, Way, insert

pytestmark = pytest.mark.slow

Seen = Callable[[], list[str]]


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of an SQLite database. Django knows one for the whole process."""
    return tmp_path_factory.mktemp("sqlite") / "shop.db"


@pytest.fixture(params=ways.BLOCKING, ids=lambda way: way.__name__)
def way(request: pytest.FixtureRequest, path: Path) -> Iterator[Way]:
    url = request.getfixturevalue("mysql_url" if request.param in ways.MYSQL else "url")
    made: AbstractContextManager[Way] = request.param(url, path)
    with made as way:
        yield way


@pytest.fixture
def outbox(way: Way, client: popmq.Client) -> Iterator[popmq.Outbox]:
    with popmq.Outbox(client, way.database) as outbox:
        yield outbox


def ended(outbox: popmq.Outbox, client: popmq.Client) -> bool:
    """After it, no half message is left."""
    return outbox.flush(30.0) and client.transactions.list().total == 0


def test_a_message_is_seen_when_the_transaction_has_committed(
    way: Way, outbox: popmq.Outbox, client: popmq.Client, seen: Seen
) -> None:
    with outbox(way.connection) as box, way.transaction():
        way.execute(insert(1))
        receipt = box.send(TOPIC, popmq.Message("one", properties={"a": "b"}))
        box.send(TOPIC, ["two", "three"])
        assert (len(box.receipts), receipt.offset, seen()) == (3, -1, [])
    assert ended(outbox, client)
    assert sorted(seen()) == ["one", "three", "two"]
    assert {one.properties.get("a") for one in client.messages.browse(TOPIC).deliveries} == {"b", None}


def test_a_block_inside_of_the_transaction_ends_nothing_and_its_messages_end_with_it(
    way: Way, outbox: popmq.Outbox, client: popmq.Client, seen: Seen
) -> None:
    with way.transaction():
        with outbox(way.connection) as box:
            box.send(TOPIC, "one")
        assert not outbox.flush(0.05)
        assert seen() == []
        way.execute(insert(1))
    assert ended(outbox, client)
    assert seen() == ["one"]


def test_a_message_of_a_transaction_that_rolls_back_is_dropped(
    way: Way, outbox: popmq.Outbox, client: popmq.Client, seen: Seen
) -> None:
    with contextlib.suppress(Stop), outbox(way.connection) as box, way.transaction():
        box.send(TOPIC, "one")
        raise Stop
    assert ended(outbox, client)
    assert seen() == []


def test_a_savepoint_that_is_rolled_back_drops_what_was_sent_in_it_and_nothing_else(
    way: Way, outbox: popmq.Outbox, client: popmq.Client, seen: Seen
) -> None:
    with outbox(way.connection) as box, way.transaction():
        way.execute(insert(1))
        box.send(TOPIC, "before")
        with contextlib.suppress(Stop), way.savepoint():
            box.send(TOPIC, "dropped")
            raise Stop
        with way.savepoint():
            box.send(TOPIC, "kept")
        box.send(TOPIC, "after")
    assert ended(outbox, client)
    assert sorted(seen()) == ["after", "before", "kept"]


def test_a_savepoint_that_was_kept_ends_with_its_transaction(
    way: Way, outbox: popmq.Outbox, client: popmq.Client, seen: Seen
) -> None:
    with contextlib.suppress(Stop), outbox(way.connection) as box, way.transaction():
        way.execute(insert(1))
        with way.savepoint():
            box.send(TOPIC, "one")
        raise Stop
    assert ended(outbox, client)
    assert seen() == []


@pytest.fixture(params=ways.ASYNC, ids=lambda way: way.__name__)
def async_way(request: pytest.FixtureRequest, tmp_path: Path) -> AbstractAsyncContextManager[AsyncWay]:
    url = request.getfixturevalue("mysql_url" if request.param in ways.ASYNC_MYSQL else "url")
    made: AbstractAsyncContextManager[AsyncWay] = request.param(url, tmp_path / "shop.db")
    return made


async def test_with_asyncio_too_what_commits_is_seen_and_nothing_else(
    async_way: AbstractAsyncContextManager[AsyncWay], popmq_broker: Broker, client: popmq.Client, seen: Seen
) -> None:
    async with (
        async_way as way,
        popmq_broker.async_client() as async_client,
        popmq.AsyncOutbox(async_client, way.database) as outbox,
    ):
        async with outbox(way.connection) as box, way.transaction():
            await way.execute(insert(1))
            await box.send(TOPIC, "kept")
            with contextlib.suppress(Stop):
                async with way.savepoint():
                    await box.send(TOPIC, "dropped")
                    raise Stop
            await box.send(TOPIC, "kept too")
        with contextlib.suppress(Stop):
            async with outbox(way.connection) as box, way.transaction():
                await box.send(TOPIC, "rolled back")
                raise Stop
        async with way.transaction():
            async with outbox(way.connection) as box:
                await box.send(TOPIC, "inside")
            assert not await outbox.flush(0.05)
        assert await outbox.flush(30.0)
    assert client.transactions.list().total == 0
    assert sorted(seen()) == ["inside", "kept", "kept too"]


def test_the_example_sends_for_each_order_that_was_placed(
    popmq_broker: Broker, client: popmq.Client, tmp_path: Path
) -> None:
    environment = os.environ | {"POPMQ_ENDPOINT": popmq_broker.endpoint}
    words = [sys.executable, "-W", "error", "examples/outbox.py", str(tmp_path / "shop.db")]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert (done.stdout.split("\n")[:-1], done.stderr) == ([f"{number} sold out" for number in (3, 6, 9)], "")
    assert client.transactions.list().total == 0
    sent = [delivery.text() for delivery in client.messages.browse("placed-orders").deliveries]
    assert sorted(sent) == sorted(f'{{"order":{number}}}' for number in range(1, 11) if number % 3)
