"""Leases that live with their client: as long as it is heard of, and no longer."""

import random
from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.embedded.rules.delivery import lease_history, session_lease
from popmq_server.embedded.state import leases
from popmq_server.embedded.store import checkpoint
from popmq_server.embedded.store.table import Table
from popmq_server.values.message import Extra
from popmq_server.values.outgoing import Outgoing
from tests.engine.rig import HOUR, SECOND, Delivery, Rig, bodies, message, numbered, refusals

LEASE, CAP = session_lease.SESSION_LEASE_MS, session_lease.SESSION_CAP_MS


def pop(rig: Rig, messages: int = 32, client: str = "c", **asked: Any) -> list[Delivery]:
    return rig.pop(messages, invisible_ms=0, client_id=client, session=True, **asked)


def renew(rig: Rig, client: str = "c") -> int:
    """How many leases moved, in however many pieces."""
    moved: int = 0
    after = 0
    while True:
        count, after = rig.do(operations.NextRenewal(client, after))
        moved += count
        if not after:
            return moved


def end(rig: Rig, client: str = "c") -> int:
    moved, after = rig.do(ask.ReleaseSession(client))
    assert not after
    rig.settle()
    return int(moved)


def held(rig: Rig, client: str = "c") -> int:
    """How many CheckPoints live with a client, as memory knows it."""
    return len(leases.of_session(rig.core.state, client, 0, 1 << 20))


# ── While the client lives ───────────────────────────────────────────────────────────────────────────────────────────


