"""`popmq move`: sends the unfinished messages of a group in one topic to another topic.

    pop ─▶ send to TO, with the same message ids ─▶ on its disk ─▶ ack

The ack comes last: a kill at any point loses nothing. Between the send and the ack it leaves up to one batch in both
topics: the leases end, and the next run sends these messages again. A TO that stores a message id once (popmq topic
create --unique-ids) answers that it has them, so there each is stored once.
"""

from __future__ import annotations

import sys

import click

import popmq
from popmq_cli.shared.asking import asks, filter_options, sure
from popmq_cli.shared.completing import groups, topics
from popmq_cli.shared.output import Output, counted
from popmq_cli.shared.rows import message_of, row_of

#: Messages that are popped, sent and acked at once.
BATCH = 256


@click.command()
@click.argument("source", metavar="FROM", shell_complete=topics)
@click.argument("target", metavar="TO", shell_complete=topics)
@click.option(
    "--group", required=True, shell_complete=groups, help="The group whose messages are moved, and acked in FROM."
)
@click.option("--max", "most", type=click.IntRange(1), help="Move at most this many.  [default: until none is left]")
@click.option("--yes", is_flag=True, help="Do not ask.")
@filter_options
@asks
def move(
    client: popmq.Client,
    output: Output,
    source: str,
    target: str,
    group: str,
    most: int | None,
    yes: bool,
    tag: str | None,
    sql: str | None,
) -> None:
    """Send the unfinished messages of --group from FROM to TO, and ack them in FROM.

    Messages keep their ids, keys, tags, properties, message groups, priorities and bodies, and their order within a
    message group. Their attempts begin at 1 in TO. Other groups of FROM keep their messages. FROM may be %DLQ%GROUP,
    but popmq dlq redrive delivers dead letters to the topics that they came from. Messages that are leased or in
    backoff stay.

    Every batch is on disk in TO before it is acked in FROM. So a kill, a restart or a refusal loses no message. A kill
    between the two leaves up to 256 messages in both topics, and the next run sends them again. If TO was created with
    --unique-ids, it stores each of them once.

    \b
    Examples:
      popmq move orders orders-eu --group billing --tag eu
      popmq move orders quarantine --group billing --sql "version < 3" --max 1000 --yes
    """
    if source == target:
        raise click.UsageError("FROM and TO are the same topic")
    sure(f"Move the messages of {source} that {group} has not done to {target}?", yes)
    moved = repeated = 0
    try:
        while most is None or moved < most:
            size = BATCH if most is None else min(BATCH, most - moved)
            taken = client.pop(source, group, size, invisible=60.0, tag=tag, sql=sql)
            if not taken:
                break
            repeated += _move(client, target, taken)
            moved += len(taken)
            if sys.stderr.isatty():
                click.echo(f"\rmoved {moved:,}", nl=False, err=True)
    finally:
        again = f", {repeated} of them there already" if repeated else ""
        output.done(
            f"{counted(moved, 'message')} moved from {source} to {target}{again}",
            {"from": source, "to": target, "group": group, "moved": moved, "there_already": repeated},
        )


def _move(client: popmq.Client, target: str, taken: list[popmq.Delivery]) -> int:
    """Moves a batch; returns how many of it TO had already. Messages that TO refuses are released, and the error is
    raised.
    """
    try:
        receipts = client.send(target, [message_of(row_of(delivery)) for delivery in taken])
    except popmq.errors.PartlyRefused as partly:
        sent = [delivery for index, delivery in enumerate(taken) if index not in partly.errors]
        refused = [delivery for index, delivery in enumerate(taken) if index in partly.errors]
        if sent:
            client.ack(sent)
        client.release(refused, 0.0, True, str(partly))
        raise
    except BaseException:
        # Whether the broker stored them is not known, or nothing was sent: at once for the next run, and not counted.
        client.release(taken, 0.0, True, "not moved")
        raise
    client.ack(taken)
    return sum(receipt.duplicate for receipt in receipts)
