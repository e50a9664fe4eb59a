"""Subscriptions that nobody reads any more expire: told before, counted, and never while anything is under way."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.embedded import operations
from popmq_server.embedded.rules.operate import idle_subscriptions
from popmq_server.embedded.rules.topics import readers, registry, walks
from popmq_server.embedded.state.tx import Tx
from tests.engine import lites, work
from tests.engine.conftest import MakeRig
from tests.engine.dead_letters import all_again, died
from tests.engine.pull_steps import pulling
from tests.engine.rig import DAY, HOUR, MINUTE, SECOND, Rig, bodies, deliveries, numbered

pytestmark = [pytest.mark.slow, pytest.mark.smoke]

EXPIRY = 90 * DAY
AHEAD = 7 * DAY


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "popmq")


@pytest.fixture
def shop(rig: Rig) -> Rig:
    """Group g has read one of three messages of topic t, group other none of them; an hour and more has gone by."""
    rig.pair()
    rig.group("other", subscription_expiry_ms=0)
    rig.pop(group="other")
    rig.send("a", "b", "c")
    rig.ack(rig.pop(1))
    pass_time(rig, 2 * HOUR)
    return rig


def pass_time(rig: Rig, ms: int) -> None:
    """Time passes in steps that no look is missed by."""
    step = max(HOUR, ms // 50)
    while ms > 0:
        rig.advance(min(step, ms))
        ms -= step


def subscribed(rig: Rig, group: str = "g", topic: str = "t") -> bool:
    return bool([row for row in rig.look(queries.Groups(topic, "")) if row.group == group])


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "popmq.events"]


def abandoned(rig: Rig, topic: str = "t") -> int:
    return int(rig.look(queries.Topics(topic))[0].abandoned)


@pytest.mark.mechanism("S2.49")
def test_an_idle_subscription_is_warned_of_and_then_expires_with_its_unread_messages(
    shop: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    pass_time(shop, EXPIRY - AHEAD - DAY)
    assert lines(caplog) == []
    pass_time(shop, 2 * DAY)
    (warning,) = lines(caplog)
    assert "group 'g' has not read topic 't'" in warning
    assert "it loses 2 messages" in warning
    assert "--subscription-expiry 0s" in warning
    pass_time(shop, AHEAD - 2 * DAY)
    assert subscribed(shop)
    pass_time(shop, 2 * DAY)
    assert not subscribed(shop)
    assert lines(caplog)[1:] == ["group 'g', topic 't': the subscription expired; 2 messages were not read"]
    assert abandoned(shop) == 2
    shop.crash()
    assert abandoned(shop) == 2


def test_numbers_tell_when_it_was_read_and_when_it_expires(shop: Rig) -> None:
    shop.pop(group="other")
    shop.run(ask.Pop("t", "g"))
    read_ms = shop.now
    assert (shop.numbers().read_ms, shop.numbers().expires_ms) == (read_ms, 0)
    shop.change(shop.pop(), "release", delay_ms=0)
    pass_time(shop, MINUTE)
    shop.ack(shop.pop())
    read_ms = shop.now
    pass_time(shop, DAY)
    assert shop.numbers().read_ms == read_ms
    assert 0 <= shop.numbers().expires_ms - (read_ms + EXPIRY) <= HOUR


def test_retention_does_not_wait_for_an_expired_subscription(shop: Rig) -> None:
    shop.ack(shop.pop(group="other"), "other")
    pass_time(shop, 80 * DAY)
    assert len(shop.browse("t").rows) == 3, "g has not read them"
    pass_time(shop, 20 * DAY)
    assert not subscribed(shop)
    assert shop.browse("t").rows == []


def test_a_group_that_comes_back_is_new_in_the_topic(shop: Rig) -> None:
    pass_time(shop, 100 * DAY)
    assert not subscribed(shop)
    assert bodies(shop.pop()) == ["a", "b", "c"], "group other has not read them yet"
    assert shop.numbers().acked == 0


def test_dead_letters_that_outlived_the_subscription_are_delivered_again(rig: Rig) -> None:
    rig.pair(max_attempts=1, start_from="LATEST")
    died(rig, "a", "b")
    pass_time(rig, 100 * DAY)
    assert not subscribed(rig)
    assert all_again(rig) == []
    assert rig.findings() == []
    rig.restart()
    rows = rig.pop()
    assert bodies(rows) == ["a", "b"]
    rig.reject(rows[:1])
    assert all_again(rig) == []
    assert bodies(rig.pop()) == ["a"]


def test_dead_letters_of_lite_topics_that_outlived_the_subscription_are_delivered_again(rig: Rig) -> None:
    lites.create(rig, lite_ttl_ms=1000 * DAY)
    rig.group("g", max_attempts=1, start_from="LATEST")
    rig.do(lites.popping("ann"))
    lites.send(rig, "ann:1")
    rig.reject(lites.pop(rig, "ann"))
    pass_time(rig, 100 * DAY)
    assert not subscribed(rig, topic="chat")
    assert all_again(rig) == []
    rig.restart()
    rig.ack(lites.pop(rig, "ann"))
    assert (rig.numbers(topic="chat").acked, rig.numbers(topic="chat").waiting) == (1, 0)


@pytest.mark.parametrize("late", [False, True], ids=["in time", "after the warning"])
@pytest.mark.parametrize(
    "use",
    [
        ask.Pop("t", "g", max_messages=1, invisible_ms=SECOND),
        ask.Available("t", "g"),
        operations.Attend("g", ("t",)),
        ask.SetFilter("t", "g", ("tag", "*")),
        ask.ResetOffsets("t", "g", ("EARLIEST", 0)),
        ask.AttachOwner("g", "o", MINUTE, "t"),
    ],
    ids=lambda command: type(command).__name__,
)
def test_any_use_of_a_subscription_restarts_its_expiry(
    shop: Rig, use: Any, late: bool, caplog: pytest.LogCaptureFixture
) -> None:
    pass_time(shop, EXPIRY - (DAY if late else 10 * DAY))
    assert bool(lines(caplog)) == late
    shop.do(use)
    pass_time(shop, 30 * DAY)
    assert subscribed(shop)


@pytest.mark.parametrize("use", [ask.Pull("t", "g", 0, 0), ask.UpdateOffsets("t", "g", {0: 1})], ids=["Pull", "Update"])
def test_pulls_and_commits_are_uses(rig: Rig, use: Any) -> None:
    pulling(rig).send("a", "b")
    for _ in range(3):
        pass_time(rig, EXPIRY - DAY)
        rig.do(use)
    assert subscribed(rig)
    pass_time(rig, EXPIRY + DAY)
    assert not subscribed(rig)


@pytest.mark.mechanism("S2.49")
def test_a_renewed_lease_or_a_waiting_retry_keeps_a_subscription(rig: Rig) -> None:
    """A lease that is renewed, a delay, a retry."""
    rig.pair(max_attempts=1000)
    rig.send("a")
    (held,) = rig.pop(invisible_ms=12 * HOUR)
    for _ in range(300):
        rig.advance(10 * HOUR)
        rig.extend([held], 12 * HOUR)
    assert subscribed(rig)
    rig.release([held], delay_ms=12 * HOUR)
    pass_time(rig, 200 * DAY)
    assert subscribed(rig), "it is in the retry topic"
    rig.ack(rig.pop())
    pass_time(rig, EXPIRY + AHEAD + DAY)
    assert not subscribed(rig)


@pytest.mark.parametrize("sent", [["a"], []], ids=["acked", "empty"])
def test_a_sealed_set_without_messages_left_keeps_a_subscription_until_its_epoch_is_finished(
    rig: Rig, sent: list[str]
) -> None:
    rig.pair(subscription_expiry_ms=DAY)
    rig.attach(topic="t")
    rig.send(*sent) if sent else None
    rig.ack(deliveries(rig.seal(1)))
    pass_time(rig, 5 * DAY)
    assert subscribed(rig)
    assert rig.ack_up_to(1) == 0
    pass_time(rig, 2 * DAY)
    assert not subscribed(rig)


def test_a_subscription_with_expiry_zero_never_expires(shop: Rig, caplog: pytest.LogCaptureFixture) -> None:
    pass_time(shop, 1000 * DAY)
    assert subscribed(shop, "other")
    assert not [line for line in lines(caplog) if "other" in line]


def test_a_shorter_expiry_is_warned_of_first(shop: Rig, caplog: pytest.LogCaptureFixture) -> None:
    pass_time(shop, 30 * DAY)
    shop.do(ask.UpdateGroup("g", {"subscription_expiry_ms": 10 * DAY}))
    pass_time(shop, 2 * HOUR)
    assert len(lines(caplog)) == 1
    pass_time(shop, 2 * DAY)
    assert subscribed(shop)
    pass_time(shop, DAY)
    assert not subscribed(shop)


def test_a_longer_expiry_takes_the_warning_back(shop: Rig, caplog: pytest.LogCaptureFixture) -> None:
    pass_time(shop, EXPIRY - DAY)
    shop.do(ask.UpdateGroup("g", {"subscription_expiry_ms": 200 * DAY}))
    pass_time(shop, 50 * DAY)
    assert subscribed(shop)
    pass_time(shop, 58 * DAY)
    assert subscribed(shop)
    assert len(lines(caplog)) == 2
    pass_time(shop, 7 * DAY)
    assert not subscribed(shop)


def test_a_broker_that_was_down_warns_first_and_gives_its_consumers_an_hour(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pair()
    rig.send("a")
    pass_time(rig, DAY)
    rig.skip(400 * DAY)
    rig.crash()
    pass_time(rig, 2 * DAY)
    assert subscribed(rig), "it was not warned of"
    rig.skip(400 * DAY)
    rig.crash()
    rig.advance(MINUTE)
    rig.advance(30 * MINUTE)
    assert subscribed(rig), "it was, but consumers need time to come back"
    rig.pop()
    pass_time(rig, DAY)
    assert subscribed(rig)


def test_restarts_do_not_keep_a_subscription_for_ever(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    for _ in range(110):
        pass_time(rig, DAY)
        rig.crash()
    assert not subscribed(rig)


def test_reading_costs_no_write_and_an_idle_subscription_is_written_once(rig: Rig) -> None:
    rig.pair()
    before = rig.read("sub")
    for _ in range(20):
        rig.advance(30 * MINUTE)
        assert not rig.commit(ask.Pop("t", "g")).wrote
    assert rig.read("sub") == before
    pass_time(rig, 2 * HOUR)
    idle = rig.read("sub")
    assert idle != before
    pass_time(rig, 30 * DAY)
    assert rig.read("sub") == idle


def test_the_subscription_of_a_topic_expires_with_those_of_its_lite_topics(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_subscriptions, "LITES_MAX", 2)
    lites.create(rig)
    rig.group("g")
    rig.do(lites.popping("ann"))
    lites.send(rig, *(f"{name}:1" for name in "abcde"))
    lites.pop(rig, *"abcde", invisible_ms=SECOND)
    pass_time(rig, DAY)
    rig.ack(lites.pop(rig, *"abcde"))
    lites.send(rig, *(f"{name}:2" for name in "abc"))
    pass_time(rig, EXPIRY + AHEAD + DAY)
    assert not subscribed(rig, topic="chat")
    assert abandoned(rig, "chat") == 3
    pass_time(rig, 10 * DAY)
    assert lites.lites(rig) == 0, "nobody needs them now"


def test_lite_topics_of_an_aborted_piece_are_removed_with_their_subscription(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The removal takes several pieces; of each the first attempt is dropped."""
    monkeypatch.setattr(idle_subscriptions, "LITES_MAX", 2)
    lites.create(rig)
    rig.group("g")
    lites.send(rig, *(f"{name}:1" for name in "abcde"))
    rig.ack(lites.pop(rig, *"abcde"))
    tx = Tx(rig.core.state, rig.store, rig.now)
    expiry, group, chat = idle_subscriptions.Expiry(rig.now), readers.group(tx, "g"), registry.topic(tx, "chat")
    assert group is not None
    assert chat is not None
    assert expiry._remove(tx, group, chat)
    tx.abort()
    pieces = 0
    tx = Tx(rig.core.state, rig.store, rig.now)
    while expiry._remove(tx, group, chat):
        pieces += 1
    assert pieces < 10
    assert not idle_subscriptions._lites_of(tx, group, chat)
    tx.abort()


