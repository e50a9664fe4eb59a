"""Turns by fair key: who is next, with labels, retries, priorities, large messages, limits of a batch."""

from collections import Counter

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.operations import PeekPiece, ReadAhead
from popmq_server.values.message import Extra
from popmq_server.values.records import FairKeys
from tests.engine.rig import MINUTE, Rig, message
from tests.engine.traffic.traffic_fair import TENANTS, drained, limited, of, opened, send, tenants, update


def test_each_key_gets_one_message_in_turn(rig: Rig) -> None:
    opened(rig)
    send(rig, of("acme", 50))
    send(rig, of("bolt", 3))
    send(rig, of("cove", 2))
    rows = rig.pop(9)
    assert [row.body for row in rows] == [
        *("acme-0", "bolt-0", "cove-0", "acme-1", "bolt-1", "cove-1", "acme-2", "bolt-2", "acme-3"),
    ]
    assert rig.findings() == []


def test_a_key_that_comes_behind_a_long_backlog_is_next(rig: Rig) -> None:
    opened(rig)
    send(rig, of("acme", 5000))
    rig.ack(rig.pop(1))
    send(rig, of("bolt", 1))
    while rig.do(ReadAhead("t", "g")):
        pass
    assert "bolt" in tenants(rig.pop(2))


def test_turns_go_on_in_the_next_pop(rig: Rig) -> None:
    opened(rig)
    send(rig, *(of(tenant, 10) for tenant in ("acme", "bolt", "cove")))
    assert tenants(rig.pop(2)) == ["acme", "bolt"]
    assert tenants(rig.pop(2)) == ["cove", "acme"]


def test_what_is_taken_out_of_order_comes_once_also_after_a_start(rig: Rig) -> None:
    opened(rig)
    send(rig, of("acme", 500), of("bolt", 20))
    first = [row.body for row in rig.pop(30)]
    rig.restart()
    assert rig.findings() == []
    rest = drained(rig, 64)
    assert Counter(first + rest) == Counter([f"acme-{n}" for n in range(500)] + [f"bolt-{n}" for n in range(20)])
    assert rig.findings() == []
    assert not rig.read("taken")


