"""Time to live: a message whose ttl is over is dropped or becomes a dead letter, and is never delivered."""

from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.embedded.rules.delivery import pick
from popmq_server.embedded.rules.delivery.deadletter import DEAD_LETTERS_MAX
from popmq_server.embedded.state.space import GROW, Room
from popmq_server.values import fields
from popmq_server.values.message import Extra
from popmq_server.values.outgoing import Outgoing, hash8
from tests.engine.dead_letters import all_again
from tests.engine.lives import has, state, story
from tests.engine.pull_steps import pull, texts
from tests.engine.rig import HOUR, MINUTE, SECOND, Rig, bodies, numbered, parsed, refusal
from tests.engine.traffic.traffic_fifo import fifo_pair

TTL = 10 * MINUTE


def mortal(text: str, ttl_ms: int = TTL, **extra: Any) -> Outgoing:
    """What the api makes of a message with a ttl. `extra`: other options, as in Extra."""
    given = Extra(ttl_ms=ttl_ms, **extra)
    made = pb.Message(
        message_id=text,
        body=text.encode(),
        ttl_ms=ttl_ms,
        message_group=given.message_group,
        lite_topic=given.lite_topic,
        delay_ms=given.delay_ms,
    )
    return Outgoing(made.SerializeToString(), bytes(8), (hash8(text),), text, given if any(given) else None)


def send(rig: Rig, *messages: Outgoing, topic: str = "t") -> ask.Sent:
    sent: ask.Sent = rig.do(ask.Send(topic, messages))
    return sent


# ── Queues and retries ───────────────────────────────────────────────────────────────────────────────────────────────


def test_an_expired_message_is_dropped_and_counted_and_the_others_come(rig: Rig) -> None:
    rig.pair()
    send(rig, mortal("a"), mortal("b", 0), mortal("c", TTL + 1))
    rig.advance(TTL)
    assert bodies(rig.pop()) == ["b", "c"]
    numbers = rig.numbers()
    assert (numbers.expired, numbers.dropped, numbers.dead, numbers.in_flight, numbers.ready) == (1, 0, 0, 2, 0)
    assert rig.findings() == []


def test_a_message_is_delivered_until_the_last_millisecond_of_its_ttl(rig: Rig) -> None:
    rig.pair()
    send(rig, mortal("a"))
    rig.advance(TTL - 1)
    assert bodies(rig.pop()) == ["a"]


def test_a_lease_goes_on_when_the_ttl_ends_and_its_ack_is_an_ack(rig: Rig) -> None:
    rig.pair()
    send(rig, mortal("a", SECOND))
    rows = rig.pop()
    rig.advance(2 * SECOND)
    assert rig.ack(rows) == [None]
    assert (rig.numbers().acked, rig.numbers().expired) == (1, 0)


@pytest.mark.parametrize("delay_ms", [0, MINUTE])
def test_a_retry_of_an_expired_message_expires(rig: Rig, delay_ms: int) -> None:
    rig.pair()
    send(rig, mortal("a", SECOND), mortal("b", 0))
    rig.release(rig.pop(), delay_ms=delay_ms)
    rig.advance(MINUTE)
    assert bodies(rig.pop()) == ["b"]
    assert (rig.numbers().expired, rig.numbers().retry, rig.findings()) == (1, 0, [])


def test_a_lease_that_runs_out_after_the_ttl_is_the_last_delivery(rig: Rig) -> None:
    rig.pair()
    send(rig, mortal("a", SECOND))
    rig.pop()
    rig.advance(MINUTE)
    assert (rig.pop(), rig.numbers().expired) == ([], 1)


def test_the_ttl_of_a_delayed_message_begins_when_it_becomes_visible(rig: Rig) -> None:
    rig.do(ask.CreateTopic("t", 1, False, 72 * HOUR, "DELAY"))
    rig.group()
    rig.pop()
    send(rig, mortal("a", delay_ms=HOUR))
    rig.advance(HOUR)
    rig.advance(TTL - 1)
    (row,) = rig.pop()
    rig.release([row], delay_ms=0)
    rig.advance(1)
    assert (rig.pop(), rig.numbers().expired) == ([], 1)


def test_a_message_that_does_not_match_the_filter_is_filtered_and_does_not_expire(rig: Rig) -> None:
    rig.pair()
    rig.do(ask.SetFilter("t", "g", ("tag", "red")))
    send(rig, mortal("a"))
    rig.advance(TTL)
    assert rig.pop() == []
    assert (rig.numbers().filtered, rig.numbers().expired) == (1, 0)


def test_each_group_passes_an_expired_message_by_itself(rig: Rig) -> None:
    rig.pair()
    rig.group("late")
    send(rig, mortal("a"))
    assert bodies(rig.pop()) == ["a"]
    rig.advance(TTL)
    assert rig.pop(group="late") == []
    assert (rig.numbers().expired, rig.numbers("late").expired) == (0, 1)


