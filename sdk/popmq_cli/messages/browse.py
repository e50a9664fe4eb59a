"""`popmq browse`: shows the messages of a topic, without an effect on any group."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import click

import popmq
from popmq_cli.shared import visible
from popmq_cli.shared.asking import MOMENT, asks, filter_options
from popmq_cli.shared.completing import topics
from popmq_cli.shared.moments import moment
from popmq_cli.shared.output import Output, heading, show_body


@click.command()
@click.argument("topic", shell_complete=topics)
@click.option("--follow", is_flag=True, help="Show new messages as they come, until Ctrl-C.")
@click.option("--since", type=MOMENT, metavar="TIME", help="Begin here: 1h (ago).  [default: the first; new ones]")
@click.option("--max", "most", type=click.IntRange(1), help="End after this number of messages.")
@filter_options
@asks
def browse(
    client: popmq.Client,
    output: Output,
    topic: str,
    follow: bool,
    since: datetime | None,
    most: int | None,
    tag: str | None,
    sql: str | None,
) -> None:
    """Show the messages of TOPIC. It needs no group: nothing is leased, counted or acked.

    Each queue in its order; a dead-letter topic is %DLQ%GROUP. With --follow only new messages are shown, or those from
    --since on and then new ones. Delayed and half messages are in no queue yet.

    \b
    Examples:
      popmq browse orders --max 10
      popmq browse orders --follow
      popmq browse orders --follow --since 10m --tag "eu || us" --json | jq -r .key
    """
    first: Literal["latest", "earliest"] = "latest" if follow else "earliest"
    reading = client.broadcast_consume(
        topic, start=since or first, tag=tag, sql=sql, on_error="raise", until_idle=None if follow else 0.0
    )
    shown = 0
    with reading as consumer:
        for delivery in consumer:
            with delivery:
                _show(output, delivery)
            shown += 1
            if shown == most:
                break
    if not shown:
        output.note(f"no message in {topic}")


def _show(output: Output, delivery: popmq.Delivery) -> None:
    if output.as_json:
        output.objects([delivery])
        return
    line = heading(delivery, f"stored {moment(delivery.stored_ms)}")
    click.secho(visible.line(f"{delivery.message_id} · {line}"), fg="cyan")
    show_body(delivery.body)
