"""A half message whose producer never comes back is given up by its age."""

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.commands import Place
from popmq_server.embedded import operations
from popmq_server.embedded.rules.sending import check_back, transaction
from popmq_server.embedded.rules.sending.check_back import GIVE_UPS_AT_ONCE, HALF_KEEP_MS, LOOK_EVERY_MS
from popmq_server.embedded.rules.sending.transaction import Half
from tests.engine.conftest import MakeRig
from tests.engine.rig import HOUR, SECOND, Rig, refusal
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
from tests.engine.work import calls, grows


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
    rig.do(operations.RedrivePiece("", None))
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


def of_many_topics(rig: Rig, topics: int, each: int = 1) -> Rig:
    rig.run(*(ask.CreateTopic(f"h{number}", 1, False, 72 * HOUR, "TRANSACTION") for number in range(topics)))
    for number in range(topics):
        send(rig, *(later(f"m{number}.{half}", transaction=True) for half in range(each)), topic=f"h{number}")
    return rig


def test_the_search_for_old_half_messages_looks_into_a_bounded_number_of_topics_at_a_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check_back, "TOPICS_AT_ONCE", 3)
    monkeypatch.setattr(check_back, "GIVE_UPS_AT_ONCE", 5)
    of_many_topics(rig, 8, each=2)
    rig.skip(HALF_KEEP_MS + LOOK_EVERY_MS)
    pieces = []
    while rig.due:
        pieces.append(len(rig.commit().timed.given_up))
    assert [piece for piece in pieces if piece] == [5, 5, 5, 1]
    assert halves(rig) == []


def test_a_piece_of_the_search_and_other_commands_cost_the_same_beside_many_topics_with_half_messages(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their producers are away: such half messages cost nothing, however many topics have some."""
    monkeypatch.setattr(check_back, "TOPICS_AT_ONCE", 5)
    few, many = of_many_topics(make_rig("few"), 20), of_many_topics(make_rig("many"), 200)
    for rig in (few, many):
        rig.topic("t")
        rig.settle()
    assert grows(lambda: few.send("a"), lambda: many.send("a")) < 1.1
    assert longest_step(many) < 1.1 * longest_step(few)


def longest_step(rig: Rig) -> int:
    """The calls of the longest piece of a minute's search."""
    (job,) = (job for job in rig.core.timetable.jobs if isinstance(job, check_back.CheckingBack))
    counts: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        step = job.step
        patch.setattr(job, "step", lambda tx, did: counts.append(calls(lambda: step(tx, did))))
        rig.skip(LOOK_EVERY_MS)
        rig.settle()
    assert counts
    return max(counts)
