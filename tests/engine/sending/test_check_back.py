"""Check-back: who is asked about a half message, when, how often, and what becomes of it at last."""

import logging
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.commands import Check, Place, queries
from popmq_server.embedded import operations
from popmq_server.embedded.rules.sending import check_back
from popmq_server.embedded.rules.sending.check_back import CHECK_BYTES_MAX, CHECKS_AT_ONCE, GIVE_UPS_AT_ONCE
from popmq_server.embedded.rules.sending.transaction import CHECK_EVERY_MS, CHECKS_MAX, FIRST_CHECK_MS
from popmq_server.embedded.state import jobs, space
from popmq_server.embedded.state.jobs import Timed
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.values.handles import read_transaction, transaction_text
from popmq_server.values.message import GIVE_UP_TOPIC
from tests.engine.faults import Fault, failing, failing_put, killed_before_answer, killed_before_commit
from tests.engine.rig import HOUR, SECOND, Rig, message, parsed, refusal, refusals
from tests.engine.traffic.traffic_timing import (
    asked,
    dead_letters,
    ending,
    halves,
    later,
    listen,
    make_topic,
    send,
    texts,
    timed,
    timed_pair,
    waiting,
)


@pytest.fixture
def half(rig: Rig) -> Place:
    """Half message a of topic t."""
    timed_pair(rig, "TRANSACTION")
    return send(rig, later("a", transaction=True))[0]


def hand(rig: Rig, *checks: Check) -> None:
    """A live producer was asked."""
    rig.do(operations.CountChecks(tuple((check.transaction, check.number) for check in checks)))


def counted(rig: Rig) -> list[int]:
    return [row.checks for row in rig.look(queries.Transactions("", 100))[0]]


def use_up(rig: Rig) -> None:
    """Sends all checks of the half messages to a producer."""
    rig.skip(FIRST_CHECK_MS)
    for _ in range(CHECKS_MAX):
        hand(rig, *timed(rig).checks)
        rig.skip(CHECK_EVERY_MS)


# ── When, and who counts ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_check_comes_six_seconds_after_the_send_and_the_next_every_thirty(rig: Rig, half: Place) -> None:
    listen(rig, "t")
    for number, pause_ms in enumerate([6_000, 30_000, 30_000], 1):
        rig.skip(pause_ms - 1)
        assert asked(rig) == []
        rig.skip(1)
        found = timed(rig).checks
        assert [check.number for check in found] == [number]
        hand(rig, *found)
    assert (found[0].topic, parsed(found[0].data).body) == ("t", b"a")
    assert refusals(rig.do(ask.EndTransaction((ask.End(found[0].transaction, True),)))) == [""]


@pytest.mark.mechanism("D.17", "I.14")
def test_half_messages_without_a_producer_for_an_hour_cost_no_checks_and_no_work(rig: Rig, half: Place) -> None:
    make_topic(rig, "u")
    listen(rig, "u")
    commits = 0
    for _ in range(360):
        rig.skip(10 * SECOND)
        while rig.due:
            committed = rig.commit()
            commits += committed.wrote
            assert committed.timed.checks == []
    assert counted(rig) == [0]
    assert commits == 0, "an idle broker writes nothing"
    rig.run(ending([half], True))
    assert texts(rig) == ["a"]


def test_the_first_producer_that_comes_gets_overdue_checks_at_once(rig: Rig, half: Place) -> None:
    rig.advance(HOUR)
    listen(rig, "t")
    assert asked(rig) == [("a", 1)]
    assert asked(rig) == [], "and then not for thirty seconds"


@pytest.mark.parametrize("before", [[], ["t"]], ids=["came", "left"])
def test_the_topics_of_listening_producers_are_known_though_the_disk_is_full(
    rig: Rig, half: Place, before: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "popmq")
    listen(rig, *before)
    rig.do(ask.AttachOwner("g", "o", HOUR, "t", None))
    after = [] if before else ["t"]
    with failing(rig.store, Fault.FULL):
        told = rig.run(operations.Listen(frozenset(after)), ask.RenewOwner("g", "o", 1, 2 * HOUR))
    assert refusals(told) == ["", "UNAVAILABLE"]
    rig.skip(HOUR)
    assert asked(rig) == [("a", 1)] * len(after)


@pytest.mark.mechanism("D.74")
def test_a_check_that_was_not_sent_to_a_producer_does_not_count(rig: Rig, half: Place) -> None:
    listen(rig, "t")
    rig.skip(FIRST_CHECK_MS)
    for _ in range(3 * CHECKS_MAX):
        assert asked(rig) == [("a", 1)]
        rig.skip(CHECK_EVERY_MS)
    assert counted(rig) == [0]
    assert halves(rig) == ["a"]


