"""PurgeTopic: everything that a topic held is gone at once and for good, and everybody goes on as before."""

from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.embedded import operations
from popmq_server.embedded.rules.operate import purge
from popmq_server.embedded.store.keys import DATABASES, U32
from tests.engine.rig import (
    DAY,
    HOUR,
    KEEP,
    MINUTE,
    SECOND,
    Delivery,
    Rig,
    bodies,
    deliveries,
    message,
    numbered,
    refusal,
    refusals,
)
from tests.engine.traffic.traffic import emptied
from tests.engine.traffic.traffic_fifo import fifo_pair, send_fifo
from tests.engine.traffic.traffic_timing import ending, handle_of, later
from tests.engine.traffic.traffic_timing import send as send_places


class Lived:
    """A topic with messages in every state, and the handles of its clients."""

    def __init__(self, rig: Rig) -> None:
        rig.do(ask.CreateTopic("t", 2, False, KEEP, "TRANSACTION", unique_ids_ms=DAY))
        rig.group(max_attempts=2)
        rig.group("other")
        rig.pop(group="other")
        for text in numbered("m", 24):
            rig.do(ask.Send("t", (message(text),), "p", int(text[1:]) + 1))
        rig.attach(topic="t", lease_ms=DAY)
        self.sealed = rig.seal(1, max_messages=2)
        rig.seal(1, chunk=1, max_messages=2)
        self.acked = rig.pop(1)
        rig.ack(self.acked)
        self.dead = rig.pop(1)
        rig.reject(self.dead)
        self.backoff = rig.pop(1)
        rig.release(self.backoff, delay_ms=HOUR, reason="later")
        self.retry = rig.pop(1)
        self.leased = rig.pop(3, client_id="c", attempt_id="1", queues=(self.retry[0].queue,))
        rig.extend(self.leased[:1], HOUR)
        rig.release(self.retry, delay_ms=0)  # last: whoever pops next may begin with it
        self.delayed, self.half, self.committed = send_places(
            rig,
            later("d", delay_ms=HOUR),
            later("h", transaction=True),
            later("k", transaction=True),
        )
        rig.do(ending([self.committed], True))
        self.ends = [rig.browse("t", queue).max_offset for queue in range(2)]

    @property
    def handles(self) -> list[Delivery]:
        return [*self.acked, *self.dead, *self.retry, *self.backoff, *self.leased]


@pytest.fixture
def lived(rig: Rig) -> Lived:
    return Lived(rig)


def nothing_of(rig: Rig, topic_id: int) -> None:
    """No database has anything of this topic."""
    for name in DATABASES:
        prefixes = {key[:4] for key, _ in rig.read(name)} if name not in ("meta", "name", "log") else set()
        if name in ("rq", "fwait", "tok", "poff", "begin", "stat", "sub", "sweep"):
            prefixes = {key[4:8] for key, _ in rig.read(name)}
        if name in ("sched", "half", "hdue", "group", "own", "due", "dedup", "ck", "pin", "kept", "tdone"):
            continue
        assert U32.pack(topic_id) not in prefixes, name


# ── Everything is gone ───────────────────────────────────────────────────────────────────────────────────────────────


def test_a_purged_topic_delivers_none_of_its_old_messages(rig: Rig, lived: Lived) -> None:
    assert emptied(rig) == 24 + 1 + 2, "what was stored, and one that was delayed, and one that was half"
    for _ in range(3):
        assert rig.pop() == rig.pop(group="other") == []
        rig.advance(2 * HOUR)
    rig.advance(DAY)
    assert rig.pop() == rig.pop(group="other") == []
    assert rig.browse("t", 0).rows == rig.browse("t", 1).rows == rig.browse("%RETRY%g+t").rows == []


def test_a_purge_empties_the_numbers_at_once_and_keeps_the_counters(rig: Rig, lived: Lived) -> None:
    before = rig.numbers()
    emptied(rig)
    numbers = rig.numbers()
    assert (numbers.ready, numbers.in_flight, numbers.retry, numbers.backoff, numbers.delayed) == (0, 0, 0, 0, 0)
    assert (numbers.acked, numbers.dropped, numbers.dead) == (before.acked, 0, 1)
    assert before.acked == 1
    assert numbers.oldest_ms == 0
    rig.restart()
    assert rig.numbers() == numbers


def test_offsets_go_on_after_a_purge(rig: Rig, lived: Lived) -> None:
    emptied(rig)
    pages = [rig.browse("t", queue) for queue in range(2)]
    assert [(page.min_offset, page.max_offset) for page in pages] == [(end, end) for end in lived.ends]
    rig.restart()
    for text in "ab":
        (place,) = send_places(rig, message(text))
        assert place.offset == lived.ends[place.queue]
        lived.ends[place.queue] += 1
    assert sorted(bodies(rig.pop())) == sorted(bodies(rig.pop(group="other"))) == ["a", "b"]


