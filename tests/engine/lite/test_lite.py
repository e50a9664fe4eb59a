"""Lite topics: small ordered topics under one name, made by their first message."""

from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.embedded import operations
from popmq_server.errors import Refused
from tests.engine.lites import create, lite_rig, lites, note, pop, popping, send, sync, wait
from tests.engine.rig import DAY, HOUR, MINUTE, SECOND, Rig, bodies, deliveries, refusal, refusals

rig = pytest.fixture(lite_rig)


def test_the_first_message_makes_a_lite_topic_and_each_has_offsets_of_its_own(rig: Rig) -> None:
    sent = send(rig, "ann:1", "bob:1", "ann:2")
    assert [place.offset for place in sent.places or () if isinstance(place, ask.Place)] == [0, 0, 1]
    assert lites(rig) == 2
    found = rig.look(queries.Topics("chat"))[0]
    assert found.messages == 3
    assert [row.topic.name for row in rig.look(queries.Topics())] == ["%DLQ%g", "chat"]


def test_a_lite_topic_is_known_again_after_a_restart(rig: Rig) -> None:
    send(rig, "ann:1")
    rig.crash()
    assert [place.offset for place in send(rig, "ann:2").places or () if isinstance(place, ask.Place)] == [1]
    assert bodies(pop(rig, "ann")) == ["ann:1", "ann:2"]


@pytest.mark.parametrize("extra", [{"message_group": "x"}, {"delay_ms": 5}, {"priority": 1}, {"transaction": True}])
def test_a_lite_topic_takes_nothing_that_asks_for_another_way(rig: Rig, extra: dict[str, Any]) -> None:
    sent = rig.do(ask.Send("chat", (note("ann:1", **extra), note("ann:2"))))
    assert refusals(sent.places) == ["INVALID_FIELD", ""]
    assert bodies(pop(rig, "ann")) == ["ann:2"]


def test_messages_need_a_lite_topic_there_and_have_none_elsewhere(rig: Rig) -> None:
    rig.topic("plain")
    sent = rig.do(ask.Send("plain", (note("ann:1"),)))
    assert [place.field for place in sent.places] == ["type"]
    bare = ask.Send("chat", (note("x")._replace(extra=None),))
    assert [place.field for place in rig.do(bare).places] == ["lite_topic"]


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "x" * 65])
def test_names_of_lite_topics_are_short_words(rig: Rig, name: str) -> None:
    sent = rig.do(ask.Send("chat", (note(f"{name}:1"),)))
    assert [(place.code, place.field) for place in sent.places] == [("INVALID_FIELD", "lite_topic")]
    with pytest.raises(Refused):
        sync(rig, "c", "ADD", name)


def test_the_number_of_lite_topics_is_bounded_and_existing_ones_go_on(rig: Rig) -> None:
    create(rig, "few", lite_topics_max=2)
    sent = send(rig, "a:1", "b:1", "c:1", "a:2", topic="few")
    assert refusals(sent.places or ()) == ["", "", "LITE_TOPIC_QUOTA", ""]
    assert refusals(send(rig, "b:2", "d:1", topic="few").places or ()) == ["", "LITE_TOPIC_QUOTA"]
    assert lites(rig, "few") == 2


def test_the_limit_of_bytes_counts_for_all_together(rig: Rig) -> None:
    create(rig, "small", bytes_max=1 << 20)
    rig.group("keeps")
    big = "x" * 300_000
    for name in "abc":
        send(rig, f"{name}:{big}", topic="small")
        rig.do(popping(name, topic="small", group="keeps", invisible_ms=HOUR))
    with pytest.raises(Refused) as refused:
        send(rig, f"d:{big}", topic="small")
    assert refused.value.code == "STORAGE_FULL"
    rig.ack(pop(rig, "b", topic="small"))
    rig.do(ask.DeleteGroup("keeps"))
    rig.settle()
    send(rig, f"d:{big}", topic="small")
    assert [row.body[0] for row in pop(rig, *"abcd", topic="small")] == ["c", "d"]


