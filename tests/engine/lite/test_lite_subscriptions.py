"""Who reads which lite topics, where a group begins in them, and who is woken."""

from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.embedded.rules.lite import lite_topics
from popmq_server.embedded.state import lite_watch
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.writer import core
from popmq_server.errors import Refused
from popmq_server.values.records import Topic
from tests.engine.conftest import MakeRig
from tests.engine.lites import create, lite_rig, pop, popping, send, sending, sync
from tests.engine.rig import MINUTE, SECOND, Rig, bodies, deliveries, numbered, refusal, refusals
from tests.engine.work import calls_of_pieces

rig = pytest.fixture(lite_rig)


def test_a_client_pops_the_lite_topics_that_it_has_subscribed_to(rig: Rig) -> None:
    send(rig, "ann:1", "bob:1", "zoe:1")
    assert sync(rig, "c", "ADD", "ann", "later").names == 2
    assert bodies(pop(rig, client_id="c")) == ["ann:1"]
    send(rig, "later:1")
    assert bodies(pop(rig, client_id="c")) == ["later:1"]
    assert sync(rig, "c", "REPLACE", "later", "bob").names == 2
    send(rig, "ann:2")
    assert bodies(pop(rig, client_id="c")) == ["bob:1"]
    assert sync(rig, "c", "REMOVE", "bob", "later").names == 0
    assert pop(rig, client_id="c") == []


def test_a_client_without_a_subscription_gets_nothing(rig: Rig) -> None:
    send(rig, "ann:1")
    assert pop(rig, client_id="c") == []
    sync(rig, "c", "ADD", "ann")
    sync(rig, "c", "DROP")
    assert pop(rig, client_id="c") == []


@pytest.mark.slow
def test_two_clients_of_a_group_share_a_lite_topic_and_its_order(rig: Rig) -> None:
    sync(rig, "c", "ADD", "ann")
    sync(rig, "d", "ADD", "ann")
    send(rig, "ann:1", "ann:2")
    first = pop(rig, client_id="c", max_messages=1)
    assert pop(rig, client_id="d") == []
    rig.ack(first)
    assert bodies(pop(rig, client_id="d")) == ["ann:2"]


def test_a_lite_subscription_that_is_not_refreshed_ends(rig: Rig) -> None:
    send(rig, "ann:1")
    sync(rig, "c", "ADD", "ann")
    rig.advance(74 * SECOND)
    sync(rig, "c", "REPLACE", "ann")
    rig.advance(74 * SECOND)
    assert bodies(pop(rig, client_id="c", max_messages=1)) == ["ann:1"]
    rig.advance(76 * SECOND)
    assert pop(rig, client_id="c") == []


def test_a_group_begins_at_the_first_message_of_lite_topics_created_after_it_subscribed(rig: Rig) -> None:
    rig.group("late", start_from="LATEST")
    send(rig, "old:1")
    sync(rig, "c", "ADD", "old", "new", group="late")
    send(rig, "old:2", "new:1")
    assert sorted(bodies(pop(rig, client_id="c", group="late"))) == ["new:1", "old:2"]


@pytest.mark.parametrize(
    ("start", "found"),
    [
        (("MIN", 0), [1, 2, 3, 4, 5]),
        (("LAST", 0), [1, 2, 3, 4, 5]),
        (("MAX", 0), []),
        (("OFFSET", 3), [4, 5]),
        (("OFFSET", 99), []),
        (("TAIL", 2), [4, 5]),
        (("TIMESTAMP", 2 * SECOND), [3, 4, 5]),
    ],
)
def test_a_subscription_may_say_where_its_group_begins(rig: Rig, start: tuple[str, int], found: list[int]) -> None:
    began = rig.now
    for number in range(1, 6):
        send(rig, f"ann:{number}")
        rig.advance(SECOND)
    kind, value = start
    sync(rig, "c", "ADD", "ann", start=(kind, value + (began if kind == "TIMESTAMP" else 0)))
    assert bodies(pop(rig, client_id="c")) == [f"ann:{number}" for number in found]


def test_a_start_puts_a_group_that_was_there_before_elsewhere(rig: Rig) -> None:
    send(rig, "ann:1", "ann:2", "ann:3")
    held = pop(rig, "ann", max_messages=2)
    sync(rig, "c", "ADD", "ann", start=("MIN", 0))
    rig.settle()
    assert refusals(rig.ack(held)) == ["HANDLE_LAPSED"] * 2
    rows = pop(rig, client_id="c")
    assert bodies(rows) == ["ann:1", "ann:2", "ann:3"]
    rig.ack(rows)
    sync(rig, "d", "ADD", "ann", start=("TAIL", 1))
    assert bodies(pop(rig, client_id="d")) == ["ann:3"]


def test_the_names_of_one_client_are_bounded(rig: Rig) -> None:
    names = [f"n{number}" for number in range(2300)]
    assert sync(rig, "c", "ADD", *names).names == 2300
    for action, more in (("ADD", ["one-more"]), ("REPLACE", [*names, "one-more"])):
        with pytest.raises(Refused) as refused:
            sync(rig, "c", action, *more)
        assert refused.value.code == "LITE_SUBSCRIPTION_QUOTA"
    assert sync(rig, "c", "REPLACE", *names[:10]).names == 10


