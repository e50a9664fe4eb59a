"""The name `*`: all lite topics of a topic, those that exist and those that are created later."""

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.lite import lite_pop
from popmq_server.embedded.state import lite_watch
from popmq_server.errors import Refused
from tests.engine.lites import create, lite_rig, lites, pop, popping, send, sending, sync, wait
from tests.engine.rig import HOUR, MINUTE, Rig, bodies

rig = pytest.fixture(lite_rig)


def test_a_pop_of_all_lite_topics_gets_old_and_new_ones(rig: Rig) -> None:
    send(rig, "ann:1", "bob:1")
    assert sorted(bodies(pop(rig, "*"))) == ["ann:1", "bob:1"]
    send(rig, "zoe:1", "ann:2")
    assert bodies(pop(rig, "*")) == ["zoe:1"]  # ann is locked by the first batch


def test_a_client_may_subscribe_to_all_lite_topics_and_to_none_again(rig: Rig) -> None:
    send(rig, "ann:1")
    assert sync(rig, "c", "ADD", "*").names == 1
    assert bodies(pop(rig, client_id="c")) == ["ann:1"]
    send(rig, "bob:1", "cat:1")
    assert sync(rig, "c", "REPLACE", "*", "cat").names == 2
    assert sync(rig, "c", "REMOVE", "*").names == 1
    assert bodies(pop(rig, client_id="c")) == ["cat:1"]


def test_another_topic_of_the_same_group_is_not_read(rig: Rig) -> None:
    create(rig, "other")
    send(rig, "ann:1", topic="other")
    assert pop(rig, "*") == []
    assert bodies(pop(rig, "*", topic="other")) == ["ann:1"]


def test_a_message_wakes_those_who_wait_for_all_lite_topics(rig: Rig) -> None:
    assert pop(rig, "*") == []
    assert ("g", lite_pop.parked_at(popping("*"))) in rig.commit(sending("dan:1")).woken


def test_lite_topics_that_exist_are_looked_at_in_pieces(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """No commit looks at all of them, and none is left out."""
    monkeypatch.setattr(lite_pop, "SEEN_AT_ONCE", 3)
    names = [f"n{number}" for number in range(10)]
    send(rig, *(f"{name}:1" for name in names))
    rows = pop(rig, *names[:3], max_messages=3)  # the first piece has nothing to give
    answers = [rig.do(popping("*")) for _ in range(4)]
    assert [len(answer.rows) for answer in answers] == [0, 3, 3, 1]
    assert [answer.again for answer in answers] == [True, False, False, False]
    rig.ack(rows)


def test_a_topic_that_was_purged_leaves_nothing_to_look_at(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ready lite topics are looked at in bounded numbers, also where all of them are gone."""
    monkeypatch.setattr(lite_watch, "LOOKS_MAX", 4)
    monkeypatch.setattr(lite_pop, "LOOKS_MAX", 4)
    assert pop(rig, "*") == []
    send(rig, *(f"n{number}:1" for number in range(9)))
    rig.do(ask.PurgeTopic("chat"))
    send(rig, "zoe:1")
    found = list[str]()
    for _ in range(5):
        found += bodies(pop(rig, "*"))
    assert found == ["zoe:1"]


def test_a_group_that_was_created_again_begins_anew(rig: Rig) -> None:
    send(rig, "ann:1")
    assert bodies(pop(rig, "*")) == ["ann:1"]
    rig.do(ask.DeleteGroup("g"))
    rig.group("g")
    assert bodies(pop(rig, "*")) == ["ann:1"]


def test_who_reads_all_lite_topics_keeps_no_idle_one(rig: Rig) -> None:
    send(rig, "ann:1")
    rig.ack(pop(rig, "*"))
    for _ in range(73):
        pop(rig, "*")
        wait(rig, HOUR)
    assert lites(rig) == 0
    send(rig, "ann:2")
    assert bodies(pop(rig, "*")) == ["ann:2"]


def test_a_group_begins_at_the_first_message_of_lite_topics_created_while_it_reads_all(rig: Rig) -> None:
    rig.group("late", start_from="LATEST")
    assert pop(rig, "*", group="late") == []
    send(rig, "ann:1")
    assert bodies(pop(rig, "*", group="late")) == ["ann:1"]


def test_all_lite_topics_are_refused_to_an_exclusive_group_and_with_an_offset(rig: Rig) -> None:
    rig.group("own", lite_exclusive=True)
    for asked, field in (("own", None), "lite_topic"), (("g", ("MIN", 0)), "offset_option"):
        group, start = asked
        with pytest.raises(Refused) as refused:
            rig.do(ask.SyncLite("chat", group, "c", "ADD", ("*",), start))
        assert (refused.value.code, refused.value.field) == ("INVALID_FIELD", field)


def test_a_watch_that_ended_looks_again(rig: Rig) -> None:
    assert pop(rig, "*") == []
    rig.advance(2 * MINUTE)
    send(rig, "ann:1")
    assert bodies(pop(rig, "*")) == ["ann:1"]
