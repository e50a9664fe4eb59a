"""`popmq apply FILE`."""

from __future__ import annotations

from typing import IO

import click

import popmq
from popmq_cli.applying.planning import DELETED, Change, plan
from popmq_cli.applying.reading import read
from popmq_cli.shared.asking import asks, sure
from popmq_cli.shared.output import Output, counted


@click.command()
@click.argument("source", type=click.File("rb"), metavar="FILE|-")
@click.option("--dry-run", is_flag=True, help="Show what would be changed, and change nothing.")
@click.option("--prune", is_flag=True, help="Also delete topics, groups and schedules that the file lacks.")
@click.option("--yes", is_flag=True, help="Do not ask before something is deleted.")
@asks
def apply(client: popmq.Client, output: Output, source: IO[bytes], dry_run: bool, prune: bool, yes: bool) -> None:
    """Create and change topics, groups and schedules as FILE says.

    FILE is YAML, so that it can be kept with the program. What it does not name stays as it is, so you may repeat the
    command: it then changes nothing. With --prune the command also deletes what the file lacks, of the kinds that it
    has: without a part `groups`, no group is deleted.
    Durations are written as 10s, 5m, 72h or 3d, sizes as 64KiB or 10GiB.

    \b
      topics:
        orders: {type: FIFO, queues: 16, retention: {keep: 7d}, unique_ids: 10m}
      groups:
        billing: {max_attempts: 5, backoff: [10s, 1m], filters: {orders: {tag: paid}}}
      schedules:
        nightly: {cron: "0 3 * * *", tz: Europe/Berlin, topic: orders, message: {body: close}}

    \b
    Examples:
      popmq apply topology.yaml --dry-run
      popmq apply topology.yaml
      popmq apply topology.yaml --prune --yes
    """
    changes = plan(client, read(source), prune)
    if output.as_json:
        output.objects({"sign": each.sign, "what": each.what, "details": each.details} for each in changes)
    else:
        click.echo("".join(f"{_line(change)}\n" for change in changes), nl=False)
    if not changes:
        output.note("nothing to change")
        return
    if dry_run:
        output.note(f"{counted(len(changes), 'change')} to make")
        return
    if deleted := sum(change.sign == DELETED for change in changes):
        sure(f"Delete {counted(deleted, 'thing')} and what is in them?", yes)
    for change in changes:
        try:
            change.do()
        except popmq.PopMQError as error:
            error.message = f"{change.what}: {error.message}"
            raise
    output.note(f"{counted(len(changes), 'change')} made")


def _line(change: Change) -> str:
    details = f" ({'; '.join(change.details)})" if change.details else ""
    return f"{change.sign} {change.what}{details}"
