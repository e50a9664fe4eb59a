"""`popmq migrate`: topics, their messages and groups from one broker to another."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import popmq
from popmq.testing import FakeClock, broker
from popmq_cli.migrating import copying, groups, obstacles
from popmq_cli.migrating.brokers import MARK, Migration
from tests.cli.conftest import Cli, Done
from tests.command_lines import commands_of
from tests.sources import ROOT
from tests.wire.served import Served

Migrate = Callable[..., Done]
PAGE = ROOT / "docs" / "migrate.md"
#: Each test starts two brokers.
pytestmark = pytest.mark.slow


@pytest.fixture
def target(popmq_clock: FakeClock) -> Iterator[popmq.Client]:
    """A client of the second broker, which has nothing yet."""
    with broker(popmq_clock) as second:
        yield second.client()


@pytest.fixture
def source(client: popmq.Client, popmq_clock: FakeClock) -> popmq.Client:
    """The client of the first broker, which has the topic orders and the group billing."""
    return client


@pytest.fixture
def migrate(run: Cli, source: popmq.Client, target: popmq.Client) -> Migrate:
    """`migrate("orders", "--json")`, from the first to the second."""

    def migrate(*arguments: str) -> Done:
        return run("migrate", "--from", source.endpoint, "--to", target.endpoint, *arguments)

    return migrate


def left(client: popmq.Client, topic: str, group: str) -> list[str]:
    """The bodies of all that a group still gets, in the order of delivery; it acks them."""
    found: list[str] = []
    client.groups.set_consume_mode(topic, group, "POP")
    while popped := client.pop(topic, group, 1000):
        found += [each.text() for each in popped]
        client.ack(popped)
    return found


def own(message: popmq.Delivery) -> dict[str, str]:
    """The properties that its producer has given it."""
    return {name: value for name, value in message.properties.items() if name != MARK}


def send(client: popmq.Client, count: int, topic: str = "orders") -> None:
    """Messages "0", "1", …, some in a request."""
    for first in range(0, count, 7):
        client.send(topic, [str(number) for number in range(first, min(count, first + 7))])


def work(client: popmq.Client, group: str, count: int) -> list[popmq.Delivery]:
    """Pops messages one after the other."""
    return [each for _ in range(count) for each in client.pop("orders", group, 1, invisible=3600)]


@pytest.mark.smoke
def test_every_message_is_copied_once_with_all_that_its_producer_said(
    migrate: Migrate, source: popmq.Client, target: popmq.Client
) -> None:
    trace = popmq.TraceContext("00-1-2-01", "a=b")
    given = popmq.Message(
        b"\x00\xff", "k", "eu", {"p": "1"}, ("k2",), "m1", encoding="GZIP", born_ms=5, trace_context=trace
    )
    source.send("orders", given)
    send(source, 100)
    assert migrate("orders").code == 0
    (copied,) = target.messages.look_up("orders", message_id="m1").deliveries
    read = (copied.body, copied.key, copied.tag, own(copied), copied.more_keys, copied.encoding, copied.born_ms)
    assert read == (b"\x00\xff", "k", "eu", {"p": "1"}, ("k2",), "GZIP", 5)
    assert copied.trace_context == trace
    (first,) = source.messages.look_up("orders", message_id="m1").deliveries
    created_ms = source.topics.get("orders").created_ms
    assert copied.properties[MARK] == f"{created_ms}/{first.queue}/{first.offset}"
    assert target.broker.stats("orders").topics[0].messages == 101
    again = migrate("orders", "--json").objects
    assert (again[0]["copied"], again[0]["copied_now"]) == (101, 0)
    assert target.broker.stats("orders").topics[0].messages == 101


@pytest.mark.smoke
def test_each_group_gets_what_it_had_not_finished_whatever_state_it_was_in(
    migrate: Migrate, source: popmq.Client, target: popmq.Client
) -> None:
    source.groups.create("audit", backoff=3600, max_attempts=9, invisible=77, in_flight_max=500)
    source.groups.create("idle")
    send(source, 300)
    wanted = {}
    for group, done in ("billing", 200), ("audit", 50), ("idle", 0):
        acked = work(source, group, done)
        leased, released, later = work(source, group, 5), work(source, group, 5), work(source, group, 5)
        source.ack(acked)
        source.release(released, 0.0)
        source.release(later, 3000.0)
        wanted[group] = {str(number) for number in range(300)} - {each.text() for each in acked}
        assert len(leased) == 5
    ended = migrate("orders", "--json")
    (row,) = ended.objects
    found = {each["group"]: each for each in row["groups"]}
    for group, unfinished in wanted.items():
        assert found[group]["unfinished"] == found[group]["found"] == len(unfinished)
        delivered = left(target, "orders", group)
        assert unfinished <= set(delivered)
        assert len(delivered) == found[group]["found"] + found[group]["repeated"]
        assert found[group]["repeated"] <= 60, "what lies between its unfinished messages"
    assert target.groups.get("audit") == popmq.Group(
        "audit", 9, (3600.0,), 77.0, created_ms=target.groups.get("audit").created_ms, in_flight_max=500
    )
    with pytest.raises(popmq.errors.WrongConsumeMode):
        source.pop("orders", "billing")


@pytest.mark.smoke
def test_groups_that_work_in_order_get_nothing_again(
    migrate: Migrate, source: popmq.Client, target: popmq.Client
) -> None:
    source.groups.create("audit")
    send(source, 1000)
    for group, done in ("billing", 900), ("audit", 300):
        acked: list[popmq.Delivery] = []
        while len(acked) < done:
            acked += (popped := source.pop("orders", group, 20))
            source.ack(popped)
    (row,) = migrate("orders", "--json").objects
    assert [(each["unfinished"], each["found"], each["repeated"]) for each in row["groups"]] == [
        (700, 700, 0),
        (100, 100, 0),
    ]


def test_message_groups_keep_their_order(migrate: Migrate, source: popmq.Client, target: popmq.Client) -> None:
    source.topics.create("steps", type="FIFO", queues=3)
    names = [f"g{number}" for number in range(9)]
    for step in range(40):
        source.send("steps", [popmq.Message(f"{name} {step:02}", message_group=name) for name in names])
    for _ in range(60):
        source.ack(source.pop("steps", "billing", 1))
    leased = source.pop("steps", "billing", 3)
    assert leased != []
    assert migrate("steps").code == 0
    assert target.topics.get("steps").type == "FIFO"
    delivered = left(target, "steps", "billing")
    for name in names:
        own = [each for each in delivered if each.startswith(name + " ")]
        assert own == sorted(own)
        assert own[-1] == f"{name} 39"
    assert {each.text() for each in leased} <= set(delivered)


def test_producers_that_are_on_the_target_first_lose_nothing_and_their_order_is_said(
    migrate: Migrate, source: popmq.Client, target: popmq.Client
) -> None:
    send(source, 40)
    source.ack(work(source, "billing", 30))
    target.topics.create("orders", queues=1)
    target.send("orders", ["new 1", "new 2"])
    (row,) = migrate("orders", "--json").objects
    target.send("orders", "new 3")
    delivered = left(target, "orders", "billing")
    assert {"new 1", "new 2", "new 3"} <= set(delivered)
    assert Counter(delivered).most_common(1)[0][1] == 1
    (group,) = row["groups"]
    assert (group["found"], group["repeated"]) == (10, 30), "the copies come after the producers' own"
    with pytest.raises(popmq.errors.Forbidden):
        source.send("orders", "late")
    source.topics.create("steps", type="FIFO")
    target.topics.create("steps", type="FIFO")
    target.send("steps", popmq.Message("new", message_group="a"))
    stopped = migrate("steps")
    assert stopped.code == 1
    assert "come before older ones" in stopped.err


@pytest.mark.smoke
def test_the_commands_of_the_page_work_as_they_are_written(
    run: Cli, source: popmq.Client, target: popmq.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("POPMQ_ENDPOINT")
    source.topics.create("payments")
    for topic in "orders", "payments":
        source.send(topic, "one")
        source.ack(source.pop(topic, "billing"))
    blocks = re.findall(r"^```console\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    lines = [words for block in blocks for words in commands_of(block)]
    here = {"old.example:8081": source.endpoint, "new.example:8081": target.endpoint}
    for words in lines:
        assert run(*(here.get(word, word) for word in words)).code == 0, words
    assert len(lines) == 7
    source.send("orders", "it has returned")
    assert [each.text() for each in source.pop("orders", "billing")] == ["it has returned"]


# ── Kills ────────────────────────────────────────────────────────────────────────────────────────────────────────────


class Killed(BaseException):
    """What a kill looks like to a program: nothing is done any more."""


def killed_at(monkeypatch: pytest.MonkeyPatch, where: Any, name: str, call: int, after: bool) -> None:
    """Ends the program at a call of a function, before or after it is done; the first call is 0."""
    original, calls = getattr(where, name), iter(range(1_000_000))

    def dying(*arguments: Any, **named: Any) -> Any:
        dies = next(calls) == call
        if dies and not after:
            raise Killed
        done = original(*arguments, **named)
        if dies:
            raise Killed
        return done

    monkeypatch.setattr(where, name, dying)


POINTS = [
    pytest.param(groups, "prepare", 0, id="prepared"),
    pytest.param(groups, "_subscribe", 0, id="one group is there"),
    pytest.param(copying, "move_delayed", 0, id="closed"),
    pytest.param(copying._Batches, "_land", 1, id="one request is in flight"),
    pytest.param(copying._Batches, "_land", 3, id="three requests are copied"),
    pytest.param(copying, "copy_visible", 0, id="copied"),
    pytest.param(groups, "settle", 0, id="one group has settled"),
    pytest.param(groups, "unfinished", 1, id="all groups have settled"),
    pytest.param(groups, "arrive", 0, id="arrived"),
]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("where", "name", "call"), POINTS)
def test_a_run_that_follows_a_kill_does_what_is_missing(
    migrate: Migrate,
    run: Cli,
    source: popmq.Client,
    target: popmq.Client,
    monkeypatch: pytest.MonkeyPatch,
    where: Any,
    name: str,
    call: int,
    after: bool,
) -> None:
    monkeypatch.setattr(copying, "BATCH", 16)
    source.groups.create("audit")
    send(source, 100)
    source.ack(work(source, "billing", 60))
    leased = work(source, "billing", 3)
    source.ack(work(source, "audit", 10))
    with monkeypatch.context() as dying:
        killed_at(dying, where, name, call, after)
        with pytest.raises(Killed):
            migrate("orders")
    (row,) = migrate("orders", "--json").objects
    found = {each["group"]: each for each in row["groups"]}
    assert [(each["unfinished"], each["found"]) for each in (found["billing"], found["audit"])] == [(40, 40), (90, 90)]
    assert target.broker.stats("orders").topics[0].messages == 100, "each message is there once"
    delivered = left(target, "orders", "billing")
    assert {each.text() for each in leased} <= set(delivered)
    assert len(delivered) == 40 + found["billing"]["repeated"]


def test_a_second_run_leaves_groups_alone_that_read_on_the_target(
    migrate: Migrate, source: popmq.Client, target: popmq.Client
) -> None:
    send(source, 60)
    source.ack(work(source, "billing", 10))
    assert migrate("orders").code == 0
    target.ack(target.pop("orders", "billing", 20))
    target.release(kept := target.pop("orders", "billing", 3), 0.0)
    assert migrate("orders").code == 0
    delivered = left(target, "orders", "billing")
    assert len(delivered) == 30
    assert {each.text() for each in kept} <= set(delivered)


# ── Delayed messages, and what is in the way ─────────────────────────────────────────────────────────────────────────


def delay(source: popmq.Client, clock: FakeClock) -> None:
    source.topics.create("mail", type="DELAY")
    source.send("mail", [popmq.Message("by time", deliver_at=clock.now() + 100, key="k"), "at once"])
    source.send("mail", popmq.Message("by delay", delay=200))
    source.groups.set_consume_mode("mail", "billing", "POP")  # it names the topic, and so begins there


@pytest.mark.smoke
def test_delayed_messages_are_moved_with_their_time(
    migrate: Migrate, source: popmq.Client, target: popmq.Client, popmq_clock: FakeClock
) -> None:
    delay(source, popmq_clock)
    source.ack(source.pop("mail", "billing"))
    dues = {row.message_id: row.due_ms for row in source.messages.list_delayed("mail").messages}
    (row,) = migrate("mail", "--json").objects
    assert (row["copied"], row["delayed_now"]) == (1, 2)
    assert source.messages.list_delayed("mail").total == 0
    moved = target.messages.list_delayed("mail", whole=True).messages
    assert {each.message_id: each.due_ms for each in moved} == dues
    assert [each.message and each.message.key for each in moved] == ["k", ""]
    popmq_clock.advance(100_000)
    assert left(target, "mail", "billing") == ["by time"]
    popmq_clock.advance(100_000)
    assert left(target, "mail", "billing") == ["by delay"]


@pytest.mark.parametrize("wait_ms", [0, 300_000], ids=["still delayed", "visible on both"])
def test_a_delayed_message_that_was_sent_and_not_recalled_is_there_once(
    migrate: Migrate,
    source: popmq.Client,
    target: popmq.Client,
    popmq_clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    wait_ms: int,
) -> None:
    delay(source, popmq_clock)
    with monkeypatch.context() as dying:
        killed_at(dying, type(source.messages), "recall", 0, False)
        with pytest.raises(Killed):
            migrate("mail")
    popmq_clock.advance(wait_ms)
    (row,) = migrate("mail", "--json").objects
    assert row["groups"][0]["found"] == row["groups"][0]["unfinished"] == (3 if wait_ms else 1)
    assert source.messages.list_delayed("mail").total == 0
    popmq_clock.advance(300_000)
    assert sorted(left(target, "mail", "billing")) == ["at once", "by delay", "by time"]


def test_open_half_messages_stop_it_until_they_are_ended_or_accepted(
    migrate: Migrate, source: popmq.Client, target: popmq.Client
) -> None:
    source.topics.create("deals", type="TRANSACTION")
    half = source.send("deals", popmq.Message("one", transaction=True))
    stopped = migrate("deals")
    assert stopped.code == 1
    assert half.transaction_id in stopped.err
    with pytest.raises(popmq.errors.TopicNotFound):
        target.topics.get("deals")
    assert source.topics.get("deals").permission == "READ_WRITE"
    assert migrate("deals", "--accept-weaker").code == 0
    source.transactions.end([half.transaction_id], "commit")
    assert migrate("deals", "--json").objects[0]["copied_now"] == 1, "a later run brings what was committed since"


def test_schedules_and_owners_are_named(migrate: Migrate, source: popmq.Client) -> None:
    source.schedules.create("nightly", "@daily", "orders", "now")
    source.owners.attach("billing", "query", 3600.0, "orders")
    stopped = migrate("orders")
    assert stopped.code == 1
    assert "schedule nightly" in stopped.err
    assert "1 owner of the group billing" in stopped.err


def test_a_dry_run_says_how_much_there_is_and_changes_nothing(
    migrate: Migrate, source: popmq.Client, target: popmq.Client
) -> None:
    send(source, 10)
    source.ack(work(source, "billing", 4))
    done = migrate("orders", "--dry-run", "--json")
    assert done.objects == [{"topic": "orders", "group": "billing", "messages": 10, "copied": 0, "unfinished": 6}]
    assert target.topics.list() == []
    assert source.topics.get("orders").permission == "READ_WRITE"
    assert "orders\tbilling\t10\t0\t6" in migrate("orders", "--dry-run").out


def test_filters_and_consume_modes_are_brought_along(
    migrate: Migrate, source: popmq.Client, target: popmq.Client
) -> None:
    source.groups.create("reader", start="latest")
    source.groups.set_consume_mode("orders", "reader", "PULL", 2, "earliest")
    source.groups.set_filter("orders", "billing", tag="eu")
    send(source, 20)
    source.offsets.update("orders", "reader", {0: 5, 1: 2})
    assert migrate("orders").code == 0
    assert migrate("orders").code == 0, "and again, when the source's groups pull"
    assert target.groups.subscriptions("billing") == [popmq.Subscription("orders", tag="eu")]
    assert target.groups.subscriptions("reader") == [popmq.Subscription("orders", mode="PULL", share_number=2)]
    assert sum(max(0, row.max_offset - row.committed) for row in target.offsets.query("orders", "reader")) >= 13


def test_a_setting_that_the_target_lacks_is_named_and_left_out() -> None:
    given = popmq.Topic("t", "FIFO", 4, popmq.Retention(keep=60), quota=popmq.Quota(message_bytes=9), unique_ids=60.0)
    taken, lost = obstacles.topic_settings(given, {"retention", "unique_ids"})
    assert taken == {"type": "FIFO", "queues": 4, "quota": popmq.Quota(message_bytes=9)}
    assert [each.partition(" has ")[2].split()[0] for each in lost] == ["retention", "unique_ids"]
    taken, lost = obstacles.group_settings(popmq.Group("g", 5, in_flight_max=7, fifo=True), {"in_flight_max"})
    assert (taken, len(lost)) == ({"max_attempts": 5, "fifo": True}, 1)


def test_what_cannot_be_a_side_is_refused_at_once(
    run: Cli, migrate: Migrate, source: popmq.Client, target: popmq.Client, popmq_clock: FakeClock
) -> None:
    with Served(popmq_clock.broker_clock) as stub:
        done = run("migrate", "--from", source.endpoint, "--to", stub.endpoint, "orders")
    assert done.code == 1
    assert "lacks pull" in done.err
    unknown = run("migrate", "--from", "nowhere", "--to", target.endpoint, "orders")
    assert unknown.code == 2
    assert "popmq context add nowhere" in unknown.err
    target.topics.create("orders", type="FIFO")
    assert "NORMAL on the source and FIFO on the target" in migrate("orders").err
    source.topics.create("small", type="LITE")
    assert "LITE topic" in migrate("small").err
    missing = migrate("orders", "nothing")
    assert missing.code == 1
    assert "nothing" in missing.err
    assert source.topics.get("orders").permission == "READ_WRITE"


def test_a_message_that_the_target_refuses_is_named_and_copied_when_it_may(
    migrate: Migrate, source: popmq.Client, target: popmq.Client
) -> None:
    send(source, 10)
    source.send("orders", "x" * 100)
    target.topics.create("orders", quota=popmq.Quota(message_bytes=50))
    refused = migrate("orders")
    assert refused.code == 4
    (large,) = (
        each for queue in (0, 1) for each in source.messages.browse("orders", queue).deliveries if each.body[9:]
    )
    assert f"queue {large.queue} offset {large.offset}" in refused.err
    target.topics.update("orders", quota=popmq.Quota())
    assert migrate("orders", "--json").objects[0]["copied"] == 11


def test_a_source_that_tells_places_in_the_retry_topic_has_its_messages_looked_up(
    source: popmq.Client, target: popmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a gateway of a RocketMQ cluster does: the place of the original is gone there."""
    send(source, 30)
    source.release(work(source, "billing", 9)[6:], 0.0)
    migration = Migration(source, target, source.topics.get("orders"))
    groups.settle(migration, "billing")
    places = groups.unfinished(migration, "billing").retries
    entries = list(groups._entries(source, "%RETRY%billing+orders"))
    moved = [replace(each, queue=0, offset=1000 + number) for number, each in enumerate(entries)]
    monkeypatch.setattr(groups, "_entries", lambda *_: iter(moved))
    assert groups.unfinished(migration, "billing").retries == places
    assert len(places) == 9
