"""`popmq topic …`: the control plane of topics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import click

import popmq
from popmq_cli.shared.asking import DURATION, SIZE, asks, kept, nothing_to_create, sure
from popmq_cli.shared.completing import topics
from popmq_cli.shared.moments import moment
from popmq_cli.shared.output import Output, Row, counted, seconds, size

QUEUES = click.IntRange(1, 1024)
COLUMNS = ["NAME", "TYPE", "QUEUES#", "RETENTION", "CREATED"]
PERMISSIONS = click.Choice(["READ_WRITE", "READ_ONLY", "WRITE_ONLY", "NO_ACCESS"], case_sensitive=False)
TYPES = click.Choice(["NORMAL", "FIFO", "DELAY", "TRANSACTION", "PRIORITY", "LITE"], case_sensitive=False)


@click.group()
def topic() -> None:
    """Create, change, show, purge and delete topics."""


def settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """Retention, quota, unique ids and lite topics; None when not given."""
    amount: dict[str, Any] = {"type": SIZE, "metavar": "SIZE"}
    options = [
        click.option("--keep", type=DURATION, metavar="DURATION", help="How long messages are kept.  [default: 3d]"),
        click.option(
            "--by-age/--by-groups",
            default=None,
            help="Count --keep from when a message is stored, or from when every group is done.  [default: by groups]",
        ),
        click.option("--max-bytes", **amount, help="Keep no more than this, ≥ 1MiB; 0: no limit.  [default: 0]"),
        click.option("--quota-send", type=int, metavar="N", help="Messages a second; 0: no limit.  [default: 0]"),
        click.option("--quota-send-bytes", **amount, help="Bytes a second; 0: no limit.  [default: 0]"),
        click.option("--quota-message", **amount, help="Bytes of one message; 0: 4MiB.  [default: 0]"),
        click.option("--quota-pop", type=int, metavar="N", help="Messages a second of each group.  [default: 0]"),
        click.option(
            "--unique-ids", type=DURATION, metavar="DURATION", help="A message id is stored once in this time; ≤ 1d."
        ),
        click.option("--permission", type=PERMISSIONS, help="What clients may do with it.  [default: READ_WRITE]"),
        click.option("--lite-topics", type=int, metavar="N", help="LITE: lite topics at most.  [default: 100,000]"),
        click.option(
            "--lite-ttl",
            type=DURATION,
            metavar="DURATION",
            help="LITE: idle lite topics are removed after this time.  [default: 3d]",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


@topic.command()
@click.argument("name")
@click.option(
    "--type", "kind", type=TYPES, default="NORMAL", show_default=True, help="The features that its messages may use."
)
@click.option("--queues", type=QUEUES, metavar="N", help="1–1,024.  [default: 8; PRIORITY 10; LITE 1]")
@settings
@asks
def create(client: popmq.Client, output: Output, name: str, kind: Any, queues: int | None, **given: Any) -> None:
    """Create a topic. If it exists with the same settings the command succeeds, so scripts may run twice.

    A name has at most 127 letters, digits, `_`, `-` and `.`. Without --by-age, messages that a group has not finished
    are kept longer than --keep. FIFO topics keep the order of each message group. PRIORITY topics have a queue for each
    priority. LITE topics have a small ordered topic for each lite topic that a message names. All types except NORMAL
    and LITE accept delayed messages and transactions.

    \b
    Examples:
      popmq topic create orders
      popmq topic create logs --queues 16 --keep 12h --by-age --max-bytes 10GiB
      popmq topic create payments --type FIFO --unique-ids 10m
      popmq topic create chats --type LITE --lite-ttl 12h
      popmq topic create mail --type DELAY --quota-send 100 --quota-message 64KiB
    """
    permission: Any = given["permission"] or "READ_WRITE"
    retention, quota, unique_ids, lite = _changed(popmq.Topic(name), given)
    made = client.topics.create(name, queues, kind, retention, quota, unique_ids or 0.0, lite, permission)
    output.done(f"topic {made.name}: {counted(made.queues, 'queue')}", made)


@topic.command()
@click.argument("name", shell_complete=topics)
@click.option("--queues", type=QUEUES, metavar="N", help="Upwards only, and not of FIFO topics.")
@kept(settings)
@asks
def update(client: popmq.Client, output: Output, name: str, queues: int | None, **given: Any) -> None:
    """Change settings; others stay.

    You can add queues, but not remove them. The type of a topic cannot change.

    \b
    Examples:
      popmq topic update orders --queues 16
      popmq topic update orders --keep 7d --quota-send 1000
      popmq topic update orders --permission READ_ONLY
    """
    settings = _changed(client.topics.get(name), given)
    changed = client.topics.update(name, queues, *settings, permission=given["permission"])
    output.done(f"topic {changed.name}: {counted(changed.queues, 'queue')}, {_retention(changed.retention)}", changed)


@topic.command("list")
@click.option("--all", "with_dead_letters", is_flag=True, help="Also the topics of dead letters and of results.")
@asks
def list_(client: popmq.Client, output: Output, with_dead_letters: bool) -> None:
    """Show all topics, by name.

    \b
    Examples:
      popmq topic list
      popmq topic list --json | jq -r .name
    """
    output.listing("Topics", COLUMNS, client.topics.list(dead_letter_topics=with_dead_letters), _row)


@topic.command()
@click.argument("name", shell_complete=topics)
@asks
def describe(client: popmq.Client, output: Output, name: str) -> None:
    """Show one topic with its settings, its queues and the groups that read it.

    FIRST and NEXT are the offsets of the oldest stored message and of the next message. With --json it prints one
    object of topic, stats and groups.

    \b
    Examples:
      popmq topic describe orders
    """
    shown, numbers = client.topics.get(name), client.broker.stats(topic=name)
    stats = numbers.topics[0]
    if output.as_json:
        output.objects([{"topic": shown, "stats": stats, "groups": numbers.groups}])
        return
    output.fields(f"Topic {name}", _fields(shown, numbers))
    output.table(
        "", ["QUEUE#", "FIRST#", "NEXT#"], [(row.queue, row.min_offset, row.max_offset) for row in stats.queues]
    )


@topic.command()
@click.argument("name", shell_complete=topics)
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks
def delete(client: popmq.Client, output: Output, name: str, yes: bool) -> None:
    """Delete a topic and every message in it.

    \b
    Examples:
      popmq topic delete orders --yes
    """
    with nothing_to_create():
        client.topics.get(name)
    sure(f"Delete topic {name} and every message in it?", yes)
    client.topics.delete(name)
    output.note(f"topic {name} is deleted")


@topic.command()
@click.argument("name", shell_complete=topics)
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks
def purge(client: popmq.Client, output: Output, name: str, yes: bool) -> None:
    """Drop every message of a topic, and keep the topic.

    Also leased, retried, delayed and half messages. Offsets continue; the groups stay, positioned at the end.

    \b
    Examples:
      popmq topic purge orders --yes
      popmq topic purge %DLQ%billing --yes
    """
    client.topics.get(name)
    sure(f"Drop every message of topic {name}?", yes)
    dropped = client.topics.purge(name)
    output.done(f"{counted(dropped, 'message')} of {name} dropped", {"topic": name, "dropped": dropped})


def _row(topic: popmq.Topic) -> Row:
    return topic.name, topic.type, topic.queues, _retention(topic.retention), moment(topic.created_ms)


def _fields(topic: popmq.Topic, numbers: popmq.Stats) -> dict[str, Any]:
    stats = numbers.topics[0]
    return {
        "type": topic.type,
        "permission": topic.permission,
        "retention": _retention(topic.retention),
        "quota": _quota(topic.quota),
        "unique ids": seconds(topic.unique_ids) if topic.unique_ids else "no",
        "created": moment(topic.created_ms),
        **_lite(topic, stats),
        "messages": f"{stats.messages}, {size(stats.bytes)}",
        "delayed": stats.delayed,
        "half": stats.half,
        "sent/s": f"{stats.sent_per_s:.1f}",
        "groups": ", ".join(each.group for each in numbers.groups) or "none yet",
    }


def _lite(topic: popmq.Topic, stats: popmq.TopicStats) -> dict[str, Any]:
    """The number of lite topics of a LITE topic, its limit, and how long idle ones stay."""
    if topic.lite is None:
        return {}
    return {"lite topics": f"{stats.lite_topics} of {topic.lite.topics_max:,}, idle for {seconds(topic.lite.ttl)}"}


def _changed(
    topic: popmq.Topic, given: dict[str, Any]
) -> tuple[popmq.Retention | None, popmq.Quota | None, float | None, popmq.LiteTopics | None]:
    """Retention, quota and lite topics of a topic with what was given, None when nothing was; and its unique ids."""
    retention = _given(given, keep="keep", by_age="by_age", max_bytes="max_bytes")
    quota = _given(
        given,
        send_messages_per_s="quota_send",
        send_bytes_per_s="quota_send_bytes",
        message_bytes="quota_message",
        pop_messages_per_s="quota_pop",
    )
    lite = _given(given, topics_max="lite_topics", ttl="lite_ttl")
    return (
        replace(topic.retention, **retention) if retention else None,
        replace(topic.quota, **quota) if quota else None,
        given["unique_ids"],
        replace(topic.lite or popmq.LiteTopics(), **lite) if lite else None,
    )


def _given(options: dict[str, Any], **names: str) -> dict[str, Any]:
    return {field: options[option] for field, option in names.items() if options[option] is not None}


def _retention(retention: popmq.Retention) -> str:
    if not retention.keep:  # the engine's own, which it does not know
        return "–"
    most = f", at most {size(retention.max_bytes)}" if retention.max_bytes else ""
    return f"{seconds(retention.keep)} {'by age' if retention.by_age else 'after all groups'}{most}"


def _quota(quota: popmq.Quota) -> str:
    """The limits that are set."""
    limits = [
        f"{quota.send_messages_per_s:,} sent/s" if quota.send_messages_per_s else "",
        f"{size(quota.send_bytes_per_s)} sent/s" if quota.send_bytes_per_s else "",
        f"{size(quota.message_bytes)} a message" if quota.message_bytes else "",
        f"{quota.pop_messages_per_s:,} popped/s a group" if quota.pop_messages_per_s else "",
    ]
    return ", ".join(limit for limit in limits if limit) or "none"
