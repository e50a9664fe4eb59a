"""The allocation strategies for groups that pull, as tables; and locks of queues."""

from collections import Counter

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract.commands.sessions import LOCK_MS, Assignment
from popmq_server.contract.rebalance import (
    NOT_KNOWN,
    STRATEGIES,
    VIRTUAL_NODES,
    Strategy,
    allocate,
    by_average,
    by_circle,
    by_config,
    by_consistent_hash,
    by_machine_room,
    shared_room,
)
from popmq_server.embedded.loop.consumers import QueueLocks

Shares = list[list[int]]


def shares(strategy: Strategy, queues: int, clients: list[str]) -> Shares:
    return [list(strategy(range(queues), clients, client)) for client in clients]


# ── AVG: S3.19 ───────────────────────────────────────────────────────────────────────────────────────────────────────


def reference_average(queues: int, clients: int, place: int) -> list[int]:
    """S3.19 word by word."""
    more = queues % clients
    size = 1 if queues <= clients else queues // clients + (1 if more > 0 and place < more else 0)
    start = place * size if more > 0 and place < more else place * size + more
    return list(range(start, start + min(size, max(0, queues - start))))


@pytest.mark.mechanism("S3.19")
@pytest.mark.parametrize("queues", range(1, 20))
@pytest.mark.parametrize("count", range(1, 12))
def test_avg_is_the_formula_of_the_reference(queues: int, count: int) -> None:
    clients = [f"c{number:02}" for number in range(count)]
    assert shares(by_average, queues, clients) == [reference_average(queues, count, place) for place in range(count)]


# ── CIRCLE: S3.20 ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S3.20")
@pytest.mark.parametrize(
    ("queues", "clients", "expected"),
    [
        (8, "abc", [[0, 3, 6], [1, 4, 7], [2, 5]]),
        (8, "ab", [[0, 2, 4, 6], [1, 3, 5, 7]]),
        (3, "abc", [[0], [1], [2]]),
        (2, "abcd", [[0], [1], [], []]),
    ],
)
def test_circle_assigns_one_by_one(queues: int, clients: str, expected: Shares) -> None:
    assert shares(by_circle, queues, list(clients)) == expected


# ── CONSISTENT_HASH: S3.21 ───────────────────────────────────────────────────────────────────────────────────────────


def test_consistent_hash_is_the_same_everywhere_and_for_ever() -> None:
    """A release that changed the ring would move queues under running consumers."""
    assert VIRTUAL_NODES == 10
    assert shares(by_consistent_hash, 12, ["a", "b", "c"]) == GOLDEN


GOLDEN: Shares = [[1, 3, 5, 7], [2, 4, 8, 9], [0, 6, 10, 11]]


@pytest.mark.mechanism("S3.21")
@pytest.mark.parametrize("count", range(1, 8))
def test_consistent_hashing_moves_queues_only_to_the_client_that_joins(count: int) -> None:
    before, joined = [f"client-{number}" for number in range(count)], "client-new"
    after = sorted([*before, joined])
    old = {queue: name for name in before for queue in by_consistent_hash(range(1024), before, name)}
    new = {queue: name for name in after for queue in by_consistent_hash(range(1024), after, name)}
    assert {new[queue] for queue in old if new[queue] != old[queue]} <= {joined}
    assert 0 < sum(name == joined for name in new.values()) < 1024 * 3 / (count + 1), "about its share"


# ── CONFIG: S3.22 ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S3.22")
def test_config_gives_the_list_as_far_as_the_topic_has_the_queues() -> None:
    mine = by_config([5, 1, 1, 9])
    assert mine(range(8), ["a", "b"], "a") == (1, 5)
    assert mine(range(8), ["a", "b"], "c") == ()


# ── MACHINE_ROOM: S3.23 ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S3.23")
@pytest.mark.parametrize(
    ("queues", "clients", "expected"),
    [
        (8, ["a", "b"], [[0, 1, 2, 3], [4, 5, 6, 7]]),  # the room without a name
        (8, ["a", "b", "c"], [[0, 1, 6], [2, 3, 7], [4, 5]]),  # the remainder one by one
        (8, ["east@a", "east@b", "west@c"], [[0, 1], [2, 3], [4, 5, 6, 7]]),  # a room's share does not grow with it
        (9, ["east@a", "east@b", "west@c"], [[0, 1, 4], [2, 3], [5, 6, 7, 8]]),
        (1, ["east@a", "west@b"], [[0], []]),
        (3, ["east@a", "east@b", "west@c"], [[0], [1], [2]]),
    ],
)
def test_machine_rooms_get_equal_shares(queues: int, clients: list[str], expected: Shares) -> None:
    assert shares(by_machine_room, queues, clients) == expected


def test_a_room_assigns_stretches_and_then_one_each_of_what_is_left_over() -> None:
    rooms = [shared_room([10, 11, 12, 13, 14, 15, 16, 17], ["a", "b", "c"], client) for client in "abc"]
    assert rooms == [(10, 11, 16), (12, 13, 17), (14, 15)]


