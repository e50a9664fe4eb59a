"""Who reads which queue, as tables."""

from collections import Counter

import pytest

from popmq_server.contract.commands.sessions import Assignment
from popmq_server.contract.rebalance import assign, average

ALL = Assignment(True, True, ())
UNKNOWN = Assignment(False, False, ())


def some(*queues: int) -> Assignment:
    return Assignment(True, False, queues)


@pytest.mark.mechanism("S1.26", "S1.30", "D.44", "S1.33")
@pytest.mark.parametrize(
    ("queues", "clients", "client", "share", "expected"),
    [
        # S1.26, S1.34: nobody known, or not in the list
        (8, "", "a", 1, UNKNOWN),
        (8, "bc", "a", 1, UNKNOWN),
        # S1.30: share ≤ 0 or ≥ clients − 1
        (8, "abc", "a", 0, ALL),
        (8, "abc", "a", -1, ALL),
        (8, "abc", "a", 2, ALL),
        (8, "abc", "a", 9, ALL),
        (8, "ab", "a", 1, ALL),
        (8, "a", "a", 1, ALL),
        # S1.31: own queues and those of the next `share` clients of the ring
        (8, "abcd", "a", 1, some(0, 1, 2, 3)),
        (8, "abcd", "b", 1, some(2, 3, 4, 5)),
        (8, "abcd", "c", 1, some(4, 5, 6, 7)),
        (8, "abcd", "d", 1, some(0, 1, 6, 7)),
        (8, "abcd", "a", 2, some(0, 1, 2, 3, 4, 5)),
        (8, "abcd", "d", 2, some(0, 1, 2, 3, 6, 7)),
        (8, "abc", "a", 1, some(0, 1, 2, 3, 4, 5)),  # 3 + 3 + 2
        (8, "abc", "b", 1, some(3, 4, 5, 6, 7)),
        (8, "abc", "c", 1, some(0, 1, 2, 6, 7)),
        (3, "abc", "c", 1, some(0, 2)),
        # S1.33: more clients than queues
        (2, "abcde", "a", 1, some(0)),
        (2, "abcde", "b", 1, some(1)),
        (2, "abcde", "c", 1, some(0)),
        (2, "abcde", "e", 2, some(0)),
        (1, "abc", "c", 1, some(0)),
    ],
)
def test_assignments_follow_the_table(queues: int, clients: str, client: str, share: int, expected: Assignment) -> None:
    assert assign(queues, clients, client, share) == expected


@pytest.mark.mechanism("S1.29", "S1.32", "S1.31")
@pytest.mark.parametrize("queues", range(1, 12))
@pytest.mark.parametrize("count", range(1, 12))
@pytest.mark.parametrize("share", range(1, 4))
def test_each_queue_is_read_by_one_and_share_clients(queues: int, count: int, share: int) -> None:
    clients = [f"c{number:02}" for number in range(count)]
    assigned = [assign(queues, clients, client, share) for client in clients]
    if share >= count - 1:
        assert set(assigned) == {ALL}
        return
    readers = Counter(queue for one in assigned for queue in one.queues)
    assert set(readers) == set(range(queues)), "every queue has a reader"
    if count <= queues:
        assert set(readers.values()) == {1 + share}
    else:
        assert {len(one.queues) for one in assigned} == {1}


@pytest.mark.mechanism("S1.27", "S3.28")
@pytest.mark.parametrize("client", "abcd")
def test_the_order_in_which_clients_came_does_not_matter_nor_their_repetition(client: str) -> None:
    assert assign(8, "dbca", client, 1) == assign(8, "abcd", client, 1) == assign(8, "abcdab", client, 1)


@pytest.mark.parametrize(
    ("queues", "clients", "shares"),
    [
        (8, 4, [(0, 1), (2, 3), (4, 5), (6, 7)]),
        (8, 3, [(0, 1, 2), (3, 4, 5), (6, 7)]),
        (4, 3, [(0, 1), (2,), (3,)]),
        (3, 3, [(0,), (1,), (2,)]),
        (5, 1, [(0, 1, 2, 3, 4)]),
    ],
)
def test_queues_are_assigned_in_equal_stretches(queues: int, clients: int, shares: list[tuple[int, ...]]) -> None:
    assert [tuple(average(queues, clients, place)) for place in range(clients)] == shares
