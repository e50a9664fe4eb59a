"""Lists of any length: in pieces that do not grow with what there is, complete over their pieces."""

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.contract.commands.numbers import Rows
from popmq_server.contract.operations import Query
from popmq_server.embedded.loop import listings
from popmq_server.embedded.rules.inspect import names, stats
from popmq_server.embedded.rules.operate import message_groups
from popmq_server.embedded.rules.sending import delay, transaction
from popmq_server.errors import Refused
from popmq_server.values.message import Extra
from tests.engine.conftest import MakeRig
from tests.engine.rig import HOUR, KEEP, MINUTE, Rig, message
from tests.engine.traffic.traffic_fifo import fifo_message
from tests.engine.traffic.traffic_timing import later, timed_pair
from tests.engine.work import calls, grows

SMALL, LARGE = 60, 600
GROWTH_MAX = 1.12


@pytest.fixture(autouse=True)
def _short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names, "LOOKS_MAX", 40)
    monkeypatch.setattr(stats, "OLDEST_RETRIES", 20)
    monkeypatch.setattr(message_groups, "LOOKS_MAX", 40)
    monkeypatch.setattr(delay, "ROWS_AT_ONCE", 10)
    monkeypatch.setattr(transaction, "ROWS_AT_ONCE", 10)


def answered(run: Any, query: Query[Any]) -> Any:
    """The answer of the event loop, which gets the pieces by `run`."""
    handler = listings.BY_LISTINGS.handlers.get(type(query), listings.joined)
    return handler(SimpleNamespace(run=run), query)


def whole(rig: Rig, query: Query[Any]) -> Any:
    """All rows of a list, as the broker joins them; each piece may be a few steps only."""

    async def execute(piece: Any) -> Any:
        answers = []
        work = calls(lambda: answers.append(rig.do(piece)))
        assert work < 5000, f"a piece of {query} made {work} calls"
        return answers[0]

    return asyncio.run(answered(execute, query))


def many(rig: Rig, count: int) -> Rig:
    """Topics, groups and owners of others, message groups in all states, delayed messages."""
    rig.do(ask.CreateTopic("ledger", 2, False, 72 * HOUR, type="FIFO"))
    rig.group("strict", max_attempts=1, stop_on_failure=True, invisible_ms=10 * HOUR)
    rig.group("g")
    rig.topic()
    rig.pop()
    for number in range(count):
        rig.topic(f"t{number}")
        rig.group(f"g{number}")
        rig.pop(topic=f"t{number}", group=f"g{number}")
        rig.pop(topic="t", group=f"g{number}")
        rig.pop(topic=f"t{number}", group="g")
        rig.attach(f"o{number}", group="g", lease_ms=HOUR)
    for state in ("stopped", "waiting", "leased"):
        rig.do(ask.Send("ledger", tuple(fifo_message(f"{state}{n}", f"{state}{n}") for n in range(count))))
        rows = [row for _ in range(count // 20) for row in rig.pop(20, topic="ledger", group="strict")]
        assert len(rows) == count
        if state == "stopped":
            rig.release(rows, group="strict", delay_ms=0, reason="broken")
        if state == "waiting":
            rig.do(ask.Send("ledger", tuple(fifo_message(f"{state}{n}", f"more{n}") for n in range(count))))
    assert rig.pop(topic="ledger", group="strict") == []
    return rig


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Rig, Rig]]:
    folder = tmp_path_factory.mktemp("listings")
    small, large = Rig(folder / "small"), Rig(folder / "large")
    yield many(small, SMALL), many(large, LARGE)
    small.abandon()
    large.abandon()