@pytest.mark.parametrize("settled", [False, True])
def test_handles_lapse_on_a_purge(rig: Rig, lived: Lived, settled: bool) -> None:
    emptied(rig)
    if settled:
        rig.settle()
    lapsed = ["HANDLE_LAPSED"] * len(lived.handles)
    assert refusals(rig.ack(lived.handles)) == lapsed
    assert refusals(rig.extend(lived.handles, HOUR)) == lapsed
    assert refusals(rig.release(lived.handles)) == lapsed
    assert refusals(rig.reject(lived.handles)) == lapsed
    assert rig.numbers().dead == 1


@pytest.mark.parametrize("settled", [False, True])
def test_delayed_and_half_messages_of_a_purged_topic_never_become_visible(
    rig: Rig, lived: Lived, settled: bool
) -> None:
    emptied(rig)
    if settled:
        rig.settle()
    assert refusal(rig.run(ask.Recall("t", handle_of(lived.delayed)))[0]) == "MESSAGE_NOT_FOUND"
    assert refusals(rig.do(ending([lived.half], True))) == ["TRANSACTION_NOT_FOUND"]
    rig.advance(DAY)
    assert rig.pop() == []


def test_a_repeated_attempt_after_a_purge_gets_new_messages(rig: Rig, lived: Lived) -> None:
    emptied(rig)
    send_places(rig, message("new"))
    again = rig.popped(client_id="c", attempt_id="1")
    assert (bodies(deliveries(again)), again.replay) == (["new"], False)


def test_unique_ids_are_free_again_after_a_purge(rig: Rig, lived: Lived) -> None:
    assert send_places(rig, message("m0"))[0].duplicate
    emptied(rig)
    assert not send_places(rig, message("m0"))[0].duplicate
    assert send_places(rig, message("m0"))[0].duplicate


def test_a_request_that_is_repeated_is_stored_after_the_purge(rig: Rig, lived: Lived) -> None:
    """Its producer was never told that the first try was stored."""
    emptied(rig)
    sent = rig.do(ask.Send("t", (message("m0"),), "p", 1))
    assert not sent.duplicate
    assert rig.do(ask.Send("t", (message("m0"),), "p", 1)).duplicate
    assert bodies(rig.pop()) == ["m0"]


def test_a_purged_topic_leaves_only_its_settings_and_positions_in_the_databases(rig: Rig, lived: Lived) -> None:
    old = rig.core.state.ids[("t", "t")]
    emptied(rig)
    emptied(rig, "%DLQ%g")
    rig.settle()
    nothing_of(rig, old)
    left = {name: len(rig.read(name)) for name in DATABASES if name not in ("meta", "dedup") and rig.read(name)}
    groups = {
        "name": 5,
        "topic": 3,
        "group": 2,
        "queue": 3,
        "poff": 4,
        "stat": 2,
        "sub": 2,
        "own": 1,
        "due": 1,
        "tok": 2,
    }
    assert left.pop("tdone") == 1, "that a transaction was committed is remembered for its hour"
    assert left == groups


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t", "%DLQ%g"])
def test_a_crash_between_any_two_pieces_harms_nothing(
    rig: Rig, lived: Lived, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purge, "PURGE_KEYS_MAX", 2 if name == "t" else 1)
    emptied(rig, name)
    pieces, got = 0, 0
    while rig.read("purge"):
        rig.crash()
        send_places(rig, message(f"new{pieces}"))
        got += len(rig.pop(group="other", queues=(0,))) + len(rig.pop(group="other", queues=(1,)))
        assert rig.findings() == []
        pieces += 1
    assert pieces >= 2
    rig.restart()
    assert got >= pieces


def test_an_aborted_purge_has_not_happened(rig: Rig, lived: Lived, monkeypatch: pytest.MonkeyPatch) -> None:
    before = rig.numbers()

    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(purge, "_move_groups", fail)
    assert refusal(rig.run(ask.PurgeTopic("t"))[0]) == "INTERNAL"
    assert rig.numbers() == before
    assert rig.findings() == []
    assert refusals(rig.ack(lived.leased)) == [""] * 3


# ── Who goes on ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_settings_filters_and_modes_stay(rig: Rig) -> None:
    rig.do(ask.CreateTopic("t", 3, True, HOUR, "PRIORITY", 1 << 20, pop_messages_per_s=100))
    rig.group()
    rig.group("puller")
    rig.do(ask.SetFilter("t", "g", ("tag", "red")))
    rig.do(ask.SetConsumeMode("t", "puller", "PULL", 2))
    before = rig.look(queries.Topics("t"))[0][0]
    emptied(rig)
    assert rig.look(queries.Topics("t"))[0][0]._replace(topic_id=before.topic_id) == before
    rig.do(ask.Send("t", (message("a", tag="red"), message("b", tag="blue"))))
    assert bodies(rig.pop()) == ["a"]
    assert refusal(rig.run(ask.Pop("t", "puller"))[0]) == "WRONG_CONSUME_MODE"
    assert rig.do(ask.Pull("t", "puller", 0, 0)).status == "FOUND"


