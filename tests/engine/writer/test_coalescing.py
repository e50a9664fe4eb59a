"""Sends, Settles and equal pops of one message, and acks, of one commit batch run as one: callers see no difference."""

from dataclasses import replace
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.delivery import lease, pop
from popmq_server.embedded.rules.sending import send, settle
from popmq_server.embedded.rules.topics import topic
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.writer.coalescing import TOGETHER_MAX
from popmq_server.errors import Refused
from popmq_server.values.leased import Leased
from popmq_server.values.message import Extra
from tests.engine.rig import (
    HOUR,
    MINUTE,
    Delivery,
    Rig,
    bodies,
    deliveries,
    message,
    numbered,
    refusal,
    refusals,
    sending,
)

ONE = ask.Pop("t", "g", max_messages=1)


def acking(*rows: Delivery) -> ask.Ack:
    return ask.Ack("g", tuple(row.handle for row in rows))


def taken(rig: Rig, *pops: ask.Pop) -> list[Delivery]:
    """The message of each of these pops, which are one batch."""
    answers = rig.run(*pops)
    assert [len(answer.rows) for answer in answers] == [1] * len(pops)
    return [deliveries(answer)[0] for answer in answers]


@pytest.fixture
def full(rig: Rig) -> Rig:
    rig.pair()
    rig.send(*numbered("m", 12))
    return rig


@pytest.mark.mechanism("S1.14")
def test_equal_pops_share_a_checkpoint_and_each_gets_a_message_of_its_own(full: Rig) -> None:
    rows = taken(full, ONE, ONE, ONE)
    assert bodies(rows) == ["m0", "m1", "m2"]
    assert len({row.lease.ck_id for row in rows}) == 1
    assert refusals(full.ack(rows[1:2])) == [""]
    full.advance(MINUTE)
    assert sorted(bodies(full.pop(12)))[:3] == ["m0", "m10", "m11"]
    assert refusals(full.ack(rows[1:2])) == ["HANDLE_LAPSED"]
    assert full.findings() == []


def test_settling_one_message_of_a_shared_checkpoint_does_not_affect_the_others(full: Rig) -> None:
    extended, released, rejected, acked, left = taken(full, *[ONE] * 5)
    full.extend([extended], 10 * MINUTE)
    full.release([released])
    full.reject([rejected], "bad")
    full.ack([acked])
    assert [row.attempt for row in full.pop(12) if row.body == released.body] == [2]
    full.restart()
    full.advance(MINUTE)
    again = bodies(full.pop(32))
    assert left.body in again
    assert not {extended.body, rejected.body, acked.body} & {*again}
    assert [letter.message_id for letter in full.dead()] == [rejected.body]
    assert refusals(full.ack([extended])) == [""]
    assert full.findings() == []


@pytest.mark.parametrize(
    "other",
    [
        {"client_id": "c", "attempt_id": "a"},
        {"client_id": "c", "session": True},
        {"client_id": "another"},
        {"invisible_ms": 5 * MINUTE},
        {"queues": (0,)},
        {"max_messages": 2},
    ],
)
def test_a_pop_that_asks_for_anything_else_has_a_lease_of_its_own(full: Rig, other: dict[str, Any]) -> None:
    one, two, three = full.run(ONE, replace(ONE, **other), ONE)
    assert one.ck_id == three.ck_id != two.ck_id
    assert full.findings() == []


def test_the_same_attempt_twice_in_a_batch_gets_the_same_message(full: Rig) -> None:
    first, repeat = taken(full, *[replace(ONE, client_id="c", attempt_id="a")] * 2)
    assert first == repeat


def test_pops_of_a_fifo_topic_do_not_take_one_message_group_to_two_callers(rig: Rig) -> None:
    rig.do(ask.CreateTopic("t", 1, False, MINUTE, type="FIFO"))
    rig.group(fifo=True)
    entries = tuple(message(name)._replace(extra=Extra(message_group="a")) for name in ("a0", "a1", "a2"))
    rig.do(ask.Send("t", entries))
    assert [bodies(deliveries(answer)) for answer in rig.run(ONE, ONE, ONE)] == [["a0"], [], []]