def test_a_check_counts_once_and_in_its_turn(rig: Rig, half: Place) -> None:
    listen(rig, "t")
    rig.skip(FIRST_CHECK_MS)
    (first,) = timed(rig).checks
    hand(rig, first, first)
    hand(rig, first)
    assert counted(rig) == [1]
    hand(rig, first._replace(number=3))
    known = read_transaction(first.transaction)
    assert known is not None
    hand(rig, first._replace(number=2, transaction=transaction_text(known._replace(nonce=1))))
    hand(rig, first._replace(number=2, transaction="not an id"))
    assert counted(rig) == [1]
    rig.skip(CHECK_EVERY_MS)
    assert asked(rig) == [("a", 2)]


def test_only_half_messages_of_topics_with_a_listening_producer_are_checked(rig: Rig, half: Place) -> None:
    make_topic(rig, "u")
    send(rig, later("b", transaction=True), topic="u")
    rig.skip(FIRST_CHECK_MS)
    listen(rig, "u")
    assert asked(rig) == [("b", 1)]
    listen(rig, "t", "u")
    assert asked(rig) == [("a", 1)]
    listen(rig)
    rig.skip(CHECK_EVERY_MS)
    assert asked(rig) == []


def test_a_hello_must_name_topics_that_take_half_messages(rig: Rig, half: Place) -> None:
    rig.topic("plain")
    listen(rig, "t")
    for name, code in (("nobody", "TOPIC_NOT_FOUND"), ("plain", "INVALID_FIELD"), ("%DLQ%g", "INVALID_FIELD")):
        (refused,) = rig.run(operations.Listen(frozenset(("t", name)), ("t", name)))
        assert (refusal(refused), refused.field) == (code, "hello.transaction_topics[1]")
    assert rig.core.state.listened == {"t"}


@pytest.mark.slow
def test_many_half_messages_are_all_checked_in_bounded_pieces(rig: Rig) -> None:
    timed_pair(rig)
    send(rig, *(later(str(number), transaction=True) for number in range(3 * CHECKS_AT_ONCE)))
    listen(rig, "t")
    rig.skip(FIRST_CHECK_MS)
    pieces = []
    while rig.due:
        pieces.append([check.number for check in rig.commit().timed.checks])
    assert [len(piece) for piece in pieces] == [CHECKS_AT_ONCE] * 3
    large = "x" * (CHECK_BYTES_MAX // 2)
    send(rig, *(later(f"{number}{large}", transaction=True) for number in range(3)))
    rig.skip(FIRST_CHECK_MS)
    assert [len(rig.commit().timed.checks) for _ in range(3)] == [1, 1, 1]


# ── The end of it ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_half_message_is_given_up_thirty_seconds_after_its_fifteenth_check(
    rig: Rig, half: Place, caplog: pytest.LogCaptureFixture
) -> None:
    began = rig.now
    listen(rig, "t")
    use_up(rig)
    with caplog.at_level(logging.WARNING, "popmq.core"):
        (sentence,) = timed(rig).given_up
    assert "topic t: message 'a' was given up" in sentence
    assert sentence in caplog.text
    (letter,) = dead_letters(rig)
    assert (letter.message_id, letter.body, letter.transaction) == ("a", b"a", True)
    origin = letter.dead_letter
    assert (origin.topic, origin.attempts, origin.first_pop_ms, origin.dead_ms) == ("t", 15, began, rig.now)
    assert (halves(rig), waiting(rig), texts(rig)) == ([], (0, 0), [])
    assert refusals(rig.do(ending([half], True))) == ["TRANSACTION_NOT_FOUND"]


def test_a_half_message_is_given_up_after_its_last_check_though_no_producer_is_there(rig: Rig, half: Place) -> None:
    listen(rig, "t")
    rig.skip(FIRST_CHECK_MS)
    for number in range(1, CHECKS_MAX + 1):
        found = timed(rig).checks
        assert [check.number for check in found] == [number]
        hand(rig, *found)
        rig.skip(CHECK_EVERY_MS - (number == CHECKS_MAX))
    listen(rig)
    assert timed(rig) == Timed([], [], [], []), "there is still a millisecond to answer"
    rig.restart()
    rig.skip(1)
    assert len(timed(rig).given_up) == 1


def test_an_end_in_the_commit_of_the_give_up_wins(rig: Rig, half: Place) -> None:
    listen(rig, "t")
    use_up(rig)
    committed = rig.commit(ending([half], True))
    assert refusals(committed.results[0]) == [""]
    assert committed.timed.given_up == []
    assert texts(rig) == ["a"]
    assert rig.read("name")[-1][0] != b"t" + GIVE_UP_TOPIC.encode()


def test_an_end_in_the_commit_of_a_check_wins(rig: Rig, half: Place) -> None:
    listen(rig, "t")
    rig.skip(FIRST_CHECK_MS)
    committed = rig.commit(ending([half], False))
    assert committed.timed.checks == []
    rig.skip(HOUR)
    assert asked(rig) == []


def test_a_check_of_a_half_message_that_ended_meanwhile_is_not_counted(rig: Rig, half: Place) -> None:
    listen(rig, "t")
    rig.skip(FIRST_CHECK_MS)
    found = timed(rig).checks
    rig.run(ending([half], True))
    hand(rig, *found)
    assert rig.findings() == []


