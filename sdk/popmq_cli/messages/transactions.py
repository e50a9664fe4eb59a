"""`popmq transactions …`: unresolved half messages, and how an operator ends them."""

from __future__ import annotations

import click

import popmq
from popmq.transaction import Resolution
from popmq_cli.messages.dlq import Chosen, chooses, redrive_chosen
from popmq_cli.shared.asking import asks, sure
from popmq_cli.shared.completing import topics
from popmq_cli.shared.moments import moment
from popmq_cli.shared.output import Output, Row, previewed

COLUMNS = ["TOPIC", "MESSAGE", "TRANSACTION", "STORED", "CHECKS#", "NEXT CHECK", "KEYS", "TAG", "BODY"]
GIVE_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"


@click.group()
def transactions() -> None:
    """Look at half messages, and end them.

    A half message is invisible until its producer commits it. If the producer does not, the broker asks the producers
    of the topic. After 15 check-backs without a decision it moves the message to TRANS_CHECK_MAX_TIME_TOPIC.
    """


@transactions.command("list")
@click.argument("topic", default="", shell_complete=topics)
@click.option("--max", "most", type=click.IntRange(1, 1_000_000), default=100, show_default=True, help="Rows at most.")
@asks
def list_(client: popmq.Client, output: Output, topic: str, most: int) -> None:
    """Show undecided half messages of TOPIC, or of all topics; in each topic the oldest first.

    \b
    Examples:
      popmq transactions list
      popmq transactions list payments --json
    """
    shown = client.transactions.list(topic, most)
    output.listing("Half messages", COLUMNS, shown.messages, _row)
    if shown.total > len(shown.messages):
        output.note(f"{shown.total - len(shown.messages)} more: raise --max")


@transactions.command()
@click.argument("transaction_ids", metavar="TRANSACTION...", nargs=-1, required=True)
@asks
def commit(client: popmq.Client, output: Output, transaction_ids: tuple[str, ...]) -> None:
    """Commit half messages in place of their producer.

    \b
    Examples:
      popmq transactions commit TRANSACTION
    """
    _end(client, output, transaction_ids, "commit")


@transactions.command()
@click.argument("transaction_ids", metavar="TRANSACTION...", nargs=-1, required=True)
@asks
def rollback(client: popmq.Client, output: Output, transaction_ids: tuple[str, ...]) -> None:
    """Roll half messages back in place of their producer.

    \b
    Examples:
      popmq transactions rollback TRANSACTION
    """
    _end(client, output, transaction_ids, "rollback")


@transactions.command()
@chooses(f"message of {GIVE_UP_TOPIC}")
@asks
def redrive(client: popmq.Client, output: Output, chosen: Chosen) -> None:
    """Commit half messages that the broker gave up, all or the named ones.

    \b
    Examples:
      popmq transactions redrive --id MESSAGE
      popmq transactions redrive --topic payments --yes
    """
    if not chosen.named:
        sure(f"Commit everything in {GIVE_UP_TOPIC}{f' of {chosen.topic}' if chosen.topic else ''}?", chosen.yes)
    redrive_chosen(client, output, "", chosen, "committed")


def _end(client: popmq.Client, output: Output, transaction_ids: tuple[str, ...], resolution: Resolution) -> None:
    receipts = client.transactions.end(transaction_ids, resolution)
    if output.as_json:
        output.objects(receipts)
    else:
        output.note(f"{len(receipts)} {'committed' if resolution == 'commit' else 'rolled back'}")


def _row(half: popmq.HalfMessage) -> Row:
    return (
        half.topic,
        half.message_id,
        half.transaction_id,
        moment(half.stored_ms),
        half.checks,
        moment(half.next_check_ms),
        *previewed(half.preview),
    )
