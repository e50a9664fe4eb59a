"""`popmq owners …`: durable readers (Spark queries, batch jobs) and what they hold."""

import click

import popmq
from popmq_cli.asking import asks, examples, sure
from popmq_cli.output import Output, moment


@click.group()
def owners() -> None:
    """Look at owners and what they hold.

    An owner is a durable reader of a group, such as a Spark query: its leases outlive its process.
    """


@owners.command("list", epilog=examples("popmq owners list", "popmq owners list billing"))
@click.argument("group", default="")
@asks
def list_(client: popmq.Client, output: Output, group: str) -> None:
    """Owners of GROUP, or of all groups."""
    found = client.owners(group)
    if output.as_json:
        output.objects(found)
        return
    rows = [
        (
            owner.group,
            owner.owner,
            owner.generation,
            owner.acked_epoch,
            owner.tokens,
            owner.messages,
            "released" if owner.released else moment(owner.lease_until_ms),
            moment(owner.last_seen_ms),
        )
        for owner in found
    ]
    columns = ["GROUP", "OWNER", "GENERATION#", "ACKED EPOCH#", "TOKENS#", "MESSAGES#", "LEASED UNTIL", "LAST SEEN"]
    output.table("Owners", columns, rows)


@owners.command(epilog=examples("popmq owners release billing nightly-report --yes"))
@click.argument("group")
@click.argument("owner")
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks
def release(client: popmq.Client, output: Output, group: str, owner: str, yes: bool) -> None:
    """End the lease of OWNER now: what it holds is visible to the group's other readers.

    It takes back what nobody popped in between when it goes on.
    """
    sure(f"Make what {owner} holds visible to others?", yes)
    count = client.release_owner(group, owner)
    output.said(f"{count} message{'' if count == 1 else 's'} of {owner} released")
    if output.as_json:
        output.objects([{"group": group, "owner": owner, "released": count}])
