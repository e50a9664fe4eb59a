"""A process that dies leaves its messages to another one, which asks the database."""

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pymysql
import pytest

import popmq
from harness.postgresql import PostgreSQL
from popmq._outbox.libraries import mysql_of
from popmq.testing import Broker, FakeClock
from tests.outbox.conftest import TOPIC
from tests.outbox.ways import CREATE

pytestmark = pytest.mark.slow

Checker = resolve_name("popmq._sync.background.checker:Checker")

DIES = """
import sys, popmq
endpoint, database, when = sys.argv[1:]
if database.startswith("mysql://"):
    import pymysql
    from popmq._outbox.libraries import mysql_of
    connection = pymysql.connect(**mysql_of(database))
    connection.execute = connection.cursor().execute
elif "://" in database:
    import psycopg
    connection = psycopg.connect(database)
else:
    import sqlite3
    connection = sqlite3.connect(database)
with popmq.Client(endpoint) as client, popmq.Outbox(client, database) as outbox, outbox(connection) as box:
    connection.execute("INSERT INTO orders VALUES (7)")
    box.send("orders", "seven")
    if when == "after":
        connection.commit()
    print("now", flush=True)
    sys.stdin.read()
"""


def killed(broker: Broker, database: str, when: str) -> None:
    """Runs a process up to a point, and kills it."""
    words = [sys.executable, "-c", DIES, broker.endpoint, database, when]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "now\n"
        process.send_signal(signal.SIGKILL)


