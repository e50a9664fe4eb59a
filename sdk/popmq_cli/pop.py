"""`popmq pop`: leases messages and prints them."""

import sys
from collections.abc import Iterator, Sequence

import click

import popmq
from popmq_cli.asking import DURATION, asks
from popmq_cli.output import Output, moment, text_of

#: Messages a pop: one request and one lease for so many at most.
BATCH = 256


@click.command()
@click.argument("topic")
@click.argument("group")
@click.option("--max", "most", type=click.IntRange(1), default=1, show_default=True, help="Messages at most.")
@click.option("--wait", type=DURATION, default=0.0, metavar="DURATION", help="Wait so long when there are none; ≤ 60s.")
@click.option("--invisible", type=DURATION, metavar="DURATION", help="Length of the lease.  [default: the group's]")
@click.option("--queue", "queues", type=int, multiple=True, help="Only this queue; as often as needed.")
@click.option("--ack", is_flag=True, help="Finish each message once it is printed.")
@asks
def pop(
    client: popmq.Client,
    output: Output,
    topic: str,
    group: str,
    most: int,
    wait: float,
    invisible: float | None,
    queues: tuple[int, ...],
    ack: bool,
) -> None:
    """Lease messages and print them.

    With --ack it prints bodies, a line each. Without, messages stay leased, and come back unless somebody settles them
    by the handle that is printed: see `popmq ack`, `extend`, `release`, `reject`.

    \b
    Examples:
      popmq pop orders billing --ack                        # read one message and finish it
      popmq pop orders billing --max 1000 --ack > lines.txt
      popmq pop orders billing --wait 20s --invisible 5m    # lease one, settle it later by its handle
      popmq pop orders billing --json | jq -r .handle | xargs popmq ack billing
    """
    count = 0
    for batch in _batches(client, topic, group, most, wait, invisible, queues):
        _print(output, batch, ack)
        sys.stdout.flush()  # printed before it is acked: a pipe that broke loses nothing
        if ack:
            client.ack(batch)
        count += len(batch)
    if not count:
        output.said(f"no message for {group} in {topic}")


def _batches(
    client: popmq.Client, topic: str, group: str, most: int, wait: float, invisible: float | None, queues: Sequence[int]
) -> Iterator[list[popmq.Delivery]]:
    """Batches until there were so many messages, or none is left; only the first pop waits."""
    while most > 0:
        batch = client.pop(topic, group, min(most, BATCH), wait, invisible, queues)
        if not batch:
            return
        yield batch
        most -= len(batch)
        wait = 0.0


def _print(output: Output, batch: Sequence[popmq.Delivery], ack: bool) -> None:
    if output.as_json:
        output.objects(batch)
        return
    for delivery in batch:
        body = text_of(delivery.body)
        if not ack:
            click.secho(_heading(delivery), fg="cyan")
            click.echo(f"handle  {delivery.handle}")
        if body is None:
            sys.stdout.flush()
            sys.stdout.buffer.write(delivery.body + b"\n")
        else:
            click.echo(body)


def _heading(delivery: popmq.Delivery) -> str:
    """One line about a delivery, with what is set of it."""
    parts = [
        f"queue {delivery.queue} offset {delivery.offset}",
        f"attempt {delivery.attempt}",
        f"leased until {moment(delivery.invisible_until_ms)} UTC",
        f"key {delivery.key}" if delivery.key else "",
        f"tag {delivery.tag}" if delivery.tag else "",
        " ".join(f"{name}={value}" for name, value in delivery.properties.items()),
    ]
    return " · ".join(part for part in parts if part)
