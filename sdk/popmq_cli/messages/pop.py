"""`popmq pop`: leases messages and prints them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence

import click

import popmq
from popmq_cli.shared.asking import DURATION, asks, filter_options
from popmq_cli.shared.completing import groups, topics
from popmq_cli.shared.moments import moment
from popmq_cli.shared.output import Output, heading, show_body

#: At most this many messages in one pop, which is one request and one lease.
BATCH = 256


@click.command()
@click.argument("topic", shell_complete=topics)
@click.argument("group", shell_complete=groups)
@click.option("--max", "most", type=click.IntRange(1), default=1, show_default=True, help="Messages at most.")
@click.option(
    "--wait", type=DURATION, default=0.0, metavar="DURATION", help="Wait at most this long when there are none; ≤ 60s."
)
@click.option("--invisible", type=DURATION, metavar="DURATION", help="Length of the lease.  [default: the group's]")
@click.option("--queue", "queues", type=int, multiple=True, help="Only this queue; may be repeated.")
@click.option(
    "--lite-topic", "lite_topics", multiple=True, help="The lite topic, of a LITE topic; may be repeated; '*' for all."
)
@filter_options
@click.option("--ack", is_flag=True, help="Ack each message once it is printed.")
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
    lite_topics: tuple[str, ...],
    tag: str | None,
    sql: str | None,
    ack: bool,
) -> None:
    """Lease messages and print them.

    With --ack it prints each body as a line, and acks it. If the reader of a pipe ends, messages that it did not read
    are visible again at once. Without --ack the messages stay leased. They are delivered again unless you settle them
    by the printed handle: see `popmq ack`, `extend`, `release`, `reject`. The first pop of a group in a topic sets its
    filter; `popmq group update --filter` replaces it.

    \b
    Examples:
      popmq pop orders billing --ack                        # read one message and finish it
      popmq pop orders billing --max 1000 --ack > lines.txt
      popmq pop orders billing --wait 20s --invisible 5m    # lease one, settle it later by its handle
      popmq pop orders billing --json | jq -r .handle | xargs popmq ack billing
      popmq pop chats app --lite-topic alice --lite-topic bob --ack
      popmq pop orders eu --sql "region = 'eu'" --ack
    """
    count = 0

    def lease(size: int, wait: float) -> list[popmq.Delivery]:
        return client.pop(topic, group, size, wait, invisible, queues, tag=tag, sql=sql, lite_topics=lite_topics)

    for batch in _batches(lease, most, wait):
        try:
            _print(output, batch, ack)
            sys.stdout.flush()
        except BaseException:
            # The reader of the pipe ended (head), or Ctrl-C: some may be unread, so others may have them at once.
            client.release(batch, delay=0.0, uncounted=True, reason="not printed")
            raise
        if ack:  # printed before it is acked: a broken pipe loses nothing
            client.ack(batch)
        count += len(batch)
    if not count:
        output.note(f"no message for {group} in {topic}")


def _batches(
    pop: Callable[[int, float], list[popmq.Delivery]], most: int, wait: float
) -> Iterator[list[popmq.Delivery]]:
    """Batches until there are `most` messages, or none is left; only the first pop waits."""
    while most > 0:
        batch = pop(min(most, BATCH), wait)
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
        if not ack:
            leased = f"leased until {moment(delivery.invisible_until_ms)}"
            click.secho(heading(delivery, f"attempt {delivery.attempt}", leased), fg="cyan")
            click.echo(f"handle  {delivery.handle}")
        show_body(delivery.body)
