"""The consume mode of a group in a topic, switched while consumers of both kinds run."""

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.delivery import sweep
from popmq_server.values.ids import GroupId, TopicId
from popmq_server.values.records import Subscription
from tests.engine.pull_steps import (
    RETRY,
    committed,
    finish,
    pull,
    pulled_again,
    reset,
    sums,
    switch,
    texts,
)
from tests.engine.rig import DAY, HOUR, MINUTE, Delivery, Rig, bodies, deliveries, numbered, refusal, refusals, sealing
from tests.engine.traffic.traffic_fifo import fifo_pair, send_fifo


@pytest.fixture
def shop(rig: Rig) -> Rig:
    """Topic t with ten messages, and group g, which pops it."""
    rig.pair()
    rig.send(*numbered("m", 10))
    return rig


def mode(rig: Rig) -> str:
    state = rig.core.state
    where = (GroupId(state.ids["g", "g"]), TopicId(state.ids["t", "t"]))
    return state.subscriptions.get(where, Subscription()).mode


# ── The setting ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.mechanism("S1.03")
def test_the_consume_mode_is_scoped_to_a_group_and_topic_and_survives_a_crash(shop: Rig) -> None:
    shop.topic("u")
    shop.group("h")
    changed = switch(shop, "PULL", share_number=3)
    assert (changed.mode, changed.share_number) == ("PULL", 3)
    shop.crash()
    assert shop.numbers().mode == "PULL"
    assert shop.run(ask.Pop("u", "g"), ask.Pop("t", "h"))[1].rows
    assert refusal(shop.run(ask.Pop("t", "g"))[0]) == "WRONG_CONSUME_MODE"


@pytest.mark.mechanism("S1.03")
def test_the_same_mode_again_changes_nothing_and_a_share_number_alone_may_change(shop: Rig) -> None:
    switch(shop, "PULL", share_number=1)
    assert not shop.commit(ask.SetConsumeMode("t", "g", "PULL", 1)).wrote
    assert switch(shop, "PULL", share_number=2).share_number == 2
    assert not shop.commit(ask.SetConsumeMode("t", "g", "PULL", 2)).wrote


@pytest.mark.mechanism("S1.04")
def test_a_switch_fixes_the_start_of_the_group(rig: Rig) -> None:
    """What is sent between the switch and the first pull is not skipped."""
    rig.topic()
    rig.group(start_from="LATEST")
    rig.send("old")
    switch(rig, "PULL")
    rig.send("new")
    assert committed(rig) == [1]
    assert texts(pull(rig, 1)) == ["new"]


@pytest.mark.slow
def test_a_mode_keeps_the_filter_and_a_filter_the_mode(shop: Rig) -> None:
    shop.do(ask.SetFilter("t", "g", ("tag", "x")))
    assert switch(shop, "PULL").filter_text == "x"
    assert shop.do(ask.SetFilter("t", "g", ("tag", "y"))).mode == "PULL"


def test_a_switch_of_an_unknown_topic_or_group_is_refused(shop: Rig) -> None:
    asked = [ask.SetConsumeMode("nobody", "g", "PULL"), ask.SetConsumeMode("t", "nobody", "PULL")]
    assert refusals(shop.run(*asked)) == ["TOPIC_NOT_FOUND", "GROUP_NOT_FOUND"]


def test_the_requests_of_the_other_mode_are_refused(shop: Rig) -> None:
    shop.attach()
    pops = [ask.Pop("t", "g"), sealing(1)]
    pulled = [
        ask.Pull("t", "g", 0, 0),
        ask.Pull(RETRY, "g", 0, 0),
        ask.UpdateOffsets("t", "g", {0: 0}),
        ask.SendBack("t", "g", (ask.SentBack(0, 0),)),
    ]
    assert refusals(shop.run(*pulled)) == ["WRONG_CONSUME_MODE"] * 4
    switch(shop, "PULL")
    assert refusals(shop.run(*pops)) == ["WRONG_CONSUME_MODE"] * 2
    assert refusals(shop.run(*pulled)) == [""] * 4
    assert refusals(shop.run(ask.Available("t", "g"))) == [""]


# ── POP → PULL ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_switch_to_pull_moves_leased_messages_to_the_retry_topic_with_their_attempts(shop: Rig) -> None:
    shop.release(shop.pop(1), delay_ms=0)
    rows = [*shop.pop(5), *shop.pop(5)]
    shop.ack(rows[:2])
    shop.send("new")
    assert sums(shop) == (1, 8, 0, 0, 2)
    switch(shop, "PULL")
    assert sums(shop) == (1, 0, 8, 0, 2)
    assert committed(shop) == [10]
    expected = sorted((row.body, row.attempt + 1) for row in rows[2:])
    assert sorted(place[::2] for place in pulled_again(shop)) == expected
    assert ("m0", 3) in expected
    assert refusals(shop.ack(rows)) == ["HANDLE_LAPSED"] * 10
    assert texts(pull(shop, 10)) == ["new"]


def test_a_message_at_its_last_attempt_is_no_dead_letter_by_a_switch(rig: Rig) -> None:
    rig.pair(max_attempts=1)
    rig.send("a")
    rig.pop()
    switch(rig, "PULL")
    assert [place[::2] for place in pulled_again(rig)] == [("a", 2)]
    assert rig.numbers().dead == 0