def test_a_topic_looks_for_a_ttl_only_once_it_was_sent_one(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    ended_ms = fields.ended_ms

    def counted(data: bytes, stored_ms: int) -> int:
        nonlocal looks
        looks += 1
        return ended_ms(data, stored_ms)

    monkeypatch.setattr(fields, "ended_ms", counted)
    rig.pair()
    rig.send("a", "b")
    rig.release(rig.pop(), delay_ms=0)
    rig.pop()
    assert looks == 0
    send(rig, mortal("c"))
    rig.crash()
    assert bodies(rig.pop()) == ["c"]
    assert looks == 1


def test_a_pop_passes_over_a_bounded_number_and_goes_on_after_other_commands(rig: Rig) -> None:
    rig.pair()
    for start in range(0, 2500, 500):
        send(rig, *(mortal(f"m{number}", SECOND) for number in range(start, start + 500)))
    rig.send("last")
    rig.advance(SECOND)
    popped = rig.popped(max_messages=1)
    assert (popped.rows, popped.again, rig.numbers().expired) == ([], True, pick.REJECTIONS_MAX)
    assert rig.popped(max_messages=1).again
    assert bodies(rig.pop()) == ["last"]
    assert (rig.numbers().expired, rig.findings()) == (2500, [])


def test_numbers_of_what_expired_survive_a_restart(rig: Rig) -> None:
    rig.pair()
    send(rig, mortal("a"))
    rig.advance(TTL)
    rig.pop()
    rig.restart()
    assert (rig.numbers().expired, rig.findings()) == (1, [])


def test_a_purged_topic_still_looks_for_the_ttl_of_its_messages(rig: Rig) -> None:
    rig.pair()
    send(rig, mortal("a"))
    rig.advance(TTL)
    rig.pop()
    rig.do(ask.PurgeTopic("t"))
    rig.settle()
    send(rig, mortal("b"))
    rig.advance(TTL)
    assert (rig.pop(), rig.numbers().expired, rig.findings()) == ([], 2, [])


# ── Dead letters ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_group_may_keep_expired_messages_as_dead_letters(rig: Rig) -> None:
    rig.pair(dead_letter_expired=True)
    send(rig, mortal("a"), mortal("b"))
    rig.release(rig.pop(1), delay_ms=0)
    rig.advance(TTL)
    assert rig.pop() == []
    numbers = rig.numbers()
    assert (numbers.dead, numbers.expired, numbers.retry, numbers.ready) == (2, 0, 0, 0)
    letters = {letter.message_id: letter.dead_letter for letter in rig.dead()}
    assert {name: (one.reason, one.attempts) for name, one in letters.items()} == {
        "a": ("expired", 1),
        "b": ("expired", 0),
    }
    assert rig.findings() == []


def test_a_redriven_message_has_its_whole_ttl_again(rig: Rig) -> None:
    rig.pair(dead_letter_expired=True)
    send(rig, mortal("a"))
    rig.advance(TTL)
    rig.pop()
    assert all_again(rig) == []
    rig.advance(TTL - 1)
    (row,) = rig.pop()
    rig.release([row], delay_ms=0)
    rig.advance(1)
    assert (rig.pop(), len(rig.dead())) == ([], 1)
    assert rig.findings() == []


def test_a_dead_letter_topic_delivers_its_messages_whatever_their_ttl(rig: Rig) -> None:
    rig.pair(dead_letter_expired=True)
    rig.group("undertaker")
    send(rig, mortal("a", SECOND))
    rig.advance(SECOND)
    rig.pop()
    rig.advance(HOUR)
    assert bodies(rig.pop(topic="%DLQ%g", group="undertaker")) == ["a"]


def test_a_commit_makes_a_bounded_number_of_dead_letters_and_the_rest_follow(rig: Rig) -> None:
    rig.pair(dead_letter_expired=True)
    send(rig, *(mortal(text, SECOND) for text in numbered("m", DEAD_LETTERS_MAX + 3)))
    rig.advance(SECOND)
    popped = rig.popped()
    assert (popped.rows, popped.again, rig.numbers().dead) == ([], True, DEAD_LETTERS_MAX)
    assert rig.pop() == []
    assert (rig.numbers().dead, rig.findings()) == (DEAD_LETTERS_MAX + 3, [])


@pytest.mark.parametrize("kind", ["NORMAL", "FIFO", "LITE"])
def test_a_dead_letter_that_finds_no_room_stops_the_pop_with_the_reason(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    options = {"NORMAL": {}, "FIFO": {"message_group": "a"}, "LITE": {"lite_topic": "ann"}}[kind]
    lites: dict[str, Any] = {"lite_topics_max": 10, "lite_ttl_ms": HOUR} if kind == "LITE" else {}
    asked: dict[str, Any] = {"lite": ("ann",)} if kind == "LITE" else {}
    rig.do(ask.CreateTopic("t", 1, False, 72 * HOUR, kind, **lites))
    rig.group(dead_letter_expired=True)
    before = [mortal("a", 0, **options)] if kind != "LITE" else []
    send(rig, *before, mortal("b", SECOND, **options))
    rig.advance(SECOND)
    has = Room.has
    with monkeypatch.context() as patched:
        patched.setattr(Room, "has", lambda room, use, *more: use is not GROW and has(room, use, *more))
        if before:
            assert rig.ack(rig.pop()) == [None], "what is before it comes"
        popped = rig.popped(**asked)
        assert (popped.rows, popped.again, refusal(popped.refusal)) == ([], False, "STORAGE_FULL")
        assert (rig.numbers().ready + rig.numbers().waiting, rig.numbers().dead) == (1, 0)
    assert rig.pop(**asked) == []
    assert (rig.numbers().dead, rig.findings()) == (1, [])


# ── FIFO, lite topics ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("keeps", [False, True])
def test_expired_messages_of_a_message_group_make_way_for_those_after_them(rig: Rig, keeps: bool) -> None:
    fifo_pair(rig, dead_letter_expired=keeps)
    send(rig, mortal("a1", message_group="a"), mortal("a2", SECOND, message_group="a"))
    send(rig, mortal("a3", 0, message_group="a"), mortal("b1", SECOND, message_group="b"))
    rig.pop(1)
    assert bodies(rig.pop()) == ["b1"]
    rig.advance(MINUTE)
    assert bodies(rig.pop()) == ["a1", "a3"]
    numbers = rig.numbers()
    assert (numbers.expired, numbers.dead, numbers.waiting) == ((0, 2, 0) if keeps else (2, 0, 0))
    assert rig.findings() == []


def test_messages_of_a_lite_topic_expire_and_are_counted_in_their_topic(rig: Rig) -> None:
    rig.do(ask.CreateTopic("t", 1, False, 72 * HOUR, "LITE", lite_topics_max=10, lite_ttl_ms=HOUR))
    rig.group()
    send(rig, mortal("a", lite_topic="ann"), mortal("b", 0, lite_topic="ann"))
    rig.advance(TTL)
    assert bodies(rig.pop(lite=("ann",))) == ["b"]
    assert (rig.numbers().expired, rig.findings()) == (1, [])


# ── Readers without a lease ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_pull_examines_expired_messages_and_does_not_deliver_them(rig: Rig) -> None:
    rig.topic()
    send(rig, mortal("a"), mortal("b", 0), mortal("c"))
    rig.advance(TTL)
    found = pull(rig, group="")
    assert (found.status, texts(found), found.next_offset) == ("FOUND", ["b"], 3)
    assert pull(rig, 2, group="").status == "NO_MATCHED_MESSAGE"


def test_a_peek_shows_what_the_next_pop_would_deliver_and_expires_nothing(rig: Rig) -> None:
    rig.pair(dead_letter_expired=True)
    send(rig, mortal("a"), mortal("b", 0))
    rig.advance(TTL)
    asked = operations.PeekPiece("t", "g", 10, 1 << 20, None)
    assert [parsed(row[0]).body for row in rig.look(asked).rows] == [b"b"]
    assert (rig.numbers().dead, rig.numbers().ready) == (0, 2)


# ── Why ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_why_says_that_a_message_expired_before_and_after_a_pop_comes_to_it(rig: Rig) -> None:
    rig.pair()
    send(rig, mortal("a"))
    assert state(rig) == "ready"
    rig.advance(TTL)
    assert state(rig) == "expired"
    has(rig, "its ttl was over at", "the next Pop that comes to it drops it")
    rig.pop()
    assert state(rig) == "expired"
    has(rig, "before a consumer of the group had it")


def test_why_tells_an_acked_message_from_one_that_expired(rig: Rig) -> None:
    rig.pair()
    send(rig, mortal("a"))
    rig.ack(rig.pop())
    rig.advance(TTL)
    assert (state(rig), story(rig)) == ("acked", ["sent", "popped", "acked"])


def test_why_shows_the_dead_letter_of_an_expired_message(rig: Rig) -> None:
    rig.pair(dead_letter_expired=True)
    send(rig, mortal("a"))
    rig.advance(TTL)
    has(rig, "makes it a dead letter")
    rig.pop()
    assert (state(rig), story(rig)) == ("dead", ["sent", "dead"])
    has(rig, "expired", "popmq dlq redrive g --offset 0")
