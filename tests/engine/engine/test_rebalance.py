"""Who reads which queue (S1.26–S1.34), as tables."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

import pytest

from popmq_server.clock import FakeClock
from popmq_server.commands.sessions import Assignment
from popmq_server.engine.rebalance import SESSION_MS, Sessions, assign, average
from popmq_server.model.records import Terms
from tests.engine.rig import SECOND
from tests.engine.work import grows

ALL = Assignment(True, True, ())
UNKNOWN = Assignment(False, False, ())


def some(*queues: int) -> Assignment:
    return Assignment(True, False, queues)


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


# ── Sessions ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def sessions(clock: FakeClock) -> Sessions:
    return Sessions(clock)


def test_a_session_ends_120_seconds_after_its_last_heartbeat(sessions: Sessions, clock: FakeClock) -> None:
    sessions.heartbeat("g", "a", frozenset({"t"}), False)
    clock.advance(SESSION_MS - 1)
    sessions.heartbeat("g", "b", frozenset({"t"}), False)
    assert sessions.clients("g", "t") == ["a", "b"]
    clock.advance(1)
    assert sessions.clients("g", "t") == ["b"]
    assert SESSION_MS == 120_000


def test_a_goodbye_ends_a_session_at_once(sessions: Sessions) -> None:
    sessions.heartbeat("g", "a", frozenset({"t"}), False)
    sessions.heartbeat("g", "a", frozenset(), True)
    assert (sessions.clients("g", "t"), sessions.count("g")) == ([], 0)
    sessions.heartbeat("g", "a", frozenset(), True)


def test_a_client_counts_for_the_topics_and_the_group_that_it_named(sessions: Sessions) -> None:
    sessions.heartbeat("a", "c", frozenset({"t"}), False)
    sessions.heartbeat("a_b", "d", frozenset({"t", "u"}), False)
    assert sessions.clients("a", "t") == ["c"]
    assert sessions.clients("a", "u") == []
    assert sessions.clients("a_b", "u") == ["d"]
    assert sessions.clients("b", "t") == []


def test_the_version_changes_with_what_an_assignment_depends_on_and_with_nothing_else(
    sessions: Sessions, clock: FakeClock
) -> None:
    def version(share: int = 1, queues: int = 8, mode: str = "POP") -> int:
        return sessions.version("g", {"t": Terms(queues, mode, share), "u": Terms(1, "POP", 1)})

    seen = [version()]
    sessions.heartbeat("g", "a", frozenset({"t"}), False)
    seen.append(version())
    sessions.heartbeat("g", "a", frozenset({"t"}), False)
    clock.advance(1)
    assert version() == seen[-1]
    sessions.heartbeat("g", "a", frozenset({"t", "u"}), False)
    seen.append(version())
    seen += [version(share=2), version(queues=9), version(mode="PULL")]
    sessions.heartbeat("g", "a", frozenset(), True)
    sessions.heartbeat("g", "b", frozenset({"t", "u"}), False)
    seen.append(version())
    clock.advance(SESSION_MS)
    assert version() == seen[0]
    assert len(set(seen)) == len(seen)


def test_a_heartbeat_costs_the_same_beside_two_hundred_and_two_thousand_clients() -> None:
    """Each of them sends one every 30 s, and asks for the version of the assignments."""

    def beats(count: int) -> Callable[[], None]:
        clock = FakeClock()
        sessions = Sessions(clock)
        topics = frozenset(f"t{number}" for number in range(10))
        terms = {topic: Terms(8, "POP", 1) for topic in topics}
        for number in range(count):
            sessions.heartbeat("g", f"c{number}", topics, False)

        def beat() -> None:
            for number in range(10):
                clock.advance(SECOND)
                sessions.heartbeat("g", f"c{number}", topics, False)
                sessions.topics("g")
                sessions.version("g", terms)
                sessions.count("g")

        return beat

    assert grows(beats(200), beats(2000)) < 1.1


@pytest.mark.parametrize("seed", range(5))
def test_equal_sessions_have_equal_versions_and_others_different_ones(seed: int) -> None:
    """Two brokers whose sessions are the same give one version, others give others."""
    chance, clock = random.Random(seed), FakeClock()
    sessions, seen = Sessions(clock), dict[tuple[tuple[str, frozenset[str]], ...], int]()
    terms = {name: Terms(4, "POP", 1) for name in "tuv"}
    for _ in range(300):
        topics = frozenset(chance.sample("tuv", chance.randint(1, 2)))
        sessions.heartbeat("g", chance.choice("abc"), topics, chance.random() < 0.4)
        clock.advance(chance.choice([0, 0, SECOND, SESSION_MS // 2]))
        now = tuple((client, session.topics) for _, client, session in sessions.listed("g"))
        assert sessions.version("g", terms) == seen.setdefault(now, sessions.version("g", terms))
        assert set(sessions.topics("g")) == set[str]().union(*(found for _, found in now))
    assert len(set(seen.values())) == len(seen) > 10


def paged(sessions: Sessions, group: str, size: int) -> list[tuple[str, str]]:
    """All pages of a list, joined."""
    found: list[tuple[str, str]] = []
    while rows := sessions.listed(group, found[-1] if found else ("", ""), size):
        assert len(rows) <= size
        found += [row[:2] for row in rows]
    return found


@pytest.mark.parametrize("seed", range(5))
def test_the_pages_of_a_list_of_sessions_join_to_the_whole_while_clients_come_and_go(seed: int) -> None:
    chance, clock = random.Random(seed), FakeClock()
    sessions = Sessions(clock)
    for _ in range(200):
        group, client = chance.choice("fgh"), chance.choice(["a", "b", "c d", "e"])
        sessions.heartbeat(group, client, frozenset("t"), chance.random() < 0.3)
        clock.advance(chance.choice([0, SECOND, SESSION_MS // 4]))
        for named in ("", "g"):
            whole = [row[:2] for row in sessions.listed(named)]
            assert whole == sorted(whole)
            assert paged(sessions, named, chance.randint(1, 4)) == whole
        assert {name for name, _ in paged(sessions, "", 2)} == {name for name in "fgh" if sessions.count(name)}


class Name(str):
    """A name whose comparisons are counted, also those of a sort."""

    def __lt__(self, other: str) -> bool:
        return str.__lt__(self, other)

    __slots__ = ()


@pytest.mark.parametrize("groups", [1, 20])
def test_a_page_of_sessions_costs_the_same_among_ten_times_as_many(groups: int) -> None:
    """Between two pages clients renew their sessions; none joins or leaves."""

    def page(count: int) -> Callable[[], object]:
        sessions = Sessions(FakeClock())
        for number in range(count):
            sessions.heartbeat(Name(f"g{number % groups}"), Name(f"c{number}"), frozenset("t"), False)
        sessions.listed("")

        def listed() -> None:
            sessions.heartbeat("g0", Name("c0"), frozenset("t"), False)
            assert len(sessions.listed("", ("g0", "c0"), 20)) == 20

        return listed

    assert grows(page(200), page(2000)) < 1.1


def test_a_group_without_sessions_leaves_nothing_in_memory() -> None:
    clock = FakeClock()
    sessions = Sessions(clock)
    for number in range(50):
        sessions.heartbeat(f"g{number}", "c", frozenset("t"), False)
        assert sessions.count(f"never{number}") == 0
    clock.advance(SESSION_MS)
    assert sessions.listed("") == []
    assert sessions._groups == {}
