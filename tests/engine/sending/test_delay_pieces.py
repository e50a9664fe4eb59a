"""Delayed messages become visible in bounded pieces, also after restarts and crashes."""

import logging

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.embedded.rules.sending import placing
from popmq_server.embedded.rules.sending.release_delayed import RELEASE_BYTES_MAX, RELEASE_MESSAGES_MAX
from popmq_server.embedded.state import jobs, space
from popmq_server.embedded.store.lmdb import Transaction
from tests.engine.faults import Fault, failing, failing_put, killed_before_answer, killed_before_commit
from tests.engine.rig import DAY, SECOND, Rig, bodies, refusal, sending
from tests.engine.traffic.traffic_timing import (
    delayed,
    fill,
    later,
    send,
    texts,
    timed_pair,
    waiting,
)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "popmq.core")


@pytest.mark.slow
def test_many_due_messages_fire_in_pieces_of_a_thousand_in_order_with_requests_in_between(rig: Rig) -> None:
    timed_pair(rig)
    rig.topic("u")
    fill(rig, 2500, rig.now + SECOND)
    rig.skip(SECOND)
    sizes = []
    while rig.due:
        committed = rig.commit(sending("x", topic="u"))
        assert refusal(committed.results[0]) == ""
        sizes.append(len(committed.timed.released_late_ms))
    assert sizes == [RELEASE_MESSAGES_MAX, RELEASE_MESSAGES_MAX, 500]
    assert texts(rig) == [str(number) for number in range(2500)]
    assert waiting(rig) == (0, 0)


def test_a_piece_is_bounded_in_bytes_but_one_message_always_fits(rig: Rig) -> None:
    timed_pair(rig)
    large = "x" * (RELEASE_BYTES_MAX // 2)
    for number in range(3):
        send(rig, later(f"{number}{large}", due_ms=rig.now + SECOND))
    send(rig, later("y" * (RELEASE_BYTES_MAX - 1), due_ms=rig.now + SECOND))
    rig.skip(SECOND)
    sizes = []
    while rig.due:
        sizes.append(len(rig.commit().timed.released_late_ms))
    assert sizes == [1, 1, 1, 1]


def test_a_restart_fires_overdue_messages_in_the_order_of_their_times(rig: Rig) -> None:
    timed_pair(rig)
    times = [5, 3, 1, 4, 2]
    send(rig, *(later(str(wait), due_ms=rig.now + wait) for wait in times))
    rig.skip(DAY)
    rig.restart()
    assert rig.due
    committed = rig.commit()
    assert committed.timed.released_late_ms == [DAY - wait for wait in sorted(times)]
    assert texts(rig) == ["1", "2", "3", "4", "5"]


def test_a_send_killed_before_its_commit_is_absent_and_after_it_is_kept(rig: Rig) -> None:
    timed_pair(rig)
    asked = ask.Send("t", (later("a", delay_ms=SECOND),), "p", 1)
    killed_before_commit(rig, asked)
    assert delayed(rig) == []
    killed_before_answer(rig, asked)
    assert rig.do(asked).duplicate
    assert delayed(rig) == ["a"]


def test_a_message_fires_once_whatever_moment_the_broker_is_killed_in(rig: Rig) -> None:
    timed_pair(rig)
    send(rig, later("a", delay_ms=SECOND))
    rig.skip(SECOND)
    killed_before_commit(rig)
    assert waiting(rig) == (1, 0)
    killed_before_answer(rig)
    assert waiting(rig) == (0, 0)
    rig.settle()
    assert texts(rig) == ["a"]


@pytest.mark.parametrize("number", range(1, 12))
def test_a_full_map_in_the_middle_of_a_piece_changes_nothing(rig: Rig, number: int) -> None:
    timed_pair(rig)
    send(rig, *(later(text, delay_ms=SECOND) for text in "abc"))
    rig.skip(SECOND)
    with failing_put(number):
        rig.run(ask.Ack("g", ()))
    assert rig.findings() == []
    rig.advance(jobs.POSTPONE_MS)
    assert texts(rig) == ["a", "b", "c"]


def test_a_full_store_fires_nothing_and_takes_acks(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    timed_pair(rig)
    rig.send("x")
    rows = rig.pop()
    send(rig, later("a", delay_ms=SECOND))
    rig.skip(SECOND)
    with monkeypatch.context() as patched:
        patched.setattr(space, "DISK_FREE_GROW", 1 << 60)
        patched.setattr(space, "DISK_FREE_STORE", 1 << 60)
        assert rig.ack(rows) == [None]
        assert waiting(rig) == (1, 0)
        assert not rig.due, "it does not spin"
    rig.advance(jobs.RETRY_MS)
    assert bodies(rig.pop()) == ["a"]


def test_a_disk_that_takes_nothing_keeps_due_messages(rig: Rig) -> None:
    timed_pair(rig)
    send(rig, later("a", delay_ms=SECOND))
    rig.skip(SECOND)
    with failing(rig.store, Fault.FULL):
        rig.run()
    assert not rig.due
    assert rig.findings() == []
    rig.advance(jobs.RETRY_MS)
    assert bodies(rig.pop()) == ["a"]


def test_firing_that_raises_is_put_off_and_everything_else_goes_on(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    timed_pair(rig)
    rig.send("x")
    rig.pop(invisible_ms=SECOND)
    send(rig, later("a", delay_ms=SECOND))
    with monkeypatch.context() as patched:
        patched.setattr(placing.Placing, "make_visible", lambda *_: 1 / 0)
        rig.advance(SECOND)
        assert bodies(rig.pop()) == ["x"], "the lease was revived all the same"
        assert waiting(rig) == (1, 0)
    rig.advance(jobs.POSTPONE_MS)
    assert sorted(bodies(rig.pop())) == ["a", "x"]


def test_bytes_that_are_damaged_are_set_aside_and_the_others_fire(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    timed_pair(rig)
    send(rig, *(later(text, delay_ms=SECOND) for text in "abc"))
    key, raw = rig.read("sched")[1]

    def damage(kv: Transaction) -> None:
        kv.put("sched", key, raw[:-1] + bytes((raw[-1] ^ 1,)))

    rig.write(damage)
    assert [finding for finding in rig.findings() if "checksum" in finding]
    caplog.set_level(logging.ERROR, "popmq.quarantine")
    rig.advance(SECOND)
    assert texts(rig) == ["a", "c"]
    assert waiting(rig) == (0, 0)
    assert rig.look(operations.StoreState())[1] == 1, "it is kept, and counted"
    assert "do not match their checksum" in caplog.text
