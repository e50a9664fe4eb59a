"""Lite topics that go: idle, purged, deleted, dropped by retention; the numbers of those that stay."""

from collections.abc import Callable

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.embedded.rules.lite.lite_topics import IdleLiteTopics
from popmq_server.embedded.rules.operate import purge
from popmq_server.embedded.writer.housekeeping import Purging
from tests.engine.lites import create, lite_rig, lites, pop, send, sending, sync, wait
from tests.engine.rig import DAY, HOUR, MINUTE, SECOND, Rig, bodies, refusals
from tests.engine.work import calls, calls_of_pieces
from tests.known import known

rig = pytest.fixture(lite_rig)


def test_an_idle_lite_topic_goes_when_its_time_is_over(rig: Rig) -> None:
    create(rig, "short", lite_ttl_ms=HOUR)
    send(rig, "ann:1", "bob:1", topic="short")
    rig.ack(pop(rig, "ann", topic="short"))
    pop(rig, "bob", topic="short")
    rig.advance(MINUTE)
    rig.crash()
    wait(rig, HOUR)
    assert lites(rig, "short") == 1
    assert rig.findings() == []
    rig.ack(pop(rig, "bob", topic="short"))
    wait(rig, HOUR)
    assert lites(rig, "short") == 0
    assert rig.look(queries.Topics("short"))[0][1:5:2] == (0, 0)
    assert rig.numbers(topic="short").acked == 2
    assert list(rig.read("cq")) == []


def test_a_lite_topic_created_again_begins_at_offset_zero(rig: Rig) -> None:
    create(rig, "short", lite_ttl_ms=HOUR)
    send(rig, "ann:1", topic="short")
    late = pop(rig, "ann", topic="short")
    rig.ack(late)
    wait(rig, HOUR)
    assert lites(rig, "short") == 0
    send(rig, "ann:2", topic="short")
    rows = pop(rig, "ann", topic="short")
    assert [(row.body, row.offset) for row in rows] == [("ann:2", 0)]
    assert refusals(rig.ack(late)) == ["HANDLE_LAPSED"]


@pytest.mark.slow
def test_a_lite_topic_that_is_subscribed_or_used_is_not_removed(rig: Rig) -> None:
    create(rig, "short", lite_ttl_ms=10 * MINUTE)
    send(rig, "ann:1", "bob:1", topic="short")
    rig.ack(pop(rig, "ann", "bob", topic="short"))
    for _ in range(20):
        rig.advance(MINUTE)
        rig.do(ask.SyncLite("short", "g", "c", "REPLACE", ("ann",)))
    assert lites(rig, "short") == 1
    rig.advance(8 * MINUTE)
    send(rig, "ann:2", topic="short")
    rig.ack(pop(rig, "ann", topic="short"))
    for _ in range(9):
        rig.advance(MINUTE)
    assert lites(rig, "short") == 1
    wait(rig, MINUTE)
    assert lites(rig, "short") == 0


def test_a_purged_topic_has_no_lite_topics_and_nothing_of_them_comes_back(rig: Rig) -> None:
    sync(rig, "c", "ADD", "ann", "bob")
    send(rig, "ann:1", "bob:1", "bob:2", "zoe:1")
    rows = pop(rig, client_id="c", max_messages=2)
    rig.release([row for row in rows if row.body == "bob:1"], delay_ms=SECOND)
    assert rig.do(ask.PurgeTopic("chat")) == (4, 0)
    assert refusals(rig.ack(rows)) == ["HANDLE_LAPSED"] * 2
    assert lites(rig) == 0
    rig.crash()
    rig.settle()
    rig.advance(HOUR)
    sync(rig, "c", "ADD", "ann", "bob")
    assert pop(rig, client_id="c") == []
    send(rig, "ann:5")
    assert bodies(pop(rig, client_id="c")) == ["ann:5"]
    assert rig.numbers(topic="chat").in_flight == 1


@pytest.mark.parametrize(
    "gone", [None, ask.PurgeTopic("chat"), ask.DeleteTopic("chat")], ids=["idle", "purge", "delete"]
)
def test_a_lite_topic_whose_messages_waited_leaves_nothing_in_memory(
    rig: Rig, gone: ask.PurgeTopic | ask.DeleteTopic | None
) -> None:
    send(rig, "ann:1", "bob:1")
    rig.release(pop(rig, "ann", "bob"))
    rig.ack(pop(rig, "ann", "bob"))
    assert len(rig.core.state.ready_groups._orders) == 2
    rig.do(gone) if gone else wait(rig, 72 * HOUR)
    rig.settle()
    assert rig.core.state.ready_groups._orders == {}


def test_a_purge_keeps_lite_subscriptions(rig: Rig) -> None:
    sync(rig, "c", "ADD", "ann")
    send(rig, "ann:1")
    rig.do(ask.PurgeTopic("chat"))
    assert pop(rig, client_id="c") == []
    assert rig.commit(sending("ann:2")).woken == {("g", "chat\0c")}
    assert bodies(pop(rig, client_id="c")) == ["ann:2"]
    rig.settle()


