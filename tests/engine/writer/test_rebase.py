"""A clock that was a year ahead and is set right: nothing waits longer than it was asked to, for every stored time."""

import logging

import pytest

from popmq_server.clock import SAVED_AHEAD_MAX_MS
from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.embedded.rules.retention.retention import REDRIVEN_KEEP_MS
from popmq_server.embedded.rules.sending.check_back import HALF_KEEP_MS
from popmq_server.embedded.rules.sending.transaction import DONE_KEEP_MS, FIRST_CHECK_MS
from popmq_server.embedded.store.keys import DATABASES
from popmq_server.embedded.store.lmdb import MapFull, Transaction
from popmq_server.embedded.writer import rebase
from popmq_server.errors import StartError
from tests.engine import lites
from tests.engine.conftest import MakeRig
from tests.engine.dead_letters import all_again, died
from tests.engine.rig import DAY, HOUR, MINUTE, SECOND, Rig, bodies, message, refusals
from tests.engine.traffic.traffic_timing import (
    asked,
    delayed,
    ending,
    halves,
    later,
    listen,
    make_topic,
    send,
    texts,
    timed_pair,
)
from tests.engine.wall_clock import WallClock, restarted

YEAR = 365 * DAY


class Ahead:
    """A broker whose machine shows a time a year ahead; `set_right` sets the clock and restarts the broker."""

    def __init__(self, rig: Rig, wall_clock: WallClock) -> None:
        self.rig, self.wall_clock = rig, wall_clock

    def set_right(self) -> None:
        self.rig.run(ask.CreateTopic(f"now-{self.rig.now}", 1, False, DAY))  # saves the time
        self.wall_clock.step(-YEAR)
        restarted(self.rig, self.wall_clock)
        assert self.rig.now == int(self.wall_clock.wall_s * 1000)
        self.rig.settle()

    def wait(self, ms: int) -> None:
        """Time passes; housekeeping has its turn at the end."""
        self.wall_clock.advance(ms)
        self.rig.settle()


@pytest.fixture
def ahead(make_rig: MakeRig) -> Ahead:
    wall_clock = WallClock()
    wall_clock.step(YEAR)
    return Ahead(make_rig(clock=wall_clock.clock()), wall_clock)


@pytest.mark.mechanism("I.30")
def test_a_lease_and_a_backoff_end_when_they_were_to(ahead: Ahead) -> None:
    rig = ahead.rig
    rig.pair()
    rig.send("leased", "released", "renewed")
    rows = rig.pop(invisible_ms=MINUTE)
    rig.release(rows[1:2], delay_ms=2 * MINUTE)
    rig.extend(rows[2:], 3 * MINUTE)
    ahead.set_right()
    for expected in ("leased", "released", "renewed"):
        ahead.wait(MINUTE - SECOND)
        assert rig.pop() == [], "nothing is early"
        ahead.wait(SECOND)
        rows = rig.pop()
        assert bodies(rows) == [expected]
        rig.ack(rows)