def test_leases_of_a_session_last_while_the_client_is_heard_of(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b")
    rows = pop(rig)
    for _ in range(40):
        rig.advance(30 * SECOND)
        assert renew(rig) == 1
        assert rig.pop() == []
    assert refusals(rig.ack(rows)) == ["", ""]
    assert held(rig) == 0


def test_a_session_lease_lasts_as_long_as_the_engine_says_whatever_the_group_has(rig: Rig) -> None:
    rig.pair()
    rig.run(ask.UpdateGroup("g", {"invisible_ms": 10 * SECOND}))
    rig.send("a")
    pop(rig)
    rig.advance(LEASE - 1)
    assert rig.pop() == []
    rig.advance(1)
    assert [row.attempt for row in rig.pop()] == [2]


def test_leases_of_a_session_end_one_lease_time_after_its_last_sign_of_life(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    pop(rig)
    rig.advance(45 * SECOND)
    renew(rig)
    rig.advance(LEASE - 1)
    assert rig.pop() == []
    rig.advance(1)
    (again,) = rig.pop()
    assert again.attempt == 2


@pytest.mark.slow
def test_no_client_keeps_a_message_longer_than_the_cap(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    pop(rig)
    for _ in range(CAP // (30 * SECOND) - 1):
        rig.advance(30 * SECOND)
        renew(rig)
    assert rig.pop() == []
    rig.advance(30 * SECOND)
    assert renew(rig) == 0
    assert bodies(rig.pop()) == ["a"]


def test_a_renewal_makes_no_lease_shorter(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    rig.pop(invisible_ms=HOUR, client_id="c", session=True)
    assert renew(rig) == 0
    rig.advance(HOUR - 1)
    assert rig.pop() == []


def test_a_renewal_is_of_this_client_and_of_its_session_leases_only(rig: Rig) -> None:
    rig.pair()
    rig.send("mine", "other's", "plain")
    pop(rig, 1)
    pop(rig, 1, client="other")
    rig.pop(1, invisible_ms=LEASE, client_id="c")
    rig.advance(30 * SECOND)
    assert renew(rig) == 1
    rig.advance(30 * SECOND)
    assert sorted(bodies(rig.pop())) == ["other's", "plain"]


def test_a_renewal_covers_the_leases_of_a_client_in_all_its_groups(rig: Rig) -> None:
    rig.pair()
    rig.group("g2")
    rig.send("a")
    pop(rig)
    pop(rig, group="g2")
    rig.advance(30 * SECOND)
    assert renew(rig) == 2
    rig.advance(LEASE - 1)
    assert rig.pop() == rig.pop(group="g2") == []


@pytest.mark.slow
def test_a_session_with_many_leases_is_renewed_in_pieces(rig: Rig, monkeypatch: Any) -> None:
    monkeypatch.setattr(session_lease, "PIECE", 3)
    rig.pair()
    rig.send(*numbered("m", 7))
    rows = [row for _ in range(7) for row in pop(rig, 1)]
    rig.advance(1)
    moved, after = rig.do(ask.RenewSession("c"))
    assert (moved, after) == (3, rows[2].lease.ck_id)
    moved, after = rig.do(operations.NextRenewal("c", after))
    assert (moved, after) == (3, rows[5].lease.ck_id)
    assert rig.do(operations.NextRenewal("c", after)) == (1, 0)


def test_renewing_or_releasing_a_session_without_leases_writes_nothing(rig: Rig) -> None:
    rig.pair()
    assert not rig.commit(ask.RenewSession("nobody"), ask.ReleaseSession("nobody")).wrote


# ── The client ends ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_messages_of_a_session_come_back_at_once_when_it_ends(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b", "c")
    rows = pop(rig)
    rig.ack(rows[:1])
    assert end(rig) == 1
    again = rig.pop()
    assert [(row.body, row.attempt) for row in again] == [("b", 2), ("c", 2)]
    assert refusals(rig.ack(rows[1:])) == ["HANDLE_LAPSED"] * 2
    assert held(rig) == 0


def test_the_last_attempt_of_a_client_that_ends_is_a_dead_letter(rig: Rig) -> None:
    rig.pair(max_attempts=1)
    rig.send("a")
    pop(rig)
    end(rig)
    assert [letter.body for letter in rig.dead()] == [b"a"]


def test_a_sign_of_life_after_the_end_of_a_session_renews_nothing(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    pop(rig)
    rig.run(ask.ReleaseSession("c"), ask.RenewSession("c"))
    rig.settle()
    assert bodies(rig.pop()) == ["a"]


def test_the_end_of_a_session_does_not_touch_leases_of_others(rig: Rig) -> None:
    rig.pair()
    rig.send("mine", "other's")
    pop(rig, 1)
    pop(rig, 1, client="other")
    end(rig)
    assert bodies(rig.pop()) == ["mine"]


# ── A time of its own ────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_lease_extended_alone_keeps_its_deadline_when_its_session_is_renewed(rig: Rig) -> None:
    rig.pair()
    rig.send("nacked", "worked on")
    nacked, _ = pop(rig)
    rig.extend([nacked], 10 * SECOND)
    rig.advance(5 * SECOND)
    assert renew(rig) == 1
    rig.advance(5 * SECOND)
    assert bodies(rig.pop()) == ["nacked"]


def test_a_lease_alone_in_its_batch_keeps_its_deadline_once_it_is_extended(rig: Rig) -> None:
    """Else a failed message would be renewed with its client, and hidden for three hours."""
    rig.pair()
    rig.send("alone", "done", "last")
    (alone,) = pop(rig, 1)
    done, last = pop(rig, 2)
    rig.ack([done])
    rig.extend([alone, last], 10 * SECOND)
    assert renew(rig) == 0
    rig.advance(10 * SECOND)
    assert sorted(bodies(rig.pop())) == ["alone", "last"]


def test_a_lease_extended_alone_can_be_acked_and_extended_again(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    (row,) = pop(rig)
    rig.extend([row], 10 * SECOND)
    rig.advance(5 * SECOND)
    rig.extend([row], 20 * SECOND)
    rig.advance(19 * SECOND)
    assert refusals(rig.ack([row])) == [""]
    assert held(rig) == 0


def test_the_history_has_rows_for_both_leases_of_a_split_batch(rig: Rig) -> None:
    rig.pair()
    rig.send("done", "last")
    done, last = pop(rig)
    rig.ack([done])
    rig.extend([last], 10 * SECOND)
    rig.ack([last])
    topic_id = rig.core.state.ids[("t", "t")]
    with rig.reading() as kv:
        rows = {(row.ck_id, row.sub) for offset in range(2) for row in lease_history.rows(kv, topic_id, 0, offset)}
    assert len(rows) == 2  # of the batch, and of the one that had a time of its own


def test_a_lease_extended_alone_does_not_end_with_its_session(rig: Rig) -> None:
    rig.pair()
    rig.send("nacked")
    rig.extend(pop(rig), 10 * SECOND)
    assert end(rig) == 0
    assert rig.pop() == []
    rig.advance(10 * SECOND)
    assert bodies(rig.pop()) == ["nacked"]


# ── Restarts, order, attempts ────────────────────────────────────────────────────────────────────────────────────────


def test_leases_of_a_session_survive_a_restart_and_a_crash(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b")
    rows = pop(rig, 1)
    nacked = pop(rig, 1)
    rig.extend(nacked, 10 * SECOND)
    rig.restart()
    assert held(rig) == 2
    rig.advance(9 * SECOND)
    assert renew(rig) == 1
    rig.crash()
    rig.advance(LEASE - 1)
    assert bodies(rig.pop()) == ["b"]
    assert refusals(rig.ack(rows)) == [""]


def test_a_checkpoint_of_an_older_store_is_not_a_session_lease(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    (row,) = pop(rig)
    with rig.tables() as state:
        ck = state.ck[row.lease.ck_id]
    raw = checkpoint.encode(ck)
    assert checkpoint.decode(ck.ck_id, memoryview(raw)) == ck
    older = raw[:9] + b"\0" + raw[10:]
    assert not checkpoint.decode(ck.ck_id, memoryview(older)).session
    assert checkpoint.decode(ck.ck_id, memoryview(older)).kind == checkpoint.NORMAL


def test_a_repeated_attempt_is_renewed_with_its_session_too(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    first = pop(rig, attempt_id="try")
    rig.advance(30 * SECOND)
    renew(rig)
    assert pop(rig, attempt_id="try") == first
    assert held(rig) == 1


def test_a_message_group_waits_for_the_client_that_has_its_head(rig: Rig) -> None:
    rig.do(ask.CreateTopic("t", 1, False, 72 * HOUR, type="FIFO"))
    rig.group("g")
    rig.do(ask.Send("t", tuple(ordered(text, "x") for text in ("1", "2", "3"))))
    one, two = pop(rig, 2)
    for _ in range(4):
        rig.advance(30 * SECOND)
        renew(rig)
        assert rig.pop() == []
    rig.ack([one])
    rig.extend([two], 5 * SECOND)
    renew(rig)
    rig.advance(5 * SECOND)
    assert [(row.body, row.attempt) for row in rig.pop()] == [("2", 2), ("3", 1)]


def test_a_message_group_goes_on_when_the_client_ends(rig: Rig) -> None:
    rig.do(ask.CreateTopic("t", 1, False, 72 * HOUR, type="FIFO"))
    rig.group("g")
    rig.do(ask.Send("t", tuple(ordered(text, "x") for text in ("1", "2", "3"))))
    pop(rig, 2)
    end(rig)
    assert [(row.body, row.attempt) for row in rig.pop()] == [("1", 2), ("2", 1), ("3", 1)]


def ordered(text: str, message_group: str) -> Outgoing:
    """A message of a message group."""
    data = pb.Message(message_id=text, body=text.encode(), message_group=message_group).SerializeToString()
    return message(text)._replace(data=data, extra=Extra(message_group))


@pytest.mark.slow
def test_each_message_is_acked_once_and_memory_equals_the_store_after_random_calls(rig: Rig) -> None:
    """Pops, acks, changes, renewals, ends and restarts of three clients; at the end all is acked."""
    rig.pair(queues=2, max_attempts=10_000)
    chance, rows = random.Random(7), list[Delivery]()
    rig.send(*numbered("m", 60))
    for _ in range(400):
        client = chance.choice("abc")
        match chance.randrange(9):
            case 0 | 1 | 2:
                rows += pop(rig, chance.randrange(1, 6), client=client)
            case 3 if rows:
                rig.ack(chance.sample(rows, min(len(rows), 2)))
            case 4 | 5 if rows:
                rig.extend(chance.sample(rows, 1), chance.choice((0, 1, 10 * SECOND, LEASE)))
            case 6:
                renew(rig, client)
            case 7:
                end(rig, client) if chance.random() < 0.3 else rig.advance(chance.randrange(20 * SECOND))
            case _:
                if chance.random() < 0.2:
                    rig.crash()
        assert rig.findings() == []
    rig.advance(CAP)
    while left := rig.pop():
        rig.ack(left)
    assert rig.numbers().acked == 60
    assert not list(rig.core.state.session_leases) + list(rig.core.state.session_spans)


@pytest.mark.slow
def test_a_pop_copies_a_bounded_number_of_the_leases_that_live_with_its_client(rig: Rig) -> None:
    rig.topic()
    rig.group("g", in_flight_max=1_000_000)
    rig.send(*numbered("m", 3000))
    for _ in range(6):
        rig.run(*(ask.Pop("t", "g", (), 1, client_id="c", session=True) for _ in range(500)))
    tables: tuple[Table[Any, tuple[int, ...]], ...] = rig.core.state.session_leases, rig.core.state.session_spans
    kept = [table.committed() for table in tables]
    assert max(len(each) for table in kept for each in table.values()) <= 1 << leases.SESSION_BITS
    assert held(rig) == 3000
    rig.restart()
    state = rig.core.state
    assert [state.session_leases.committed(), state.session_spans.committed()] == kept
    assert renew(rig) == 0, "no time has passed"
    rig.skip(SECOND)
    assert renew(rig) == 3000