@pytest.mark.slow
def test_a_deleted_topic_takes_its_lite_topics_along_in_pieces(rig: Rig) -> None:
    for start in range(0, 1500, 500):
        send(rig, *(f"n{number}:1" for number in range(start, start + 500)))
    pop(rig, *(f"n{number}" for number in range(40)))
    rig.do(ask.DeleteTopic("chat"))
    rig.core.run([])
    rig.crash()
    rig.settle()
    for name in ("log", "cq", "idx", "lidx", "ck", "due", "queue", "fwait", "poff"):
        assert rig.read(name) == [], name
    assert [key for key, _ in rig.read("name") if key[:1] == b"l"] == []
    create(rig)
    send(rig, "n1:new")
    assert bodies(pop(rig, "n1")) == ["n1:new"]


def test_a_store_that_is_stopped_while_a_purge_removes_lite_topics_is_sound(rig: Rig) -> None:
    send(rig, "ann:1", "bob:1")
    pop(rig, "ann", "bob")
    rig.do(ask.PurgeTopic("chat"))
    assert rig.findings() == []
    rig.crash()
    assert rig.findings() == []
    rig.settle()
    assert rig.read("cq") == []


@pytest.mark.parametrize("again", ["group", "topic"])
def test_a_subscription_by_name_binds_what_is_created_again_under_that_name(rig: Rig, again: str) -> None:
    sync(rig, "client", "REPLACE", "ann")
    if again == "group":
        rig.do(ask.DeleteGroup("g"))
        rig.group("g", start_from="LATEST")
    else:
        rig.do(ask.DeleteTopic("chat"))
        create(rig)
    send(rig, "ann:1")
    assert rig.findings() == []
    assert rig.numbers(topic="chat").ready == 1
    assert bodies(pop(rig, client_id="client")) == ["ann:1"]


def test_a_deleted_group_leaves_nothing_in_lite_topics(rig: Rig) -> None:
    rig.group("other")
    send(rig, "ann:1", "bob:1")
    pop(rig, "ann", "bob", group="other")
    pop(rig, "ann")
    rig.do(ask.DeleteGroup("other"))
    rig.settle()
    assert [row.group for row in rig.look(queries.Groups("chat", ""))] == ["g"]
    rig.group("other")
    assert bodies(pop(rig, "ann", "bob", group="other")) == ["ann:1", "bob:1"]


def test_a_group_that_is_removed_in_pieces_leaves_no_count_of_unread_messages(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge, "PURGE_KEYS_MAX", 8)
    texts = [f"n{number}:1" for number in range(5)]
    send(rig, *texts)
    rig.ack(pop(rig, *(f"n{number}" for number in range(5))))
    rig.do(ask.DeleteGroup("g"))
    for _ in range(10):
        rig.do(sending(*texts))  # with one piece of the removal
    assert list(rig.core.state.purges) == []
    assert rig.findings() == []


def test_a_lite_topic_stays_while_leases_of_a_deleted_group_are_removed(rig: Rig) -> None:
    """Else the numbers of leased messages would be counted down for a topic that is not there."""
    create(rig, "short", lite_ttl_ms=MINUTE)
    rig.group("other")
    send(rig, "ann:1", topic="short")
    assert bodies(pop(rig, "ann", group="other", topic="short", invisible_ms=12 * HOUR)) == ["ann:1"]
    rig.ack(pop(rig, "ann", topic="short"))
    purging = rig.core.timetable.jobs[0]
    assert isinstance(purging, Purging)
    purging.postpone(rig.now + HOUR)  # another removal takes long
    rig.do(ask.DeleteGroup("other"))
    wait(rig, 10 * MINUTE)
    assert lites(rig, "short") == 1
    wait(rig, HOUR)
    wait(rig, 10 * MINUTE)
    assert lites(rig, "short") == 0


def test_retention_drops_messages_of_lite_topics_that_every_group_has_finished(rig: Rig) -> None:
    create(rig, "brief", lite_ttl_ms=30 * DAY)
    rig.do(ask.UpdateTopic("brief", 0, (False, HOUR)))
    send(rig, "ann:1", "bob:1", topic="brief")
    rig.ack(pop(rig, "ann", topic="brief"))
    pop(rig, "bob", topic="brief", invisible_ms=12 * HOUR)
    wait(rig, HOUR)
    found = rig.look(queries.Topics("brief"))[0]
    assert (found.messages, found.lite_topics) == (1, 2)
    send(rig, "ann:2", topic="brief")
    assert [(row.body, row.offset) for row in pop(rig, "ann", topic="brief")] == [("ann:2", 1)]