def test_messages_in_backoff_at_a_switch_to_pull_come_at_their_time(shop: Rig) -> None:
    shop.release(shop.pop(2), delay_ms=HOUR)
    switch(shop, "PULL")
    assert (sums(shop), pulled_again(shop)) == ((8, 0, 0, 2, 0), [])
    shop.advance(HOUR)
    assert [place[::2] for place in pulled_again(shop)] == [("m0", 2), ("m1", 2)]


def test_members_that_were_extended_alone_go_too(shop: Rig) -> None:
    rows = shop.pop(3)
    shop.extend(rows[1:2], HOUR)
    switch(shop, "PULL")
    assert sorted(place[0] for place in pulled_again(shop)) == ["m0", "m1", "m2"]
    assert shop.read("ck") == shop.read("due") == []


def test_leases_that_end_later_bring_nothing_twice(shop: Rig) -> None:
    shop.pop(5)
    switch(shop, "PULL")
    shop.advance(DAY)
    assert (len(pulled_again(shop)), sums(shop)) == (5, (5, 0, 5, 0, 0))


# ── In pieces ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def half_way(shop: Rig, monkeypatch: pytest.MonkeyPatch) -> tuple[Rig, list[Delivery]]:
    """A switch to PULL that has moved one of five leases of two messages."""
    monkeypatch.setattr(sweep, "SWEEP_MAX", 2)
    rows = [row for _ in range(5) for row in shop.pop(2)]
    assert shop.do(ask.SetConsumeMode("t", "g", "PULL"))[1]
    return shop, rows


def test_a_lease_not_yet_moved_by_a_switch_to_pull_can_be_acked(half_way: tuple[Rig, list[Delivery]]) -> None:
    rig, rows = half_way
    acked = [row.body for row, refused in zip(rows, rig.ack(rows), strict=True) if refused is None]
    assert 0 < len(acked) < 10
    finish(rig, True)
    assert sorted([place[0] for place in pulled_again(rig)] + acked) == list(numbered("m", 10))


def test_a_crash_between_two_pieces_loses_nothing(half_way: tuple[Rig, list[Delivery]]) -> None:
    rig, _ = half_way
    rig.crash()
    rig.settle()
    assert sorted(place[0] for place in pulled_again(rig)) == list(numbered("m", 10))
    assert rig.read("sweep") == []


@pytest.mark.slow
def test_back_to_pop_before_all_has_moved_leaves_the_rest_leased(half_way: tuple[Rig, list[Delivery]]) -> None:
    rig, rows = half_way
    switch(rig, "POP")
    acked = [row.body for row, refused in zip(rows, rig.ack(rows), strict=True) if refused is None]
    assert acked
    assert sorted(acked + bodies(rig.pop())) == list(numbered("m", 10))


def test_a_reset_in_the_middle_of_a_switch_drops_moved_and_unmoved_leases(half_way: tuple[Rig, list[Delivery]]) -> None:
    rig, rows = half_way
    reset(rig, ("LATEST", 0))
    assert (refusals(rig.ack(rows)), sums(rig)) == (["HANDLE_LAPSED"] * 10, (0, 0, 0, 0, 0))
    assert pulled_again(rig) == []


# ── Owners ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("released", [False, True], ids=["bound", "its lease has expired"])
def test_sealed_sets_are_given_up_for_good(shop: Rig, released: bool) -> None:
    shop.attach()
    shop.ack(deliveries(shop.seal(1, max_messages=4))[:1])
    if released:
        shop.advance(MINUTE)
    switch(shop, "PULL")
    assert [place[0] for place in pulled_again(shop)] == ["m1", "m2", "m3"]
    shop.do(ask.RenewOwner("g", "o", 1, HOUR))  # an owner that lives takes nothing back
    shop.settle()
    assert sums(shop) == (6, 0, 3, 0, 1)
    switch(shop, "POP")
    again = shop.seal(1)
    assert (again.rows, again.sealed) == ([], (4, False, 3, 0))
    assert len(shop.seal(2, max_messages=32).rows) == 9, "those that it had before too"
    assert (shop.ack_up_to(1), shop.ack_up_to(2)) == (0, 9)


@pytest.mark.parametrize("released", [False, True], ids=["bound", "its lease has expired"])
def test_sealed_sets_of_a_fifo_topic_are_given_up_for_good(rig: Rig, released: bool) -> None:
    fifo_pair(rig)
    send_fifo(rig, "a1", "a2", "b1")
    rig.attach()
    rig.seal(1, max_messages=2)
    rig.seal(1, chunk=1)
    if released:
        rig.advance(MINUTE)
    switch(rig, "PULL")
    assert sorted(place[0] for place in pulled_again(rig)) == ["a1", "a2", "b1"]
    switch(rig, "POP")
    assert rig.seal(1).sealed == (2, False, 2, 0)
    assert bodies(deliveries(rig.seal(2))) == ["a1", "a2", "b1"]
    assert (rig.ack_up_to(1), rig.ack_up_to(2)) == (0, 3)


def test_an_owner_may_ack_its_sets_in_the_commit_of_a_switch_to_pull(
    shop: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "SWEEP_MAX", 2)
    shop.attach()
    for chunk in range(5):
        shop.seal(1, chunk=chunk, max_messages=2)
    results = shop.run(ask.AckUpTo("g", "o", 1, 1), ask.SetConsumeMode("t", "g", "PULL"))
    assert results[0][0] == 10
    assert sums(shop) == (0, 0, 0, 0, 10)
    assert pulled_again(shop) == []
