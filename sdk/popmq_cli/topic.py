"""`popmq topic …`: the control plane of topics."""

from collections.abc import Callable
from typing import Any

import click

import popmq
from popmq_cli.asking import DURATION, asks, examples, sure
from popmq_cli.output import Output, moment, seconds


@click.group()
def topic() -> None:
    """Make, change, show and delete topics."""


def retention_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--keep and --by-age."""
    keep = click.option("--keep", type=DURATION, metavar="DURATION", help="How long messages are kept.  [default: 3d]")
    by_age = click.option(
        "--by-age/--by-groups",
        default=None,
        help="Count --keep from when a message was stored, or from when every group is done with it (default).",
    )
    return keep(by_age(function))


@topic.command(epilog=examples("popmq topic create orders", "popmq topic create logs --queues 16 --keep 12h --by-age"))
@click.argument("name")
@click.option("--type", "kind", default="NORMAL", show_default=True, help="Other types come with later releases.")
@click.option("--queues", type=int, default=8, show_default=True, help="1–1,024.")
@retention_options
@asks
def create(
    client: popmq.Client,
    output: Output,
    name: str,
    kind: str,
    queues: int,
    keep: float | None,
    by_age: bool | None,
) -> None:
    """Make a topic. One that exists with the same settings is fine."""
    made = client.create_topic(name, queues, kind.upper(), _changed(popmq.Retention(), keep, by_age))
    output.said(f"topic {made.name}: {made.queues} queues")
    if output.as_json:
        output.objects([made])


@topic.command(epilog=examples("popmq topic update orders --queues 16", "popmq topic update orders --keep 7d"))
@click.argument("name")
@click.option("--queues", type=int, help="Upwards only.")
@retention_options
@asks
def update(
    client: popmq.Client, output: Output, name: str, queues: int | None, keep: float | None, by_age: bool | None
) -> None:
    """Change queues or retention; what is not given stays."""
    retention = _changed(client.get_topic(name).retention, keep, by_age)
    changed = client.update_topic(name, queues, retention)
    output.said(f"topic {changed.name}: {changed.queues} queues, {_retention(changed.retention)}")
    if output.as_json:
        output.objects([changed])


@topic.command("list", epilog=examples("popmq topic list", "popmq topic list --json | jq -r .name"))
@click.option("--all", "with_dead_letters", is_flag=True, help="Also the dead-letter topics.")
@asks
def list_(client: popmq.Client, output: Output, with_dead_letters: bool) -> None:
    """All topics."""
    topics = client.list_topics(dead_letter_topics=with_dead_letters)
    if output.as_json:
        output.objects(topics)
    else:
        rows = [
            (each.name, each.type, each.queues, _retention(each.retention), moment(each.created_ms)) for each in topics
        ]
        output.table("Topics", ["NAME", "TYPE", "QUEUES#", "RETENTION", "CREATED"], rows)


@topic.command(epilog=examples("popmq topic describe orders"))
@click.argument("name")
@asks
def describe(client: popmq.Client, output: Output, name: str) -> None:
    """One topic: settings, queues, and who reads it."""
    shown, numbers = client.get_topic(name), client.stats(topic=name)
    stats = numbers.topics[0]
    if output.as_json:
        output.objects([{"topic": shown, "stats": stats, "groups": numbers.groups}])
        return
    output.fields(
        f"Topic {shown.name}",
        {
            "type": shown.type,
            "retention": _retention(shown.retention),
            "created": moment(shown.created_ms),
            "messages": stats.messages,
            "sent/s": f"{stats.sent_per_s:.1f}",
            "groups": ", ".join(each.group for each in numbers.groups) or "none yet",
        },
    )
    output.table(
        "", ["QUEUE#", "FIRST#", "NEXT#"], [(each.queue, each.min_offset, each.max_offset) for each in stats.queues]
    )


@topic.command(epilog=examples("popmq topic delete orders --yes"))
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks
def delete(client: popmq.Client, output: Output, name: str, yes: bool) -> None:
    """Delete a topic and every message in it."""
    client.get_topic(name)
    sure(f"Delete topic {name} and every message in it?", yes)
    client.delete_topic(name)
    output.said(f"topic {name} is deleted")


def _changed(retention: popmq.Retention, keep: float | None, by_age: bool | None) -> popmq.Retention:
    return popmq.Retention(retention.keep if keep is None else keep, retention.by_age if by_age is None else by_age)


def _retention(retention: popmq.Retention) -> str:
    return f"{seconds(retention.keep)} {'by age' if retention.by_age else 'after all groups'}"
