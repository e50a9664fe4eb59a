"""Sessions: what a heartbeat, a goodbye and silence do, and the version of an assignment."""

import random
from collections.abc import Callable

import pytest

from popmq_server.clock import FakeClock
from popmq_server.embedded.loop import heartbeats
from popmq_server.embedded.loop.heartbeats import SEARCH_MS, SESSION_MS, Sessions
from popmq_server.errors import Refused
from popmq_server.values.records import Terms
from tests.engine.rig import SECOND
from tests.engine.work import grows


@pytest.fixture
def sessions(clock: FakeClock) -> Sessions:
    return Sessions(clock)


@pytest.mark.mechanism("S3.27")
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


@pytest.mark.mechanism("S3.26", "S3.25")
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


def test_groups_that_fell_silent_are_forgotten_while_others_come(sessions: Sessions, clock: FakeClock) -> None:
    sessions.heartbeat("live", "client", frozenset({"t"}), False)
    for number in range(100):
        sessions.heartbeat(f"g{number}", "client", frozenset({"t"}), False)
        sessions.heartbeat("live", "client", frozenset({"t"}), False)
        clock.advance(SESSION_MS // 2)
    assert len(sessions._groups) < 10
    assert sessions.count("live") == 1


def test_a_deleted_group_has_no_sessions(sessions: Sessions) -> None:
    sessions.heartbeat("g", "client", frozenset({"t"}), False)
    sessions.forget("g")
    assert sessions.listed("") == []


# ── Bounds ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be 20 names, 12 of them in one group."""
    monkeypatch.setattr(heartbeats, "NAMES_MAX", 20)
    monkeypatch.setattr(heartbeats, "NAMES_OF_GROUP_MAX", 12)


def renewed(sessions: Sessions, group: str, client: str, topics: int) -> bool:
    try:
        sessions.heartbeat(group, client, frozenset(f"t{number}" for number in range(topics)), False)
    except Refused:
        return False
    return True


@pytest.mark.usefixtures("few")
def test_the_names_of_a_group_and_of_all_groups_are_bounded(sessions: Sessions) -> None:
    assert [renewed(sessions, "g", f"c{number}", 5) for number in range(3)] == [True, True, False]
    assert [renewed(sessions, "h", f"c{number}", 0) for number in range(9)] == [True] * 8 + [False]
    assert (sessions.count("g"), sessions.count("h")) == (2, 8)
    with pytest.raises(Refused, match="live clients of all groups") as refused:
        sessions.heartbeat("i", "c", frozenset(), False)
    assert (refused.value.code, refused.value.field) == ("RATE_LIMITED", "topics")


@pytest.mark.usefixtures("few")
def test_a_session_that_does_not_grow_is_renewed_in_any_case(sessions: Sessions, clock: FakeClock) -> None:
    assert [renewed(sessions, "g", name, 5) for name in "ab"] == [True, True]
    assert [renewed(sessions, "g", "a", topics) for topics in (5, 6, 4, 5)] == [True, False, True, True]
    clock.advance(SESSION_MS - 1)
    assert renewed(sessions, "g", "a", 5)
    clock.advance(1)
    assert sessions.clients("g", "t0") == ["a"]


@pytest.mark.usefixtures("few")
def test_an_ended_session_gives_its_names_back(sessions: Sessions, clock: FakeClock) -> None:
    for _ in range(3):
        assert [renewed(sessions, group, "a", 9) for group in "ghi"] == [True, True, False]
        sessions.heartbeat("g", "a", frozenset(), True)
        assert renewed(sessions, "i", "a", 9)
        sessions.forget("h")
        assert renewed(sessions, "h", "b", 9)
        clock.advance(SESSION_MS)


@pytest.mark.usefixtures("few")
def test_silent_clients_of_groups_that_are_not_asked_for_make_room(sessions: Sessions, clock: FakeClock) -> None:
    for name in "abcd":
        assert renewed(sessions, name, "c", 4)
    assert not renewed(sessions, "g", "c", 4), "and the other groups are searched"
    clock.advance(SESSION_MS - SEARCH_MS + 1)
    assert renewed(sessions, "d", "c", 4)
    clock.advance(SEARCH_MS - 1)
    assert renewed(sessions, "g", "c", 9)
    assert sessions.count("d") == 1


def test_usual_clients_are_far_from_the_bounds(sessions: Sessions) -> None:
    for number in range(5000):
        assert renewed(sessions, "g", f"c{number}", 3)
