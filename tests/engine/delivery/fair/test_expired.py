"""Turns by key, and messages whose ttl is over: they take no turn, and are counted once."""

from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.embedded.rules.delivery.deadletter import DEAD_LETTERS_MAX
from popmq_server.embedded.state.space import GROW, Room
from popmq_server.values.message import Extra
from popmq_server.values.outgoing import Outgoing
from popmq_server.values.records import FairKeys
from tests.engine.rig import HOUR, MINUTE, Rig, deliveries, message, refusal
from tests.engine.traffic.traffic_fair import drained, limited, of, opened, send, tenants

TTL = 10 * MINUTE


def mortal(tenant: str, count: int, first: int = 0) -> list[Outgoing]:
    """Messages of a tenant with a ttl."""
    ttl = pb.Message(ttl_ms=TTL).SerializeToString()
    return [one._replace(data=one.data + ttl, extra=Extra(ttl_ms=TTL)) for one in of(tenant, count, first)]


@pytest.mark.parametrize("keeps", [False, True])
def test_expired_messages_of_a_key_are_passed_and_the_others_come(rig: Rig, keeps: bool) -> None:
    opened(rig, queues=2, dead_letter_expired=keeps)
    send(rig, mortal("acme", 30), of("bolt", 5), mortal("cove", 3))
    rig.advance(TTL)
    send(rig, mortal("acme", 2, 30))
    assert sorted(drained(rig)) == sorted([*(f"bolt-{n}" for n in range(5)), "acme-30", "acme-31"])
    numbers = rig.numbers()
    assert (numbers.expired, numbers.dead, numbers.acked, numbers.ready) == (0 if keeps else 33, 33 * keeps, 7, 0)
    assert rig.findings() == []


def test_a_retry_whose_ttl_is_over_is_not_delivered(rig: Rig) -> None:
    opened(rig)
    send(rig, mortal("acme", 1), of("bolt", 1))
    rows = rig.pop(2)
    assert tenants(rows) == ["acme", "bolt"]
    rig.release(rows, delay_ms=0)
    rig.advance(TTL)
    assert tenants(rig.pop(2)) == ["bolt"]
    assert rig.numbers().expired == 1
    assert rig.findings() == []


def test_a_commit_makes_a_bounded_number_of_dead_letters_and_none_is_lost(rig: Rig) -> None:
    opened(rig, queues=1, dead_letter_expired=True)
    count = DEAD_LETTERS_MAX + 70
    send(rig, mortal("acme", count), of("bolt", 3))
    rig.advance(TTL)
    assert sorted(tenants(rig.pop(8))) == ["bolt"] * 3
    rig.settle()
    for _ in range(4):
        rig.pop(8)
    assert rig.numbers().dead == count
    assert rig.findings() == []
    rig.restart()
    assert rig.pop(8) == []
    assert rig.numbers().dead == count
    assert rig.findings() == []


def test_a_dead_letter_that_finds_no_room_stays_where_it_is(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    opened(rig, queues=1, dead_letter_expired=True)
    send(rig, mortal("acme", 2))
    rig.advance(TTL)
    has = Room.has
    with monkeypatch.context() as patched:
        patched.setattr(Room, "has", lambda room, use, *more: use is not GROW and has(room, use, *more))
        popped = rig.popped()
        assert (popped.rows, refusal(popped.refusal)) == ([], "STORAGE_FULL")
        assert (rig.numbers().ready, rig.numbers().dead) == (2, 0)
        assert rig.findings() == []
    assert rig.pop() == []
    assert (rig.numbers().ready, rig.numbers().dead, rig.findings()) == (0, 2, [])


@pytest.mark.parametrize("bound", [{"in_flight_max": 10}, {}])
def test_expired_messages_take_neither_the_bytes_nor_the_leases_of_a_pop(rig: Rig, bound: dict[str, Any]) -> None:
    opened(rig, queues=1, **bound)
    send(rig, mortal("acme", 200), of("acme", 5, 200))
    rig.advance(TTL)
    popped = rig.popped(max_messages=50, max_bytes=5 * 256)
    assert tenants(deliveries(popped)) == ["acme"] * 5
    assert rig.numbers().expired == 200
    assert rig.findings() == []


@pytest.mark.parametrize("first", [of, mortal], ids=["alive", "over"])
def test_a_key_that_waited_for_the_leases_of_expired_messages_gets_each_message_once(rig: Rig, first: Any) -> None:
    """Its queue has no lease left for it until it turns out that the messages of the other keys are over their ttl."""
    opened(rig, queues=1, in_flight_max=2)
    large = message("bolt-1", properties={"tenant": "bolt", "size": "x" * 65_536})
    send(rig, mortal("acme", 1), mortal("cove", 1), first("bolt", 1), [large])
    rig.advance(TTL)
    assert [row.body for row in rig.pop(8)] == ["bolt-0", "bolt-1"][first is mortal :]
    assert rig.numbers().expired == 2 + (first is mortal)
    assert rig.findings() == []


LABELS = FairKeys("property", "tenant", "/", 3)


@pytest.mark.parametrize("fair", [limited(3), LABELS, limited(0, 5)])
def test_expired_messages_count_for_no_limit_of_their_key(rig: Rig, fair: FairKeys) -> None:
    opened(rig, fair, queues=1)
    send(rig, mortal("acme/eu", 40), of("acme/eu", 2, 40), of("bolt/eu", 1))
    rig.advance(TTL)
    assert sorted(tenants(rig.pop(8))) == ["acme/eu", "acme/eu", "bolt/eu"]
    assert rig.numbers().expired == 40
    assert rig.findings() == []


def test_what_retention_dropped_counts_for_no_limit_of_its_key(rig: Rig) -> None:
    rig.topic("t", 1, by_age=True, keep_ms=HOUR)
    rig.group("g", fair_keys=limited(2))
    rig.pop()
    send(rig, of("acme", 30))
    rig.ack(rig.pop(1))  # the others are read ahead
    rig.advance(3 * HOUR)
    send(rig, of("acme", 2, 30))
    assert [row.body for row in rig.pop(8)] == ["acme-30", "acme-31"]
    assert rig.numbers().dropped == 29
    assert rig.findings() == []
