"""A record whose bytes are not what was written: never delivered, counted, reported, and the others go on."""

import logging

import pytest

from popmq_server.embedded import operations
from tests.engine.rig import HOUR, MINUTE, Rig, bodies, parsed


def sent(rig: Rig, *texts: str) -> None:
    for text in texts:
        rig.send(text)


@pytest.mark.mechanism("S2.08")
@pytest.mark.parametrize("place", [0, 5, 9, 15, 21, -1], ids=["crc", "length", "topic", "time", "head", "body"])
def test_a_damaged_message_is_never_delivered_and_the_others_are(rig: Rig, place: int) -> None:
    rig.pair()
    sent(rig, "a", "b", "c")
    rig.damage(1, place=place)
    assert bodies(rig.pop()) == ["a", "c"]
    assert (rig.numbers().quarantined, rig.numbers().ready) == (1, 0)
    assert rig.pop() == []


def test_a_damaged_message_is_kept_and_logged_with_its_place(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.pair()
    sent(rig, "a")
    rig.damage(0)
    with caplog.at_level(logging.ERROR, "popmq.quarantine"):
        rig.pop()
    assert "topic t queue 0 offset 0" in caplog.text
    assert len(rig.read("quar")) == 1
    assert len(rig.read("log")) == 1
    assert rig.do(operations.StoreState())[1] == 1


def test_each_group_counts_a_damaged_message_once(rig: Rig) -> None:
    rig.pair()
    rig.group("h")
    sent(rig, "a", "b")
    rig.damage(0)
    for group in ("g", "h"):
        assert bodies(rig.pop(group=group)) == ["b"]
        assert rig.numbers(group).quarantined == 1
    rig.restart()
    assert rig.numbers("g").quarantined == 1


@pytest.mark.mechanism("D.10")
def test_a_message_damaged_while_it_was_leased_does_not_come_back(rig: Rig) -> None:
    rig.pair()
    sent(rig, "a", "b")
    rig.pop()
    rig.damage(0)
    rig.advance(MINUTE)
    assert bodies(rig.pop()) == ["b"]
    assert (rig.numbers().quarantined, rig.numbers().retry) == (1, 0)


def test_a_message_damaged_while_it_was_leased_can_still_be_acked(rig: Rig) -> None:
    rig.pair()
    sent(rig, "a")
    rows = rig.pop()
    rig.damage(0)
    assert rig.ack(rows) == [None]
    assert rig.numbers().acked == 1
    rig.damage(0)  # as it was: the checker need not know


def test_a_damaged_message_does_not_become_a_dead_letter_and_its_neighbour_does(rig: Rig) -> None:
    rig.pair(max_attempts=1)
    sent(rig, "a", "b")
    rig.pop()
    rig.damage(0)
    rig.advance(MINUTE)
    assert [letter.message_id for letter in rig.dead()] == ["b"]
    assert (rig.numbers().quarantined, rig.numbers().dead) == (1, 1)


def test_a_token_counts_its_damaged_messages_and_keeps_the_others(rig: Rig) -> None:
    rig.pair()
    sent(rig, "a", "b", "c")
    rig.attach()
    rig.seal(1)
    rig.damage(1)
    again = rig.seal(1)
    assert [parsed(row[0]).message_id for row in again.rows] == ["a", "c"]
    assert again.sealed == (3, True, 0, 1)
    assert rig.ack_up_to(1) == 3
    rig.damage(1)  # as it was


@pytest.mark.slow
def test_a_new_token_steps_over_a_damaged_message(rig: Rig) -> None:
    rig.pair()
    sent(rig, "a", "b")
    rig.damage(0)
    rig.attach()
    sealed = rig.seal(1)
    assert ([parsed(row[0]).message_id for row in sealed.rows], sealed.sealed) == (["b"], (1, True, 0, 0))
    assert rig.numbers().quarantined == 1


def test_a_repeated_attempt_leaves_out_messages_damaged_meanwhile(rig: Rig) -> None:
    rig.pair()
    sent(rig, "a", "b")
    rig.popped(client_id="c", attempt_id="1")
    rig.damage(0)
    assert bodies(rig.pop(client_id="c", attempt_id="1")) == ["b"]
    rig.advance(HOUR)
    assert bodies(rig.pop()) == ["b"]


def test_browsing_leaves_out_a_damaged_message(rig: Rig) -> None:
    rig.pair()
    sent(rig, "a", "b")
    rig.damage(0)
    page = rig.browse("t")
    assert [parsed(row[0]).message_id for row in page.rows] == ["b"]
    assert page.next_offset == 2
    rig.pop()