def test_a_handle_goes_on_and_the_lease_of_a_session_ends_after_its_time(ahead: Ahead) -> None:
    rig = ahead.rig
    rig.pair()
    rig.send("a", "b")
    acked, kept = rig.pop(1), rig.pop(1, client_id="c", session=True)
    ahead.set_right()
    assert refusals(rig.ack(acked)) == [""]
    for _ in range(2 * 4 * 60 + 1):
        rig.run(ask.RenewSession("c"))
        ahead.wait(MINUTE // 2)
    assert [(row.body, row.attempt) for row in rig.pop()] == [("b", 2)]
    assert len(kept) == 1


def test_an_owners_lease_ends_when_it_was_to(ahead: Ahead) -> None:
    rig = ahead.rig
    rig.pair()
    rig.send("a")
    rig.attach(topic="t", lease_ms=MINUTE)
    rig.seal(1)
    ahead.set_right()
    ahead.wait(MINUTE - SECOND)
    assert rig.pop() == []
    ahead.wait(SECOND)
    assert bodies(rig.pop()) == ["a"]


def test_a_delay_ends_when_it_was_to_and_a_named_time_stays(ahead: Ahead) -> None:
    rig, right_ms = ahead.rig, ahead.rig.now - YEAR
    timed_pair(rig)
    send(rig, later("delayed", delay_ms=HOUR), later("at", due_ms=right_ms + YEAR + DAY))
    ahead.set_right()
    ahead.wait(HOUR - SECOND)
    assert texts(rig) == []
    ahead.wait(SECOND)
    assert (texts(rig), delayed(rig)) == (["delayed"], ["at"])


def test_a_recall_handle_still_recalls_though_its_message_moved_twice(ahead: Ahead) -> None:
    rig = ahead.rig
    timed_pair(rig)
    handles = [send(rig, later("a", delay_ms=10 * DAY))[0].recall_handle]
    ahead.set_right()
    handles += [send(rig, later("b", delay_ms=10 * DAY))[0].recall_handle]
    ahead.wall_clock.step(YEAR)
    restarted(rig, ahead.wall_clock)
    send(rig, later("c", delay_ms=20 * DAY))
    ahead.set_right()
    for text in handles:
        if delayed(rig):
            rig.run(ask.Recall("t", text))
    assert delayed(rig) == ["c"]


def test_half_messages_are_asked_about_and_given_up_when_they_were_to_be(ahead: Ahead) -> None:
    rig = ahead.rig
    timed_pair(rig, "TRANSACTION")
    (half,) = send(rig, later("a", transaction=True))
    (ended,) = send(rig, later("b", transaction=True))
    rig.run(ending([ended], True))
    ahead.set_right()
    assert refusals(rig.do(ending([ended], True))) == [""], "an end is remembered"
    listen(rig, "t")
    ahead.wall_clock.advance(FIRST_CHECK_MS)
    assert asked(rig) == [("a", 1)]
    ahead.wait(DONE_KEEP_MS)
    assert refusals(rig.do(ending([ended], True))) == ["TRANSACTION_NOT_FOUND"], "and for an hour only"
    ahead.wait(HALF_KEEP_MS)
    ahead.wait(MINUTE)
    assert halves(rig) == []
    assert half.transaction_id


def test_numbers_and_unique_ids_of_producers_are_forgotten_in_time_after_a_rebase(ahead: Ahead) -> None:
    rig = ahead.rig
    rig.do(ask.CreateTopic("t", 1, False, DAY, unique_ids_ms=HOUR))
    rig.send("a", producer="p", number=1)
    rig.do(ask.Send("t", (message("body", "id"),)))
    ahead.set_right()
    assert rig.send("a", producer="p", number=1).duplicate
    assert rig.do(ask.Send("t", (message("again", "id"),))).places[0].duplicate
    ahead.wait(2 * HOUR)
    ahead.wait(MINUTE)
    assert rig.read("dedup") == []
    assert not rig.do(ask.Send("t", (message("again", "id"),))).places[0].duplicate


@pytest.mark.parametrize("by_age", [True, False])
def test_messages_go_when_their_time_has_come(ahead: Ahead, by_age: bool) -> None:
    rig = ahead.rig
    rig.topic("t", by_age=by_age, keep_ms=HOUR)
    rig.group()
    rig.pop()
    rig.send("a")
    rig.ack(rig.pop())
    ahead.wait(MINUTE)
    ahead.set_right()
    began = rig.now
    rig.send("b")
    rig.ack(rig.pop())
    for _ in range(3):
        ahead.wait(MINUTE)
    ahead.wait(HOUR)
    for _ in range(3):
        ahead.wait(MINUTE)
    assert rig.browse("t").rows == []
    assert rig.now - began < HOUR + 7 * MINUTE


def test_a_time_is_found_among_messages_of_both_clocks(ahead: Ahead) -> None:
    rig = ahead.rig
    rig.pair()
    rig.send("a")
    ahead.wait(10 * MINUTE)
    ahead.set_right()
    now = rig.now
    ahead.wait(10 * MINUTE)
    rig.send("b")
    rig.pop()
    rig.do(ask.ResetOffsets("t", "g", ("TIMESTAMP", now)))
    rig.settle()
    assert bodies(rig.pop()) == ["b"]


def test_an_idle_lite_topic_goes_in_time(ahead: Ahead) -> None:
    rig = ahead.rig
    lites.create(rig, lite_ttl_ms=HOUR)
    rig.group("g")
    lites.send(rig, "ann:1")
    rig.ack(lites.pop(rig, "ann"))
    for _ in range(4):
        ahead.wait(MINUTE)
    ahead.set_right()
    for ms in (MINUTE, HOUR, MINUTE, MINUTE):
        ahead.wait(ms)
    assert lites.lites(rig) == 0


@pytest.mark.parametrize("days", [10, 26], ids=["not warned of", "warned of"])
def test_an_idle_subscription_expires_when_it_was_to(ahead: Ahead, days: int) -> None:
    """It is warned of a week before its end, as ever, at the time that the warning names."""
    rig = ahead.rig
    rig.pair()
    rig.do(ask.UpdateGroup("g", {"subscription_expiry_ms": 30 * DAY}))
    rig.send("a")
    days_pass(ahead, days)
    ahead.set_right()
    days_pass(ahead, 29 - days)
    assert subscribed(rig)
    days_pass(ahead, 2)
    assert not subscribed(rig)


def days_pass(ahead: Ahead, days: int) -> None:
    """In steps that no look is missed by; a piece of housekeeping may leave the rest of a round to the next."""
    for _ in range(4 * days):
        ahead.wait(6 * HOUR)


def subscribed(rig: Rig) -> bool:
    return bool(rig.look(queries.Groups("t")))


def test_dead_letters_that_were_redriven_by_the_wrong_clock_go_in_time(ahead: Ahead) -> None:
    """They are kept for a while after they were redriven, so that `why` knows of them."""
    rig = ahead.rig
    rig.pair()
    died(rig, "a", "b")
    assert all_again(rig) == []
    rig.ack(rig.pop())
    assert len(rig.read("gone")) == 2
    ahead.set_right()
    ahead.wait(REDRIVEN_KEEP_MS - MINUTE)
    assert len(rig.read("gone")) == 2
    for _ in range(3):
        ahead.wait(HOUR)
    assert rig.read("gone") == []


def test_the_log_says_by_how_much_and_how_many(ahead: Ahead, caplog: pytest.LogCaptureFixture) -> None:
    ahead.rig.pair()
    ahead.rig.send("a")
    ahead.rig.pop()
    with caplog.at_level(logging.WARNING, "popmq"):
        ahead.set_right()
    assert f"is {YEAR // 1000} s ahead of this machine's clock" in caplog.text
    caplog.clear()
    restarted(ahead.rig, ahead.wall_clock)
    assert caplog.text == "", "once"


def test_a_clock_that_is_little_ahead_moves_nothing(ahead: Ahead) -> None:
    ahead.rig.pair()
    ahead.rig.send("a")
    ahead.rig.pop()
    before = ahead.rig.read("due")
    ahead.wall_clock.step(-SAVED_AHEAD_MAX_MS)
    restarted(ahead.rig, ahead.wall_clock)
    assert ahead.rig.read("due") == before


def test_a_crash_in_the_middle_has_changed_nothing_and_the_next_start_does_it(
    ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = ahead.rig
    rig.pair()
    rig.send("a")
    rig.pop(invisible_ms=MINUTE)
    rig.core.close()
    ahead.wall_clock.step(-YEAR)
    rig.clock = ahead.wall_clock.clock()

    def dies(kv: Transaction) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "commit", dies)
        with pytest.raises(KeyboardInterrupt):
            rig._start()
    rig._start()
    ahead.wait(MINUTE)
    assert bodies(rig.pop()) == ["a"]


def test_a_store_without_room_for_it_does_not_start_and_says_what_to_do(
    ahead: Ahead, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = ahead.rig
    rig.pair()
    rig.core.close()
    ahead.wall_clock.step(-YEAR)
    rig.clock = ahead.wall_clock.clock()

    def full(*_: object) -> None:
        raise MapFull

    with monkeypatch.context() as patched:
        patched.setattr(Transaction, "put", full)
        with pytest.raises(StartError, match="--max-size"):
            rig._start()
    rig._start()


def test_every_database_either_moves_or_is_known_to_hold_no_time_that_anything_waits_for() -> None:
    moved = set(rebase._CHANGES)
    without = {
        "meta",
        "name",
        "group",
        "log",
        "cq",
        "queue",
        "poff",
        "stat",
        "tok",
        "rq",
        "pin",
        "kept",
        "hist",
        "quar",
    }
    without |= {"purge", "sweep", "tstat", "hmsg", "fwait", "bare", "res", "widx", "lidx", "begin", "stage", "publish"}
    without |= {"mark", "taken"}
    without |= {"cron", "cronmsg"}  # wall time: occurrences.turn sets it right, also without a restart
    assert moved | without == set(DATABASES), "a new database: does it hold times?"
    assert not moved & without


def test_a_million_rows_would_be_rewritten_in_pieces_of_memory(ahead: Ahead, monkeypatch: pytest.MonkeyPatch) -> None:
    """More rows than are read at once, and all of them move."""
    monkeypatch.setattr(rebase, "_ROWS", 7)
    rig = ahead.rig
    make_topic(rig, "t")
    for number in range(50):
        send(rig, later(f"{number}", delay_ms=HOUR + number * MINUTE))
    ahead.set_right()
    ahead.wait(2 * HOUR)
    assert len(texts(rig)) == 50


@pytest.mark.parametrize("end", ["acked", "dead"])
def test_the_checker_sees_how_a_message_ended_that_was_redriven_before_the_clock_was_set_right(
    ahead: Ahead, end: str
) -> None:
    rig = ahead.rig
    rig.pair()
    rig.send("a", "b")
    rig.reject(rig.pop(1))
    ahead.wait(SECOND)
    assert all_again(rig) == []
    ahead.set_right()
    rows = rig.pop(1) + rig.pop(1)
    assert sorted(bodies(rows)) == ["a", "b"]
    first = [row for row in rows if bodies([row]) == ["a"]]
    rig.ack(first) if end == "acked" else rig.reject(first)
    assert rig.findings() == []