ASKED: dict[str, Query[Any]] = {
    "the numbers of one group": queries.Groups("ledger", "strict"),
    "a piece of the numbers of all groups": queries.Groups(),
    "a piece of a group's numbers": queries.Groups("", "g"),
    "a piece of a group's subscriptions": queries.Subscriptions("g"),
    "a piece of all topics": queries.Topics(),
    "a piece of all groups": queries.GroupSettings(),
    "a piece of all owners": queries.Owners(),
    "a piece of a group's owners": queries.Owners("g"),
    "what a client holds": queries.HeldBy((("strict", ""),)),
    "a page of stopped message groups": queries.MessageGroups("ledger", "strict", True, rows_max=10),
    "a page of waiting message groups": queries.MessageGroups("ledger", "strict", rows_max=5, after="waiting "),
    "a page of leased message groups": queries.MessageGroups("ledger", "strict", rows_max=5, after="leased "),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", ASKED)
def test_a_piece_costs_the_same_whatever_there_is(pair: tuple[Rig, Rig], what: str) -> None:
    small, large = pair
    assert grows(lambda: small.look(ASKED[what]), lambda: large.look(ASKED[what])) < GROWTH_MAX


@pytest.mark.slow
def test_lists_are_complete_over_their_pieces(pair: tuple[Rig, Rig]) -> None:
    _, rig = pair
    topics, groups = {f"t{n}" for n in range(LARGE)}, {f"g{n}" for n in range(LARGE)}
    names_of_topics = [row.topic.name for row in whole(rig, queries.Topics())]
    assert names_of_topics == sorted(names_of_topics)
    assert {*names_of_topics} >= topics
    assert [row.name for row in whole(rig, queries.GroupSettings())] == sorted({*groups, "g", "strict"})
    numbers = [(row.group, row.topic) for row in whole(rig, queries.Groups())]
    assert len(numbers) == len({*numbers})
    assert {*numbers} >= {(f"g{n}", "t") for n in range(LARGE)} | {("strict", "ledger")}
    assert {row.topic for row in whole(rig, queries.Groups("", "g"))} == topics | {"t"}
    assert len(whole(rig, queries.Groups("t"))) == LARGE + 1
    assert [name for name, _ in whole(rig, queries.Subscriptions("g"))] == sorted({*topics, "t"})
    assert sorted(row.owner for row in whole(rig, queries.Owners("g"))) == sorted(f"o{n}" for n in range(LARGE))
    assert rig.numbers("g", "t").owners == LARGE


@pytest.mark.slow
def test_message_groups_are_listed_once_stopped_first_each_with_its_state(pair: tuple[Rig, Rig]) -> None:
    _, rig = pair
    found: list[Any] = []
    after = ""
    while True:
        page = whole(rig, queries.MessageGroups("ledger", "strict", rows_max=7, after=after))
        found += page
        after = page.after
        if not after:
            break
        assert len(page) == 7
    told = [(row.name, row.waiting, row.leased, row.stopped) for row in found]
    states = {"stopped": (1, 0, True), "waiting": (1, 1, False), "leased": (0, 1, False)}
    assert sorted(told) == sorted((f"{state}{n}", *how) for state, how in states.items() for n in range(LARGE))
    assert [row.stopped for row in found] == [True] * LARGE + [False] * 2 * LARGE
    assert rig.numbers("strict", "ledger").stopped == LARGE


def test_a_list_continues_after_groups_deleted_between_two_pieces(rig: Rig) -> None:
    rig.topic()
    for name in "abcdefg":
        rig.group(name)
        rig.pop(group=name)
    first = rig.do(queries.Groups("t", "", rows_max=3))
    rig.do(ask.DeleteGroup("b"))
    rig.do(ask.DeleteGroup("c"))
    rig.settle()
    rest = whole(rig, queries.Groups("t", "", after=first.after))
    assert ([row.group for row in first], [row.group for row in rest][-4:]) == (["a", "b", "c"], ["d", "e", "f", "g"])
    topics = rig.do(queries.Topics(rows_max=2))
    assert [row.topic.name for row in topics + whole(rig, queries.Topics(after=topics.after))] == [
        *(f"%DLQ%{name}" for name in "adefg"),
        "t",
    ]


def test_owners_count_their_bound_and_their_waiting_messages(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b", "c")
    rig.attach(lease_ms=MINUTE)
    rig.seal(1, max_messages=3)
    assert rig.do(queries.Owners("g"))[0].messages == 3
    rig.advance(2 * MINUTE)
    assert rig.do(queries.Owners("g"))[0].messages == 3, "released: they stand in the retry topic, tied to it"
    rig.pop(1)
    assert rig.do(queries.Owners("g"))[0].messages == 2


def test_leases_come_page_by_page_also_those_of_one_owner(rig: Rig) -> None:
    rig.pair()
    rig.attach(lease_ms=MINUTE)
    for number in range(5):
        rig.send(f"{number}")
        rig.seal(1, part=number)
    rig.send("x", "y")
    wanted = [row.lease_id for row in rig.do(queries.Leases("t", "g", 100))[0]]
    rig.pop(1)
    rig.skip(1)
    rig.pop(1)
    found: list[str] = []
    after = ""
    while True:
        rows, _, after = rig.do(queries.Leases("t", "g", 2, after))
        found += [row.lease_id for row in rows]
        if not after:
            break
    assert len(found) == len({*found}) == 7
    assert {*found} > {*wanted}


@pytest.mark.parametrize(
    "query",
    [
        queries.Owners(after="x"),
        queries.MessageGroups("ledger", "strict", rows_max=1, after="x"),
        queries.MessageGroups("ledger", "strict", rows_max=1, after="waiting xy"),
        queries.MessageGroups("ledger", "strict", rows_max=1, after="stopped -1"),
        queries.MessageGroups("ledger", "strict", rows_max=1, after="leased 99999999999999999999.0"),
        queries.Leases("", "", 1, "x"),
        queries.Delayed("", 0, 1, "x"),
        queries.Transactions("", 1, "x"),
        queries.Groups(after="x"),
        queries.Subscriptions("g", after="x t"),
    ],
)
def test_a_page_token_of_another_list_is_refused(pair: tuple[Rig, Rig], query: Any) -> None:
    with pytest.raises(Refused) as refused:
        pair[0].do(query)
    assert (refused.value.code, refused.value.field) == ("INVALID_FIELD", "page_token")


def test_joined_pieces_end_at_the_wanted_number_of_rows() -> None:
    async def execute(query: Any) -> Rows[str]:
        begin = int(query.after or 0)
        return Rows([str(begin)], str(begin + 1) if begin < 9 else "")

    rows = asyncio.run(answered(execute, queries.Topics(rows_max=4)))
    assert (rows, rows.after) == (["0", "1", "2", "3"], "4")
    assert len(asyncio.run(answered(execute, queries.Topics()))) == 10


def test_delayed_messages_come_in_pieces_soonest_first(make_rig: MakeRig) -> None:
    rig = make_rig()
    timed_pair(rig)
    rig.do(ask.Send("t", tuple(later(f"m{number}", due_ms=rig.now + 1000 * (35 - number)) for number in range(35))))
    found, after = list[str](), ""
    while True:
        rows, total = rig.do(queries.Delayed("t", 0, 100, after))
        assert len(rows) <= 10
        assert total == (0 if after else 35)
        found += [row.message_id for row in rows]
        if not (after := rows.after):
            break
    assert found == [f"m{number}" for number in reversed(range(35))]


@pytest.mark.slow
def test_the_first_piece_of_delayed_and_half_messages_costs_the_same_beside_many_topics(make_rig: MakeRig) -> None:
    """The total over all topics is kept: it was summed over them in one command."""
    rigs = make_rig("small"), make_rig("large")
    for rig, count in zip(rigs, (20, 200), strict=True):
        rig.run(*(ask.CreateTopic(f"t{number}", 1, False, KEEP) for number in range(count)))
        rig.do(ask.CreateTopic("d", 1, False, KEEP, "DELAY"))
        rig.do(ask.CreateTopic("h", 1, False, KEEP, "TRANSACTION"))
        for number in range(3):
            rig.do(ask.Send("d", (message(f"d{number}")._replace(extra=Extra(delay_ms=HOUR)),)))
            rig.do(ask.Send("h", (message(f"h{number}")._replace(extra=Extra(transaction=True)),)))
        assert rig.do(queries.Delayed("", 0, 2))[1] == rig.do(queries.Delayed("d", 0, 2))[1] == 3
        assert rig.do(queries.Transactions("", 2))[1] == rig.do(queries.Transactions("h", 2))[1] == 3
    for query in (queries.Delayed("", 0, 10), queries.Transactions("", 10)):
        few, many = (calls(lambda rig=rig, query=query: rig.do(query)) for rig in rigs)  # type: ignore[misc]
        assert many < 1.1 * few
    for rig in rigs:
        rig.do(ask.DeleteTopic("d"))
        assert rig.do(ask.PurgeTopic("h")) == (3, 0)
        assert [rig.do(query)[1] for query in (queries.Delayed("", 0, 2), queries.Transactions("", 2))] == [0, 0]


def half_messages(rig: Rig, topics: int, each: int = 3) -> Rig:
    """Topics h0, h1 …, with half messages m0, m1 … each; those of all topics are sent in turns."""
    rig.run(*(ask.CreateTopic(f"h{number}", 1, False, KEEP, "TRANSACTION") for number in range(topics)))
    for half in range(each):
        extra = Extra(transaction=True)
        rig.run(*(ask.Send(f"h{n}", (message(f"m{half}")._replace(extra=extra),)) for n in range(topics)))
    return rig


def test_a_page_of_half_messages_costs_its_rows_beside_many_topics_that_have_some(make_rig: MakeRig) -> None:
    rigs = half_messages(make_rig("small"), 20), half_messages(make_rig("large"), 200)
    first = queries.Transactions("", 5)
    for query in (first, replace(first, after=rigs[0].do(first)[0].after)):
        few, many = (calls(lambda rig=rig, query=query: rig.do(query)) for rig in rigs)  # type: ignore[misc]
        assert many < 1.1 * few


def test_pages_of_half_messages_go_from_topic_to_topic_also_over_deleted_ones(make_rig: MakeRig) -> None:
    rig = half_messages(make_rig(), 5)
    found, after = list[tuple[str, str]](), ""
    while True:
        rows, total = rig.do(queries.Transactions("", 2, after))
        found += [(row.topic, row.message_id) for row in rows]
        assert total == (0 if after else 15)
        if len(found) == 4:
            rig.run(ask.DeleteTopic("h1"), ask.DeleteTopic("h2"))
        if not (after := rows.after):
            break
    left = [(name, f"m{number}") for name in ("h0", "h1", "h3", "h4") for number in range(3)]
    assert found == [one for one in left if one not in (("h1", "m1"), ("h1", "m2"))]


def test_a_page_token_of_another_topics_half_messages_is_refused(make_rig: MakeRig) -> None:
    rig = half_messages(make_rig(), 2)
    token = rig.do(queries.Transactions("h0", 1))[0].after
    with pytest.raises(Refused) as refused:
        rig.do(queries.Transactions("h1", 1, token))
    assert (refused.value.code, refused.value.field) == ("INVALID_FIELD", "page_token")


def test_a_list_of_leases_in_the_commit_batch_that_ends_one_shows_the_others(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b")
    first = rig.pop(1)
    gone = {row.lease_id for row in rig.do(queries.Leases("t", "g", 10))[0]}
    rig.pop(1)
    left = [row.lease_id for row in rig.do(queries.Leases("t", "g", 10))[0] if row.lease_id not in gone]
    acked = ask.Ack("g", tuple(row.handle for row in first))
    _, (rows, total, _) = rig.run(acked, queries.Leases("t", "g", 10))
    assert ([row.lease_id for row in rows], total) == (left, 1)
