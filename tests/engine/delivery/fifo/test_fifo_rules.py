"""Mechanisms of ordered delivery that no other test names. Ids are those of mechanisms.md."""

from typing import Any

import pytest

from popmq_server.embedded.store.table import Table
from tests.engine.rig import Rig, bodies
from tests.engine.traffic.traffic_fifo import fifo_pair, send_fifo


@pytest.mark.mechanism("I.10")
@pytest.mark.parametrize("queues_first", [False, True])
def test_a_new_message_does_not_overtake_the_waiting_ones_of_its_message_group(rig: Rig, queues_first: bool) -> None:
    """Whether a pop begins with the queues or with the line of waiting message groups, which takes turns."""
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2", "b1", "b2")
    first, other = rig.pop(1), rig.pop(1)
    assert (bodies(first), bodies(other), rig.pop()) == (["a1"], ["b1"], [])
    if queues_first:  # the line has just had its turn
        rig.ack(other)
        assert bodies(rig.pop(1)) == ["b2"]
    send_fifo(rig, "a3")
    rig.ack(first)
    second = rig.pop(1)
    assert (bodies(second), rig.pop()) == (["a2"], [])
    rig.ack(second)
    assert bodies(rig.pop()) == ["a3"]


def test_a_pop_after_a_restart_walks_no_waiting_message_groups(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all groups and topics together: with a million of them, the walk would stop all other calls for 0.2 s."""
    fifo_pair(rig)
    send_fifo(rig, *(f"{name}{number}" for name in "abc" for number in (1, 2)))
    rig.release(rig.pop(6), delay_ms=0)
    rig.crash()
    walked: list[Table[Any, Any]] = []
    walk = Table.__iter__
    monkeypatch.setattr(Table, "__iter__", lambda table: walked.append(table) or walk(table))  # type: ignore[func-returns-value]
    assert sorted(bodies(rig.pop(1))[0] for _ in "abc") == ["a1", "b1", "c1"]
    assert (rig.pop(), rig.core.state.waiting in walked) == ([], False)


def test_an_aborted_removal_of_a_subscription_leaves_its_message_groups_ready(rig: Rig) -> None:
    """The abort restores their order, which is not built again from the tables."""
    fifo_pair(rig)
    send_fifo(rig, "a1", "b1")
    rig.release(rig.pop(2), delay_ms=0)
    state, where = rig.core.state, next(iter(rig.core.state.stat))
    before = list(state.ready_groups.of(where))
    for key in list(state.waiting):
        state.waiting.pop(key)
        assert not state.ready_groups.judge(key)
    state.forget_subscription(where, [0])
    assert list(state.ready_groups.of(where)) == []
    for table in state.transactional:
        table.drop()
    assert (list(state.ready_groups.of(where)), len(before)) == (before, 2)
    assert sorted(bodies(rig.pop())) == ["a1", "b1"]
