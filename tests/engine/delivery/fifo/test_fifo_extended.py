"""Members of a batch that were extended alone, when the message before them in their message group times out."""

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.delivery import fifo, revive
from tests.engine.rig import MINUTE, SECOND, Delivery, Rig, bodies, deliveries, refusals
from tests.engine.traffic.traffic_fifo import dead_texts, fifo_pair, send_fifo


def test_a_follower_extended_alone_waits_again_with_a_reason_when_its_head_times_out(rig: Rig) -> None:
    """As after a release of the head: else the head would be delivered after a message that follows it."""
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2", "a3")
    rows = rig.pop(2, invisible_ms=10 * SECOND)
    rig.extend(rows[1:], MINUTE)
    rig.advance(11 * SECOND)
    reasons = [fifo.waiting_of(*entry).reason for entry in rig.read("fwait")]
    assert reasons == [revive.EXPIRED_REASON, fifo.FOLLOWER]
    assert refusals(rig.ack(rows[1:])) == ["HANDLE_LAPSED"]
    again = rig.pop()
    assert [(row.body, row.attempt) for row in again] == [("a1", 2), ("a2", 1), ("a3", 1)]


def test_followers_of_other_message_groups_keep_their_lease(rig: Rig) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a1", "b1", "a2", "b2")
    rows = {row.body: row for row in rig.pop(4, invisible_ms=10 * SECOND)}
    assert sorted(rows) == ["a1", "a2", "b1", "b2"]
    rig.extend([rows["a2"], rows["b1"], rows["b2"]], MINUTE)
    rig.advance(11 * SECOND)
    assert refusals(rig.ack([rows["b1"], rows["a2"], rows["b2"]])) == ["", "HANDLE_LAPSED", ""]
    assert bodies(rig.pop()) == ["a1", "a2"]


def test_a_follower_goes_on_when_its_head_became_a_dead_letter(rig: Rig) -> None:
    fifo_pair(rig, max_attempts=1)
    send_fifo(rig, "a1", "a2")
    rows = rig.pop(2, invisible_ms=10 * SECOND)
    rig.extend(rows[1:], MINUTE)
    rig.advance(11 * SECOND)
    assert refusals(rig.ack(rows[1:])) == [""]
    assert bodies(rig.pop()) == []


def test_a_head_leaves_after_its_followers_when_a_piece_is_full(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message group is locked until then, so that no pop between two pieces gets a later message."""
    monkeypatch.setattr(revive, "REVIVE_MEMBERS_MAX", 2)
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2", "a3", "a4", "a5")
    rows = rig.pop(5, invisible_ms=10 * SECOND)
    for row in rows[1:]:
        rig.extend([row], MINUTE)
    rig.skip(11 * SECOND)
    popped = list[Delivery]()
    while rig.due and not popped:
        popped = deliveries(rig.commit(ask.Pop("t", "g", max_messages=5)).results[0])
    assert [(row.body, row.attempt) for row in popped] == [("a1", 2), ("a2", 1), ("a3", 1), ("a4", 1), ("a5", 1)]


# ── Members that wait again, and those after them ────────────────────────────────────────────────────────────────────


def test_followers_of_a_released_message_wait_after_it_also_behind_a_dead_letter(rig: Rig) -> None:
    """The first one has no attempt left; the second one was released too, so the third one may not be done before."""
    fifo_pair(rig, max_attempts=1)
    send_fifo(rig, "a1", "a2", "a3")
    rows = rig.pop(3)
    rig.release(rows[:2], delay_ms=0)
    assert refusals(rig.ack(rows[2:])) == ["HANDLE_LAPSED"]
    assert (dead_texts(rig), bodies(rig.pop())) == (["a1"], ["a2", "a3"])


def test_followers_of_a_message_that_waits_again_behind_a_dead_letter_wait_too(rig: Rig) -> None:
    fifo_pair(rig, max_attempts=1)
    send_fifo(rig, "a1", "a2", "a3")
    rows = rig.pop(3, invisible_ms=10 * SECOND)
    rig.extend(rows[2:], MINUTE)
    rig.advance(11 * SECOND)
    assert refusals(rig.ack(rows[2:])) == ["HANDLE_LAPSED"]
    assert (dead_texts(rig), bodies(rig.pop())) == (["a1"], ["a2", "a3"])


def test_followers_of_a_message_that_waits_again_wait_too_while_the_head_is_leased(rig: Rig) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2", "a3")
    rows = rig.pop(3, invisible_ms=10 * SECOND)
    rig.extend([rows[0], rows[2]], MINUTE)
    rig.advance(11 * SECOND)
    assert refusals(rig.ack([rows[0], rows[2]])) == ["", "HANDLE_LAPSED"]
    assert [(row.body, row.attempt) for row in rig.pop()] == [("a2", 1), ("a3", 1)]