@pytest.fixture(params=["postgresql", "mysql", "sqlite"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "mysql":
        url: str = request.getfixturevalue("mysql_url")
        with pymysql.connect(**mysql_of(url)) as opened, opened.cursor() as cursor:
            cursor.execute(CREATE)
        return url
    if request.param == "postgresql":
        return str(request.getfixturevalue("url"))
    path = str(tmp_path / "shop.db")
    with sqlite3.connect(path) as connection:
        connection.execute(CREATE)
    connection.close()
    return path


@pytest.fixture
def until_ended(client: popmq.Client, popmq_clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Moves the time on to each check-back when the one before was answered, until none is left."""
    checks = 0

    def answer(checker: Any, response: Any, _answer: Any = Checker.answer) -> Any:
        nonlocal checks
        answered = _answer(checker, response)
        checks += response.HasField("check")
        return answered

    monkeypatch.setattr(Checker, "answer", answer)

    def move() -> None:
        while (half := client.transactions.list()).total:
            if sum(one.checks for one in half.messages) <= checks:
                popmq_clock.advance(30_000)

    return move


@pytest.mark.parametrize(("when", "visible"), [("before", []), ("after", ["seven"])])
def test_a_message_of_a_killed_process_is_seen_if_its_transaction_committed(
    popmq_broker: Broker,
    popmq_clock: FakeClock,
    client: popmq.Client,
    database: str,
    seen: Callable[[], list[str]],
    until_ended: Callable[[], None],
    when: str,
    visible: list[str],
    request: pytest.FixtureRequest,
) -> None:
    killed(popmq_broker, database, when)
    if database.startswith("mysql://"):
        with pymysql.connect(**mysql_of(database), autocommit=True) as opened, opened.cursor() as cursor:
            while cursor.execute("SELECT * FROM information_schema.innodb_trx"):
                pass
    elif "://" in database:  # the server ends the session when it notices; until then the transaction goes on
        server: PostgreSQL = request.getfixturevalue("server")
        server.until("NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE state LIKE 'idle in transaction%')")
    assert (client.transactions.list(TOPIC).total, seen()) == (1, [])
    with popmq.Outbox(client, database) as outbox:
        outbox.answer(TOPIC)
        until_ended()
        assert outbox.flush(30.0)
    assert seen() == visible
    if "://" not in database:
        with closing(sqlite3.connect(database)) as connection:
            assert connection.execute("SELECT count(*) FROM popmq_outbox WHERE id NOT LIKE 'name %'").fetchone() == (0,)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.db"


@pytest.fixture
def connection(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path)
    yield connection
    connection.close()


def test_markers_of_messages_that_have_ended_are_deleted(
    client: popmq.Client, path: Path, connection: sqlite3.Connection
) -> None:
    with popmq.Outbox(client, path) as outbox:
        for number in range(3):
            with outbox(connection) as box, connection:
                box.send(TOPIC, str(number))
        assert outbox.flush(30.0)
    rows = connection.execute("SELECT id FROM popmq_outbox").fetchall()
    assert [id.startswith("name ") for (id,) in rows] == [True]


def test_the_first_message_of_a_database_may_be_sent_in_a_transaction_that_has_written_before(
    client: popmq.Client,
    path: Path,
    connection: sqlite3.Connection,
    seen: Callable[[], list[str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The table of the outbox then begins in this transaction, and who asks before its end does not see the table."""
    connection.execute(CREATE)
    connection.execute("INSERT INTO orders VALUES (1)")
    with popmq.Outbox(client, path) as outbox:
        with outbox(connection) as box:
            box.send(TOPIC, "one")
        assert not outbox.flush(0.05)
        connection.commit()
        assert outbox.flush(30.0)
    assert (seen(), [record for record in caplog.records if record.name == "popmq.outbox"]) == (["one"], [])


def test_who_asks_while_the_transaction_goes_on_gets_no_answer_and_delays_nobody(
    popmq_broker: Broker,
    popmq_clock: FakeClock,
    client: popmq.Client,
    path: Path,
    connection: sqlite3.Connection,
    seen: Callable[[], list[str]],
    until_ended: Callable[[], None],
) -> None:
    with popmq.Outbox(client, path) as sender, popmq.Outbox(client, path) as outbox:
        outbox.answer(TOPIC)
        with sender(connection) as box:
            box.send(TOPIC, "one")
            popmq_clock.advance(30_000)
            while not (half := client.transactions.list().messages)[0].checks:
                pass
            popmq_clock.advance(30_000)
            while half[0].checks < 2:
                half = client.transactions.list().messages
            connection.commit()
        until_ended()
    assert seen() == ["one"]


def test_another_file_does_not_answer_for_a_transaction(
    popmq_broker: Broker,
    popmq_clock: FakeClock,
    client: popmq.Client,
    path: Path,
    connection: sqlite3.Connection,
    seen: Callable[[], list[str]],
    until_ended: Callable[[], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Two services have one topic. After 15 check-backs the message is where the documents say."""
    other = path.with_name("other.db")
    killed_inside = popmq.Outbox(client, path)
    with killed_inside(connection) as box:
        box.send(TOPIC, "one")
        connection.commit()
        with popmq.Outbox(client, other) as outbox:
            outbox.answer(TOPIC)
            until_ended()
        assert "belongs to another database" in caplog.text
        assert seen() == []
        (given_up,) = client.messages.browse("TRANS_CHECK_MAX_TIME_TOPIC").deliveries
        assert given_up.text() == "one"


def test_a_transaction_that_commits_after_the_broker_gave_its_message_up_makes_it_visible(
    popmq_broker: Broker,
    popmq_clock: FakeClock,
    client: popmq.Client,
    path: Path,
    connection: sqlite3.Connection,
    seen: Callable[[], list[str]],
    until_ended: Callable[[], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with popmq.Outbox(client, path) as outbox:
        outbox.answer(TOPIC)
        with outbox(connection) as box:
            box.send(TOPIC, "one")
            until_ended()
            assert len(client.messages.browse("TRANS_CHECK_MAX_TIME_TOPIC").deliveries) == 1
            connection.commit()
        assert outbox.flush(30.0)
    assert seen() == ["one"]
    assert "1 of 1 messages of orders had been given up and are visible now" in caplog.text


def test_what_was_given_up_is_redriven_if_the_database_says_that_it_committed(
    popmq_broker: Broker,
    popmq_clock: FakeClock,
    client: popmq.Client,
    database: str,
    seen: Callable[[], list[str]],
    until_ended: Callable[[], None],
    request: pytest.FixtureRequest,
) -> None:
    """The database was away for longer than the check-backs."""
    with popmq.Outbox(client, database) as outbox:
        assert outbox.redrive() == {}
    for when in ("after", "before"):
        killed(popmq_broker, database, when)
    client.transactions.on_check(TOPIC, lambda _: None)
    until_ended()
    if "://" in database:
        server: PostgreSQL = request.getfixturevalue("server")
        server.until("NOT EXISTS (SELECT 1 FROM pg_stat_activity WHERE state LIKE 'idle in transaction%')")
    with popmq.Outbox(client, database) as outbox:
        assert list(outbox.redrive().values()) == ["the transaction rolled back"]
        assert list(outbox.redrive().values()) == ["the transaction rolled back"]
    assert seen() == ["seven"]


def test_an_outbox_that_was_closed_opens_no_connection_for_the_broker(
    popmq_broker: Broker, popmq_clock: FakeClock, client: popmq.Client, path: Path, connection: sqlite3.Connection
) -> None:
    opened: list[int] = []

    def database() -> sqlite3.Connection:
        opened.append(1)
        return sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    with popmq.Outbox(client, database) as outbox:
        outbox.answer(TOPIC)
        with outbox(connection) as box:
            box.send(TOPIC, "one")
            outbox.close()
    popmq_clock.advance(30_000)
    while not client.transactions.list().messages[0].checks:
        pass
    connection.rollback()
    client.close()
    assert opened == [1]


FORKS = """
import os, sqlite3, sys, popmq
endpoint, path = sys.argv[1:]

class Connection(sqlite3.Connection):
    def close(self):
        print("closed by the", "parent" if os.getpid() == parent else "child", flush=True)
        super().close()

parent = os.getpid()
open_one = lambda: sqlite3.connect(path, isolation_level=None, check_same_thread=False, factory=Connection)
with popmq.Client(endpoint) as client, popmq.Outbox(client, open_one) as outbox:
    connection = sqlite3.connect(path)
    with outbox(connection) as box:
        box.send("orders", "one")
        connection.commit()
    outbox.flush()
    if os.fork() == 0:
        raise SystemExit
    os.wait()
"""


def test_a_forked_child_leaves_the_connection_to_its_parent(
    popmq_broker: Broker, client: popmq.Client, path: Path
) -> None:
    words = [sys.executable, "-c", FORKS, popmq_broker.endpoint, str(path)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    assert (ended.stdout, ended.stderr) == ("closed by the parent\n", "")
