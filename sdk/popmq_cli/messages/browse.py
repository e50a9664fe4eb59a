"""`popmq browse`: shows the messages of a topic, without an effect on any group."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Literal

import click

import popmq
from popmq_cli.shared import visible
from popmq_cli.shared.asking import MOMENT, asks, filter_options
from popmq_cli.shared.completing import topics
from popmq_cli.shared.moments import moment
from popmq_cli.shared.output import Output, heading, show_body

#: Messages that --newest shows without --max, and those of one page.
SHOWN = 20
PAGE = 100


@click.command()
@click.argument("topic", shell_complete=topics)
@click.option("--follow", is_flag=True, help="Show new messages as they come, until Ctrl-C.")
@click.option("--since", type=MOMENT, metavar="TIME", help="Begin here: 1h (ago).  [default: the first; new ones]")
@click.option("--max", "most", type=click.IntRange(1), help="End after this number of messages.")
@click.option("--newest", is_flag=True, help="Newest first, over all queues.  [default: 20 messages]")
@click.option("--search", metavar="TEXT", help="Only messages with TEXT in id, body, tag, key, property or reason.")
@filter_options
@asks
def browse(
    client: popmq.Client,
    output: Output,
    topic: str,
    follow: bool,
    since: datetime | None,
    most: int | None,
    newest: bool,
    search: str | None,
    tag: str | None,
    sql: str | None,
) -> None:
    """Show the messages of TOPIC, without a group. It leases, counts and acks no message.

    It shows queue by queue, each in its order. A dead-letter topic is %DLQ%GROUP. With --follow it shows only new
    messages, or those from --since on and then new ones. With --newest or --search it shows all queues together, by the
    time at which messages were stored. Delayed and half messages are in no queue yet. An access key needs the right
    admin, or to receive the topic; with --follow, --tag and --sql, to receive it.

    \b
    Examples:
      popmq browse orders --max 10
      popmq browse orders --newest --search bob@example.com
      popmq browse orders --follow
      popmq browse orders --follow --since 10m --tag "eu || us" --json | jq -r .key
    """
    if (newest or search) and (follow or tag is not None or sql is not None):
        raise click.UsageError("--newest and --search go with --since and --max, not with --follow, --tag or --sql")
    if newest or search:
        found = _ordered(client, output, topic, newest, search or "", since, most or (SHOWN if newest else None))
    elif follow or tag is not None or sql is not None:
        found = _pulled(client, topic, follow, since, tag, sql)
    else:
        found = _by_queue(client, topic, since)
    shown = 0
    for delivery in found:
        _show(output, delivery)
        shown += 1
        if shown == most:
            break
    if not shown:
        output.note(f"no message in {topic}")


def _by_queue(client: popmq.Client, topic: str, since: datetime | None) -> Iterator[popmq.Delivery]:
    """The messages of each queue in its order, up to what is its end now."""
    for row in client.offsets.query(topic, at=since):
        offset = max(row.min_offset, row.at_timestamp if since else 0)
        while offset < row.max_offset:
            page = client.messages.browse(topic, row.queue, offset, PAGE)
            yield from (each for each in page.deliveries if each.offset < row.max_offset)
            if page.next_offset <= offset:
                break
            offset = page.next_offset


def _pulled(
    client: popmq.Client, topic: str, follow: bool, since: datetime | None, tag: str | None, sql: str | None
) -> Iterator[popmq.Delivery]:
    """The same by a Pull, which filters and waits; it needs the right to receive."""
    first: Literal["latest", "earliest"] = "latest" if follow else "earliest"
    reading = client.broadcast_consume(
        topic, start=since or first, tag=tag, sql=sql, on_error="raise", until_idle=None if follow else 0.0
    )
    with reading as consumer:
        for delivery in consumer:
            with delivery:
                yield delivery


def _ordered(
    client: popmq.Client,
    output: Output,
    topic: str,
    newest: bool,
    search: str,
    since: datetime | None,
    most: int | None,
) -> Iterator[popmq.Delivery]:
    """The messages of all queues together; says how far a search is."""
    order: Literal["newest", "oldest"] = "newest" if newest else "oldest"
    token, shown, looked_at = "", 0, 0
    while True:
        count = min(PAGE, most - shown) if most else PAGE
        page = client.messages.browse(
            topic, max_messages=count, order=order, search=search, since=since, page_token=token
        )
        yield from page.deliveries
        shown, looked_at, token = shown + len(page.deliveries), looked_at + page.looked_at, page.next_page_token
        if not token or shown == most:
            return
        if search:
            output.note(f"looked at {looked_at:,} messages")


def _show(output: Output, delivery: popmq.Delivery) -> None:
    if output.as_json:
        output.objects([delivery])
        return
    line = heading(delivery, f"stored {moment(delivery.stored_ms)}")
    click.secho(visible.line(f"{delivery.message_id} · {line}"), fg="cyan")
    show_body(delivery.body)
