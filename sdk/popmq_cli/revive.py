"""`popmq revive …`: the revive topic, that is, what is leased, by whom, until when."""

import time

import click

import popmq
from popmq_cli.asking import asks, examples
from popmq_cli.output import Output, moment, seconds


@click.group()
def revive() -> None:
    """Look at what is leased, until when.

    The revive topic holds every leased batch under the time at which it comes back.
    """


@revive.command("list", epilog=examples("popmq revive list", "popmq revive list --group billing --json"))
@click.option("--group", default="", help="Only this group.")
@click.option("--topic", default="", help="Only this topic.")
@click.option("--max", "most", type=click.IntRange(1, 4096), default=100, show_default=True, help="Show so many.")
@asks
def list_(client: popmq.Client, output: Output, group: str, topic: str, most: int) -> None:
    """Leases, soonest first: who holds how many messages, and when they come back unless they are settled."""
    shown = client.leases(group, topic, most)
    if output.as_json:
        output.objects(shown.leases)
        return
    rows = [
        (
            lease.group,
            lease.topic,
            lease.kind,
            lease.owner or lease.client_id or "–",
            f"{lease.undone}/{lease.messages}",
            moment(lease.popped_ms),
            moment(lease.due_ms),
            _left(lease.due_ms),
        )
        for lease in shown.leases
    ]
    output.table("Leased", ["GROUP", "TOPIC", "KIND", "BY", "UNDONE#", "POPPED", "DUE", "LEFT#"], rows)
    if shown.total > len(rows):
        output.said(f"{shown.total - len(rows)} more: raise --max")


def _left(due_ms: int) -> str:
    """Time until then, by the clock of this machine."""
    left = due_ms / 1000 - time.time()
    return seconds(left) if left > 0 else "due"
