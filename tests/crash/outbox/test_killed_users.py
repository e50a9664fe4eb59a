"""Whoever is killed: a message is seen if and only if its row is there; what cannot be decided is listed."""

import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pymysql
import pytest

import popmq
from bench.peers import install
from harness.broker_process import ROOT, BrokerProcess
from harness.mariadb import MariaDB
from harness.postgresql import PostgreSQL
from popmq._outbox.libraries import mysql_of
from popmq._sync.outbox.connections import connect
from tests.crash.conftest import Scale
from tests.crash.outbox.users import CREATE, TOPIC

GIVE_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
#: Where the tasks of Django are: those without a priority in the middle queue.
TASKS, NO_PRIORITY = "django-default", 100
#: Seconds in which the broker has asked about each half message that is left: twice, some of them.
DECIDED_S = 120.0
#: And in which it gives up those that nobody can decide: 15 check-backs, every 30 s.
GIVEN_UP_S = 600.0


class Rows:
    """The database of a campaign: where it is, and which rows it has."""

    def __init__(self, database: str, ids: Callable[[], set[str]]) -> None:
        self.database = database
        self.ids = ids


@pytest.fixture
def server() -> Iterator[PostgreSQL]:
    """A server with a table, which waits for the disk as it does by default."""
    try:
        programs = install.postgresql()
    except install.Missing as why:
        pytest.skip(f"no PostgreSQL: {why}")
    folder = Path(tempfile.mkdtemp(prefix="popmq-postgresql-"))
    folder.chmod(0o755)
    if not os.getuid():
        shutil.chown(folder, "nobody")
    with PostgreSQL(programs, folder) as server:
        server.query(CREATE)
        yield server
    shutil.rmtree(folder)


@pytest.fixture
def mariadb(tmp_path: Path) -> Iterator[MariaDB]:
    """A server, which waits for the disk as it does by default."""
    try:
        root = install.mariadb()
    except install.Missing as why:
        pytest.skip(f"no MariaDB: {why}")
    with MariaDB(root, tmp_path) as server:
        yield server


