"""Settle: deliveries end and messages are stored in one commit; what is refused refuses all, and changes nothing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.delivery import deadletter
from popmq_server.embedded.rules.topics import chunk
from popmq_server.embedded.store.keys import DATABASES
from popmq_server.errors import Later, Refused
from popmq_server.values.handles import make_handle
from popmq_server.values.message import Extra
from tests.engine.rig import HOUR, KEEP, MINUTE, Delivery, Rig, bodies, message, refusal, sending


@pytest.fixture
def rig(rig: Rig) -> Rig:
    """Topic t with group g, and the topics out and other for what is sent."""
    rig.pair()
    rig.topic("out")
    rig.topic("other")
    return rig


def leased(rig: Rig, *texts: str, **asked: Any) -> list[Delivery]:
    rig.send(*texts)
    return rig.pop(len(texts), **asked)


def settling(
    acks: list[Delivery] | tuple[()] = (), sends: tuple[ask.Send, ...] = (), *changes: ask.Change, **more: Any
) -> ask.Settle:
    return ask.Settle("g", tuple(row.handle for row in acks), changes, sends, **more)


def released(row: Delivery, **how: Any) -> ask.Change:
    return ask.Change(row.handle, "release", **how)


def rejected(row: Delivery, reason: str = "") -> ask.Change:
    return ask.Change(row.handle, "reject", reason=reason)


def out(*texts: str) -> ask.Send:
    return sending(*texts, topic="out")


def special(topic: str, text: str, **extra: Any) -> ask.Send:
    return ask.Send(topic, (message(text)._replace(extra=Extra(**extra)),))


def everything(rig: Rig) -> dict[str, Any]:
    """All that a refused command must leave as it was: every row of the store, and what only memory has."""
    state = rig.core.state
    memory = {
        "buckets": [*state.buckets.items()],
        "turns": [(topic, turn) for topic, turn in state.send_turns.items() if turn],
        "staged": [*state.staged.items()],
        "coming": [*state.coming.items()],
    }
    return {name: rig.read(name) for name in DATABASES} | memory


# ── What it does ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_acks_and_sends_are_done_together(rig: Rig) -> None:
    rows = leased(rig, "a", "b")
    settled = rig.do(settling(rows, (out("x", "y"), sending("z", topic="other"))))
    assert settled == ask.Settled((ask.Sent(0, 0, False), ask.Sent(0, 0, False)), False, {"t": 2})
    rig.crash()
    assert rig.numbers().acked == 2
    assert [bodies(rig.pop(topic=topic)) for topic in ("out", "other", "t")] == [["x", "y"], ["z"], []]


def test_releases_and_rejects_are_done_with_the_acks(rig: Rig) -> None:
    a, b, c = leased(rig, "a", "b", "c")
    rig.do(settling([a], (out("x"),), released(b, delay_ms=0), rejected(c, "bad")))
    assert bodies(rig.pop()) == ["b"]
    assert [letter.dead_letter.reason for letter in rig.dead()] == ["bad"]
    assert rig.numbers().acked == 1


def test_a_settle_may_only_end_deliveries_or_only_send(rig: Rig) -> None:
    assert rig.do(settling(leased(rig, "a"))).sent == ()
    assert rig.do(settling((), (out("x"),))).topics == {}
    assert bodies(rig.pop(topic="out")) == ["x"]


def test_an_ack_of_a_part_that_was_extended_alone_is_settled_too(rig: Rig) -> None:
    a, b = leased(rig, "a", "b")
    rig.extend([a], HOUR)
    rig.do(settling([b, a], (out("x"),)))
    assert rig.numbers().in_flight == 0


def test_what_is_sent_can_be_popped_in_the_same_commit(rig: Rig) -> None:
    rig.pop(topic="out")
    rows = leased(rig, "a")
    _, popped = rig.run(settling(rows, (out("x"),)), ask.Pop("out", "g"))
    assert len(popped.rows) == 1


def test_a_settle_at_the_deadline_wins_over_the_revive_that_runs_after_it(rig: Rig) -> None:
    rows = leased(rig, "a")
    rig.skip(2 * MINUTE)
    rig.do(settling(rows, (out("x"),)))
    rig.settle()
    assert rig.pop() == []


def test_every_kind_of_message_keeps_its_options(rig: Rig) -> None:
    for kind in ("FIFO", "DELAY", "PRIORITY", "LITE"):
        rig.do(ask.CreateTopic(kind, 4, False, KEEP, kind))
    rig.do(ask.CreateTopic("once", 1, False, KEEP, unique_ids_ms=HOUR))
    rig.send("known", topic="once")
    sends = (
        special("FIFO", "f", message_group="m"),
        special("DELAY", "d", delay_ms=MINUTE),
        special("PRIORITY", "p", priority=2),
        special("LITE", "l", lite_topic="small"),
        sending("known", topic="once"),
    )
    places = [sent.places[0] for sent in rig.do(settling(leased(rig, "a"), sends)).sent]
    assert places[1].recall_handle
    assert places[2].queue == 2
    assert places[4].duplicate
    assert rig.pop(topic="DELAY") == []
    rig.advance(MINUTE)
    assert bodies(rig.pop(topic="DELAY")) == ["d"]


def test_messages_of_a_message_group_keep_the_order_in_which_they_were_settled(rig: Rig) -> None:
    rig.do(ask.CreateTopic("order", 4, False, KEEP, "FIFO"))
    a, b = leased(rig, "a", "b")
    for row in (a, b):
        rig.do(settling([row], (special("order", row.body, message_group="m"),)))
    assert bodies(rig.pop(topic="order")) == ["a", "b"]


def test_in_a_fifo_topic_what_comes_after_a_released_message_goes_back_with_it(rig: Rig) -> None:
    rig.do(ask.CreateTopic("order", 1, False, KEEP, "FIFO"))
    for text in "abcd":
        rig.do(special("order", text, message_group="m"))
    a, b, c, d = rig.pop(topic="order")
    rig.do(settling([d], (out("x"),), released(a, delay_ms=0), released(b, delay_ms=MINUTE), rejected(c)))
    assert bodies(rig.pop(topic="order")) == ["a", "b"]
    assert [letter.body for letter in rig.dead()] == [b"c"]


def test_a_topic_with_a_limit_of_bytes_drops_old_messages_for_what_is_settled(rig: Rig) -> None:
    rig.do(ask.CreateTopic("small", 1, True, KEEP, bytes_max=400))
    for number in range(8):
        rig.do(settling(leased(rig, f"a{number}"), (sending("x" * 100, topic="small"),)))
    assert 0 < len(rig.browse("small").rows) < 8


# ── What is refused ──────────────────────────────────────────────────────────────────────────────────────────────────

Case = Callable[[Rig, list[Delivery]], ask.Settle]


def lapsed_handle(rig: Rig, rows: list[Delivery]) -> ask.Settle:
    rig.ack(rows[2:])
    return settling(rows, (out("x"),))


def lapsed_change(rig: Rig, rows: list[Delivery]) -> ask.Settle:
    rig.ack(rows[2:])
    return settling(rows[:2], (out("x"),), released(rows[2]))


def full_quota(rig: Rig, rows: list[Delivery]) -> ask.Settle:
    rig.do(ask.UpdateTopic("other", 0, None, (("send_messages_per_s", 1),)))
    rig.send("o", topic="other")
    return settling(rows, (out("x"), sending("y", topic="other")))


def full_topic(rig: Rig, rows: list[Delivery]) -> ask.Settle:
    rig.do(ask.CreateTopic("small", 1, False, KEEP, bytes_max=400))
    rig.pop(topic="small")
    rig.send("x" * 60, "y" * 60, topic="small")
    return settling(rows, (out("x"), sending("z" * 80, topic="small")))


def closed_topic(rig: Rig, rows: list[Delivery]) -> ask.Settle:
    rig.do(ask.UpdateTopic("other", 0, None, (("permission", "READ_ONLY"),)))
    return settling(rows, (out("x"), sending("y", topic="other")))


def long_body(rig: Rig, rows: list[Delivery]) -> ask.Settle:
    rig.do(ask.UpdateTopic("other", 0, None, (("message_bytes_max", 10),)))
    return settling(rows, (out("x"), sending("short", "y" * 100, topic="other")))


def lite_topic_too_many(rig: Rig, rows: list[Delivery]) -> ask.Settle:
    """Found out only while it is written: two lite topics, one of which there may be."""
    rig.do(ask.CreateTopic("lite", 1, False, KEEP, "LITE", lite_topics_max=1))
    two = tuple(message(name)._replace(extra=Extra(lite_topic=name)) for name in ("one", "two"))
    return settling(rows, (out("x"), ask.Send("lite", two)))


def owned(rig: Rig, rows: list[Delivery]) -> ask.Settle:
    rig.attach()
    rig.send("sealed")
    popped = rig.seal(1)
    handle = make_handle(popped.ck_id, 0, popped.nonce)
    return settling(rows, (out("x"),), ask.Change(handle, "release"))


CASES: dict[str, tuple[Case, str, str]] = {
    "lapsed ack": (lapsed_handle, "HANDLE_LAPSED", "handles[2]"),
    "lapsed release": (lapsed_change, "HANDLE_LAPSED", "changes[0].handle"),
    "no handle": (lambda _, rows: replace(settling(rows), handles=("?",)), "INVALID_HANDLE", "handles[0]"),
    "acked twice": (lambda _, rows: settling([rows[0], rows[1], rows[0]]), "INVALID_FIELD", "handles[2]"),
    "released twice": (
        lambda _, rows: settling((), (out("x"),), released(rows[0]), released(rows[0], delay_ms=1)),
        "INVALID_FIELD",
        "changes[1].handle",
    ),
    "acked and rejected": (
        lambda _, rows: settling(rows[1:], (), rejected(rows[0]), rejected(rows[1])),
        "INVALID_FIELD",
        "changes[1].handle",
    ),
    "an owner's": (owned, "INVALID_FIELD", "changes[0].handle"),
    "no group": (lambda _, rows: replace(settling(rows), group="?"), "GROUP_NOT_FOUND", "group"),
    "no topic": (
        lambda _, rows: settling(rows, (out("x"), sending("y", topic="?"))),
        "TOPIC_NOT_FOUND",
        "sends[1].topic",
    ),
    "wrong type": (
        lambda _, rows: settling(rows, (out("x"), special("other", "y", priority=1))),
        "INVALID_FIELD",
        "sends[1].messages[0].priority",
    ),
    "closed topic": (closed_topic, "FORBIDDEN", "sends[1].topic"),
    "long body": (long_body, "INVALID_FIELD", "sends[1].messages[1].body"),
    "full quota": (full_quota, "RATE_LIMITED", "sends[1].topic"),
    "full topic": (full_topic, "STORAGE_FULL", "sends[1].topic"),
    "lite topic too many": (lite_topic_too_many, "LITE_TOPIC_QUOTA", "sends[1].messages[1].lite_topic"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_refused_settle_names_what_is_at_fault_and_changes_nothing(rig: Rig, name: str) -> None:
    make, code, field = CASES[name]
    command = make(rig, leased(rig, "a", "b", "c"))
    before = everything(rig)
    (result,) = rig.run(command)
    assert isinstance(result, Refused)
    assert (result.code, result.field) == (code, field)
    assert everything(rig) == before


def test_a_settle_that_fails_while_it_is_written_leaves_the_rest_of_its_batch(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = leased(rig, "a", "b")
    monkeypatch.setattr(chunk, "staged", failing_at("y", chunk.staged))
    results = rig.run(settling([a], (out("x"), sending("y", topic="other"))), settling([b], (out("z"),)))
    assert [refusal(each) for each in results] == ["INTERNAL", ""]
    assert bodies(rig.pop(topic="out")) == ["z"]
    assert rig.numbers().acked == 1


def failing_at(body: str, stage: Any) -> Any:
    def failing(queue: int, first: int, messages: Any) -> Any:
        if messages[0].message_id == body:
            raise RuntimeError("as a bug would")
        return stage(queue, first, messages)

    return failing


# ── Bounds of one commit ─────────────────────────────────────────────────────────────────────────────────────────────


def test_more_releases_than_one_commit_takes_are_refused(rig: Rig) -> None:
    rows = leased(rig, *(f"m{number}" for number in range(501)))
    (result,) = rig.run(settling(rows[:1], (), *(released(row, delay_ms=0) for row in rows[1:])))
    assert refusal(result) == ""
    rows = rig.pop(500)
    (result,) = rig.run(settling((), (), *(released(row) for row in rows[:499]), rejected(rows[499])))
    assert (refusal(result), result.field) == ("INVALID_FIELD", "changes")


def test_dead_letters_that_others_left_no_room_for_come_in_the_next_commit(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadletter, "DEAD_LETTERS_MAX", 2)
    rows = leased(rig, "a", "b", "c", "d")
    first, second = (settling((), (out("x"),), *map(rejected, some)) for some in (rows[:2], rows[2:]))
    results = rig.run(first, second)
    assert isinstance(results[1], Later)
    assert rig.do(second)
    assert len(rig.dead()) == 4
    assert bodies(rig.pop(topic="out")) == ["x", "x"]


def test_dead_letters_that_no_commit_takes_are_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadletter, "DEAD_LETTERS_MAX", 2)
    rows = leased(rig, "a", "b", "c")
    (result,) = rig.run(settling((), (out("x"),), *map(rejected, rows)))
    assert (refusal(result), result.field) == ("INVALID_FIELD", "changes[2].handle")


# ── Repeated requests ────────────────────────────────────────────────────────────────────────────────────────────────


def numbered(rows: list[Delivery], *sends: ask.Send, number: int = 1) -> ask.Settle:
    return settling(rows, sends, producer_id="p", request_number=number)


def test_a_repeated_settle_gets_the_first_answer_and_does_nothing(rig: Rig) -> None:
    rig.do(ask.CreateTopic("later", 1, False, KEEP, "DELAY"))
    command = numbered(leased(rig, "a"), out("x", "y"), special("later", "z", delay_ms=MINUTE))
    first = rig.do(command)
    rig.crash()
    again = rig.do(command)
    assert (again.duplicate, again.topics) == (True, {})
    assert [each._replace(duplicate=False) for each in again.sent] == [*first.sent]
    assert rig.numbers().acked == 1
    assert len(rig.browse("out").rows) == 2


def test_a_repeat_gets_the_first_answer_though_its_topic_is_gone(rig: Rig) -> None:
    command = numbered(leased(rig, "a"), out("x"))
    rig.do(command)
    rig.do(ask.DeleteTopic("out"))
    assert rig.do(command).duplicate


def test_a_request_number_is_forgotten_after_ten_minutes(rig: Rig) -> None:
    command = numbered(leased(rig, "a"), out("x"))
    rig.do(command)
    rig.advance(11 * MINUTE)
    (result,) = rig.run(command)
    assert refusal(result) == "HANDLE_LAPSED"


def test_a_refused_settle_uses_up_no_request_number(rig: Rig) -> None:
    rows = leased(rig, "a")
    assert refusal(rig.run(numbered(rows, sending("x", topic="new")))[0]) == "TOPIC_NOT_FOUND"
    rig.topic("new")
    assert not rig.do(numbered(rows, sending("x", topic="new"))).duplicate


def test_a_number_of_another_request_is_refused(rig: Rig) -> None:
    a, b, c = leased(rig, "a", "b", "c")
    rig.do(numbered([a], out("x")))
    rig.send("s", producer="p", number=2)
    for command in (
        numbered([b, c], out("x")),
        numbered([b], out("x", "y")),
        numbered([b], out("x"), number=2),
        sending("x", producer="p", number=1),
    ):
        (result,) = rig.run(command)
        assert refusal(result) == "REQUEST_NUMBER_REUSED"
