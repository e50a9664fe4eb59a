"""What PostgreSQL tells about a transaction, and when its answer is not taken: crashes, standbys, prepared ones."""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.postgresql import PostgreSQL
from popmq._outbox.postgresql import SAID
from popmq._outbox.verdicts import COMMITTED, ELSEWHERE, OPEN, ROLLED_BACK, Verdict
from popmq._sync.outbox.asking import Asking
from popmq._sync.outbox.connections import reach

psycopg = pytest.importorskip("psycopg")
pytestmark = pytest.mark.slow

#: More ids than one file of the commit log has: the server forgets whole files.
BURN = """
DO $$ BEGIN FOR n IN 1..1200000 LOOP
  BEGIN PERFORM pg_logical_emit_message(true, '', ''); EXCEPTION WHEN others THEN NULL; END;
END LOOP; END $$
"""


def place(connection: Any) -> str:
    """Where the transaction of a connection is."""
    reached = reach(connection)
    return reached.run(reached.kind.here())


def ask(url: str, *places: str) -> list[Verdict]:
    """What an outbox that asks this server is told."""
    asking = Asking(url)
    verdicts = asking.ended(places)
    asking.close()
    return verdicts


def outer_of(text: str) -> int:
    return int(text.split()[3])


@pytest.fixture
def connection(url: str) -> Iterator[Any]:
    with psycopg.connect(url) as connection:
        yield connection
        connection.rollback()


@pytest.fixture
def own(programs: Path, folder: Callable[[], Path]) -> Iterator[PostgreSQL]:
    """A server that a test may crash."""
    with PostgreSQL(programs, folder()) as server:
        yield server


def test_a_transaction_is_open_until_it_ends(url: str, connection: Any) -> None:
    first = place(connection)
    assert ask(url, first) == [OPEN]
    connection.commit()
    second = place(connection)
    connection.rollback()
    assert ask(url, first, second) == [COMMITTED, ROLLED_BACK]


def test_a_user_without_rights_can_send_and_ask(url: str, connection: Any) -> None:
    connection.execute("DROP ROLE IF EXISTS plain")
    connection.execute("CREATE ROLE plain LOGIN")
    connection.commit()
    plain = url.replace("postgres@", "plain@")
    with psycopg.connect(plain) as theirs:
        sent = place(theirs)
    assert ask(plain, sent) == [COMMITTED]


def test_the_place_is_that_of_the_innermost_savepoint(url: str, connection: Any) -> None:
    outside = place(connection)
    with connection.transaction():
        kept = place(connection)
        with contextlib.suppress(ZeroDivisionError), connection.transaction():
            dropped = place(connection)
            raise ZeroDivisionError
        again = place(connection)
    assert (kept == again, len({outside, kept, dropped}), place(connection) == outside) == (True, 3, True)
    assert ask(url, outside, kept, dropped) == [OPEN, OPEN, ROLLED_BACK]
    connection.commit()
    assert ask(url, outside, kept, dropped) == [COMMITTED, COMMITTED, ROLLED_BACK]


def test_a_commit_of_a_failed_transaction_is_a_rollback(url: str, connection: Any) -> None:
    """The server answers it with ROLLBACK, and libraries raise nothing."""
    sent = place(connection)
    with contextlib.suppress(psycopg.errors.DivisionByZero):
        connection.execute("SELECT 1 / 0")
    connection.commit()
    assert ask(url, sent) == [ROLLED_BACK]


def test_a_commit_that_would_not_wait_for_the_disk_waits(connection: Any) -> None:
    connection.execute("SET synchronous_commit = off")
    connection.commit()
    place(connection)
    assert connection.execute("SHOW synchronous_commit").fetchone() == ("local",)
    connection.rollback()
    assert connection.execute("SHOW synchronous_commit").fetchone() == ("off",)


def test_a_prepared_transaction_is_open_across_restarts_until_it_is_decided(own: PostgreSQL) -> None:
    with psycopg.connect(own.url) as connection:
        sent = place(connection)
        connection.execute("PREPARE TRANSACTION 'mine'")
    assert ask(own.url, sent) == [OPEN]
    own.stop("fast")
    own.start()
    assert ask(own.url, sent) == [OPEN]
    with psycopg.connect(own.url, autocommit=True) as connection:
        connection.execute("COMMIT PREPARED 'mine'")
    assert ask(own.url, sent) == [COMMITTED]


