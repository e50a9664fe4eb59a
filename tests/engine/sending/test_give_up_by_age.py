"""A half message whose producer never comes back is given up by its age."""

from __future__ import annotations

import pytest

from popmq_server import commands as ask
from popmq_server.commands import Place
from popmq_server.sending import transaction
from popmq_server.sending.check_back import GIVE_UPS_AT_ONCE, HALF_KEEP_MS, LOOK_EVERY_MS
from popmq_server.sending.transaction import Half
from tests.engine.rig import SECOND, Rig, refusal
from tests.engine.traffic.traffic_timing import (
    asked,
    dead_letters,
    ending,
    halves,
    later,
    listen,
    send,
    texts,
    timed,
    timed_pair,
)


@pytest.fixture
def half(rig: Rig) -> Place:
    """Half message a of topic t."""
    timed_pair(rig, "TRANSACTION")
    return send(rig, later("a", transaction=True))[0]


def test_a_half_message_whose_producer_never_comes_back_is_given_up_after_72_hours(rig: Rig, half: Place) -> None:
    """It is moved where an operator finds it, told and counted; and it can be committed from there."""
    rig.advance(HALF_KEEP_MS - LOOK_EVERY_MS)
    assert halves(rig) == ["a"]
    rig.skip(2 * LOOK_EVERY_MS)
    (sentence,) = timed(rig).given_up
    assert sentence == "topic t: message 'a' was given up: no producer ended the transaction in 72 h, after 0 checks"
    assert halves(rig) == []
    (letter,) = dead_letters(rig)
    assert (letter.body, letter.dead_letter.topic, letter.dead_letter.attempts) == (b"a", "t", 0)
    assert "72 h" in letter.dead_letter.reason
    assert refusal(rig.run(ending([half], True))[0][0]) == "TRANSACTION_NOT_FOUND"
    rig.do(ask.RedrivePiece("", None))
    assert texts(rig) == ["a"]


def test_only_old_half_messages_are_given_up_and_others_are_checked_as_before(rig: Rig, half: Place) -> None:
    rig.advance(HALF_KEEP_MS)
    send(rig, later("b", transaction=True))
    rig.advance(2 * LOOK_EVERY_MS)
    assert halves(rig) == ["b"]
    listen(rig, "t")
    assert asked(rig) == [("b", 1)]


def test_a_restart_does_not_begin_the_72_hours_again(rig: Rig, half: Place) -> None:
    rig.advance(HALF_KEEP_MS - SECOND)
    rig.crash()
    rig.settle()
    assert halves(rig) == ["a"]
    rig.advance(2 * LOOK_EVERY_MS)
    assert (halves(rig), len(dead_letters(rig))) == ([], 1)


def test_old_half_messages_are_given_up_in_bounded_pieces_and_a_look_reads_no_young_one(
    rig: Rig, half: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.advance(HALF_KEEP_MS)
    rig.advance(LOOK_EVERY_MS)
    send(rig, *(later(f"m{number}", transaction=True) for number in range(GIVE_UPS_AT_ONCE + 5)))
    read: list[int] = []
    decode = transaction.decode

    def counted_decode(topic_id: int, txn_id: int, raw: bytes) -> Half:
        read.append(txn_id)
        return decode(topic_id, txn_id, raw)

    monkeypatch.setattr(transaction, "decode", counted_decode)
    rig.advance(LOOK_EVERY_MS)
    assert len(read) == 1, "the first one is young: so are all behind it"
    rig.advance(HALF_KEEP_MS - 2 * LOOK_EVERY_MS)
    rig.skip(2 * LOOK_EVERY_MS)
    pieces = []
    while rig.due:
        pieces.append(len(rig.commit().timed.given_up))
    assert [piece for piece in pieces if piece] == [GIVE_UPS_AT_ONCE, 5]
    assert len(dead_letters(rig)) == GIVE_UPS_AT_ONCE + 6
