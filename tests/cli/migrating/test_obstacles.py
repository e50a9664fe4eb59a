"""Delayed messages, and what a migration cannot bring along."""

from __future__ import annotations

from dataclasses import replace

import click
import pytest

import popmq
from popmq.testing import FakeClock
from popmq_cli.migrating import groups, obstacles
from popmq_cli.migrating.brokers import Migration
from popmq_cli.migrating.obstacles import Lacking
from tests.cli.conftest import Cli
from tests.cli.migrating.conftest import Killed, Migrate, delay, killed_at, lacks, left, send, work
from tests.wire.served import Served

#: Each test starts two brokers.
pytestmark = pytest.mark.slow


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


@pytest.mark.parametrize("options", [(), ("--dry-run",), ("--accept-weaker",)], ids=["run", "dry run", "accepted"])
def test_a_target_that_is_the_source_by_another_address_is_refused_and_nothing_is_changed(
    run: Cli, source: popmq.Client, popmq_clock: FakeClock, options: tuple[str, ...]
) -> None:
    delay(source, popmq_clock)
    alias = source.endpoint.replace("127.0.0.1", "localhost")
    assert alias != source.endpoint
    refused = run("migrate", "--from", source.endpoint, "--to", alias, "mail", *options)
    assert refused.code == 1
    assert "are the same broker" in refused.err
    assert source.messages.list_delayed("mail").total == 2
    assert source.topics.get("mail").permission == "READ_WRITE"
    assert source.groups.subscriptions("billing")[0].mode == "POP"


def test_a_topic_that_was_made_at_the_same_moment_on_both_is_migrated(
    migrate: Migrate, source: popmq.Client, target: popmq.Client
) -> None:
    source.topics.create("twins", queues=2)
    target.topics.create("twins", queues=2)
    assert source.topics.get("twins").created_ms == target.topics.get("twins").created_ms
    source.send("twins", "one")
    assert migrate("twins").code == 0
    assert target.broker.stats("twins").topics[0].messages == 1


def test_gateways_of_one_cluster_are_the_same_broker_and_those_of_two_are_not(
    source: popmq.Client, target: popmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = source.topics.create("twins")
    target.topics.create("twins")
    of_cluster = {source.endpoint: "10.0.0.1:10911", target.endpoint: "10.0.0.1:10911"}

    def brokers(client: popmq.Client) -> set[tuple[str, str]]:
        return {("broker-a", of_cluster[client.endpoint])}

    monkeypatch.setattr(obstacles, "_brokers", brokers)
    with pytest.raises(click.ClickException, match="are the same broker"):
        obstacles.check_different(source, target, topic)
    of_cluster[target.endpoint] = "10.0.0.2:10911"
    obstacles.check_different(source, target, topic)


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
    taken, lost = obstacles.topic_settings(given, Lacking((), {"retention", "unique_ids"}))
    assert taken == {"type": "FIFO", "queues": 4, "quota": popmq.Quota(message_bytes=9)}
    assert [each.partition(" has ")[2].split()[0] for each in lost] == ["retention", "unique_ids"]
    group = popmq.Group("g", 5, in_flight_max=7, fifo=True)
    taken, lost = obstacles.group_settings(group, Lacking((), {"in_flight_max"}))
    assert (taken, len(lost)) == ({"max_attempts": 5, "fifo": True}, 1)


def test_what_a_source_has_no_setting_for_is_the_targets_own() -> None:
    """It says 0 where it has none."""
    topic = popmq.Topic("t", retention=popmq.Retention(keep=0.0, by_age=True))
    lacking = Lacking({"retention", "in_flight_max", "subscription_expiry"}, ())
    assert obstacles.topic_settings(topic, lacking) == ({}, [])
    assert obstacles.group_settings(popmq.Group("g", in_flight_max=0, subscription_expiry=0.0), lacking) == ({}, [])


def test_a_filter_that_passes_everything_is_not_in_the_way_of_a_target_without_filters(
    migrate: Migrate, source: popmq.Client, target: popmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.groups.set_filter("orders", "billing", tag="*")
    send(source, 10)
    lacks(monkeypatch, target, "filters")
    assert migrate("orders").code == 0
    source.groups.set_filter("orders", "billing", tag="eu")
    assert "billing has a filter" in migrate("orders").err


def test_a_source_that_does_not_tell_what_its_groups_hold_is_left_as_it_is(
    migrate: Migrate, source: popmq.Client, target: popmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(source, 30)
    source.ack(work(source, "billing", 10))
    lacks(monkeypatch, source, "list_leases", "end_lease")
    assert "does not tell what its groups hold" in migrate("orders").err
    assert migrate("orders", "--accept-weaker").code == 0
    assert source.groups.subscriptions("billing")[0].mode == "POP"
    assert len(left(target, "orders", "billing")) == 20


def test_a_target_that_does_not_list_delayed_messages_gets_them_one_by_one(
    migrate: Migrate,
    source: popmq.Client,
    target: popmq.Client,
    popmq_clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delay(source, popmq_clock)
    lacks(monkeypatch, target, "list_delayed")
    assert "after a kill one of them can be there twice" in migrate("mail").err
    assert migrate("mail", "--accept-weaker", "--json").objects[0]["delayed_now"] == 2
    popmq_clock.advance(300_000)
    assert sorted(left(target, "mail", "billing")) == ["at once", "by delay", "by time"]


def test_delayed_messages_that_cannot_be_taken_are_copied_when_they_are_visible(
    migrate: Migrate,
    source: popmq.Client,
    target: popmq.Client,
    popmq_clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    delay(source, popmq_clock)
    lacks(monkeypatch, source, "recall")
    assert "the next run copies them" in migrate("mail").err
    assert migrate("mail", "--accept-weaker", "--json").objects[0]["copied"] == 1
    popmq_clock.advance(300_000)
    assert migrate("mail", "--accept-weaker", "--json").objects[0]["copied"] == 3
    assert sorted(left(target, "mail", "billing")) == ["at once", "by delay", "by time"]


def test_a_filter_that_the_target_does_not_keep_is_named(
    migrate: Migrate, source: popmq.Client, target: popmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    source.groups.set_filter("orders", "billing", tag="eu")
    lacks(monkeypatch, target, "filters")
    assert "the group billing has a filter" in migrate("orders").err
    assert migrate("orders", "--accept-weaker").code == 0
    assert target.groups.subscriptions("billing")[0].tag == ""


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