def test_a_pop_gets_only_messages_of_the_lite_topics_that_it_names_in_order(rig: Rig) -> None:
    send(rig, "ann:1", "bob:1", "ann:2", "zoe:1")
    rows = pop(rig, "ann", "bob")
    assert sorted(bodies(rows)) == ["ann:1", "ann:2", "bob:1"]
    assert [row.body for row in rows if row.body.startswith("ann")] == ["ann:1", "ann:2"]
    assert rig.ack(rows) == [None] * 3
    assert pop(rig, "ann", "bob") == []


def test_the_next_messages_of_a_lite_topic_wait_until_those_before_are_acked(rig: Rig) -> None:
    send(rig, "ann:1", "ann:2", "bob:1")
    first = pop(rig, "ann", max_messages=1)
    assert bodies(first) == ["ann:1"]
    send(rig, "ann:3")
    assert bodies(pop(rig, "ann", "bob")) == ["bob:1"]
    rig.ack(first)
    assert bodies(pop(rig, "ann", "bob")) == ["ann:2", "ann:3"]


def test_groups_do_not_hinder_each_other(rig: Rig) -> None:
    rig.group("other")
    send(rig, "ann:1")
    assert bodies(pop(rig, "ann")) == bodies(pop(rig, "ann", group="other")) == ["ann:1"]


def test_a_lease_that_ends_brings_the_messages_back_in_their_order(rig: Rig) -> None:
    send(rig, "ann:1", "ann:2")
    pop(rig, "ann")
    send(rig, "ann:3")
    assert pop(rig, "ann") == []
    rig.advance(MINUTE)
    rows = pop(rig, "ann")
    assert [(row.body, row.attempt) for row in rows] == [("ann:1", 2), ("ann:2", 1), ("ann:3", 1)]


def test_a_released_message_holds_its_lite_topic_back_and_no_other(rig: Rig) -> None:
    send(rig, "ann:1", "ann:2", "bob:1")
    rows = pop(rig, "ann", max_messages=1)
    rig.release(rows, delay_ms=10 * SECOND)
    assert bodies(pop(rig, "ann", "bob")) == ["bob:1"]
    rig.advance(10 * SECOND)
    assert bodies(pop(rig, "ann")) == ["ann:1", "ann:2"]


def test_a_hot_lite_topic_leaves_room_in_a_batch(rig: Rig) -> None:
    send(rig, *(f"hot:{number}" for number in range(100)), "ann:1", "bob:1")
    rows = pop(rig, "hot", "ann", "bob", max_messages=9)
    assert {"ann:1", "bob:1"} <= set(bodies(rows))
    assert bodies(rows)[:3] == ["hot:0", "hot:1", "hot:2"]


def test_the_bound_of_bytes_is_that_of_the_answer_and_one_message_is_always_allowed(rig: Rig) -> None:
    send(rig, *(f"{name}:{'x' * 1000}" for name in "abcd"))
    assert len(pop(rig, *"abcd", max_bytes=2500)) == 2
    assert len(pop(rig, *"abcd", max_bytes=10)) == 1


def test_an_attempt_gets_the_same_undone_messages_of_all_its_lite_topics(rig: Rig) -> None:
    send(rig, "ann:1", "bob:1", "bob:2")
    tried = {"client_id": "c", "attempt_id": "a1"}
    rows = pop(rig, "ann", "bob", **tried)
    rig.ack([row for row in rows if row.body == "bob:1"])
    for _ in range(2):
        again = rig.do(popping("ann", "bob", **tried))
        assert again.replay
        assert [row.body for part in again.leases for row in deliveries(part)] == ["ann:1", "bob:2"]
        rig.crash()
    assert pop(rig, "ann", "bob", client_id="c", attempt_id="a2") == []


