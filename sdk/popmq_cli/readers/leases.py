"""`popmq leases …`: leases, their clients and their deadlines, and how an operator ends one."""

from __future__ import annotations

import time

import click

import popmq
from popmq_cli.shared.asking import asks
from popmq_cli.shared.moments import moment
from popmq_cli.shared.output import Output, seconds

COLUMNS = ["GROUP", "TOPIC", "KIND", "BY", "UNDONE#", "DUE", "LEFT#", "POPPED"]


@click.group()
def leases() -> None:
    """Show leases and their deadlines, and end them.

    A lease covers the messages of one pop. Messages that are not done by its deadline are delivered again.
    """


@leases.command("end")
@click.argument("group")
@click.argument("lease_id")
@asks
def end(client: popmq.Client, output: Output, group: str, lease_id: str) -> None:
    """End a lease of GROUP now, as if its deadline had come: unfinished messages are delivered again.

    `popmq leases list --json` prints the LEASE_ID. To end an owner's lease, use `popmq owners release`.

    \b
    Examples:
      popmq leases list --group billing --json | jq -r .lease_id
      popmq leases end billing 17
    """
    output.note(f"ended; {client.leases.end(group, lease_id)} messages come again")


@leases.command("list")
@click.option("--group", default="", help="Only this group.")
@click.option("--topic", default="", help="Only this topic.")
@click.option("--max", "most", type=click.IntRange(1, 1_000_000), default=100, show_default=True, help="Rows at most.")
@asks
def list_(client: popmq.Client, output: Output, group: str, topic: str, most: int) -> None:
    """Show leases with their client, messages and deadline, soonest first.

    KIND is normal, retry (popped from the retry topic), or backoff (released with a delay; no client holds it). BY is a
    client, or the owner whose lease it shares. UNDONE is the number of popped messages that are not acked.

    \b
    Examples:
      popmq leases list
      popmq leases list --group billing --json
    """
    shown = client.leases.list(group, topic, most)
    output.listing("Leased", COLUMNS, shown.leases, _row)
    if shown.total > len(shown.leases):
        output.note(f"{shown.total - len(shown.leases)} more: raise --max")


def _row(lease: popmq.Lease) -> tuple[str, ...]:
    return (
        lease.group,
        lease.topic,
        lease.kind,
        lease.owner or lease.client_id or "–",
        f"{lease.undone}/{lease.messages}",
        moment(lease.due_ms),
        _left(lease.due_ms),
        moment(lease.popped_ms),
    )


def _left(due_ms: int) -> str:
    """Time until then, by the clock of this machine."""
    left = due_ms / 1000 - time.time()
    return seconds(left) if left > 0 else "due"
