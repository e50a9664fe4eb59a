"""The quota of messages in flight: a group that holds as many gets no more until some are settled."""

from typing import Any

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.delivery.pop import IN_FLIGHT_RETRY_MS
from popmq_server.errors import Refused
from tests.engine.rig import Rig, bodies
from tests.engine.traffic.traffic import group


def in_flight(rig: Rig, **asked: Any) -> Refused | None:
    popped = rig.popped(**asked)
    assert popped.rows == []
    assert popped.quota_ms == 0
    return popped.refusal


def test_a_pop_is_refused_when_every_queue_with_messages_is_at_its_limit(rig: Rig) -> None:
    rig.pair(2, in_flight_max=2)
    for text in "abcdefgh":
        rig.send(text)
    assert len(rig.pop()) == 4
    full = in_flight(rig)
    assert full is not None
    assert (full.code, full.field, full.retry_after_ms) == ("IN_FLIGHT_LIMIT", "group", IN_FLIGHT_RETRY_MS)
    assert full.message == "group 'g' has 2 messages leased in each queue of topic 't' that has unread messages"


def test_a_queue_at_its_limit_without_more_messages_is_only_empty(rig: Rig) -> None:
    rig.pair(in_flight_max=2)
    rig.send("a", "b")
    rig.pop()
    assert in_flight(rig) is None


def test_a_queue_with_messages_and_room_is_no_reason_to_refuse(rig: Rig) -> None:
    rig.pair(2, in_flight_max=1)
    for text in "abcd":
        rig.send(text)
    rows = rig.pop()
    assert in_flight(rig) is not None
    assert in_flight(rig, queues=(0,)) is not None
    rig.ack(rows[:1])
    assert len(rig.pop()) == 1


def test_the_retry_topic_counts_as_a_queue_of_its_own(rig: Rig) -> None:
    rig.pair(in_flight_max=2)
    rig.send("a", "b")
    rig.release(rig.pop(), delay_ms=0)
    rig.send("c", "d")
    rig.release(rig.pop(2), delay_ms=0)
    while rig.pop():
        pass
    assert (rig.numbers().ready, rig.numbers().retry, rig.numbers().in_flight) == (0, 2, 2)
    refusal = in_flight(rig)
    assert refusal is not None
    assert refusal.code == "IN_FLIGHT_LIMIT"


def test_a_higher_limit_applies_at_once_and_wakes_parked_pops(rig: Rig) -> None:
    rig.pair(in_flight_max=1)
    rig.send("a", "b")
    rig.pop()
    settings = rig.core.state.groups[rig.core.state.ids[("g", "g")]]._asdict()
    changes = {name: settings[name] for name in vars(group("g", 1))} | {"in_flight_max": 2}
    assert ("g", "t") in rig.commit(ask.UpdateGroup("g", changes)).woken
    assert bodies(rig.pop()) == ["b"]