def test_pops_beyond_the_last_message_are_empty_and_wait(full: Rig) -> None:
    answers: list[Leased] = full.run(*[ONE] * 15)
    assert [len(answer.rows) for answer in answers] == [1] * 12 + [0] * 3
    assert all(answer.refusal is None and not answer.again for answer in answers)


def test_the_limit_of_leased_messages_holds_for_all_of_them(rig: Rig) -> None:
    rig.pair(in_flight_max=3)
    rig.send(*numbered("m", 8))
    answers: list[Leased] = rig.run(*[ONE] * 5)
    assert [len(answer.rows) for answer in answers] == [1, 1, 1, 0, 0]
    assert [refusal(answer.refusal) for answer in answers[3:]] == ["IN_FLIGHT_LIMIT"] * 2
    assert answers[3].refusal is not answers[4].refusal  # each caller raises its own


def test_acks_of_a_batch_finish_their_messages_and_each_counts_its_own(full: Rig) -> None:
    rows = taken(full, *[ONE] * 5)
    answers = full.run(acking(*rows[:2]), acking(rows[2]))
    assert [(refusals(answer.results), answer.topics) for answer in answers] == [(["", ""], {"t": 2}), ([""], {"t": 1})]
    assert full.numbers().in_flight == 2
    full.restart()
    full.ack(rows[3:])
    assert (full.numbers().in_flight, full.numbers().acked) == (0, 5)
    assert full.findings() == []


def test_acks_beside_a_refused_one_take_effect(full: Rig) -> None:
    first, second, third = taken(full, ONE, ONE, ONE)
    answers = full.run(acking(first), acking(first), acking(second), ask.Ack("none", (third.handle,)), acking(third))
    assert [refusals(answers[place].results) for place in (0, 1, 2, 4)] == [[""], ["HANDLE_LAPSED"], [""], [""]]
    assert refusal(answers[3]) == "GROUP_NOT_FOUND"


def test_an_ack_is_not_moved_over_a_command_before_it(full: Rig) -> None:
    """The release between the acks ends the lease that the second one names."""
    first, second = taken(full, ONE, ONE)
    release = ask.ChangeInvisibleTime("g", (ask.Change(second.handle, "release"),))
    one, _, two = full.run(acking(first), release, acking(second))
    assert refusals([*one.results, *two.results]) == ["", "HANDLE_LAPSED"]


@pytest.mark.parametrize(("module", "name"), [(pop, "pop"), (lease, "ack_all"), (send, "send_all")])
def test_commands_run_one_by_one_when_running_them_as_one_fails_after_a_write(
    full: Rig, monkeypatch: pytest.MonkeyPatch, module: Any, name: str
) -> None:
    rows = taken(full, ONE, ONE)
    whole = getattr(module, name)

    def failing(tx: Tx, given: Any) -> Any:
        answer = whole(tx, given)
        if not isinstance(given, ask.Pop) or given.max_messages > 1:
            raise ValueError("a bug")
        return answer

    monkeypatch.setattr(module, name, failing)
    answers = full.run(acking(rows[0]), acking(rows[1]), ONE, ONE, sending("later"), sending("last"))
    assert refusals([*answers[0].results, *answers[1].results]) == ["", ""]
    assert [bodies(deliveries(answer)) for answer in answers[2:4]] == [["m2"], ["m3"]]
    assert [refusal(answer) if isinstance(answer, Refused) else "" for answer in answers[4:]] == ["", ""]
    monkeypatch.undo()
    assert (full.numbers().acked, len(full.pop(32))) == (2, 10)
    assert full.findings() == []


def settling(row: Delivery, text: str, producer: str = "", number: int = 0, **other: Any) -> ask.Settle:
    """Acks a delivery of topic t and sends one message to topic u."""
    send = sending(text, topic="u")
    return replace(ask.Settle("g", (row.handle,), (), (send,), producer, number), **other)


@pytest.fixture
def chained(full: Rig) -> Rig:
    full.do(ask.CreateTopic("u", 2, False, HOUR))
    return full


