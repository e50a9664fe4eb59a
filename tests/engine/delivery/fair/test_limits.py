"""Limits of fair keys: leased messages, messages a second, exceptions; and what `why` says of them."""

import pytest

from popmq_server.contract import commands as ask
from tests.engine.lives import life
from tests.engine.rig import HOUR, MINUTE, SECOND, Rig
from tests.engine.traffic.traffic_fair import drained, limited, of, opened, send, tenants, update


def test_a_key_has_at_most_its_number_of_leased_messages(rig: Rig) -> None:
    opened(rig, limited(2))
    send(rig, of("acme", 50), of("bolt", 1))
    rows = rig.pop(10)
    assert tenants(rows) == ["acme", "bolt", "acme"]
    assert rig.pop(10) == []
    rig.ack(rows[:1])
    assert tenants(rig.pop(10)) == ["acme"]
    assert rig.findings() == []


def test_leased_messages_count_after_a_start(rig: Rig) -> None:
    opened(rig, limited(3))
    send(rig, of("acme", 50))
    rows = rig.pop(2)
    rig.restart()
    assert len(rig.pop(10)) == 1
    rig.ack(rows)
    assert len(rig.pop(10)) == 2
    assert rig.findings() == []


def test_a_retry_of_a_key_at_its_limit_waits_and_holds_up_no_other_key(rig: Rig) -> None:
    opened(rig, limited(2))
    send(rig, of("acme", 3), of("bolt", 1))
    rows = rig.pop(10)
    assert tenants(rows) == ["acme", "bolt", "acme"]
    rig.release(rows[:2])  # acme-0 and bolt-0
    assert sorted(row.body for row in rig.pop(10)) == ["acme-0", "bolt-0"]
    assert rig.pop(10) == []
    rig.ack(rows[2:])
    assert [row.body for row in rig.pop(10)] == ["acme-2"]


def test_messages_in_backoff_are_not_leased(rig: Rig) -> None:
    opened(rig, limited(1))
    send(rig, of("acme", 2))
    rig.release(rig.pop(1), delay_ms=MINUTE)
    assert [row.body for row in rig.pop(10, invisible_ms=HOUR)] == ["acme-1"]
    assert rig.findings() == []
    rig.restart()
    assert rig.findings() == []
    rig.advance(MINUTE)
    assert [row.body for row in rig.pop(10)] == []


def test_named_keys_have_limits_of_their_own(rig: Rig) -> None:
    opened(rig, limited(1, 0, ("acme", 3, 0), ("cove", 0, 0)))
    send(rig, of("acme", 9), of("bolt", 9), of("cove", 9))
    assert sorted(tenants(rig.pop(30))) == ["acme"] * 3 + ["bolt"] + ["cove"] * 9


def test_a_key_has_at_most_its_messages_a_second(rig: Rig) -> None:
    opened(rig, limited(0, 2))
    send(rig, of("acme", 9), of("bolt", 1))
    assert sorted(tenants(rig.pop(30))) == ["acme", "acme", "bolt"]
    leased = rig.popped(max_messages=30)
    assert not leased.rows
    assert leased.look_ms == rig.now + SECOND // 2
    rig.skip(SECOND // 2)
    assert tenants(rig.pop(30)) == ["acme"]
    rig.skip(10 * SECOND)
    assert tenants(rig.pop(30)) == ["acme", "acme"]
    assert rig.findings() == []


def test_a_higher_limit_applies_at_once(rig: Rig) -> None:
    opened(rig, limited(1))
    send(rig, of("acme", 9))
    rig.pop(9)
    update(rig, limited(4))
    assert len(rig.pop(9)) == 3


def test_messages_that_were_leased_without_a_limit_do_not_count(rig: Rig) -> None:
    opened(rig)
    send(rig, of("acme", 9))
    rows = rig.pop(3)
    update(rig, limited(2))
    assert len(rig.pop(9)) == 2
    rig.ack(rows)
    assert rig.pop(9) == []
    assert rig.findings() == []


def test_the_limit_of_the_group_holds_too(rig: Rig) -> None:
    opened(rig, queues=1, in_flight_max=3)
    send(rig, of("acme", 5), of("bolt", 5))
    rows = rig.pop(10)
    assert len(rows) == 3
    with pytest.raises(Exception, match="3 messages leased in each queue"):
        raise rig.popped(max_messages=10).refusal or AssertionError("no refusal")
    rig.ack(rows)
    assert len(drained(rig, 3)) == 7


def test_why_says_that_a_message_waits_for_its_key(rig: Rig) -> None:
    opened(rig, limited(20), queues=1)
    send(rig, of("acme", 30))
    rig.pop(30)
    assert life(rig, "acme-25").explanation == "not popped yet: it waits: key acme has its 20 in flight"


def test_why_says_that_the_rate_of_a_key_is_used_up(rig: Rig) -> None:
    opened(rig, limited(0, 5), queues=1)
    send(rig, of("acme", 30))
    rig.pop(30)
    assert "key acme has had its 5 messages of this second" in life(rig, "acme-25").explanation


def test_why_says_how_many_messages_of_the_key_wait(rig: Rig) -> None:
    opened(rig, queues=1)
    send(rig, of("acme", 30))
    rig.pop(10)
    assert life(rig, "acme-25").explanation == (
        "not popped yet: it waits for the turn of key acme, which has 20 messages waiting"
    )
    assert life(rig, "acme-5").state == "leased"


def test_the_numbers_of_a_group_name_its_busiest_keys(rig: Rig) -> None:
    opened(rig, limited(2))
    send(rig, of("acme", 30), of("bolt", 5), of("cove", 1))
    rig.pop(3)
    numbers = rig.numbers()
    assert numbers.keys_waiting == 2
    assert [tuple(key) for key in numbers.busiest_keys] == [("acme", 29, 1), ("bolt", 4, 1)]
    assert numbers.ready == 33


def test_a_group_without_fair_keys_has_no_numbers_of_keys(rig: Rig) -> None:
    rig.pair()
    assert rig.numbers().keys_waiting is None
    assert rig.do(ask.queries.Groups("t", "g"))[0].busiest_keys == ()
