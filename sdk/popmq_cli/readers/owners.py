"""`popmq owners …`: durable readers (Spark queries, batch jobs) and what they hold."""

from __future__ import annotations

import click

import popmq
from popmq_cli.shared.asking import asks, sure
from popmq_cli.shared.completing import groups
from popmq_cli.shared.moments import moment
from popmq_cli.shared.output import Output, counted

COLUMNS = ["GROUP", "OWNER", "GENERATION#", "ACKED EPOCH#", "TOKENS#", "MESSAGES#", "LEASED UNTIL", "LAST SEEN"]


@click.group()
def owners() -> None:
    """Show owners and their messages, and release them.

    An owner is a durable reader of a group, such as a Spark query: its leases outlive its process.
    """


@owners.command("list")
@click.argument("group", default="", shell_complete=groups)
@asks
def list_(client: popmq.Client, output: Output, group: str) -> None:
    """Show owners of GROUP, or of all groups.

    TOKENS is the number of reads that the owner can repeat and has not acked. "released" means that the owner's lease
    has expired, so that other consumers may pop its messages.

    \b
    Examples:
      popmq owners list
      popmq owners list billing
    """
    output.listing("Owners", COLUMNS, client.owners.list(group), _row)


@owners.command()
@click.argument("group", shell_complete=groups)
@click.argument("owner")
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks
def release(client: popmq.Client, output: Output, group: str, owner: str, yes: bool) -> None:
    """End the lease of OWNER now. Its messages are visible to other consumers of the group.

    When the owner continues, it gets back the messages that no other consumer popped in between.

    \b
    Examples:
      popmq owners release billing nightly-report --yes
    """
    sure(f"Make what {owner} holds visible to others?", yes)
    count = client.owners.release(group, owner)
    output.done(
        f"{counted(count, 'message')} of {owner} released",
        {"group": group, "owner": owner, "released": count},
    )


def _row(owner: popmq.Owner) -> tuple[object, ...]:
    return (
        owner.group,
        owner.owner,
        owner.generation,
        owner.acked_epoch,
        owner.tokens,
        owner.messages,
        "released" if owner.released else moment(owner.lease_until_ms),
        moment(owner.last_seen_ms),
    )
