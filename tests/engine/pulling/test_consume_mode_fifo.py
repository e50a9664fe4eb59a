"""A change of the consume mode over FIFO topics."""

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.delivery import sweep
from tests.engine.pull_steps import (
    commit,
    finish,
    pulled_again,
    send_back,
    sums,
    switch,
)
from tests.engine.rig import HOUR, MINUTE, Rig, bodies, deliveries, numbered, sealing
from tests.engine.traffic.traffic_fifo import fifo_pair, send_fifo


def test_message_groups_go_to_the_retry_topic_in_their_order(rig: Rig) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2", "b1", "a3", "b2", "c1")
    rig.release(rig.pop(1), delay_ms=MINUTE)  # a1 waits for its delay and keeps the lock
    rig.pop(1)  # b1
    rig.pop(1)  # c1
    assert rig.numbers().waiting == 3
    switch(rig, "PULL")
    assert (rig.numbers().waiting, sums(rig)) == (0, (0, 0, 6, 0, 0))
    order = [place[0] for place in pulled_again(rig)]
    assert [text for text in order if text[0] == "a"] == ["a1", "a2", "a3"]
    assert [text for text in order if text[0] == "b"] == ["b1", "b2"]
    assert rig.core.state.locks.committed() == {}


def test_message_groups_are_in_order_again_when_the_group_pops(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "SWEEP_MAX", 3)
    fifo_pair(rig)
    send_fifo(rig, *numbered("a", 8), *numbered("b", 4))
    rig.pop(1)
    rig.pop(1)
    switch(rig, "PULL")
    send_fifo(rig, "a8", "b4")
    changed, popped = rig.run(ask.SetConsumeMode("t", "g", "POP"), ask.Pop("t", "g"))
    assert changed[1]
    assert popped.rows == [], "not before everything stands in its line"
    finish(rig, True)
    got = list[str]()
    while rows := rig.pop(3):
        got += bodies(rows)
        rig.ack(rows)
    assert [text for text in got if text[0] == "a"] == list(numbered("a", 9))
    assert [text for text in got if text[0] == "b"] == list(numbered("b", 5))
    assert (rig.numbers().waiting, sums(rig)) == (0, (0, 0, 0, 0, 14))


def test_a_set_is_not_sealed_as_the_end_while_message_groups_are_put_in_order(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    fifo_pair(rig)
    send_fifo(rig, *numbered("a", 6))
    switch(rig, "PULL")
    commit(rig, 6)
    send_back(rig, *range(6), delay_ms=0)
    rig.attach()
    monkeypatch.setattr(sweep, "SWEEP_MAX", 2)
    _, popped = rig.run(ask.SetConsumeMode("t", "g", "POP"), sealing(1))
    assert popped.sealed == (0, False, 0, 0)
    finish(rig, True)
    assert bodies(deliveries(rig.seal(1, chunk=1))) == list(numbered("a", 6))


def test_a_lease_of_a_fifo_topic_that_ends_while_the_group_pulls_goes_to_the_retry_topic(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "SWEEP_MAX", 1)
    fifo_pair(rig)
    send_fifo(rig, "a1", "b1", "c1", "d1")
    for _ in range(4):
        rig.pop(1)
    rig.do(ask.SetConsumeMode("t", "g", "PULL"))
    rig.skip(MINUTE)
    rig.settle()
    assert sorted(place[0] for place in pulled_again(rig)) == ["a1", "b1", "c1", "d1"]


@pytest.mark.slow
def test_a_message_of_a_fifo_topic_that_was_sent_back_twice_waits_once(rig: Rig) -> None:
    fifo_pair(rig)
    switch(rig, "PULL")
    send_fifo(rig, "a1", "a2")
    commit(rig, 2)
    send_back(rig, 1, delay_ms=0)
    send_back(rig, 1, 0, delay_ms=0)
    send_back(rig, 0, delay_ms=MINUTE)
    switch(rig, "POP")
    assert rig.numbers().waiting == 2
    rig.advance(MINUTE)
    assert rig.numbers().waiting == 2
    rows = rig.pop()
    assert bodies(rows) == ["a1", "a2"]
    rig.ack(rows)
    rig.advance(HOUR)
    assert rig.pop() == []
