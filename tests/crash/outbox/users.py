"""Processes that send by an outbox until they are killed, each at a random moment; where each was, and how many.

python -m tests.crash.outbox.users HOST:PORT DATABASE KILLS SEED [django]       prints the counts of the places as JSON

This process only forks and kills: it has no threads and no client. A child tells by two bytes, which both see, where it
is, and how many places it has passed. So a kill comes at a random place, however fast the machine is.
The text of each message is the id of a row that the same transaction, or the same savepoint, inserts.
"""

import contextlib
import json
import mmap
import os
import random
import signal
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pymysql

import popmq
from popmq._outbox.libraries import mysql_of
from popmq._sync import client, transaction
from popmq._sync.background import send_gatherer
from popmq._sync.outbox import connections, outbox

#: Imported before the fork, which a child would do in its first transaction.
LOADED = (client, transaction, send_gatherer, connections, outbox)
TOPIC = "orders"
CREATE = "CREATE TABLE orders (id VARCHAR(64) PRIMARY KEY)"
#: Where a child is, by its byte. Most of a transaction's time is in the three calls that wait for a disk.
PLACES = {
    b"-": "between",
    b"i": "insert",
    b"s": "send",
    b"S": "sent",
    b"c": "commit",
    b"C": "committed",
    b"r": "roll back",
}
#: Places that a child passes at most, some transactions; and seconds after the last of them.
PASSED_MAX, LATER_S = 24, 0.006
#: Children that work at the same time, so that some are in a transaction when another one is killed.
AT_ONCE = 4


class Stop(Exception):
    """Rolls back."""


class User:
    """A child: transactions, one after the other."""

    def __init__(self, endpoint: str, database: str, name: str, place: mmap.mmap, chance: random.Random) -> None:
        self._name, self._place, self._chance = name, place, chance
        self._count = 0
        self._client = popmq.Client(endpoint)
        self._outbox = popmq.Outbox(self._client, database)
        self._connection: Any
        self._execute: Any
        if database.startswith("mysql://"):
            self._connection = pymysql.connect(**mysql_of(database))
            self._execute = self._connection.cursor().execute
            return
        if "://" in database:
            self._connection = psycopg.connect(database)
        else:
            self._connection = sqlite3.connect(database, timeout=30)
        self._execute = self._connection.execute

    def run(self) -> None:
        """Until it is killed."""
        while True:
            inside = self._chance.random() < 0.5
            with contextlib.suppress(Stop):
                if inside:
                    with self._transaction(), self._outbox(self._connection) as box:
                        self._work(box)
                else:
                    with self._outbox(self._connection) as box, self._transaction():
                        self._work(box)
            self._at(b"-")

    def _work(self, box: Any) -> None:
        self._order(box)
        if self._chance.random() < 0.3:
            with contextlib.suppress(Stop), self._savepoint():
                self._order(box)
                if self._chance.random() < 0.5:
                    raise Stop
        if self._chance.random() < 0.2:
            raise Stop

    def _order(self, box: Any) -> None:
        self._count += 1
        id = f"{self._name}-{self._count}"
        self._at(b"i")
        self._execute(f"INSERT INTO orders VALUES ('{id}')")
        self._at(b"s")
        self._send(box, id)
        self._at(b"S")

    def _send(self, box: Any, id: str) -> None:
        box.send(TOPIC, id)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            yield
        except Stop:
            self._at(b"r")
            self._connection.rollback()
            raise
        self._at(b"c")
        self._connection.commit()
        self._at(b"C")

    @contextlib.contextmanager
    def _savepoint(self) -> Iterator[None]:
        self._execute("SAVEPOINT mine")
        try:
            yield
        except Stop:
            self._execute("ROLLBACK TO SAVEPOINT mine")

    def _at(self, place: bytes) -> None:
        self._place[0:2] = place + bytes([min(self._place[1] + 1, 255)])


class Child:
    """A process that works until it is killed: when it has passed so many places, and so many seconds later."""

    def __init__(self, kind: type[User], endpoint: str, database: str, name: str, chance: random.Random) -> None:
        self._place, seed = mmap.mmap(-1, 2), chance.random()
        self._passed, self._later, self._at = chance.randint(1, PASSED_MAX), chance.uniform(0, LATER_S), 0.0
        self._pid = os.fork()
        if not self._pid:
            signal.alarm(60)  # whatever happens to this process
            try:
                kind(endpoint, database, name, self._place, random.Random(seed)).run()
            finally:
                os._exit(1)

    def killed(self) -> str:
        """Kills it if it is time. Where it was then; "failed" if it ended before; empty: it works."""
        if os.waitpid(self._pid, os.WNOHANG)[0]:
            return "failed"
        now = time.monotonic()
        if self._place[1] < self._passed:
            return ""
        self._at = self._at or now + self._later
        if now < self._at:
            return ""
        os.kill(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        return PLACES[self._place[0:1]] if os.WIFSIGNALED(status) else "failed"


def main(endpoint: str, database: str, kills: int, seed: int, framework: str = "") -> None:
    kind = User
    if framework:  # loaded here, so that a child has it
        from tests.crash.outbox import django_user

        django_user.load(endpoint, database)
        kind = django_user.DjangoUser
    chance, places = random.Random(seed), Counter[str]()
    children, number = list[Child](), 0
    while number < kills or children:
        while number < kills and len(children) < AT_ONCE:
            children.append(Child(kind, endpoint, database, f"{seed}-{number}", chance))
            number += 1
        time.sleep(0.0003)
        for child in children[:]:
            if place := child.killed():
                children.remove(child)
                places[place] += 1
                if place == "failed":  # the database or the broker is away
                    time.sleep(0.1)
    print(json.dumps(places))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), *sys.argv[5:])