@pytest.mark.slow
def test_the_names_of_all_clients_are_bounded_until_some_of_them_are_gone(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lite_watch, "NAMES_MAX", 3)
    sync(rig, "c", "ADD", "ann", "bob")
    with pytest.raises(Refused) as refused:
        sync(rig, "d", "ADD", "ann", "bob")
    assert refused.value.code == "LITE_SUBSCRIPTION_QUOTA"
    assert refusal(rig.run(popping("ann", "bob"))[0]) == "LITE_SUBSCRIPTION_QUOTA"
    assert sync(rig, "c", "REPLACE", "bob", "cid", "dan").names == 3
    rig.skip(lite_watch.WATCH_MS)
    assert sync(rig, "d", "ADD", "ann", "bob").names == 2


def test_an_exclusive_lite_topic_belongs_to_the_client_that_added_it_last(rig: Rig) -> None:
    rig.group("one", lite_exclusive=True)
    assert sync(rig, "c", "ADD", "ann", "bob", group="one").evicted == ()
    assert sync(rig, "d", "ADD", "ann", group="one").evicted == (("c", "ann"),)
    send(rig, "ann:1", "bob:1")
    assert bodies(pop(rig, client_id="c", group="one")) == ["bob:1"]
    again = sync(rig, "c", "REPLACE", "ann", "bob", group="one")
    assert (again.names, again.evicted) == (1, (("c", "ann"),))
    assert bodies(pop(rig, client_id="d", group="one")) == ["ann:1"]
    assert sync(rig, "c", "ADD", "ann", group="one").evicted == (("d", "ann"),)
    assert sync(rig, "e", "REPLACE", "ann", group="one").names == 0


def test_only_clients_that_subscribe_to_the_lite_topic_of_a_message_are_woken(rig: Rig) -> None:
    sync(rig, "c", "ADD", "ann")
    sync(rig, "d", "ADD", "bob")
    assert rig.commit(sending("ann:1")).woken == {("g", "chat\0c")}
    rows = pop(rig, client_id="c")
    assert rig.commit(sending("ann:2")).woken == set()
    assert rig.commit(ask.Ack("g", (rows[0].handle,))).woken == {("g", "chat\0c")}
    assert rig.commit(sending("bob:1", "zoe:1")).woken == {("g", "chat\0d")}


def test_a_pop_of_lite_topics_that_leaves_messages_wakes_the_next_one(rig: Rig) -> None:
    sync(rig, "c", "ADD", "ann", "bob")
    send(rig, "ann:1", "bob:1")
    assert rig.commit(popping(client_id="c", max_messages=1)).woken == {("g", "chat\0c")}
    assert rig.commit(popping(client_id="c", max_messages=1)).woken == set()


def test_subscribing_to_a_lite_topic_with_messages_wakes_the_parked_pop(rig: Rig) -> None:
    send(rig, "ann:1")
    assert rig.commit(ask.SyncLite("chat", "g", "c", "ADD", ("ann",))).woken == {("g", "chat\0c")}


def test_an_aborted_commit_forgets_no_lite_topic_with_messages(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def raises_late(tx: Tx, _: Any) -> None:
        tx.next("rseq")
        raise ArithmeticError

    monkeypatch.setitem(core.HANDLERS, operations.PeekPiece, raises_late)
    sync(rig, "c", "ADD", "ann", "bob")
    send(rig, "ann:1")
    answer, spoiled = rig.run(popping(client_id="c"), operations.PeekPiece("chat", "g", 1, 100, None))
    assert refusal(spoiled) == "INTERNAL"
    rows = [row for part in answer.leases for row in deliveries(part)]
    assert bodies(rows) == ["ann:1"]
    assert rig.core.state.watches.ready_count(("g", "chat", "c")) == 0
    rig.ack(rows)
    send(rig, "bob:1")
    assert bodies(pop(rig, client_id="c")) == ["bob:1"]


@pytest.mark.slow
def test_a_pop_reads_only_lite_topics_that_have_messages(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"n{number}" for number in range(2000)]
    for start in range(0, 2000, 500):
        send(rig, *(f"{name}:1" for name in names[start : start + 500]))
        rig.ack(pop(rig, *names[start : start + 500], max_messages=4096))
    sync(rig, "c", "REPLACE", "ann", *names)
    looked_at: list[str] = []
    whole = lite_topics.find

    def find(tx: Tx, parent: Topic, name: str) -> Topic | None:
        looked_at.append(name)
        return whole(tx, parent, name)

    monkeypatch.setattr(lite_topics, "find", find)
    assert pop(rig, client_id="c") == []
    send(rig, "n7:2")
    looked_at.clear()
    assert bodies(pop(rig, client_id="c")) == ["n7:2"]
    assert looked_at == ["n7"]


def subscribed(rig: Rig, clients: int) -> Rig:
    """Each client watches ten lite topics."""
    for client in numbered("c", clients):
        sync(rig, client, "REPLACE", *numbered(f"{client}-", 10))
    return rig


def test_subscriptions_that_end_together_are_dropped_in_pieces_that_do_not_grow(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lite_topics, "WATCHED_MAX", 100)
    counted = calls_of_pieces(monkeypatch, lite_topics.IdleLiteTopics)

    def largest(clients: int) -> int:
        rig = make_rig(str(clients))
        create(rig)
        rig.group("g")
        subscribed(rig, clients)
        counted.clear()
        rig.advance(2 * MINUTE)
        assert rig.core.state.watches.names == 0
        return max(counted)

    assert largest(300) < 1.1 * largest(30)