def test_a_piece_of_a_look_costs_the_same_however_many_subscriptions_there_are(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def piece(groups: int) -> Callable[[], bool]:
        rig = make_rig(str(groups))
        rig.topic()
        for name in numbered("g", groups):
            rig.group(name)
            rig.do(ask.Available("t", name))
        job, tx = idle_subscriptions.Expiry(rig.now), Tx(rig.core.state, rig.store, rig.now)
        opened.append(tx)
        job.run(tx)  # the first piece of a round also reads names of topics
        return lambda: job.run(tx)

    opened: list[Tx] = []
    monkeypatch.setattr(idle_subscriptions, "LOOKS_MAX", 10)
    assert work.grows(piece(20), piece(200)) < 1.2
    for tx in opened:
        tx.abort()


def test_the_first_piece_of_a_later_round_costs_the_same_however_many_subscriptions_were_in_use(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = list[Tx]()

    def piece(groups: int) -> Callable[[], bool]:
        rig = in_use_by(make_rig(str(groups)), groups)
        rig.send("a")
        for name in numbered("g", groups):
            assert rig.pop(group=name)
        job, tx = idle_subscriptions.Expiry(rig.now), Tx(rig.core.state, rig.store, rig.now)
        opened.append(tx)
        while job.run(tx):
            pass
        tx.now_ms += idle_subscriptions.LOOK_EVERY_MS
        return lambda: job.run(tx)

    monkeypatch.setattr(idle_subscriptions, "LOOKS_MAX", 10)
    monkeypatch.setattr(walks, "LOOKS_MAX", 10)
    assert work.grows(piece(20), piece(200)) < 1.2
    for tx in opened:
        tx.abort()


def test_a_subscription_costs_the_same_to_expire_however_many_expire_together(make_rig: MakeRig) -> None:
    def cost(groups: int) -> int:
        rig = in_use_by(make_rig(str(groups)), groups)
        job, tx = idle_subscriptions.Expiry(rig.now), Tx(rig.core.state, rig.store, rig.now)

        def whole_round() -> None:
            while job.run(tx):
                pass

        for days in (0, 1, 84):
            tx.now_ms = rig.now + days * DAY
            whole_round()
        tx.now_ms = rig.now + 92 * DAY
        assert len(tx.state.topic_groups[tx.state.ids[("t", "t")]]) == groups
        count = work.calls(whole_round)
        assert tx.state.topic_groups[tx.state.ids[("t", "t")]] == ()
        tx.abort()
        return count

    assert cost(200) < 10.5 * cost(20)


def in_use_by(rig: Rig, groups: int) -> Rig:
    rig.topic()
    for name in numbered("g", groups):
        rig.group(name)
        rig.do(ask.Available("t", name))
    return rig


def test_a_round_in_pieces_looks_at_every_subscription(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_subscriptions, "LOOKS_MAX", 2)
    for topic in ("t", "u", "v"):
        rig.topic(topic)
    for name in numbered("g", 5):
        rig.group(name)
        for topic in ("t", "u"):
            rig.do(ask.Available(topic, name))
    pass_time(rig, EXPIRY + AHEAD + DAY)
    assert rig.look(queries.Groups("", "")) == []
