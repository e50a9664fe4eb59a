"""Mechanisms of ordered delivery that no other test names. Ids are those of mechanisms.md."""

import random
from typing import Any

import pytest

from popmq_server.embedded.store.table import Table
from tests.engine.rig import MINUTE, Rig, bodies
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


@pytest.mark.mechanism("I.10")
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_first_deliveries_of_a_message_group_come_in_the_order_of_sending(rig: Rig, seed: int) -> None:
    """Whatever is acked, released, left to time or lost by a crash; and no message before its predecessor."""
    chance = random.Random(seed)
    fifo_pair(rig, queues=2)
    sent, undone = dict.fromkeys("abcd", 0), {name: list[int]() for name in "abcd"}
    first: dict[str, list[int]] = {name: [] for name in "abcd"}
    for turn in range(120):
        for name in chance.choices("abcd", k=2):
            sent[name] += 1
            undone[name].append(sent[name])
            send_fifo(rig, f"{name}{sent[name]}")
        rows = rig.pop(chance.choice([1, 2, 5]))
        for name in {row.body[0] for row in rows}:
            numbers = [int(row.body[1:]) for row in rows if row.body[0] == name]
            assert numbers == undone[name][: len(numbers)], "nothing before its predecessor is done"
            first[name] += [number for number in numbers if number not in first[name]]
        done = [row for row in rows if chance.random() < 0.5]
        rig.ack(done)
        for row in done:
            undone[row.body[0]].remove(int(row.body[1:]))
        left = [row for row in rows if row not in done]
        if chance.random() < 0.5:
            rig.release(left, delay_ms=0)
        rig.advance(chance.choice([0, MINUTE]))
        if turn % 40 == 39:
            rig.crash()
    assert all(numbers == sorted(numbers) and numbers for numbers in first.values())


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