def test_an_id_that_a_crash_made_free_decides_nothing_about_its_first_transaction(own: PostgreSQL) -> None:
    first = psycopg.connect(own.url)
    kept = place(first)
    first.commit()
    lost = place(first)
    own.stop("immediate")
    own.start()
    first.close()
    assert ask(own.url, kept, lost) == [COMMITTED, ROLLED_BACK]
    with psycopg.connect(own.url) as second:
        later = place(second)
    assert outer_of(later) == outer_of(lost), "the server no longer gives ids again: then this is simpler"
    assert ask(own.url, later, kept, lost) == [COMMITTED, COMMITTED, ROLLED_BACK]
    own.checkpoint()
    assert ask(own.url, later, kept, lost) == [COMMITTED, SAID["given again"], SAID["given again"]]


def test_the_checkpoint_of_a_clean_stop_after_a_crash_is_not_taken_for_that_of_the_recovery(own: PostgreSQL) -> None:
    first = psycopg.connect(own.url)
    lost = place(first)
    own.stop("immediate")
    own.start()
    first.close()
    with psycopg.connect(own.url) as second:
        later = place(second)
    own.stop("fast")
    own.start()
    assert ask(own.url, later, lost) == [COMMITTED, SAID["given again"]]


def test_a_crash_of_one_process_of_the_server_is_a_crash(own: PostgreSQL) -> None:
    """All sessions end, and what the server had only in memory is gone; the first process lives on."""
    with psycopg.connect(own.url) as connection:
        committed = place(connection)
    victim = psycopg.connect(own.url)
    lost = place(victim)
    since = own.query("SELECT pg_stat_get_bgwriter_stat_reset_time()")
    os.kill(victim.info.backend_pid, signal.SIGKILL)
    victim.close()
    own.until(f"pg_stat_get_bgwriter_stat_reset_time() <> '{since}'")
    assert ask(own.url, lost, committed) == [ROLLED_BACK, COMMITTED]


def test_a_standby_tells_nothing_and_decides_when_it_is_promoted(own: PostgreSQL, folder: Callable[[], Path]) -> None:
    with own.standby(folder()) as standby:
        with psycopg.connect(own.url) as connection:
            received = place(connection)
            standby.receive(own)
        assert ask(own.url, received) == [COMMITTED]
        assert ask(standby.url, received) == [SAID["standby"]]
        lost = psycopg.connect(own.url)
        other = psycopg.connect(own.url)
        standby.stop("fast")  # the link breaks: what follows is not received
        unseen, uncommitted = place(lost), place(other)
        lost.commit()
        own.stop("immediate")
        for one in (lost, other):
            one.close()
        standby.start()
        standby.promote()
        standby.checkpoint()
        assert ask(standby.url, unseen, uncommitted) == [ROLLED_BACK, ROLLED_BACK]
        with psycopg.connect(standby.url) as connection:
            stranger = place(connection)
        assert ask(standby.url, stranger) == [COMMITTED]
        standby.checkpoint()
        assert ask(standby.url, unseen, received) == [SAID["given again"]] * 2


def test_another_server_does_not_answer_for_a_transaction_with_the_same_id(
    own: PostgreSQL, url: str, connection: Any
) -> None:
    sent = place(connection)
    connection.commit()
    assert ask(own.url, sent) == [ELSEWHERE]


def test_a_transaction_that_vacuum_has_forgotten_is_too_old(own: PostgreSQL) -> None:
    own.stop()
    own.set(autovacuum="off", fsync="off")
    own.start()
    with psycopg.connect(own.url) as connection:
        old = place(connection)
    with psycopg.connect(own.url, autocommit=True) as connection:
        assert ask(own.url, old) == [COMMITTED]
        own.vacuum()
        assert ask(own.url, old) == [COMMITTED], "freezing rows alone forgets nothing"
        connection.execute(BURN)
        connection.execute("UPDATE pg_database SET datallowconn = true")  # template0 holds the oldest rows
        own.vacuum()
    assert ask(own.url, old) == [SAID["too old"]]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "postgresql",
        "postgresql 1 1.000000 1 1; DROP TABLE orders",
        "postgresql 1 1.000000 1 '",
        f"postgresql 1 1.000000 {2**64} 1",
        "sqlite 0123456789abcdef 0123456789abcdef0123456789abcdef",
    ],
)
def test_a_place_that_no_outbox_of_this_database_wrote_gets_into_no_sql(url: str, text: str, connection: Any) -> None:
    sent = place(connection)
    assert ask(url, text, sent, text) == [ELSEWHERE, OPEN, ELSEWHERE]
