"""Retention of a topic that many groups read: it compares no chunk with all groups in one piece, and drops the same."""

from collections.abc import Callable

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.embedded.rules.operate import purge
from popmq_server.embedded.rules.retention import by_size, floors, retention
from popmq_server.embedded.rules.retention.chunks import chunks as chunks_of
from popmq_server.embedded.rules.retention.retention import Retention
from popmq_server.embedded.rules.topics import backlog, registry
from popmq_server.embedded.rules.topics import walks as topic_walks
from popmq_server.embedded.state.tx import Tx
from tests.engine.conftest import MakeRig
from tests.engine.faults import Fault, failing
from tests.engine.rig import KEEP, MINUTE, Rig, bodies, numbered, refusal, sending
from tests.engine.work import calls, calls_of_pieces, grows

#: What goes, goes by chunks: these tests say which by sending one by one.
pytestmark = [pytest.mark.usefixtures("a_chunk_a_commit"), pytest.mark.slow, pytest.mark.smoke]

MESSAGES = ["m0", "m1", "m2"]


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece looks at some ten groups."""
    monkeypatch.setattr(retention, "LOOKS_MAX", 50)
    monkeypatch.setattr(retention, "POSITIONS_PER_LOOK", 1)


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The calls of each piece of the brokers that are started."""
    return calls_of_pieces(monkeypatch, Retention)


def read_by(rig: Rig, groups: int, chunks: int = 3, by_age: bool = False, lag: bool = False, pad: int = 0) -> Rig:
    """Chunks that each group has acked; `lag`: that no group has read."""
    rig.topic("t", by_age=by_age)
    for text in numbered("m", chunks):
        rig.send(text + "." * pad)
    for name in numbered("g", groups):
        rig.group(name)
        if lag:
            rig.do(ask.Available("t", name))
        else:
            rig.ack(rig.pop(group=name), group=name)
    return rig


def chunks(rig: Rig) -> int:
    return len(rig.read("log"))


def walks(rig: Rig) -> bool:
    """Whether a walk over the groups of a topic has not ended."""
    return bool(rig.core.state.climbs.committed())


def until_a_walk(rig: Rig) -> None:
    """Runs due work until a walk over the groups stands in the middle."""
    while not walks(rig):
        assert rig.due
        rig.run()


def work(rig: Rig, counts: list[int]) -> list[int]:
    """The calls of each piece in which marks are set, or chunks are dropped."""
    counts.clear()
    for ms in (MINUTE, KEEP, MINUTE, MINUTE):
        rig.skip(ms)
        rig.settle()
    assert chunks(rig) == 0
    return list(counts)


@pytest.mark.usefixtures("short_pieces")
@pytest.mark.parametrize(("by_age", "lag"), [(False, False), (True, False), (True, True)])
def test_a_piece_of_retention_costs_the_same_however_many_groups_passed_the_chunks_or_lag(
    make_rig: MakeRig, counts: list[int], by_age: bool, lag: bool
) -> None:
    few, many = (max(work(read_by(make_rig(str(n)), n, by_age=by_age, lag=lag), counts)) for n in (30, 300))
    assert many < 1.1 * few


@pytest.mark.parametrize("lag", [False, True])
def test_the_groups_are_walked_over_or_moved_once_and_not_for_each_chunk(
    make_rig: MakeRig, counts: list[int], lag: bool
) -> None:
    def more(groups: int) -> int:
        """What ten chunks cost more than one."""
        rigs = (read_by(make_rig(f"{groups}-{n}"), groups, chunks=n, by_age=lag, lag=lag) for n in (1, 10))
        one, ten = (sum(work(rig, counts)) for rig in rigs)
        return ten - one

    assert more(100) < 1.1 * more(10)


def test_groups_that_lag_lose_what_retention_drops_by_age_each_once(rig: Rig) -> None:
    read_by(rig, 5, chunks=10, by_age=True, lag=True)
    held = rig.pop(1, group="g3", invisible_ms=KEEP + 5 * MINUTE)
    rig.advance(KEEP + MINUTE)
    assert [rig.numbers(f"g{number}").dropped for number in range(5)] == [0] * 5, "the first chunk is held"
    assert chunks(rig) == 1
    rig.ack(held, group="g3")
    rig.advance(MINUTE)
    assert chunks(rig) == 0
    assert [rig.numbers(f"g{number}").dropped for number in range(5)] == [10, 10, 10, 9, 10]


def test_a_group_that_lags_is_found_again_without_a_walk(make_rig: MakeRig) -> None:
    def again(groups: int) -> int:
        rig = read_by(make_rig(str(groups)), groups)
        rig.group("slow")
        rig.do(ask.Available("t", "slow"))
        rig.advance(MINUTE)
        tx = Tx(rig.core.state, rig.store, rig.now)
        topic = registry.topic(tx, "t")
        assert topic is not None
        ends, found = floors.ends_of(next(chunks_of(tx, topic.topic_id, 0))), list[object]()
        work = calls(lambda: found.append(floors.climb(tx, topic, ends, 1000)))
        tx.abort()
        assert found == [(False, 1)]
        return work

    assert again(300) == again(30)