@pytest.mark.parametrize("killed", [killed_before_commit, killed_before_answer])
def test_a_crash_while_checks_are_sent_counts_nothing(rig: Rig, half: Place, killed: Any) -> None:
    listen(rig, "t")
    rig.skip(FIRST_CHECK_MS)
    killed(rig)
    listen(rig, "t")
    rig.skip(CHECK_EVERY_MS)
    assert asked(rig) == [("a", 1)]


@pytest.mark.slow
def test_counted_checks_live_through_a_crash(rig: Rig, half: Place) -> None:
    listen(rig, "t")
    rig.skip(FIRST_CHECK_MS)
    for number in range(1, CHECKS_MAX + 1):
        found = timed(rig).checks
        assert [check.number for check in found] == [number]
        killed_before_commit(rig, operations.CountChecks(((found[0].transaction, number),)))
        hand(rig, *found)
        rig.crash()
        listen(rig, "t")
        rig.skip(CHECK_EVERY_MS)
    assert len(timed(rig).given_up) == 1


@pytest.mark.parametrize("number", range(1, 10))
def test_a_give_up_is_whole_or_has_not_happened(rig: Rig, half: Place, number: int) -> None:
    listen(rig, "t")
    use_up(rig)
    with failing_put(number):
        rig.run()
    assert rig.findings() == []
    assert halves(rig) == ([] if rig.core.state.ids.get(("t", GIVE_UP_TOPIC)) else ["a"])
    rig.advance(jobs.RETRY_MS)
    assert [letter.message_id for letter in dead_letters(rig)] == ["a"]


def test_a_give_up_killed_before_its_commit_happens_again_and_after_it_does_not(rig: Rig, half: Place) -> None:
    listen(rig, "t")
    use_up(rig)
    killed_before_commit(rig)
    assert halves(rig) == ["a"]
    killed_before_answer(rig)
    rig.settle()
    assert (halves(rig), [letter.message_id for letter in dead_letters(rig)]) == ([], ["a"])


@pytest.mark.slow
def test_many_half_messages_are_given_up_in_bounded_pieces(rig: Rig) -> None:
    timed_pair(rig)
    count = GIVE_UPS_AT_ONCE + 10
    send(rig, *(later(str(number), transaction=True) for number in range(count)))
    listen(rig, "t")
    use_up(rig)
    pieces = []
    while rig.due:
        pieces.append(len(rig.commit().timed.given_up))
    assert pieces == [GIVE_UPS_AT_ONCE, 10]
    assert [letter.message_id for letter in dead_letters(rig)] == [str(number) for number in range(count)]


def test_half_messages_of_a_deleted_topic_are_not_checked_or_given_up(rig: Rig, half: Place) -> None:
    listen(rig, "t")
    use_up(rig)
    send(rig, later("b", transaction=True))
    rig.skip(FIRST_CHECK_MS)
    committed = rig.commit(ask.DeleteTopic("t"))
    assert committed.timed == Timed([], [], [], [])
    assert timed(rig) == Timed([], [], [], [])
    assert rig.read("hdue") == []


def test_a_full_store_sends_no_checks(rig: Rig, half: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    listen(rig, "t")
    rig.skip(FIRST_CHECK_MS)
    with monkeypatch.context() as patched:
        patched.setattr(space, "DISK_FREE_GROW", 1 << 60)
        patched.setattr(space, "DISK_FREE_STORE", 1 << 60)
        assert asked(rig) == []
    rig.skip(jobs.RETRY_MS)
    assert asked(rig) == [("a", 1)]


def test_checking_that_raises_is_put_off_and_everything_else_goes_on(
    rig: Rig, half: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "popmq.core")
    listen(rig, "t")
    rig.skip(FIRST_CHECK_MS)
    with monkeypatch.context() as patched:
        patched.setattr(check_back, "Check", lambda *_: 1 / 0)
        assert asked(rig) == []
        send(rig, message("x"))
        assert texts(rig) == ["x"]
    rig.skip(jobs.POSTPONE_MS)
    assert asked(rig) == [("a", 1)]


@pytest.mark.parametrize("used_up", [False, True])
def test_damaged_bytes_are_set_aside_instead_of_asked_about(
    rig: Rig, half: Place, used_up: bool, caplog: pytest.LogCaptureFixture
) -> None:
    listen(rig, "t")
    if used_up:
        use_up(rig)
    ((key, raw),) = rig.read("hmsg")

    def damage(kv: Transaction) -> None:
        kv.put("hmsg", key, raw[:-1] + bytes((raw[-1] ^ 1,)))

    rig.write(damage)
    rig.skip(FIRST_CHECK_MS)
    with caplog.at_level(logging.ERROR, "popmq.quarantine"):
        assert timed(rig) == Timed([], [], [], [])
    assert "do not match their checksum" in caplog.text
    assert (halves(rig), rig.look(operations.StoreState())[1]) == ([], 1)
