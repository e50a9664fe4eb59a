"""A long backlog that is not read yet: what is sent meanwhile has its turns, and each message comes once, in order."""

from collections import Counter

import pytest

from popmq_server.embedded.operations import ReadAhead
from popmq_server.embedded.rules.delivery.fair import fair_pick, reading
from popmq_server.embedded.rules.delivery.fair import index as indexes
from popmq_server.embedded.rules.delivery.fair.index import FairIndex
from tests.engine.rig import Rig, deliveries, message
from tests.engine.traffic.traffic_fair import drained, limited, of, opened, send, tenants

BACKLOG = 400


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pieces so small that a backlog of 400 messages is long."""
    monkeypatch.setattr(fair_pick, "AHEAD_OF_POP", 20)
    monkeypatch.setattr(reading, "PIECE", 16)
    monkeypatch.setattr(reading, "LONG_BACKLOG", 100)
    monkeypatch.setattr(reading, "FRESH_WINDOW", 8)
    monkeypatch.setattr(reading, "FRESH_OF_KEY", 5)
    monkeypatch.setattr(reading, "_SPAN", 4)


def index_of(rig: Rig) -> FairIndex:
    (index,) = rig.core.state.fair_indexes.values()
    assert isinstance(index, FairIndex)
    return index


def unread(rig: Rig, queues: int) -> int:
    """How many messages of the backlog were not read yet."""
    return sum(rig.core.state.queue_max.values()) - sum(index_of(rig).scanned[queue] for queue in range(queues))


@pytest.mark.parametrize("queues", [1, 3])
def test_a_key_that_comes_behind_a_backlog_is_next_before_the_backlog_is_read(rig: Rig, queues: int) -> None:
    opened(rig, queues=queues)
    send(rig, of("acme", BACKLOG))
    rig.pop(1)
    rig.do(ReadAhead("t", "g"))
    send(rig, of("bolt", 1))
    assert "bolt" in tenants(rig.pop(2))
    assert unread(rig, queues) > BACKLOG // 2
    assert rig.findings() == []


def test_queues_that_get_much_do_not_keep_the_others_from_being_read(rig: Rig) -> None:
    opened(rig, queues=8)
    for _ in range(8):
        send(rig, of("acme", BACKLOG // 4))  # each to the next queue
    rig.pop(1)
    rig.do(ReadAhead("t", "g"))
    for _ in range(7):
        send(rig, of("acme", BACKLOG // 4))
    send(rig, of("bolt", 1))
    for _ in range(4):  # two queues in each
        rig.do(ReadAhead("t", "g"))
    assert "bolt" in tenants(rig.pop(2))
    scanned = index_of(rig).scanned
    assert max(scanned.values()) - min(scanned.values()) <= 4


def test_so_is_one_whose_messages_were_the_last_before_a_start(rig: Rig) -> None:
    opened(rig)
    send(rig, of("acme", BACKLOG), of("bolt", 1))
    rig.pop(2)
    rig.restart()
    rig.pop(1)
    rig.do(ReadAhead("t", "g"))
    assert "bolt" in tenants(rig.pop(2))
    assert unread(rig, 3) > BACKLOG // 2


def test_pops_leave_the_backlog_to_other_pieces(rig: Rig) -> None:
    opened(rig, queues=1)
    send(rig, of("acme", BACKLOG))
    for _ in range(3):
        rig.pop(1)
        rig.do(ReadAhead("t", "g"))
    before = unread(rig, 1)
    assert len(rig.pop(8)) == 8
    assert unread(rig, 1) == before


def test_a_pop_reads_the_backlog_if_no_key_may_go(rig: Rig) -> None:
    opened(rig, limited(1), queues=1)
    send(rig, of("acme", BACKLOG // 2), of("bolt", 1), of("acme", BACKLOG, BACKLOG))
    assert tenants(rig.pop(4)) == ["acme"]
    found = list[str]()
    for _ in range(BACKLOG):
        if found := tenants(rig.pop(4)):
            break
    assert found == ["bolt"]


def test_a_pop_reads_the_backlog_if_the_next_message_of_each_key_waits_for_its_queue(rig: Rig) -> None:
    opened(rig, queues=2, in_flight_max=1)
    send(rig, of("acme", BACKLOG))
    send(rig, of("acme", BACKLOG // 2), of("bolt", 1), of("acme", BACKLOG // 2, BACKLOG))
    assert [(row.queue, row.offset) for row in rig.pop(1)] == [(0, 0)]
    for _ in range(BACKLOG):
        popped = rig.popped(max_messages=1)
        if popped.rows or not popped.again:
            break
    assert tenants(deliveries(popped)) == ["bolt"]


@pytest.mark.parametrize("queues", [1, 3])
def test_each_message_comes_once_and_a_long_key_in_its_order(rig: Rig, queues: int) -> None:
    opened(rig, queues=queues)
    send(rig, of("acme", BACKLOG))
    found, sent = [row.body for row in rig.pop(1)], BACKLOG + 1
    for number in range(60):
        rig.do(ReadAhead("t", "g"))
        send(rig, of("acme", 3, BACKLOG + 3 * number), of(f"tenant{number % 7}", 2, 2 * number))
        sent += 5
        found += [row.body for row in rig.pop(4)]
        if number == 30:
            rig.restart()
    found += drained(rig, 64)
    assert set(Counter(found).values()) == {1}
    assert len(found) == sent - 1
    numbers = [int(body.split("-")[1]) for body in found if body.startswith("acme")]
    assert queues > 1 or numbers == sorted(numbers)
    assert not index_of(rig).fresh
    assert rig.findings() == []


def test_what_does_not_match_at_the_end_is_counted_once(rig: Rig) -> None:
    rig.topic("t", 2)
    rig.group("g", fair_keys=limited())
    rig.pop(filter=("tag", "even"))
    some = [
        message(f"{name}-{n}", tag="even" if n % 2 == 0 else "odd", properties={"tenant": name})
        for name, count in (("acme", BACKLOG), ("bolt", 10))
        for n in range(count)
    ]
    send(rig, some[:BACKLOG])
    rig.pop(1)
    rig.do(ReadAhead("t", "g"))
    send(rig, some[BACKLOG:])
    assert "bolt" in tenants(rig.pop(3))
    drained(rig, 64)
    while rig.pop(64) or rig.numbers().ready:
        pass
    assert (rig.numbers().filtered, rig.findings()) == ((BACKLOG + 10) // 2, [])


def test_a_key_that_comes_while_the_memory_is_full_of_another_has_its_turns(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexes, "MESSAGES_MAX", 100)
    opened(rig, queues=2)
    send(rig, of("acme", BACKLOG))
    rig.pop(1)
    while rig.do(ReadAhead("t", "g")):
        pass
    assert unread(rig, 2) > BACKLOG // 2
    for number in range(20):
        send(rig, of(f"tenant{number}", 1), of("acme", 5, BACKLOG + 5 * number))
        assert f"tenant{number}" in tenants(rig.pop(2))
        assert index_of(rig).keys.messages <= 100 + 4
    assert len(drained(rig, 64)) == BACKLOG + 20 + 100 - 1 - 40
    assert rig.findings() == []


def test_messages_are_read_beside_a_backlog_of_retries(rig: Rig) -> None:
    opened(rig, queues=1)
    send(rig, of("acme", 60))
    rig.release(rig.pop(60))
    send(rig, of("bolt", 1))
    rig.restart()
    assert tenants(rig.pop(2)) == ["acme", "bolt"]
    assert len(drained(rig)) == 59
    assert rig.findings() == []
