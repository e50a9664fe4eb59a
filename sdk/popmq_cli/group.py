"""`popmq group …`: the control plane of groups."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import click

import popmq
from popmq_cli.asking import DURATION, asks, sure
from popmq_cli.output import Output, Row, moment, seconds

COLUMNS = ["NAME", "ATTEMPTS#", "LEASE#", "SHARE#", "CREATED"]
STATS_COLUMNS = ["TOPIC", "READY#", "IN FLIGHT#", "RETRY#", "BACKOFF#", "DEAD#", "ACKED#"]


@click.group()
def group() -> None:
    """Make, change, show and delete groups."""


def settings(function: Callable[..., Any]) -> Callable[..., Any]:
    """The settings of a group, None when not given."""
    options = [
        click.option("--max-attempts", type=int, help="Deliveries before the dead-letter topic.  [default: 17]"),
        click.option("--backoff", help='Delays before attempt 2, 3, …: "10s,1m,10m".  [default: 10s … 2h]'),
        click.option("--invisible", type=DURATION, help="Lease of a pop that asks for none.  [default: 1m]"),
        click.option("--share-number", type=int, help="0: all pop all queues; n: a queue is shared by 1 + n clients."),
        click.option("--start", help='Where it begins: "earliest", "latest", or a time like 2026-01-31T12:00.'),
        click.option("--exclusive-owner/--no-exclusive-owner", default=None, help="Nobody else pops what owners hold."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


@group.command()
@click.argument("name")
@settings
@asks
def create(client: popmq.Client, output: Output, name: str, **given: Any) -> None:
    """Make a group. One that exists with the same settings is fine, so that scripts may run twice.

    A group reads every message of a topic once; groups do not see each other. Where it begins in a topic is fixed when
    it first names the topic, by a pop for example.

    \b
    Examples:
      popmq group create billing
      popmq group create mail --max-attempts 3 --backoff 10s,1m
    """
    made = client.create_group(name, **_settings(given))
    output.done(f"group {made.name}: at most {made.max_attempts} attempts", made)


@group.command()
@click.argument("name")
@settings
@asks
def update(client: popmq.Client, output: Output, name: str, **given: Any) -> None:
    """Change settings; what is not given stays.

    \b
    Examples:
      popmq group update billing --max-attempts 5 --invisible 5m
    """
    changed = client.update_group(name, **_settings(given))
    output.done(f"group {changed.name} is changed", changed)


@group.command("list")
@asks
def list_(client: popmq.Client, output: Output) -> None:
    """All groups, by name.

    \b
    Examples:
      popmq group list
      popmq group list --json | jq -r .name
    """
    output.listing("Groups", COLUMNS, client.list_groups(), _row)


@group.command()
@click.argument("name")
@asks
def describe(client: popmq.Client, output: Output, name: str) -> None:
    """One group: settings, and what it has to do in each topic.

    A topic is listed once the group has named it. With --json one object of group and stats.

    \b
    Examples:
      popmq group describe billing
    """
    shown, numbers = client.get_group(name), client.stats(group=name).groups
    if output.as_json:
        output.objects([{"group": shown, "stats": numbers}])
        return
    output.fields(f"Group {name}", _fields(shown))
    output.table("", STATS_COLUMNS, [_stats_row(row) for row in numbers])


@group.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks
def delete(client: popmq.Client, output: Output, name: str, yes: bool) -> None:
    """Delete a group: its positions, leases, retries and dead letters.

    \b
    Examples:
      popmq group delete billing --yes
    """
    client.get_group(name)
    sure(f"Delete group {name}, with its positions and dead letters?", yes)
    client.delete_group(name)
    output.said(f"group {name} is deleted")


def _row(group: popmq.Group) -> Row:
    return group.name, group.max_attempts, seconds(group.invisible), group.share_number, moment(group.created_ms)


def _stats_row(row: popmq.GroupStats) -> Row:
    return row.topic, row.ready, row.in_flight, row.retry, row.backoff, row.dead, row.acked


def _fields(group: popmq.Group) -> dict[str, Any]:
    return {
        "max attempts": group.max_attempts,
        "lease": seconds(group.invisible),
        "backoff": ", ".join(seconds(delay) for delay in group.backoff),
        "share number": group.share_number,
        "start": group.start if isinstance(group.start, str) else group.start.isoformat(),
        "exclusive owner": "yes" if group.exclusive_owner else "no",
        "created": moment(group.created_ms),
    }


def _settings(given: dict[str, Any]) -> dict[str, Any]:
    """What was given, as the client takes it."""
    known = {name: value for name, value in given.items() if value is not None}
    if "backoff" in known:
        known["backoff"] = [DURATION.convert(delay.strip(), None, None) for delay in known["backoff"].split(",")]
    if known.get("start", "earliest") not in ("earliest", "latest"):
        try:
            known["start"] = datetime.fromisoformat(known["start"])
        except ValueError:
            raise click.BadParameter(
                f'{known["start"]!r} is neither "earliest", "latest" nor a time', param_hint="--start"
            ) from None
    return known
