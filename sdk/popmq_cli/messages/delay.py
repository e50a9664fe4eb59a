"""`popmq delayed` and `popmq recall`: shows delayed messages, and takes them back."""

from __future__ import annotations

import time
from datetime import datetime

import click

import popmq
from popmq_cli.shared.asking import DURATION, LATER, asks
from popmq_cli.shared.completing import topics
from popmq_cli.shared.moments import moment
from popmq_cli.shared.output import Output, Row, previewed, seconds

COLUMNS = ["TOPIC", "MESSAGE", "DUE", "IN#", "STORED", "RECALL HANDLE", "KEYS", "TAG", "BODY"]


@click.command()
@click.argument("topic", default="", shell_complete=topics)
@click.option("--until", type=LATER, metavar="TIME", help="Only messages due before: 2026-01-31T12:00, 10m.")
@click.option("--id", "message_id", default="", help="Only those with this message id.")
@click.option("--key", default="", help="Only those with this key.")
@click.option("--max", "most", type=click.IntRange(1, 1_000_000), default=100, show_default=True, help="Rows at most.")
@asks
def delayed(
    client: popmq.Client,
    output: Output,
    topic: str,
    until: datetime | None,
    most: int,
    message_id: str,
    key: str,
) -> None:
    """Show delayed messages of TOPIC, or of all topics, soonest first.

    \b
    Examples:
      popmq delayed
      popmq delayed mail --until 2026-12-24T18:00
      popmq delayed mail --key customer-7
      popmq delayed mail --json | jq -r .recall_handle
    """
    shown = client.messages.list_delayed(topic, until, most, message_id=message_id, key=key)
    output.listing("Delayed", COLUMNS, shown.messages, _row)
    if shown.total > len(shown.messages) and not (until or message_id or key):
        output.note(f"{shown.total - len(shown.messages)} more: raise --max")


@click.command()
@click.argument("topic", shell_complete=topics)
@click.argument("handles", nargs=-1, required=True)
@asks
def recall(client: popmq.Client, output: Output, topic: str, handles: tuple[str, ...]) -> None:
    """Recall delayed messages: they will never be delivered.

    `popmq send --json` and `popmq delayed` print handles. The command is refused if the message was delivered already.

    \b
    Examples:
      popmq recall mail HANDLE
      popmq delayed mail --json | jq -r .recall_handle | xargs popmq recall mail
    """
    results: list[str | popmq.PopMQError] = []
    for handle in handles:
        try:
            results.append(client.messages.recall(topic, handle))
        except popmq.errors.BadRequest as error:
            results.append(error)
    if refused := [result for result in results if isinstance(result, popmq.PopMQError)]:
        raise refused[0] if len(handles) == 1 else popmq.errors.PartlyRefused(results)
    if output.as_json:
        output.objects({"message_id": message_id} for message_id in results)
    else:
        output.note(f"{len(handles)} recalled")


@click.command()
@click.argument("topic", shell_complete=topics)
@click.argument("handle")
@click.option("--delay", type=DURATION, metavar="DURATION", help="Visible so long from now.")
@click.option("--deliver-at", type=LATER, metavar="TIME", help='Not visible before: 2026-01-31T12:00, "tomorrow 9:00".')
@asks
def reschedule(
    client: popmq.Client, output: Output, topic: str, handle: str, delay: float | None, deliver_at: datetime | None
) -> None:
    """Move a delayed message to another time. It prints the recall handle that the message has from now on.

    \b
    Examples:
      popmq reschedule mail HANDLE --delay 2h
      popmq reschedule mail HANDLE --deliver-at "tomorrow 9:00"
    """
    if (delay is None) == (deliver_at is None):
        raise click.UsageError("give one of --delay and --deliver-at")
    moved = client.messages.reschedule(topic, handle, delay, deliver_at)
    if output.as_json:
        output.objects([moved])
    else:
        click.echo(moved.recall_handle)
        output.note(f"{moved.message_id} is due at {moment(moved.due_ms)}")


def _row(message: popmq.DelayedMessage) -> Row:
    left = message.due_ms / 1000 - time.time()
    return (
        message.topic,
        message.message_id,
        moment(message.due_ms),
        seconds(left) if left > 0 else "due",
        moment(message.stored_ms),
        message.recall_handle,
        *previewed(message.preview),
    )