def ids_in(server: MariaDB) -> set[str]:
    with pymysql.connect(**mysql_of(server.url)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT id FROM orders")
        return {id for (id,) in cursor.fetchall()}


@pytest.fixture(params=["postgresql", "mysql", "sqlite"])
def rows(request: pytest.FixtureRequest, tmp_path: Path) -> Rows:
    if request.param == "mysql":
        mariadb: MariaDB = request.getfixturevalue("mariadb")
        with pymysql.connect(**mysql_of(mariadb.url)) as opened, opened.cursor() as cursor:
            cursor.execute(CREATE)
        return Rows(mariadb.url, lambda: ids_in(mariadb))
    if request.param == "postgresql":
        server: PostgreSQL = request.getfixturevalue("server")
        return Rows(server.url, lambda: set(server.query("SELECT id FROM orders").split()))
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute(CREATE)
    connection.close()

    def ids() -> set[str]:
        with sqlite3.connect(path) as connection:
            found = {id for (id,) in connection.execute("SELECT id FROM orders")}
        connection.close()
        return found

    return Rows(str(path), ids)


def started(broker: BrokerProcess, database: str, kills: int, seed: int, *kind: str) -> "subprocess.Popen[str]":
    """A process that starts users and kills them."""
    words = [broker.endpoint, database, str(kills), str(seed), *kind]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.crash.outbox.users", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def messages(client: popmq.Client, topic: str, queue: int = 0) -> Counter[str]:
    """How often each text is in a queue of a topic."""
    found, offset = Counter[str](), 0
    while (page := client.messages.browse(topic, queue, offset, 4096)).deliveries:
        found.update(one.text() for one in page.deliveries)
        offset = page.next_offset
    return found


def wait_until_decided(client: popmq.Client, seconds: float, topic: str = TOPIC) -> int:
    """How many half messages are left after so long; 0 as soon as there are none."""
    until = time.monotonic() + seconds
    while (left := client.transactions.list(topic).total) and time.monotonic() < until:
        time.sleep(0.2)
    return left


def compared(ids: set[str], seen: Counter[str], listed: set[str]) -> list[str]:
    """What is wrong: a message without its row, a row without its message that is not listed, a message twice."""
    found = {
        "phantom": sorted(seen.keys() - ids),
        "missing": sorted(ids - seen.keys() - listed),
        "twice": sorted(id for id, count in seen.items() if count > 1),
    }
    return [f"{len(some)} {what}: {some[:5]}" for what, some in found.items() if some]


def told(kind: str, seed: int, places: dict[str, int], seen: int, listed: int) -> str:
    where = ", ".join(f"{place} {count:,}" for place, count in sorted(places.items()))
    kills = sum(places.values())
    return f"outbox, {kind}, seed {seed}: {kills:,} users killed ({where}); {seen:,} messages seen, {listed} listed"


@pytest.mark.chaos
@pytest.mark.parametrize(
    "rows", [pytest.param("postgresql", marks=pytest.mark.smoke), "mysql", "sqlite"], indirect=True
)
def test_a_message_is_seen_if_and_only_if_its_row_is_there_wherever_its_process_was_killed(
    rows: Rows, tmp_path: Path, scale: Scale, show: Callable[[str], None], request: pytest.FixtureRequest
) -> None:
    kills = scale.pick(short=60, whole=int(os.environ.get("POPMQ_KILLS", "5000")))
    with BrokerProcess(tmp_path / "broker") as broker, popmq.Client(broker.endpoint) as client:
        client.topics.create(TOPIC, queues=1, type="TRANSACTION")
        with popmq.Outbox(client, rows.database) as outbox:
            outbox.answer(TOPIC)
            with started(broker, rows.database, kills, scale.seed) as users:
                places = json.loads(users.communicate()[0])
            left = wait_until_decided(client, DECIDED_S)
        seen, ids = messages(client, TOPIC), rows.ids()
    line = told(request.node.callspec.id, scale.seed, places, len(seen), left)
    show(line)
    assert (compared(ids, seen, set()), left) == ([], 0), line
    assert (sum(places.values()), places.get("failed", 0), len(seen) > kills // 2) == (kills, 0, True), line


@pytest.mark.chaos
def test_a_task_of_django_exists_if_and_only_if_its_row_does_wherever_its_process_was_killed(
    rows: Rows, tmp_path: Path, scale: Scale, show: Callable[[str], None], request: pytest.FixtureRequest
) -> None:
    if rows.database.startswith("mysql://"):
        pytest.importorskip("MySQLdb")  # mysqlclient, which Django needs and which is built on the machine
    kills = scale.pick(short=30, whole=int(os.environ.get("POPMQ_KILLS", "5000")))
    with BrokerProcess(tmp_path / "broker") as broker, popmq.Client(broker.endpoint) as client:
        client.topics.create(TASKS, queues=201, type="PRIORITY")
        reached = connect(rows.database)
        reached.run(reached.kind.prepare())  # as `migrate` does in a project
        reached.close()
        with popmq.Outbox(client, rows.database) as outbox:
            outbox.answer(TASKS)
            with started(broker, rows.database, kills, scale.seed, "django") as users:
                places = json.loads(users.communicate()[0])
            left = wait_until_decided(client, DECIDED_S, TASKS)
        queue = messages(client, TASKS, NO_PRIORITY)
        seen, ids = Counter({json.loads(text)["args"][0]: count for text, count in queue.items()}), rows.ids()
    line = told(f"django on {request.node.callspec.id}", scale.seed, places, len(seen), left)
    show(line)
    assert (compared(ids, seen, set()), left) == ([], 0), line
    assert (sum(places.values()), places.get("failed", 0), len(seen) > kills // 2) == (kills, 0, True), line


@pytest.mark.chaos
def test_also_when_the_broker_the_answering_process_and_the_database_are_killed(
    server: PostgreSQL, tmp_path: Path, scale: Scale, show: Callable[[str], None]
) -> None:
    """After a crash PostgreSQL gives ids again. What cannot be told then is listed, and never guessed."""
    chance, killed, places = random.Random(scale.seed), Counter[str](), Counter[str]()
    with BrokerProcess(tmp_path / "broker") as broker, popmq.Client(broker.endpoint) as client:
        client.topics.create(TOPIC, queues=1, type="TRANSACTION")
        outbox = popmq.Outbox(client, server.url)
        outbox.answer(TOPIC)
        for turn in range(scale.pick(short=3, whole=60)):
            with started(broker, server.url, 25, scale.seed + turn) as users:
                time.sleep(chance.uniform(0.5, 1.5))
                killed[victim := ("database", "broker", "database and broker")[turn % 3]] += 1
                if "broker" in victim:
                    broker.kill()
                if "database" in victim:
                    server.stop("immediate")
                    server.start()
                if "broker" in victim:
                    broker.spawn()
                    broker.wait_ready()
                places.update(json.loads(users.communicate()[0]))
        left = wait_until_decided(client, scale.pick(short=round(DECIDED_S / 2), whole=round(GIVEN_UP_S)))
        undecided = {half.preview.text() for half in client.transactions.list(TOPIC).messages if half.preview}
        given_up = any(topic.name == GIVE_UP_TOPIC for topic in client.topics.list())
        listed = undecided | (messages(client, GIVE_UP_TOPIC).keys() if given_up else set())
        outbox.close()
        seen, ids = messages(client, TOPIC), set(server.query("SELECT id FROM orders").split())
    line = told(f"crashes {dict(killed)}", scale.seed, places, len(seen), len(listed))
    show(line)
    assert (compared(ids, seen, listed), left == len(undecided), len(seen) > 0) == ([], True, True), line