def test_a_topic_tells_the_sums_over_its_lite_topics(rig: Rig) -> None:
    send(rig, *(f"ann:{number}" for number in range(5)), "bob:1", "nobody:1")
    rows = pop(rig, "ann", "bob", max_messages=3)
    rig.ack(rows[:1])
    rig.release(rows[1:2], delay_ms=HOUR)
    for _ in range(2):
        numbers = rig.numbers(topic="chat")
        told = (numbers.ready, numbers.in_flight, numbers.backoff, numbers.waiting, numbers.acked)
        assert told[4] == 1
        assert numbers.backlog + known(numbers.acked) == 6
        assert known(numbers.oldest_ms) > 0
        rig.crash()
    assert rig.look(queries.Topics("chat"))[0].messages == 7


def test_a_lease_is_shown_with_the_name_of_the_topic(rig: Rig) -> None:
    send(rig, "ann:1")
    pop(rig, "ann", client_id="me")
    leases, total, _ = rig.look(queries.Leases("", "", 10))
    assert [(lease.topic, lease.client, total) for lease in leases] == [("chat", "me", 1)]


# ── Many at once ─────────────────────────────────────────────────────────────────────────────────────────────────────


def idle(rig: Rig, count: int) -> None:
    """Lite topics that are all done, and whose time ends together."""
    create(rig, "short", lite_ttl_ms=HOUR)
    for first in range(0, count, 100):
        send(rig, *(f"n{number}:1" for number in range(first, first + 100)), topic="short")
        rig.ack(pop(rig, *(f"n{number}" for number in range(first, first + 100)), topic="short", max_messages=100))
    for _ in range(2):
        rig.advance(MINUTE)
    rig.skip(HOUR)


def pieces(rig: Rig) -> list[int]:
    """The work of each commit that time asks for."""
    found = []
    while rig.due:
        found.append(calls(lambda: rig.run()))
    return found


@pytest.mark.slow
def test_idle_lite_topics_that_end_together_go_many_at_once_in_pieces_that_do_not_grow(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("popmq_server.embedded.rules.lite.lite_topics.REMOVAL_KEYS_MAX", 300)
    monkeypatch.setattr("popmq_server.embedded.rules.retention.retention.LOOKS_MAX", 100)
    small, large = make_rig("small"), make_rig("large")
    for rig, count in ((small, 100), (large, 1000)):
        rig.group("g")
        idle(rig, count)
    few, many = pieces(small), pieces(large)
    assert (lites(small, "short"), lites(large, "short")) == (0, 0)
    assert [large.read(name) for name in ("log", "lidx", "purge", "hist", "queue")] == [[]] * 5
    assert len(many) < 1000 / 10
    assert sum(many) < 12 * sum(few)
    assert max(many) < 1.5 * max(few)


@pytest.mark.slow
def test_a_large_idle_lite_topic_goes_piece_by_piece(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("popmq_server.embedded.rules.lite.lite_topics.REMOVAL_KEYS_MAX", 10)
    create(rig, "short", lite_ttl_ms=HOUR)
    for number in range(30):
        send(rig, f"ann:{number}", topic="short")
        send(rig, f"bob:{number}", topic="short")
    rig.ack(pop(rig, "ann", "bob", topic="short", max_messages=100))
    while waiting := pop(rig, "ann", "bob", topic="short", max_messages=100):
        rig.ack(waiting)
    rig.advance(MINUTE)
    rig.advance(MINUTE)
    rig.skip(HOUR)
    while rig.due:
        rig.run()
        assert rig.findings() == []
        rig.crash()
    rig.advance(MINUTE)
    assert lites(rig, "short") == 0
    assert [rig.read(name) for name in ("log", "idx", "lidx", "cq", "purge")] == [[]] * 5


def test_a_piece_that_looks_for_idle_lite_topics_costs_the_same_however_many_groups_read_them(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("popmq_server.embedded.rules.lite.lite_topics.LOOKS_MAX", 100)
    monkeypatch.setattr("popmq_server.embedded.rules.lite.lite_topics.GROUPS_PER_LOOK", 1)
    monkeypatch.setattr("popmq_server.embedded.rules.lite.lite_topics.WATCHED_MAX", 100)
    counted = calls_of_pieces(monkeypatch, IdleLiteTopics)

    def largest(groups: int) -> int:
        """The most calls of a piece, while no client watches the lite topics and all messages are done."""
        rig, names = make_rig(str(groups)), [f"n{number}" for number in range(20)]
        create(rig, "short", lite_ttl_ms=DAY)
        for group in (f"g{number}" for number in range(groups)):
            rig.group(group)
            pop(rig, *names, topic="short", group=group)
        send(rig, *(f"{name}:1" for name in names), topic="short")
        for group in (f"g{number}" for number in range(groups)):
            rig.ack(pop(rig, *names, topic="short", group=group, max_messages=100), group=group)
        rig.skip(HOUR)
        counted.clear()
        rig.settle()
        return max(counted)

    assert largest(50) < 1.5 * largest(5)
