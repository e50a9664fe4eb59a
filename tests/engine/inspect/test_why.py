"""Why: the whole life of a message for each group, as a word, as a sentence, and as what happened."""

from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.commands.inspection import LifeEvent, MessageLife
from popmq_server.embedded import operations
from popmq_server.embedded.loop import in_pieces
from popmq_server.embedded.rules.delivery import sweep
from popmq_server.embedded.rules.inspect import message_status, trace
from popmq_server.embedded.rules.inspect import why as why_module
from popmq_server.values.message import Extra
from tests.engine.dead_letters import died, piece
from tests.engine.lives import has, life, state, story, traced, why
from tests.engine.rig import DAY, HOUR, MINUTE, SECOND, Rig, bodies, message, numbered, refusal, refusals
from tests.engine.work import calls

# ── How it stands ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_why_shows_a_ready_message_with_the_number_of_messages_before_it(rig: Rig) -> None:
    rig.pair()
    rig.send("x", "y", "a")
    rig.pop(1)
    assert (state(rig), story(rig)) == ("ready", ["sent"])
    has(rig, "1 message of queue 0 comes before it")


def test_the_in_flight_limit_is_named_when_it_is_what_a_message_waits_for(rig: Rig) -> None:
    rig.pair(in_flight_max=2)
    rig.send("x", "y", "a")
    rig.pop()
    has(rig, "2 messages of its queue are leased, the group's limit", "ack some")