@pytest.mark.parametrize("by_age", [False, True])
def test_a_send_into_a_full_topic_walks_over_the_groups_once_and_not_for_each_chunk(
    make_rig: MakeRig, by_age: bool
) -> None:
    def cost(groups: int, needed: int) -> int:
        """The calls of a Send for which that many chunks have to go; by age no group has read them."""
        rig = read_by(make_rig(f"{groups}-{needed}"), groups, chunks=12, by_age=by_age, lag=by_age, pad=200)
        size = rig.core.state.topic_stat[rig.core.state.ids["t", "t"]].bytes
        rig.do(ask.UpdateTopic("t", 0, None, (("bytes_max", size),)))
        text = "x" * ((size // 12 * needed - 100) // 2)
        found = calls(lambda: rig.send(text))
        assert chunks(rig) == 13 - needed
        return found

    def more(groups: int) -> int:
        return cost(groups, 10) - cost(groups, 2)

    assert more(100) < 1.1 * more(10)


@pytest.fixture
def few_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A piece moves some five groups; that of retention moves none after a drop."""
    monkeypatch.setattr(floors, "POSITIONS_MAX", 200)
    monkeypatch.setattr(retention, "LOOKS_MAX", 20)


def full(rig: Rig, groups: int, passed: bool = False) -> Rig:
    """A topic without room for another chunk, whose three chunks no group has read, or each has passed; the first drops
    by age, the other by default.
    """
    read_by(rig, groups, by_age=not passed, lag=not passed, pad=200)
    rig.do(ask.UpdateTopic("t", 0, None, (("bytes_max", rig.core.state.topic_stat[1].bytes),)))
    rig.settle()
    return rig


@pytest.mark.usefixtures("few_moves")
def test_a_send_that_drops_messages_and_each_piece_after_it_cost_the_same_however_many_groups_lag(
    make_rig: MakeRig,
) -> None:
    def pieces(groups: int) -> list[int]:
        rig = full(make_rig(str(groups)), groups)
        found = [calls(lambda: rig.send("m3" + "." * 200))]
        while rig.due:
            found.append(calls(rig.commit))
        assert chunks(rig) == 3
        assert set(rig.core.state.poff.values()) == {1}
        return found

    few, many = pieces(40), pieces(400)
    assert many[0] < 1.1 * few[0]
    assert max(many[1:]) < 1.1 * max(few[1:])


@pytest.mark.usefixtures("few_moves")
@pytest.mark.parametrize("again", [False, True], ids=["", "after a crash"])
@pytest.mark.parametrize("how", ["by size", "by age"])
def test_a_group_that_lags_is_moved_past_dropped_messages_by_the_command_that_names_it(
    rig: Rig, how: str, again: bool
) -> None:
    if how == "by size":
        full(rig, 20).send("m3" + "." * 200)
    else:
        read_by(rig, 20, chunks=1, by_age=True, lag=True)
        rig.skip(KEEP + MINUTE)
        while chunks(rig):
            rig.commit()
        rig.send("m3")
    assert 0 in rig.core.state.poff.values(), "the last groups were not moved yet"
    if again:
        rig.crash()
    assert rig.numbers("g19").dropped == 1
    assert bodies(rig.pop(group="g19"))[-1].startswith("m3")
    assert bodies(rig.pop(group="g18"))[-1].startswith("m3")
    rig.settle()
    assert [rig.numbers(f"g{number}").dropped for number in range(20)] == [1] * 20
    assert not rig.core.state.topics[1].lagging


@pytest.mark.usefixtures("few_moves")
def test_a_purge_waits_until_each_group_has_counted_what_was_dropped(rig: Rig) -> None:
    full(rig, 20).send("m3" + "." * 200)
    answers = [rig.do(ask.PurgeTopic("t"))]
    while answers[-1][1] == purge.NOT_BEGUN:
        answers.append(rig.do(operations.NextPurge("t", purge.NOT_BEGUN)))
    assert answers[0] == (0, purge.NOT_BEGUN)
    assert sum(dropped for dropped, _ in answers) == 3
    rig.settle()
    assert [rig.numbers(f"g{number}").dropped for number in range(20)] == [1] * 20


@pytest.mark.usefixtures("few_moves")
@pytest.mark.parametrize("gone", [ask.DeleteTopic("t"), ask.DeleteGroup("g19")])
def test_a_topic_or_group_deleted_while_groups_lag_is_gone(rig: Rig, gone: ask.DeleteTopic | ask.DeleteGroup) -> None:
    full(rig, 20).send("m3" + "." * 200)
    assert rig.core.state.lagging
    rig.do(gone)
    rig.settle()
    assert not rig.core.state.lagging
    assert len(rig.read("stat")) == (0 if isinstance(gone, ask.DeleteTopic) else 19)


@pytest.mark.usefixtures("few_moves")
def test_a_commit_that_fails_takes_back_that_groups_lag(rig: Rig) -> None:
    full(rig, 20)
    with failing(rig.store, Fault.MAP):
        rig.run(sending("m3" + "." * 200))
    assert (chunks(rig), dict(rig.core.state.lagging)) == (3, {})


@pytest.mark.usefixtures("few_moves")
def test_a_send_that_walks_over_groups_and_each_piece_after_it_cost_the_same_however_many_groups_have_passed(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "SUBSCRIPTIONS_MAX", 20)

    def pieces(groups: int) -> list[int]:
        rig, again = full(make_rig(str(groups)), groups, passed=True), sending("m3" + "." * 200)
        refused: list[object] = []
        found = [calls(lambda: refused.append(rig.run(again)[0]))]
        assert refusal(refused[0]) == "STORAGE_FULL"
        assert "the broker is searching it" in str(refused[0])
        assert "the broker is searching it" in str(rig.run(again)[0]), "also in the middle of the search"
        while rig.due:
            found.append(calls(rig.commit))
        rig.send("m3" + "." * 200)
        assert chunks(rig) == 3
        return found

    few, many = pieces(200), pieces(2000)
    assert max(many) < 1.1 * max(few)


@pytest.mark.usefixtures("few_moves")
def test_a_send_is_stored_without_a_walk_if_all_groups_had_passed_the_oldest_messages_a_minute_before(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = calls_of_pieces(monkeypatch, by_size.Watching)
    monkeypatch.setattr(topic_walks, "LOOKS_MAX", 50)

    def pieces(groups: int) -> list[int]:
        rig = full(make_rig(str(groups)), groups, passed=True)
        counted.clear()
        rig.advance(MINUTE)
        found = list(counted)
        rig.send("m3" + "." * 200)
        assert chunks(rig) == 3
        return found

    few, many = pieces(200), pieces(2000)
    assert max(many) < 1.1 * max(few)
    assert len(many) > 5 * len(few)


def test_a_send_refused_by_a_full_topic_costs_the_same_however_many_groups_hold_it(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "SUBSCRIPTIONS_MAX", 20)

    def held_by(groups: int) -> Rig:
        """Only the last group has not read the topic."""
        rig = read_by(make_rig(str(groups)), groups, pad=200)
        rig.group("slow")
        rig.do(ask.Available("t", "slow"))
        rig.do(ask.UpdateTopic("t", 0, None, (("bytes_max", rig.core.state.topic_stat[1].bytes),)))
        assert "group 'slow' has 3 messages" in str(rig.run(sending("m3"))[0])
        return rig

    few, many = held_by(30), held_by(300)
    assert grows(lambda: few.run(sending("m3")), lambda: many.run(sending("m3"))) < 1.1


def goes_back(rig: Rig) -> str:
    rig.do(ask.ResetOffsets("t", "g0", ("EARLIEST", 0)))
    return "g0"


def comes(rig: Rig) -> str:
    rig.group("new")
    rig.do(ask.Available("t", "new"))
    return "new"


@pytest.mark.usefixtures("short_pieces")
@pytest.mark.parametrize("moves", [goes_back, comes])
@pytest.mark.parametrize("when", ["in the walk before the mark", "in the walk before the drop", "after the walk"])
def test_a_group_that_moves_back_or_comes_loses_nothing_that_the_others_have_passed(
    rig: Rig, moves: Callable[[Rig], str], when: str
) -> None:
    read_by(rig, 100)
    if when == "in the walk before the mark":
        rig.skip(MINUTE)
        until_a_walk(rig)
    else:
        rig.advance(MINUTE)
    if when == "in the walk before the drop":
        rig.core.state.floors.load_all({})  # as after a restart
        rig.skip(KEEP + MINUTE)
        until_a_walk(rig)
    group = moves(rig)
    rig.settle()
    for ms in (MINUTE, KEEP, MINUTE, KEEP, MINUTE):
        rig.advance(ms)
    assert chunks(rig) == len(MESSAGES)
    assert sorted(bodies(rig.pop(group=group))) == MESSAGES


def test_a_walk_leaves_no_group_out_when_those_before_its_place_are_gone(rig: Rig) -> None:
    read_by(rig, 10)
    rig.group("slow")
    rig.do(ask.Available("t", "slow"))
    for name in numbered("h", 10):
        rig.group(name)
        rig.ack(rig.pop(group=name), group=name)
    state, tx = rig.core.state, Tx(rig.core.state, rig.store, rig.now)
    topic = registry.topic(tx, "t")
    assert topic is not None
    last = list(chunks_of(tx, topic.topic_id, 0))[-1]
    ends = floors.ends_of(last)
    assert floors.climb(tx, topic, ends, 10) == (None, 10)
    state.topic_groups[topic.topic_id] = state.topic_groups[topic.topic_id][3:]
    assert floors.climb(tx, topic, ends, 100) == (False, 8), "it begins again, and meets the slow group"
    tx.abort()
