"""What stands in the way of a migration: what the second broker lacks, and what cannot be brought along."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any, NamedTuple

import click

import popmq
from popmq_cli.migrating.brokers import Migration
from popmq_cli.migrating.copying import moves_delayed
from popmq_cli.shared.output import counted

#: Capabilities without which nothing can be copied, by side.
NEEDED = {"source": ("pull",), "target": ("pull", "reset_offsets")}
#: Arguments of `topics.create` or `groups.create`.
Settings = dict[str, Any]
#: The capability that an engine needs for a setting, by the setting's name.
CAPABILITY_OF = {
    "retention": "retention",
    "quota": "quotas",
    "unique_ids": "unique_ids",
    "in_flight_max": "in_flight_max",
    "stop_on_failure": "stop_on_failure",
    "exclusive_owner": "exclusive_owner",
    "subscription_expiry": "subscription_expiry",
    "lite_exclusive": "lite",
    "snoozes_max": "snooze",
    "dead_letter_expired": "ttl",
    "results_keep": "results",
    "fair_keys": "fair_keys",
}
#: Lists are read up to this many rows: more are counted by their totals.
ROWS = 4096


def check_needed(client: popmq.Client, side: str) -> popmq.BrokerInfo:
    """What a broker is. Raises ClickException for one that cannot be a side of a migration."""
    info = client.info()
    for name in NEEDED[side]:
        if name in info.lacking:
            raise click.ClickException(f"{client.endpoint} (engine {info.engine}) lacks {name}: it cannot be migrated")
    return info


def check_different(source: popmq.Client, target: popmq.Client, topic: popmq.Topic) -> None:
    """Raises ClickException if both sides are one broker, which may have two addresses. It only reads.

    Both have the topic since the same moment then, on the same brokers of a cluster, and its queues have the same ends:
    the target is asked between two answers of the source, and is neither behind the first nor ahead of the second.
    """
    try:
        there = target.topics.get(topic.name)
    except popmq.errors.TopicNotFound:
        return
    one, other = _brokers(source), _brokers(target)
    if any(getattr(there, name) != getattr(topic, name) for name in ("created_ms", "type", "permission")):
        return
    if one != other and one.isdisjoint(other):
        return
    before, found, after = (_ends(client, topic.name) for client in (source, target, source))
    if all(before.get(queue, 0) <= found.get(queue, -1) <= end for queue, end in after.items()):
        raise click.ClickException(
            f"{source.endpoint} and {target.endpoint} are the same broker, or one is a restored copy of the other: the "
            f"topic {topic.name} of both was made at the same moment and has the same messages. Name another target"
        )


def _brokers(client: popmq.Client) -> set[tuple[str, str]]:
    """The masters of the cluster behind a gateway; none if the broker keeps the messages itself."""
    if client.info().engine == "embedded":
        return set()
    return {(each.name, each.address) for each in client.broker.cluster().brokers if not each.id}


def _ends(client: popmq.Client, topic: str) -> dict[int, int]:
    return {row.queue: row.max_offset for row in client.offsets.query(topic)}


class Lacking(NamedTuple):
    """The capabilities that each side lacks."""

    source: Collection[str]
    target: Collection[str]


def lacking_of(migration: Migration) -> Lacking:
    """What both brokers say of themselves."""
    return Lacking(migration.source.info().lacking, migration.target.info().lacking)


def topic_settings(topic: popmq.Topic, lacking: Lacking) -> tuple[Settings, list[str]]:
    """The settings of a topic that the target takes, as `topics.create` has them; and a sentence for each other one."""
    return _taken(topic, popmq.Topic(topic.name), lacking, f"the topic {topic.name}")


def group_settings(group: popmq.Group, lacking: Lacking) -> tuple[Settings, list[str]]:
    """The same of a group, as `groups.create` has them."""
    return _taken(group, popmq.Group(group.name), lacking, f"the group {group.name}")


def _taken(
    given: popmq.Topic | popmq.Group, default: popmq.Topic | popmq.Group, lacking: Lacking, whose: str
) -> tuple[Settings, list[str]]:
    """Settings that differ from the defaults: those that are left out stay the engine's own.

    A source that lacks a setting says nothing by its value.
    """
    taken, lost = Settings(), list[str]()
    for each in dataclasses.fields(given):
        value = getattr(given, each.name)
        if each.name in ("name", "created_ms", "permission") or value == getattr(default, each.name):
            continue
        needed = CAPABILITY_OF.get(each.name)
        if needed in lacking.source:
            continue
        if needed in lacking.target:
            lost.append(f"{whose} has {each.name} {value}, which the target lacks")
        else:
            taken[each.name] = value
    return taken, lost


def tells_held(lacking: Collection[str]) -> bool:
    """Whether an engine tells which messages its groups hold, and lets them be taken from their consumers."""
    return not {"list_leases", "end_lease"} & set(lacking)


def subscription(client: popmq.Client, topic: str, group: str) -> popmq.Subscription:
    """How a group reads a topic."""
    known = [each for each in client.groups.subscriptions(group) if each.topic == topic]
    return known[0] if known else popmq.Subscription(topic)


def of_topic(migration: Migration, readers: list[popmq.GroupStats]) -> list[str]:
    """A sentence for each thing that a migration of the topic would not bring along as it is."""
    source, target = lacking = lacking_of(migration)
    found = topic_settings(migration.topic, lacking)[1]
    for row in readers:
        found += group_settings(migration.source.groups.get(row.group), lacking)[1]
        reads = subscription(migration.source, migration.name, row.group)
        if "filters" in target and (reads.tag not in ("", "*") or reads.sql):
            found.append(
                f"the group {row.group} has a filter, which the target lacks: its consumers name it in each pop"
            )
    found += _pending(migration, source, target)
    if readers and not tells_held(source):
        found.append(
            "the source does not tell what its groups hold in leases and retries: let their consumers finish it, and "
            "stop them; what they hold then is delivered on the target only if it is after their offset"
        )
    found += [
        f"{counted(row.owners, 'owner')} of the group {row.group}, such as queries of Spark: what they hold is "
        "delivered again, and their epochs are not known there"
        for row in readers
        if row.owners
    ]
    if migration.topic.type == "FIFO" and migration.own:
        found.append(
            f"producers have sent {counted(migration.own, 'message')} to the target: in a message group they come "
            "before older ones that are copied after them"
        )
    return found


def _pending(migration: Migration, source: Collection[str], target: Collection[str]) -> list[str]:
    """Half and delayed messages, and schedules."""
    found, name = list[str](), migration.name
    if "list_transactions" not in source:
        halves = migration.source.transactions.list(name, ROWS)
        found += [
            f"half message {half.message_id}, transaction {half.transaction_id}: end it, or it stays on the source"
            for half in halves.messages
        ]
    elif "transactions" not in source and migration.topic.type != "NORMAL":
        found.append("the source does not list half messages: what is committed later stays there until the next run")
    if migration.topic.type not in ("NORMAL", "LITE"):
        found += _delayed(migration.source.info(), target)
    if "schedules" not in source:
        found += [
            f"the schedule {schedule.name} sends to the topic: create it on the target, and delete it on the source"
            for schedule in migration.source.schedules.list()
            if schedule.topic == name
        ]
    return found


def _delayed(source: popmq.BrokerInfo, target: Collection[str]) -> list[str]:
    if not moves_delayed(source):
        return [
            "the source does not list or recall delayed messages: they become visible there at their time, and the "
            "next run copies them"
        ]
    if "list_delayed" in target:
        return ["the target does not list delayed messages: after a kill one of them can be there twice"]
    return []