@pytest.mark.parametrize("producer", ["", "p"])
def test_settles_of_a_batch_have_the_outcome_that_they_would_have_one_by_one(
    chained: Rig, monkeypatch: pytest.MonkeyPatch, producer: str
) -> None:
    rows = taken(chained, *[ONE] * 6)
    settles = [settling(row, row.body, producer, number + 1) for number, row in enumerate(rows)]
    alone = [chained.do(each) for each in settles[:2]]
    monkeypatch.setattr(settle, "settle", None)  # run one by one, they would fail
    together = chained.run(*settles[2:])
    monkeypatch.undo()
    assert [(answer.sent[0].queue, answer.sent[0].first) for answer in alone + together] == [
        (number % 2, number // 2) for number in range(6)
    ]
    assert {answer.duplicate for answer in together} == {False}
    assert {tuple(answer.topics.items()) for answer in together} == {(("t", 1),)}
    chained.restart()
    assert (chained.numbers().in_flight, chained.numbers().acked) == (0, 6)
    if producer:
        assert [answer.sent for answer in chained.run(*settles)] == [
            (answer.sent[0]._replace(duplicate=True),) for answer in alone + together
        ]
    chained.group("h")
    assert sorted(bodies(chained.pop(9, topic="u", group="h"))) == bodies(rows)
    assert chained.findings() == []


def test_settles_beside_one_that_is_refused_or_repeated_take_effect(chained: Rig) -> None:
    rows = taken(chained, *[ONE] * 6)
    chained.do(settling(rows[0], "first", "p", 1))
    batch = [
        settling(rows[0], "first", "p", 1),
        settling(rows[1], "second", "p", 2),
        settling(rows[1], "twice", "p", 3),
        settling(rows[2], "third", "p", 4),
        settling(rows[2], "third", "p", 4),
        settling(rows[3], "to nobody", sends=(sending("x", topic="none"),)),
        settling(rows[3], "fourth"),
        settling(rows[4], "as DELAY", sends=(replace(sending("x", topic="u"), types=frozenset(("DELAY",))),)),
    ]
    answers = [refusal(one) if isinstance(one, Refused) else one.duplicate for one in chained.run(*batch)]
    assert answers == [True, False, "HANDLE_LAPSED", False, True, "TOPIC_NOT_FOUND", False, "INVALID_FIELD"]
    assert (chained.numbers().in_flight, chained.numbers().acked) == (2, 4)
    assert chained.findings() == []


def test_a_settle_is_not_moved_over_a_command_before_it(chained: Rig) -> None:
    first, second = taken(chained, ONE, ONE)
    release = ask.ChangeInvisibleTime("g", (ask.Change(second.handle, "release"),))
    one, _, two = chained.run(settling(first, "one"), release, settling(second, "two"))
    assert (one.duplicate, refusal(two)) == (False, "HANDLE_LAPSED")


def test_numbered_sends_of_a_batch_are_run_as_one_and_each_number_is_remembered(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.do(ask.CreateTopic("t", 3, False, MINUTE))
    batch = [sending(text, producer="p", number=number) for number, text in enumerate(numbered("m", 6), start=1)]
    monkeypatch.setattr(send, "send", None)  # run one by one, they would fail
    first = rig.run(*batch)
    monkeypatch.undo()
    assert len({(answer.queue, answer.first) for answer in first}) == 6
    rig.restart()
    assert rig.run(*batch) == [answer._replace(duplicate=True) for answer in first]
    answers = rig.run(sending("new", producer="p", number=7), replace(batch[0], topic="none"), batch[1])
    assert [refusal(one) if isinstance(one, Refused) else one.duplicate for one in answers] == [
        False,
        "TOPIC_NOT_FOUND",
        True,
    ]
    assert rig.findings() == []


def places(rig: Rig, commands: list[ask.Send]) -> list[Any]:
    """The answers of these sends, which are one batch; of a refused one its code."""
    return [refusal(answer) if isinstance(answer, Refused) else answer for answer in rig.run(*commands)]


@pytest.mark.parametrize("count", [2, 3, 4, 20])
def test_sends_of_a_batch_get_the_queues_and_offsets_that_they_would_get_one_by_one(rig: Rig, count: int) -> None:
    rig.pair()
    for name in ("together", "alone"):
        rig.do(ask.CreateTopic(name, 3, False, MINUTE))
        rig.do(sending("first", topic=name))
    together = places(rig, [sending(text, topic="together") for text in numbered("m", count)])
    alone = [rig.do(sending(text, topic="alone")) for text in numbered("m", count)]
    assert together == alone
    assert len({answer.queue for answer in together}) == min(3, count)
    rig.restart()
    assert places(rig, [sending("next", topic="together")]) == places(rig, [sending("next", topic="alone")])
    assert rig.findings() == []


def test_sends_of_a_batch_keep_their_order_around_one_of_several_messages(rig: Rig) -> None:
    rig.do(ask.CreateTopic("t", 1, False, MINUTE))
    rig.do(ask.CreateTopic("other", 1, False, MINUTE))
    batch = [sending("a"), sending("b"), sending("c", "d"), sending("e"), sending("x", topic="other"), sending("f")]
    assert [answer.first for answer in places(rig, batch)] == [0, 1, 2, 4, 0, 5]
    assert rig.findings() == []


def test_sends_of_a_batch_are_one_append_for_each_queue(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.do(ask.CreateTopic("t", 3, False, MINUTE))
    appended: list[int] = []

    def enqueue(*given: Any) -> int:
        appended.append(len(given[3]))
        return topic.enqueue(*given)

    monkeypatch.setattr(send, "enqueue", enqueue)
    assert len(places(rig, [sending(text) for text in numbered("m", 10)])) == 10
    assert (sum(appended), len(appended)) == (10, 3)


def test_sends_that_need_more_than_an_append_are_checked_one_by_one(rig: Rig) -> None:
    rig.do(ask.CreateTopic("t", 2, False, MINUTE, send_messages_per_s=2))
    rig.do(ask.CreateTopic("closed", 2, False, MINUTE, permission="READ_ONLY"))
    rig.do(ask.CreateTopic("fifo", 2, False, MINUTE, type="FIFO"))
    rig.do(ask.CreateTopic("plain", 2, False, MINUTE))
    late = message("late")._replace(extra=Extra(delay_ms=MINUTE))
    answers = places(
        rig,
        [
            *(sending(text) for text in numbered("quota", 3)),
            *(sending(text, topic="closed") for text in numbered("closed", 2)),
            *(sending(text, topic="fifo") for text in numbered("no group", 2)),
            *(sending(text, topic="none") for text in numbered("none", 2)),
            *(sending("once", topic="plain", producer="p", number=7) for _ in range(2)),
            *(ask.Send("plain", (entry,)) for entry in (late, message("with a delayed one"))),
            *(ask.Send("plain", (message(text),), types=frozenset(("DELAY",))) for text in numbered("typed", 2)),
        ],
    )
    codes = [answer if isinstance(answer, str) else "" for answer in answers]
    assert codes[:3] == ["", "", "RATE_LIMITED"]
    assert codes[3:5] == ["FORBIDDEN"] * 2
    assert [refusal(answer.places[0]) for answer in answers[5:7]] == ["INVALID_FIELD"] * 2
    assert codes[7:9] == ["TOPIC_NOT_FOUND"] * 2
    assert [answer.duplicate for answer in answers[9:11]] == [False, True]
    assert refusal(answers[11].places[0]) == "INVALID_FIELD"
    assert codes[12:] == ["", "INVALID_FIELD", "INVALID_FIELD"]
    assert rig.findings() == []


def test_sends_that_cannot_run_as_one_are_stored_before_those_after_them(rig: Rig) -> None:
    """A delayed send keeps the first ones from being one append: those beyond their number wait for each of them."""
    rig.do(ask.CreateTopic("t", 1, False, HOUR, type="DELAY"))
    late = message("late")._replace(extra=Extra(delay_ms=MINUTE))
    texts = list(numbered("m", 2 * TOGETHER_MAX + 9))
    rig.run(ask.Send("t", (late,), bytes=len(late.data)), *(sending(text) for text in texts))
    rig.group()
    assert bodies(rig.pop(len(texts))) == texts
