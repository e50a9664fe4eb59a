"""Session leases when the broker starts again, and the search for what a client holds."""

from typing import Any

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.embedded.rules.delivery import session_lease
from tests.engine.rig import HOUR, SECOND, Delivery, Rig, bodies, message, refusals

LEASE, CAP = session_lease.SESSION_LEASE_MS, session_lease.SESSION_CAP_MS


def pop(rig: Rig, messages: int = 32, client: str = "c") -> list[Delivery]:
    return rig.pop(messages, invisible_ms=0, client_id=client, session=True)


# ── After a start of the broker ──────────────────────────────────────────────────────────────────────────────────────


def down(rig: Rig, ms: int) -> None:
    """The broker stops, and starts after a while."""
    assert isinstance(rig.clock, FakeClock)
    rig.clock.advance(ms)
    rig.restart()
    rig.settle()


@pytest.mark.parametrize("outage_ms", [LEASE - 5 * SECOND, LEASE + 5 * SECOND, HOUR])
def test_a_session_lease_lasts_one_lease_time_after_a_start(rig: Rig, outage_ms: int) -> None:
    """Its client had no chance to be heard of."""
    rig.pair()
    rig.send("a")
    pop(rig)
    down(rig, outage_ms)
    rig.advance(LEASE - 1)
    assert rig.pop() == []
    rig.advance(1)
    (again,) = rig.pop()
    assert again.attempt == 2


def test_a_client_that_is_heard_of_after_a_start_keeps_its_leases(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    rows = pop(rig)
    down(rig, HOUR)
    rig.advance(30 * SECOND)
    assert rig.do(ask.RenewSession("c")) == (1, 0)
    rig.advance(LEASE - 1)
    assert rig.pop() == []
    assert refusals(rig.ack(rows)) == [""]


def test_a_start_keeps_no_lease_beyond_the_cap(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    pop(rig)
    down(rig, CAP - 10 * SECOND)
    rig.advance(10 * SECOND - 1)
    assert rig.pop() == []
    rig.advance(1)
    assert bodies(rig.pop()) == ["a"]


def test_a_start_keeps_no_lease_with_a_time_of_its_own(rig: Rig) -> None:
    rig.pair()
    rig.send("extended", "plain", "session")
    extended = pop(rig, 1)
    rig.pop(1, invisible_ms=LEASE, client_id="c")
    pop(rig, 1)
    rig.extend(extended, LEASE)
    down(rig, HOUR)
    assert sorted(bodies(rig.pop())) == ["extended", "plain"]


@pytest.mark.parametrize("by_operator", [False, True])
def test_a_lease_is_over_whose_session_or_which_an_operator_ends_soon_after_a_start(
    rig: Rig, by_operator: bool
) -> None:
    rig.pair()
    rig.send("a")
    (row,) = pop(rig)
    down(rig, HOUR)
    if by_operator:
        assert rig.do(ask.EndLease("g", str(row.lease.ck_id))) == 1
    else:
        assert rig.do(ask.ReleaseSession("c")) == (1, 0)
    rig.settle()
    assert bodies(rig.pop()) == ["a"]


# ── By message ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_client_finds_what_it_holds_by_message_id(rig: Rig) -> None:
    """In each of its leases, also one changed alone; not what is done, nor what another client or group has."""
    rig.pair()
    rig.group("g2")
    rig.send("a", "b", "c", "d")
    rows = [*pop(rig, 3), *pop(rig, 1, client="other")]
    rig.extend(rows[1:2], 10 * SECOND)
    rig.ack(rows[:1])

    def found(message_id: str, client: str = "c", group: str = "g") -> str:
        return str(rig.look(queries.SessionHandle(client, group, message_id)))

    handles = [row.handle for row in rows]
    assert [found(name) for name in ("a", "b", "c", "d", "")] == ["", *handles[1:3], "", ""]
    assert found("d", "other") == handles[3]
    assert found("b", "other") == found("b", group="g2") == found("b", group="none") == ""


def test_a_search_by_message_id_reads_a_bounded_number_of_bytes(rig: Rig, monkeypatch: Any) -> None:
    rig.pair()
    rig.do(ask.Send("t", tuple(message("x" * 1000, message_id=name) for name in ("a", "b"))))
    row, _ = pop(rig)
    monkeypatch.setattr(session_lease, "READ_BYTES_MAX", 1500)
    assert rig.look(queries.SessionHandle("c", "g", "a")) == row.handle
    assert rig.look(queries.SessionHandle("c", "g", "b")) == ""