# ── All of them ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S3.04", "S3.24", "S1.22")
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("queues", [1, 2, 3, 7, 8, 64])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 9, 70])
def test_every_queue_belongs_to_exactly_one_client(strategy: str, queues: int, count: int) -> None:
    clients = [f"{'eastwest'[number % 2 * 4 :][:4]}@{number:02}" for number in range(count)]
    given = [allocate(queues, clients, client, strategy) for client in clients]
    assert all(one.known and not one.all and one.mode == "PULL" for one in given)
    assert Counter(queue for one in given for queue in one.queues) == Counter(range(queues))
    assert all(list(one.queues) == sorted(one.queues) for one in given)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_order_in_which_clients_came_does_not_matter_nor_their_repetition(strategy: str) -> None:
    expected = allocate(8, "abcd", "b", strategy)
    assert allocate(8, "dbca", "b", strategy) == allocate(8, "abcdab", "b", strategy) == expected


@pytest.mark.mechanism("S1.28")
def test_an_unknown_client_or_strategy_is_reported_and_is_not_an_empty_share() -> None:
    unknown = NOT_KNOWN._replace(mode="PULL")
    assert allocate(8, "", "a", "AVG") == unknown  # S1.26
    assert allocate(8, "bc", "a", "AVG") == unknown
    for name in ("CONFIG", "avg", "NEAREST", " "):  # S1.28
        assert allocate(8, "abc", "a", name) == unknown
    assert allocate(2, "abc", "c", "AVG") == Assignment(True, False, (), "PULL")  # S1.22
    assert allocate(2, "abc", "a", "") == allocate(2, "abc", "a", "AVG")


@pytest.mark.mechanism("S1.34")
@pytest.mark.parametrize("strategy", [*STRATEGIES.values(), by_config([0])])
def test_bad_input_is_an_error_and_a_stranger_gets_nothing(strategy: Strategy) -> None:
    """S1.34."""
    assert strategy(range(8), ["a"], "stranger") == ()
    for queues, clients, client in ((8, ["a"], ""), (0, ["a"], "a"), (8, [], "a")):
        with pytest.raises(ValueError, match="needs a client"):
            strategy(range(queues), clients, client)


# ── Locks of queues: C.13, S0.06, S3.32 ──────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def locks(clock: FakeClock) -> QueueLocks:
    return QueueLocks(clock)


@pytest.mark.mechanism("S3.32")
def test_a_queue_is_locked_by_one_client_of_a_group(locks: QueueLocks) -> None:
    assert locks.lock("g", "t", "a", [0, 1]) == [0, 1]
    assert locks.lock("g", "t", "b", [1, 2]) == [2]
    assert locks.lock("h", "t", "b", [1]) == [1], "groups do not see each other"
    assert locks.lock("g", "u", "b", [1]) == [1]


def test_the_answer_names_all_that_the_client_has(locks: QueueLocks) -> None:
    locks.lock("g", "t", "a", [3])
    assert locks.lock("g", "t", "a", [1]) == [1, 3]


def test_a_lock_lasts_60_seconds_and_may_then_be_taken(locks: QueueLocks, clock: FakeClock) -> None:
    assert LOCK_MS == 60_000
    locks.lock("g", "t", "a", [0])
    clock.advance(LOCK_MS - 1)
    assert locks.lock("g", "t", "b", [0]) == []
    clock.advance(1)
    assert locks.lock("g", "t", "b", [0]) == [0]
    assert locks.lock("g", "t", "a", [0]) == []


def test_the_same_client_renews(locks: QueueLocks, clock: FakeClock) -> None:
    locks.lock("g", "t", "a", [0, 1])
    clock.advance(LOCK_MS - 1)
    assert locks.lock("g", "t", "a", [0]) == [0, 1]
    clock.advance(1)
    assert locks.lock("g", "t", "a", [2]) == [0, 2], "1 was not renewed"
    clock.advance(LOCK_MS - 2)
    assert locks.lock("g", "t", "b", [0]) == []


def test_a_client_gives_its_own_queues_free_and_no_others(locks: QueueLocks) -> None:
    locks.lock("g", "t", "a", [0, 1, 2])
    locks.lock("g", "t", "b", [3])
    locks.unlock("g", "t", "a", [0, 3])
    assert locks.lock("g", "t", "c", [0, 1, 2, 3]) == [0]
    locks.unlock("g", "t", "a", [])
    assert locks.lock("g", "t", "c", [1, 2, 3]) == [0, 1, 2]
    locks.unlock("g", "nowhere", "a", [])


def test_goodbyes_and_deletes_free_queues(locks: QueueLocks) -> None:
    for group, topic in (("g", "t"), ("g", "u"), ("h", "t")):
        locks.lock(group, topic, "a", [0])
    locks.leave("g", "a")
    assert [locks.lock(group, "t", "b", [0]) for group in "gh"] == [[0], []]
    locks.forget(topic="t")
    assert locks.lock("h", "t", "b", [0]) == [0]
    locks.forget(group="h")
    assert locks.lock("h", "t", "c", [0]) == [0]
