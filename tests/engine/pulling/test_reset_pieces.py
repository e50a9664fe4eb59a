"""A reset of much is done in pieces that nobody can see."""

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.embedded.rules.delivery import sweep
from tests.engine.pull_steps import (
    finish,
    sums,
)
from tests.engine.rig import (
    MINUTE,
    Rig,
    bodies,
    deliveries,
    numbered,
    refusals,
)

EARLIEST, LATEST = ("EARLIEST", 0), ("LATEST", 0)


@pytest.fixture
def half_done(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Rig:
    """After the first piece of a reset to the beginning: leases, retries and backoffs of 40 messages are left."""
    monkeypatch.setattr(sweep, "SWEEP_MAX", 4)
    rig.pair()
    for number in range(40):
        rig.send(f"m{number}")
    rows = [row for _ in range(8) for row in rig.pop(5)]
    rig.release(rows[10:20], delay_ms=0)
    for row in rows[20:30]:
        rig.release([row], delay_ms=MINUTE)
    done: operations.Reset = rig.do(ask.ResetOffsets("t", "g", EARLIEST))
    assert done == ({0: 0}, True)
    return rig


def test_a_reset_has_its_whole_effect_from_its_first_piece(half_done: Rig) -> None:
    rig = half_done
    rows = rig.pop(100)
    assert [(row.body, row.attempt) for row in rows] == [(f"m{number}", 1) for number in range(40)]
    rig.ack(rows)
    rig.advance(MINUTE)  # what was leased and in backoff would be due now
    assert rig.pop(100) == []
    assert sums(rig) == (0, 0, 0, 0, 40)


def test_handles_have_lapsed_between_two_pieces_of_a_reset(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "SWEEP_MAX", 1)
    rig.pair()
    rig.send(*numbered("m", 6))
    rows = [row for _ in range(6) for row in rig.pop(1)]
    assert rig.do(ask.ResetOffsets("t", "g", LATEST)).left
    assert refusals(rig.ack(rows)) == ["HANDLE_LAPSED"] * 6
    assert refusals(rig.extend(rows, MINUTE)) == ["HANDLE_LAPSED"] * 6
    assert refusals(rig.release(rows)) == ["HANDLE_LAPSED"] * 6


@pytest.mark.parametrize("crash", [False, True], ids=["housekeeping", "a crash first"])
def test_a_reset_that_was_left_half_done_is_finished_by_housekeeping(half_done: Rig, crash: bool) -> None:
    assert half_done.numbers().retry
    if crash:
        half_done.crash()
    half_done.settle()
    assert sums(half_done) == (40, 0, 0, 0, 0)
    assert [half_done.read(name) for name in ("ck", "rq", "sweep", "pin")] == [[], [], [], []]


def test_a_second_reset_before_the_first_is_swept_up(half_done: Rig) -> None:
    rows = half_done.pop(10)
    half_done.release(rows[:5], delay_ms=0)
    done: operations.Reset = half_done.do(ask.ResetOffsets("t", "g", None, {0: 38}))
    assert done.left
    assert bodies(half_done.pop(100)) == ["m38", "m39"]
    finish(half_done, True)
    assert sums(half_done) == (0, 2, 0, 0, 0)


def test_a_repeated_attempt_does_not_return_messages_skipped_by_a_reset(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "SWEEP_MAX", 1)
    rig.pair()
    rig.send("a", "b", "c", "d")
    rig.pop(2)
    rig.pop(2, client_id="c", attempt_id="x")
    moved, again = rig.run(ask.ResetOffsets("t", "g", None, {0: 3}), ask.Pop("t", "g", client_id="c", attempt_id="x"))
    assert moved.left
    assert (bodies(deliveries(again)), again.replay) == (["d"], False)
    finish(rig, True)
    assert rig.popped(client_id="c", attempt_id="x").replay, "the new one is still known"


def test_a_deleted_topic_or_group_ends_a_sweep(half_done: Rig) -> None:
    half_done.do(ask.DeleteTopic("t"))
    assert half_done.do(operations.Sweep("t", "g")) is False
    half_done.settle()
    assert half_done.read("sweep") == []