def test_rows_of_the_store_are_for_blocks_not_for_messages(rig: Rig) -> None:
    opened(rig, queues=1)
    send(rig, of("acme", 1000), of("bolt", 1000))
    rig.pop(1500)
    assert [len(value) for _, value in rig.read("taken")] == [(1750 + 7) // 8]
    drained(rig, 1000)
    assert rig.read("taken") == []


def test_a_label_has_one_turn_however_many_keys_it_has(rig: Rig) -> None:
    opened(rig, FairKeys("property", "tenant", "/"))
    send(rig, *(of(f"acme/{number}", 3) for number in range(100)), of("bolt/1", 30), of("cove", 30))
    counted = Counter(tenant.split("/")[0] for tenant in tenants(rig.pop(30)))
    assert counted == {"acme": 10, "bolt": 10, "cove": 10}
    assert len({tenant for tenant in tenants(rig.pop(60)) if tenant.startswith("acme")}) == 20


def test_the_first_key_of_a_message_may_be_its_fair_key(rig: Rig) -> None:
    opened(rig, FairKeys("key"))
    entries = [message(f"{key}-{number}", keys=(key, "other")) for key in ("a", "b") for number in range(3)]
    send(rig, entries)
    assert tenants(rig.pop(4)) == ["a", "b", "a", "b"]


def test_messages_without_the_property_share_the_empty_key(rig: Rig) -> None:
    opened(rig)
    send(rig, [message(f"none-{number}") for number in range(5)], of("acme", 5))
    assert tenants(rig.pop(4)) == ["none", "acme", "none", "acme"]


def test_a_large_message_costs_a_turn_for_each_64_kib(rig: Rig) -> None:
    opened(rig, queues=1)
    large = [message("x" * 300_000, f"large-{number}", properties={"tenant": "acme"}) for number in range(4)]
    send(rig, large, of("bolt", 40))
    rows = rig.pop(12, max_bytes=1 << 24)
    counted = Counter("acme" if len(row.body) > 1000 else "bolt" for row in rows)
    assert counted == {"acme": 2, "bolt": 10}  # 300,000 bytes are five turns


def test_a_batch_ends_with_its_bytes_and_the_key_keeps_its_turn(rig: Rig) -> None:
    opened(rig, queues=1)
    some = [
        message("x" * 3000, f"{tenant}{number}", properties={"tenant": tenant}) for tenant in "abc" for number in (1, 2)
    ]
    send(rig, some)
    assert [row.message_id for row in rig.pop(6, max_bytes=7000)] == ["a1", "b1"]
    assert [row.message_id for row in rig.pop(6, max_bytes=1)] == ["c1"]
    assert [row.message_id for row in rig.pop(6)] == ["a2", "b2", "c2"]


def test_retries_of_a_key_take_turns_with_its_messages(rig: Rig) -> None:
    opened(rig)
    send(rig, of("acme", 6), of("bolt", 6))
    rig.release(rig.pop(4))  # two of each
    rows = rig.pop(8)
    assert Counter((tenant, row.attempt) for tenant, row in zip(tenants(rows), rows, strict=True)) == {
        ("acme", 1): 2,
        ("acme", 2): 2,
        ("bolt", 1): 2,
        ("bolt", 2): 2,
    }
    assert rig.findings() == []
    rig.ack(rows)
    assert len(drained(rig)) == 4


def test_an_expired_lease_comes_back_under_its_key(rig: Rig) -> None:
    opened(rig, limited(2))
    send(rig, of("acme", 4))
    assert len(rig.pop(8)) == 2
    rig.advance(MINUTE)
    rows = rig.pop(8)
    assert len(rows) == 2
    assert rig.findings() == []


def test_a_topic_with_priorities_takes_turns_within_the_highest(rig: Rig) -> None:
    rig.do(ask.CreateTopic("t", 3, False, 72 * 3_600_000, "PRIORITY"))
    rig.group("g", fair_keys=TENANTS)
    rig.pop()
    low = [one._replace(extra=Extra(priority=0)) for one in of("acme", 4)]
    high = [one._replace(extra=Extra(priority=2)) for tenant in ("acme", "bolt") for one in of(tenant, 4, 10)]
    send(rig, low, high)
    rows = rig.pop(10)
    assert [row.queue for row in rows] == [2] * 8 + [0] * 2
    assert tenants(rows[:4]) == ["acme", "bolt", "acme", "bolt"]
    rig.ack(rows)
    assert len(drained(rig)) == 2
    assert rig.findings() == []


def test_coalesced_pops_of_one_message_take_turns(rig: Rig) -> None:
    opened(rig)
    send(rig, of("acme", 10), of("bolt", 10))
    leased = rig.run(*(ask.Pop("t", "g", max_messages=1) for _ in range(4)))
    found = [row[0] for one in leased for row in one.rows]
    assert sorted(b"acme" in data for data in found) == [False, False, True, True]
    assert rig.findings() == []


def test_a_peek_shows_the_next_messages_and_changes_no_turn(rig: Rig) -> None:
    opened(rig)
    send(rig, of("acme", 5), of("bolt", 5))
    seen = rig.do(PeekPiece("t", "g", 3, 1 << 20)).rows
    again = rig.do(PeekPiece("t", "g", 3, 1 << 20)).rows
    rows = rig.pop(3)
    assert [row[3] for row in seen] == [row[3] for row in again] == [row.offset for row in rows]


def test_the_dead_letter_topic_is_read_in_its_order(rig: Rig) -> None:
    opened(rig, max_attempts=1)
    send(rig, of("acme", 3), of("bolt", 3))
    rig.reject(rig.pop(6))
    rows = rig.pop(6, topic="%DLQ%g")
    assert len(rows) == 6
    assert [row.offset for row in rows] == list(range(6))
    assert rig.findings() == []


def test_a_group_without_fair_keys_beside_it_reads_all_in_order(rig: Rig) -> None:
    opened(rig, queues=1)
    rig.group("plain")
    rig.pop(group="plain")
    send(rig, of("acme", 5), of("bolt", 5))
    rig.pop(4)
    assert [row.offset for row in rig.pop(32, group="plain")] == list(range(10))


@pytest.mark.parametrize("fair", [None, limited(3), FairKeys("property", "tenant", "/"), FairKeys("key")])
def test_other_settings_lose_and_repeat_nothing(rig: Rig, fair: FairKeys | None) -> None:
    opened(rig)
    send(rig, of("acme", 300), of("bolt", 30), of("cove", 30))
    rows = rig.pop(40)
    update(rig, fair)
    assert rig.findings() == []
    more = rig.pop(7)
    rig.restart()
    assert rig.findings() == []
    rig.ack(rows)
    rig.ack(more)
    update(rig, None)
    rest = drained(rig, 64)
    found = Counter([row.body for row in [*rows, *more]] + rest)
    assert set(found.values()) == {1}
    assert len(found) == 360
    assert rig.findings() == []
    assert rig.read("taken") == []
