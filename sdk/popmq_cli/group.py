"""`popmq group …`: the control plane of groups."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

import click

import popmq
from popmq_cli.asking import DURATION, asks, examples, sure
from popmq_cli.output import Output, moment, seconds


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


@group.command(
    epilog=examples("popmq group create billing", "popmq group create mail --max-attempts 3 --backoff 10s,1m")
)
@click.argument("name")
@settings
@asks
def create(client: popmq.Client, output: Output, name: str, **given: Any) -> None:
    """Make a group. One that exists with the same settings is fine."""
    made = client.create_group(name, **_settings(given))
    output.said(f"group {made.name}: at most {made.max_attempts} attempts")
    if output.as_json:
        output.objects([made])


@group.command(epilog=examples("popmq group update billing --max-attempts 5 --invisible 5m"))
@click.argument("name")
@settings
@asks
def update(client: popmq.Client, output: Output, name: str, **given: Any) -> None:
    """Change settings; what is not given stays."""
    changed = client.update_group(name, **_settings(given))
    output.said(f"group {changed.name} is changed")
    if output.as_json:
        output.objects([changed])


@group.command("list", epilog=examples("popmq group list", "popmq group list --json | jq -r .name"))
@asks
def list_(client: popmq.Client, output: Output) -> None:
    """All groups."""
    groups = client.list_groups()
    if output.as_json:
        output.objects(groups)
        return
    rows = [
        (each.name, each.max_attempts, seconds(each.invisible), each.share_number, moment(each.created_ms))
        for each in groups
    ]
    output.table("Groups", ["NAME", "ATTEMPTS#", "LEASE#", "SHARE#", "CREATED"], rows)


@group.command(epilog=examples("popmq group describe billing"))
@click.argument("name")
@asks
def describe(client: popmq.Client, output: Output, name: str) -> None:
    """One group: settings, and what it has to do in each topic."""
    shown, numbers = client.get_group(name), client.stats(group=name).groups
    if output.as_json:
        output.objects([{"group": shown, "stats": numbers}])
        return
    output.fields(
        f"Group {shown.name}",
        {
            "max attempts": shown.max_attempts,
            "lease": seconds(shown.invisible),
            "backoff": ", ".join(seconds(delay) for delay in shown.backoff),
            "share number": shown.share_number,
            "start": shown.start if isinstance(shown.start, str) else shown.start.isoformat(),
            "exclusive owner": "yes" if shown.exclusive_owner else "no",
            "created": moment(shown.created_ms),
        },
    )
    rows = [
        (each.topic, each.ready, each.in_flight, each.retry, each.backoff, each.dead, each.acked) for each in numbers
    ]
    output.table("", ["TOPIC", "READY#", "IN FLIGHT#", "RETRY#", "BACKOFF#", "DEAD#", "ACKED#"], rows)


@group.command(epilog=examples("popmq group delete billing --yes"))
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks
def delete(client: popmq.Client, output: Output, name: str, yes: bool) -> None:
    """Delete a group: its positions, leases, retries and dead letters."""
    client.get_group(name)
    sure(f"Delete group {name}, with its positions and dead letters?", yes)
    client.delete_group(name)
    output.said(f"group {name} is deleted")


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
