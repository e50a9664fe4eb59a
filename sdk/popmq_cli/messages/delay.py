"""`popmq delayed` and `popmq recall`: shows delayed messages, and takes them back."""

from __future__ import annotations

import time
from datetime import datetime

import click

import popmq
from popmq_cli.shared.asking import LATER, asks
from popmq_cli.shared.completing import topics
from popmq_cli.shared.moments import moment
from popmq_cli.shared.output import Output, Row, previewed, seconds

COLUMNS = ["TOPIC", "MESSAGE", "DUE", "IN#", "STORED", "RECALL HANDLE", "KEYS", "TAG", "BODY"]


@click.command()
@click.argument("topic", default="", shell_complete=topics)
@click.option("--until", type=LATER, metavar="TIME", help="Only messages due before: 2026-01-31T12:00, 10m.")
@click.option("--max", "most", type=click.IntRange(1, 1_000_000), default=100, show_default=True, help="Rows at most.")
@asks
def delayed(client: popmq.Client, output: Output, topic: str, until: datetime | None, most: int) -> None:
    """Show delayed messages of TOPIC, or of all topics, soonest first.

    \b
    Examples:
      popmq delayed
      popmq delayed mail --until 2026-12-24T18:00
      popmq delayed mail --json | jq -r .recall_handle
    """
    shown = client.messages.list_delayed(topic, until, most)
    output.listing("Delayed", COLUMNS, shown.messages, _row)
    if shown.total > len(shown.messages) and until is None:
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