@pytest.mark.slow
def test_a_group_that_comes_later_begins_where_the_topic_begins_now(rig: Rig) -> None:
    rig.pair()
    rig.send(*"abc")
    emptied(rig)
    rig.send("d")
    rig.group("late")
    assert [(row.body, row.offset) for row in rig.pop(group="late")] == [("d", 3)]


def test_a_topic_that_is_deleted_while_its_groups_are_moved_leaves_no_lease(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many groups are left to be moved is not taken for a CheckPoint to go on at."""
    monkeypatch.setattr(purge, "POSITIONS_MAX", 1)
    rig.topic("t")
    groups = list(numbered("g", 6))
    for group in groups:
        rig.group(group)
        rig.pop(group=group)
    rig.send("a")
    for group in groups:
        rig.pop(group=group)
    rig.do(ask.PurgeTopic("t"))
    rig.do(ask.DeleteTopic("t"))
    rig.settle()
    assert (rig.read("ck"), rig.findings()) == ([], [])


def test_a_deleted_group_is_not_bound_again(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    rig.run(ask.DeleteGroup("g"), ask.PurgeTopic("t"))
    rig.group()
    rig.send("b")
    assert bodies(rig.pop()) == ["b"]
    rig.settle()
    assert len(rig.read("stat")) == 1


@pytest.mark.parametrize("settled", [False, True])
def test_an_owner_that_repeats_a_token_learns_that_its_messages_are_lost_and_gets_no_new_ones(
    rig: Rig, lived: Lived, settled: bool
) -> None:
    """A sealed set never grows: a sink that has written the epoch would skip what came into it, and ack it."""
    emptied(rig)
    if settled:
        rig.settle()
        rig.restart()
    send_places(rig, message("new"))
    again = rig.seal(1, max_messages=2)
    assert (again.rows, again.replay, again.sealed) == ([], True, (2, False, 0, 2))
    assert rig.do(ask.RenewOwner("g", "o", 1, DAY))[:2] == (2, 0)
    assert rig.ack_up_to(1) == 0
    assert bodies(deliveries(rig.seal(2))) == ["new"]
    assert rig.ack_up_to(2) == 1


def test_an_owner_whose_lease_ends_while_the_topic_is_removed_releases_nothing_of_it(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.pair()
    rig.send(*"abcdef")
    rig.attach(topic="t", lease_ms=10 * SECOND)
    for epoch in (1, 2, 3):
        rig.seal(epoch, max_messages=2)
    monkeypatch.setattr(purge, "PURGE_KEYS_MAX", 1)
    emptied(rig)
    rig.skip(MINUTE)
    rig.run()
    rig.crash()
    rig.settle()
    assert rig.pop() == []
    assert rig.look(queries.Owners("g"))[0][-2:] == (3, 0), "tokens, and what is bound to them"


def test_leases_that_end_while_the_topic_is_removed_leave_no_dead_letter(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.topic()
    rig.group(max_attempts=1)
    rig.send(*"abc")
    for _ in range(3):
        rig.pop(1, invisible_ms=SECOND)
    monkeypatch.setattr(purge, "PURGE_KEYS_MAX", 1)
    emptied(rig)
    rig.advance(HOUR)
    assert (rig.numbers().dead, rig.numbers().in_flight) == (0, 0)


def test_message_groups_that_waited_or_stopped_are_free(rig: Rig) -> None:
    fifo_pair(rig, max_attempts=1, stop_on_failure=True)
    send_fifo(rig, "a1", "a2", "b1", "b2")
    first, *_ = rig.pop(1)
    rig.release([first])
    locked = rig.pop(1)
    rig.pop()
    emptied(rig)
    send_fifo(rig, "a3", "b3")
    assert sorted(bodies(rig.pop())) == ["a3", "b3"]
    assert refusals(rig.ack(locked)) == ["HANDLE_LAPSED"]
    rig.settle()
    assert rig.numbers().waiting == 0


# ── Dead-letter topics ───────────────────────────────────────────────────────────────────────────────────────────────


def test_purged_dead_letters_are_not_counted_any_more_and_new_ones_go_on(rig: Rig) -> None:
    rig.pair()
    rig.send(*"abc")
    rig.reject(rig.pop(2))
    assert rig.numbers().dead == 2
    assert emptied(rig, "%DLQ%g") == 2
    assert (rig.numbers().dead, rig.dead()) == (0, [])
    rig.reject(rig.pop())
    rig.settle()
    assert rig.numbers().dead == 1
    page = rig.browse("%DLQ%g")
    assert (page.min_offset, page.max_offset) == (2, 3)
    assert rig.numbers().backlog == 0


def test_redriven_dead_letters_are_not_dropped_twice(rig: Rig) -> None:
    rig.pair()
    rig.send(*"abc")
    rig.reject(rig.pop())
    rig.do(operations.RedrivePiece("g", offsets=(0,)))
    assert emptied(rig, "%DLQ%g") == 2
    assert [row.body for row in rig.pop()] == ["a"], "it is a message of its origin again"
    assert rig.numbers().dead == 0