def test_a_topic_of_another_type_has_no_lite_topics_and_a_lite_topic_nothing_else(rig: Rig) -> None:
    rig.topic("t")
    results = rig.run(popping("x", topic="t"), ask.Pop("chat", "g"), operations.PeekPiece("chat", "g", 1, 100, None))
    assert refusals(results) == ["INVALID_FIELD"] * 3
    others: list[Any] = [
        ask.Pull("chat", "g", 0, 0),
        ask.AttachOwner("g", "o", MINUTE, "chat"),
        ask.SetConsumeMode("chat", "g", "PULL"),
        ask.ResetOffsets("chat", "g", ("LATEST", 0)),
        ask.SetFilter("chat", "g", ("tag", "a")),
    ]
    assert refusals(rig.run(*others)) == ["INVALID_FIELD"] * len(others)
    assert refusals(rig.run(popping("x", queues=(0,)), popping("x", filter=("tag", "a")))) == ["INVALID_FIELD"] * 2


def test_the_quota_of_pops_is_that_of_the_topic(rig: Rig) -> None:
    create(rig, "slow", pop_messages_per_s=2)
    send(rig, "a:1", "b:1", "c:1", topic="slow")
    assert len(pop(rig, "a", "b", "c", topic="slow")) == 2
    answer = rig.do(popping("a", "b", "c", topic="slow"))
    assert refusal(answer.refusal) == "RATE_LIMITED"
    assert answer.quota_ms > rig.now
    rig.advance(SECOND)
    assert len(pop(rig, "a", "b", "c", topic="slow")) == 1


def test_a_dead_letter_of_a_lite_topic_names_its_topic_and_its_lite_topic(rig: Rig) -> None:
    send(rig, "ann:1", "ann:2")
    rig.reject(pop(rig, "ann", max_messages=1), "no good")
    letter = rig.dead()[0]
    assert (letter.dead_letter.topic, letter.lite_topic, letter.dead_letter.reason) == ("chat", "ann", "no good")
    assert bodies(pop(rig, "ann")) == ["ann:2"]
    assert rig.numbers(topic="chat").dead == 1


def test_the_last_attempt_ends_in_the_dead_letter_topic(rig: Rig) -> None:
    rig.group("once", max_attempts=1)
    send(rig, "ann:1", "ann:2")
    pop(rig, "ann", group="once")
    rig.advance(MINUTE)
    assert [letter.body for letter in rig.dead("once")] == [b"ann:1"]
    assert bodies(pop(rig, "ann", group="once")) == ["ann:2"]


def test_a_redriven_dead_letter_comes_again_in_its_lite_topic(rig: Rig) -> None:
    send(rig, "ann:1", "ann:2")
    rig.reject(pop(rig, "ann", max_messages=1))
    rig.advance(SECOND)
    done = rig.do(operations.RedrivePiece("g", offsets=(0,)))
    assert (done.topics, done.failures) == ({"chat": 1}, [])
    assert bodies(pop(rig, "ann")) == ["ann:1", "ann:2"]


def test_a_dead_letter_whose_lite_topic_was_removed_stays(rig: Rig) -> None:
    send(rig, "ann:1")
    rig.reject(pop(rig, "ann"))
    wait(rig, 3 * DAY)
    assert lites(rig) == 0
    done = rig.do(operations.RedrivePiece("g", offsets=(0,)))
    assert [failure.why.code for failure in done.failures] == ["TOPIC_NOT_FOUND"]
    assert len(rig.dead()) == 1


def test_a_stopped_lite_topic_goes_on_when_it_is_resumed(rig: Rig) -> None:
    rig.group("stops", max_attempts=1, stop_on_failure=True)
    send(rig, "ann:1", "ann:2", "bob:1")
    rig.release(pop(rig, "ann", group="stops"), group="stops", delay_ms=0, reason="broken")
    assert bodies(pop(rig, "ann", "bob", group="stops")) == ["bob:1"]
    rows = rig.look(queries.MessageGroups("chat", "stops", True, rows_max=10))
    assert [(row.name, row.reason) for row in rows] == [("ann", "broken")]
    assert rig.numbers("stops", "chat").stopped == 1
    rig.do(ask.ResumeMessageGroup("chat", "stops", "ann"))
    assert bodies(pop(rig, "ann", group="stops")) == ["ann:1", "ann:2"]