def test_why_shows_the_client_and_the_deadline_of_a_lease(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    rig.pop(client_id="worker-7", invisible_ms=HOUR)
    assert state(rig) == "leased"
    has(
        rig,
        "client 'worker-7'",
        message_status.time_of(rig.now),
        message_status.time_of(rig.now + HOUR),
        "attempt 1 of 17",
    )
    assert life(rig).events[1:] == [LifeEvent(rig.now, "popped", "worker-7", rig.now + HOUR, 1)]


def test_a_renewal_is_reported_with_its_new_deadline(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b")
    start = rig.now
    rows = rig.pop(client_id="c")
    rig.skip(SECOND)
    rig.extend(rows, HOUR)
    rig.skip(SECOND)
    rig.extend(rows[:1], 2 * HOUR)
    until = rig.now + 2 * HOUR
    renewed = LifeEvent(rig.now, "renewed", "c", until, 1, "renewed 2 times")
    popped = LifeEvent(start, "popped", "c", 0, 1)
    assert life(rig).events[1:] == [popped, renewed]
    has(rig, message_status.time_of(until))
    rig.skip(SECOND)
    rig.ack(rows)
    assert life(rig).events[1:] == [popped, renewed, LifeEvent(rig.now, "acked", "c", 0, 1)]
    assert life(rig, "b").events[2:] == [
        LifeEvent(start + SECOND, "renewed", "c", start + SECOND + HOUR, 1),
        LifeEvent(rig.now, "acked", "c"),
    ]


def test_why_shows_the_client_and_the_time_of_an_ack(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    rows = rig.pop(client_id="c")
    rig.skip(SECOND)
    rig.ack(rows)
    assert (state(rig), story(rig)) == ("acked", ["sent", "popped", "acked"])
    has(rig, "client 'c'", message_status.time_of(rig.now), "does not get it again")


def test_why_shows_an_acked_message_of_a_batch_that_is_still_leased(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b")
    rig.ack(rig.pop()[:1])
    assert (state(rig), story(rig)) == ("acked", ["sent", "popped", "acked"])
    assert life(rig).events[2].time_ms == 0
    assert state(rig, "b") == "leased"


def test_a_lease_that_ran_out_leads_to_the_retry_topic(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b")
    rig.ack(rig.pop()[1:])
    rig.advance(MINUTE)
    assert (state(rig), story(rig)) == ("retry", ["sent", "popped", "expired"])
    has(rig, "as entry 1", "attempt 2", "lease expired")
    rig.pop(client_id="d")
    assert (state(rig), story(rig)) == ("leased", ["sent", "popped", "expired", "popped"])
    assert (life(rig).events[3].attempt, life(rig).events[3].client) == (2, "d")
    assert state(rig, "b") == "acked"


def test_a_release_is_reported_with_its_reason_and_when_it_comes_back(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b")
    rows = rig.pop(client_id="c")
    rig.release(rows[:1], delay_ms=HOUR, reason="the bank is closed")
    rig.release(rows[1:], delay_ms=0, reason="at once")
    assert (state(rig), story(rig)) == ("backoff", ["sent", "popped", "released"])
    assert life(rig).events[2] == LifeEvent(rig.now, "released", "c", rig.now + HOUR, 1, "the bank is closed")
    has(rig, message_status.time_of(rig.now + HOUR), "the bank is closed")
    assert state(rig, "b") == "retry"
    rig.advance(HOUR)
    assert state(rig) == "retry"
    has(rig, "the bank is closed", "attempt 2")


def test_a_dead_letter_says_where_it_is_and_why(rig: Rig) -> None:
    rig.pair(max_attempts=2)
    rig.send("a")
    rig.pop()
    rig.advance(MINUTE)
    rig.pop()
    rig.advance(MINUTE)
    assert (state(rig), story(rig)) == ("dead", ["sent", "popped", "expired", "popped", "expired", "dead"])
    has(rig, "offset 0 of '%DLQ%g'", "after 2 attempts", "lease expired", "again: popmq dlq redrive g --offset 0")


def test_a_rejection_is_reported_with_its_reason(rig: Rig) -> None:
    rig.pair()
    died(rig, "a", reason="no such account")
    assert (state(rig), story(rig)) == ("dead", ["sent", "popped", "rejected", "dead"])
    assert life(rig).events[2].reason == "no such account"
    has(rig, "no such account")


def test_a_redriven_message_goes_on_with_its_life(rig: Rig) -> None:
    rig.pair()
    died(rig, "a")
    rig.skip(SECOND)
    piece(rig)
    assert (state(rig), story(rig)) == ("retry", ["sent", "popped", "rejected", "dead", "redriven"])
    has(rig, "attempt 1", "redriven")
    rig.skip(SECOND)
    rig.ack(rig.pop())
    assert (state(rig), story(rig)[4:]) == ("acked", ["redriven", "popped", "acked"])
    died(rig, "b")
    piece(rig)
    rig.skip(SECOND)
    rig.reject(rig.pop())
    assert (state(rig, "b"), story(rig, "b")[3:]) == ("dead", ["dead", "redriven", "popped", "rejected", "dead"])


@pytest.mark.slow
def test_why_shows_a_message_that_does_not_match_as_filtered(rig: Rig) -> None:
    rig.topic()
    rig.group()
    rig.do(ask.Send("t", (message("a", tag="red"), message("b", tag="blue")), bytes=1))
    rig.ack(rig.pop(filter=("tag", "blue")))
    assert (state(rig), state(rig, "b")) == ("filtered", "acked")
    has(rig, "tag 'blue'")


def test_a_retry_that_the_new_filter_does_not_match_is_filtered(rig: Rig) -> None:
    rig.pair()
    rig.do(ask.Send("t", (message("a", tag="red"),), bytes=1))
    rig.release(rig.pop(), delay_ms=0)
    rig.do(ask.SetFilter("t", "g", ("tag", "blue")))
    assert rig.pop() == []
    assert state(rig) == "filtered"


def test_why_shows_an_older_message_as_before_the_start_of_a_new_group(rig: Rig) -> None:
    rig.topic()
    rig.send("a", "b")
    rig.group("late", start_from="LATEST")
    rig.pop(group="late")
    rig.send("c")
    assert (state(rig, group="late"), state(rig, "c", "late")) == ("before start", "ready")
    has(rig, "began at offset 2 of queue 0", group="late")
    rig.restart()
    assert state(rig, group="late") == "before start"


def test_why_shows_a_message_skipped_by_a_reset_as_before_the_start_of_the_group(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b", "c")
    rig.ack(rig.pop(1))
    rig.do(ask.ResetOffsets("t", "g", offsets={0: 2}))
    assert [state(rig, text) for text in "abc"] == ["acked", "before start", "ready"]
    rig.do(ask.ResetOffsets("t", "g", offsets={0: 0}))
    assert [state(rig, text) for text in "abc"] == ["ready", "ready", "ready"]


@pytest.mark.slow
def test_why_does_not_show_a_message_skipped_by_a_reset_as_leased(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b")
    rig.pop(invisible_ms=HOUR)
    rig.do(ask.ResetOffsets("t", "g", offsets={0: 2}))
    assert state(rig) not in ("leased", "ready", "retry")


@pytest.mark.slow
def test_why_does_not_show_a_skipped_message_as_leased_before_the_reset_is_swept(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "SWEEP_MAX", 1)
    rig.pair()
    rig.send("a", "b", "c")
    for _ in range(3):
        rig.pop(1, invisible_ms=HOUR)
    questions = [operations.WhyPiece(text, tuple(traced(rig, text))) for text in "abc"]
    reset, *lives = rig.run(ask.ResetOffsets("t", "g", offsets={0: 3}), *questions)
    assert reset.left, "the sweep has only begun"
    assert [one.groups[0].state for (one,) in lives] == ["before start"] * 3


def test_a_damaged_message_is_quarantined_for_every_group(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    key, value = rig.read("log")[0]
    rig.write(lambda kv: kv.put("log", key, value[:-1] + b"X"))
    assert state(rig) == "quarantined"
    assert rig.pop() == []
    assert state(rig) == "quarantined"
    has(rig, "damaged", "kept")


def test_a_group_that_pulls_says_what_it_has_committed(rig: Rig) -> None:
    rig.pair()
    rig.do(ask.SetConsumeMode("t", "g", "PULL"))
    rig.send("a", "b", "c")
    rig.do(ask.UpdateOffsets("t", "g", {0: 2}))
    assert [state(rig, text) for text in "abc"] == ["pulled", "pulled", "ready"]
    has(rig, "committed up to offset 2", message_id="c")


def test_why_shows_the_backoff_and_the_reason_of_a_message_sent_back(rig: Rig) -> None:
    rig.pair()
    rig.do(ask.SetConsumeMode("t", "g", "PULL"))
    rig.send("a", "b")
    rig.do(ask.SendBack("t", "g", (ask.SentBack(0, 0, False, HOUR, "later", False),)))
    rig.do(ask.SendBack("t", "g", (ask.SentBack(0, 1, False, 0, "poison", True),)))
    rig.do(ask.UpdateOffsets("t", "g", {0: 2}))
    assert (state(rig), story(rig)) == ("backoff", ["sent", "sent back"])
    assert life(rig).events[1].reason == "later"
    rig.advance(HOUR)
    assert state(rig) == "retry"
    assert (state(rig, "b"), story(rig, "b")) == ("dead", ["sent", "dead"])


def test_why_shows_an_owners_message_as_leased_until_the_owners_lease_ends(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    rig.attach("query", lease_ms=HOUR)
    rig.seal(1, owner="query")
    assert state(rig) == "leased"
    has(rig, "owner 'query'", message_status.time_of(rig.now + HOUR))
    rig.advance(HOUR)
    assert state(rig) == "retry"
    rig.ack(rig.pop())
    assert state(rig) == "acked"


def test_each_group_has_its_own_life(rig: Rig) -> None:
    rig.pair()
    rig.group("h")
    rig.pop(group="h")
    rig.send("a")
    rig.ack(rig.pop())
    rig.pop(group="h")
    assert (state(rig), state(rig, group="h")) == ("acked", "leased")
    assert [each.group for each in why(rig, "a", group="h")[0].groups] == ["h"]


def test_a_group_that_never_named_the_topic_is_reported(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    rig.group("h")
    assert why(rig, "a", group="h")[0].groups[0].state == "before start"
    assert "never named" in why(rig, "a", group="h")[0].groups[0].explanation


# ── Where a retry topic is long ──────────────────────────────────────────────────────────────────────────────────────


def test_why_uses_the_history_when_the_retry_topic_is_too_long_to_read(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("popmq_server.embedded.rules.inspect.why.RETRIES_MAX", 5)
    rig.pair()
    rig.send(*numbered("m", 10), "a", "b")
    rows = rig.pop()
    rig.ack(rows[-1:])
    rig.release(rows[:-1], delay_ms=0)
    assert (state(rig, "m0"), state(rig), state(rig, "b")) == ("retry", "retry", "acked")
    has(rig, "many others")
    has(rig, "as entry 1", message_id="m0")


# ── Not to be seen yet ───────────────────────────────────────────────────────────────────────────────────────────────


def later(text: str, **extra: Any) -> ask.Send:
    return ask.Send("d", (message(text)._replace(extra=Extra(**extra)),), bytes=1)


def test_a_delayed_message_says_when_it_is_due(rig: Rig) -> None:
    rig.do(ask.CreateTopic("d", 1, False, 3 * DAY, type="DELAY"))
    rig.group()
    rig.pop(topic="d")
    rig.do(later("a", delay_ms=HOUR))
    (one,) = why(rig, "a")
    assert (one.topic, one.place, one.due_ms, one.stored_ms) == ("d", "delayed", rig.now + HOUR, rig.now)
    assert [each.place for each in why(rig, "a", topic="d")] == ["delayed"]
    rig.advance(HOUR)
    assert (why(rig, "a")[0].place, state(rig)) == ("stored", "ready")


def test_a_half_message_says_when_its_producer_is_asked_next(rig: Rig) -> None:
    rig.do(ask.CreateTopic("d", 1, False, 3 * DAY, type="TRANSACTION"))
    rig.do(later("a", transaction=True))
    (one,) = why(rig, "a")
    assert (one.topic, one.place, one.due_ms) == ("d", "half", rig.now + 6 * SECOND)


# ── The search ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_id_that_is_in_several_topics_has_a_life_in_each(rig: Rig) -> None:
    for name in ("t", "u"):
        rig.topic(name)
        rig.send("a", topic=name)
        rig.skip(SECOND)
    assert [one.topic for one in why(rig, "a")] == ["u", "t"], "the newest first"
    assert [one.topic for one in why(rig, "a", topic="t")] == ["t"]


def test_an_unknown_message_id_is_not_found(rig: Rig) -> None:
    rig.pair()
    rig.do(ask.Send("t", (message("x", keys=("a",)),), bytes=1))
    assert refusal(rig.run(operations.WhyPiece("a", tuple(traced(rig, "a"))))[0]) == "MESSAGE_NOT_FOUND"


def test_names_that_do_not_exist_are_refused(rig: Rig) -> None:
    rig.pair()
    refused = rig.run(operations.Trace("a", topic="x"), operations.Trace("a", group="x"))
    assert refusals(refused) == ["TOPIC_NOT_FOUND", "GROUP_NOT_FOUND"]


@pytest.mark.parametrize("steps", [1, 3, 1000])
def test_a_trace_in_pieces_finds_what_one_would(rig: Rig, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    monkeypatch.setattr(trace, "STEPS", steps)
    monkeypatch.setattr(trace, "ROWS_MAX", steps)
    monkeypatch.setattr(trace, "ROWS_AT_ONCE", 2)
    rig.do(ask.CreateTopic("d", 1, False, 3 * DAY, type="DELAY"))
    for name in ("t", "u", "v"):
        rig.topic(name)
        for number in range(4):
            rig.send(f"{name}{number}", topic=name)
            rig.send("a", topic=name)
    for number in range(5):
        rig.do(later("a" if number % 2 else "b", delay_ms=HOUR + number))
        rig.do(later("a" if number % 2 else "b", transaction=True))
    assert len(traced(rig, "a")) == 12 + 2 + 2
    assert len(why(rig, "a")) == 16


def test_a_why_changes_nothing(rig: Rig) -> None:
    rig.pair()
    died(rig, "a")
    rig.send("b")
    rig.pop()
    before = {name: rig.read(name) for name in ("hist", "ck", "due", "rq", "gone", "stat", "poff", "meta")}
    for text in "ab":
        why(rig, text)
    assert not rig.commit(operations.Trace("a"), operations.WhyPiece("b", tuple(traced(rig, "b")))).wrote
    assert {name: rig.read(name) for name in before} == before
    assert bodies(rig.pop()) == []


def test_an_id_of_ever_more_messages_costs_no_more_than_the_bytes_that_a_piece_reads(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(why_module, "READ_BYTES_MAX", 8_000)
    rig.pair()
    newest, work = [], []
    for count in (40, 360):
        rig.do(ask.Send("t", tuple(message("x" * 1_000, "same") for _ in range(count))))
        found = tuple(traced(rig, "same"))[: in_pieces.SPOTS_MAX]
        answers: list[list[MessageLife]] = []
        work.append(calls(lambda some=found, told=answers: told.append(rig.do(operations.WhyPiece("same", some)))))  # type: ignore[misc]
        newest.append([one.offset for one in answers[0]])
    assert newest == [[*range(39, 31, -1)], [*range(399, 391, -1)]]
    assert work[1] < 1.1 * work[0]
