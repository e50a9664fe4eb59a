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
    if not changes:
        output.note("nothing to change")
        return
    if dry_run:
        for change in changes:
            _show(output, change)
        output.note(f"{counted(len(changes), 'change')} to make")
        return
    if deleted := [change.what for change in changes if change.sign == DELETED]:
        sure(f"Delete {', '.join(deleted)}, and what is in them?", yes)
    for done, change in enumerate(changes):
        try:
            change.do()
        except BaseException as error:
            output.note(f"{counted(done, 'change')} made; not made, or not known to be:")
            for each in changes[done:]:
                output.note(_line(each))
            if isinstance(error, popmq.PopMQError):
                error.message = f"{change.what}: {error.message}"
            raise
        _show(output, change)
    output.note(f"{counted(len(changes), 'change')} made")


def _show(output: Output, change: Change) -> None:
    if output.as_json:
        output.objects([{"sign": change.sign, "what": change.what, "details": change.details}])
    else:
        click.echo(_line(change))


def _line(change: Change) -> str:
    details = f" ({'; '.join(change.details)})" if change.details else ""
    return f"{change.sign} {change.what}{details}"
