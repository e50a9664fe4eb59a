"""`popmq topic …`: the control plane of topics."""

from collections.abc import Callable
from typing import Any

import click

import popmq
from popmq_cli.asking import DURATION, asks, sure
from popmq_cli.output import Output, Row, moment, seconds

COLUMNS = ["NAME", "TYPE", "QUEUES#", "RETENTION", "CREATED"]


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


@topic.command()
@click.argument("name")
@click.option("--type", "kind", default="NORMAL", show_default=True, help="Other types come with later releases.")
@click.option("--queues", type=int, default=8, show_default=True, help="1–1,024.")
@retention_options
@asks
def create(client: popmq.Client, output: Output, name: str, kind: str, queues: int, **retention: Any) -> None:
    """Make a topic. One that exists with the same settings is fine, so that scripts may run twice.

    Names have letters, digits, `_`, `-` and `.`, at most 127. What a group has not finished is kept, whatever --keep
    says, unless --by-age.

    \b
    Examples:
      popmq topic create orders
      popmq topic create logs --queues 16 --keep 12h --by-age
    """
    made = client.create_topic(name, queues, kind.upper(), _changed(popmq.Retention(), **retention))
    output.done(f"topic {made.name}: {made.queues} queues", made)


@topic.command()
@click.argument("name")
@click.option("--queues", type=int, help="Upwards only.")
@retention_options
@asks
def update(client: popmq.Client, output: Output, name: str, queues: int | None, **retention: Any) -> None:
    """Change queues or retention; what is not given stays.

    Queues can be added, not taken away.

    \b
    Examples:
      popmq topic update orders --queues 16
      popmq topic update orders --keep 7d
    """
    changed = client.update_topic(name, queues, _changed(client.get_topic(name).retention, **retention))
    output.done(f"topic {changed.name}: {changed.queues} queues, {_retention(changed.retention)}", changed)


@topic.command("list")
@click.option("--all", "with_dead_letters", is_flag=True, help="Also the dead-letter topics.")
@asks
def list_(client: popmq.Client, output: Output, with_dead_letters: bool) -> None:
    """All topics, by name.

    \b
    Examples:
      popmq topic list
      popmq topic list --json | jq -r .name
    """
    output.listing("Topics", COLUMNS, client.list_topics(dead_letter_topics=with_dead_letters), _row)


@topic.command()
@click.argument("name")
@asks
def describe(client: popmq.Client, output: Output, name: str) -> None:
    """One topic: settings, queues, and who reads it.

    FIRST and NEXT are offsets: the oldest message that is still there, and the one that comes next. With --json one
    object of topic, stats and groups.

    \b
    Examples:
      popmq topic describe orders
    """
    shown, numbers = client.get_topic(name), client.stats(topic=name)
    stats = numbers.topics[0]
    if output.as_json:
        output.objects([{"topic": shown, "stats": stats, "groups": numbers.groups}])
        return
    output.fields(f"Topic {name}", _fields(shown, numbers))
    output.table(
        "", ["QUEUE#", "FIRST#", "NEXT#"], [(row.queue, row.min_offset, row.max_offset) for row in stats.queues]
    )


@topic.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks
def delete(client: popmq.Client, output: Output, name: str, yes: bool) -> None:
    """Delete a topic and every message in it.

    \b
    Examples:
      popmq topic delete orders --yes
    """
    client.get_topic(name)
    sure(f"Delete topic {name} and every message in it?", yes)
    client.delete_topic(name)
    output.said(f"topic {name} is deleted")


def _row(topic: popmq.Topic) -> Row:
    return topic.name, topic.type, topic.queues, _retention(topic.retention), moment(topic.created_ms)


def _fields(topic: popmq.Topic, numbers: popmq.Stats) -> dict[str, Any]:
    return {
        "type": topic.type,
        "retention": _retention(topic.retention),
        "created": moment(topic.created_ms),
        "messages": numbers.topics[0].messages,
        "sent/s": f"{numbers.topics[0].sent_per_s:.1f}",
        "groups": ", ".join(each.group for each in numbers.groups) or "none yet",
    }


def _changed(retention: popmq.Retention, keep: float | None, by_age: bool | None) -> popmq.Retention:
    return popmq.Retention(retention.keep if keep is None else keep, retention.by_age if by_age is None else by_age)


def _retention(retention: popmq.Retention) -> str:
    return f"{seconds(retention.keep)} {'by age' if retention.by_age else 'after all groups'}"
