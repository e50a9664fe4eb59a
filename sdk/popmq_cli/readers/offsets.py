"""`popmq offsets …` and `popmq mode`: a group's position in a topic, and how it reads it."""

from __future__ import annotations

from datetime import datetime

import click

import popmq
from popmq_cli.readers.group import SUBSCRIPTION_COLUMNS, place_text, start_of, subscription_row
from popmq_cli.shared.asking import MOMENT, asks, sure
from popmq_cli.shared.completing import groups, topics
from popmq_cli.shared.moments import moment
from popmq_cli.shared.output import Output, Row, size

COLUMNS = ["QUEUE#", "FIRST#", "NEXT#", "COMMITTED#", "LEFT#", "BYTES#", "ALL GROUPS#", "LAST READ"]


@click.group()
def offsets() -> None:
    """Show, reset and clone the offsets of groups."""


@offsets.command()
@click.argument("topic", shell_complete=topics)
@click.argument("group", default="", shell_complete=groups)
@click.option(
    "--at",
    type=MOMENT,
    metavar="TIME",
    help="Also the first offset stored at this time or later: 2026-01-31T12:00, 1h (ago).",
)
@asks
def show(client: popmq.Client, output: Output, topic: str, group: str, at: datetime | None) -> None:
    """Show the offsets of each queue of TOPIC, and the position of GROUP.

    FIRST and NEXT are the offsets of the oldest stored message and of the next message. BYTES is an estimate of the
    bytes that the group has not read, and ALL GROUPS the least committed offset of all groups. LAST READ is – if the
    group has not read since the broker's start. TOPIC may be %RETRY%group+topic.

    \b
    Examples:
      popmq offsets show orders
      popmq offsets show orders billing
      popmq offsets show orders billing --at 2026-01-31T12:00
    """
    shown = client.offsets.query(topic, group, at)
    columns = COLUMNS if at is None else [*COLUMNS, "AT TIME#"]
    output.listing(f"Offsets of {group or 'queues'} in {topic}", columns, shown, lambda row: _row(row, at is not None))


@offsets.command()
@click.argument("topic", shell_complete=topics)
@click.argument("group", shell_complete=groups)
@click.option("--to", help='"earliest", "latest", or a time: 2026-01-31T12:00, 1h (ago).')
@click.option("--queue", "queues", multiple=True, metavar="QUEUE=OFFSET", help="Only this queue; may be repeated.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks
def reset(
    client: popmq.Client, output: Output, topic: str, group: str, to: str | None, queues: tuple[str, ...], yes: bool
) -> None:
    """Move GROUP to another place in TOPIC: messages after it are delivered again, those before it are skipped.

    Its leases, retries and waiting messages there are dropped.

    \b
    Examples:
      popmq offsets reset orders billing --to earliest --yes
      popmq offsets reset orders billing --to 1h --yes
      popmq offsets reset orders billing --queue 0=100 --queue 1=250 --yes
    """
    if (to is None) == (not queues):
        raise click.UsageError("say where to: --to, or --queue for some queues")
    where = dict(_pair(text) for text in queues) if to is None else start_of(to, "--to")
    client.groups.get(group)
    sure(f"Move {group} in {topic} to {_destination(where)}, and drop its leases and retries there?", yes)
    _moved(output, topic, group, client.offsets.reset(topic, group, where))


@offsets.command()
@click.argument("topic", shell_complete=topics)
@click.argument("from_group", metavar="FROM", shell_complete=groups)
@click.argument("group", shell_complete=groups)
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks
def clone(client: popmq.Client, output: Output, topic: str, from_group: str, group: str, yes: bool) -> None:
    """Reset GROUP to the offsets that FROM has in TOPIC.

    \b
    Examples:
      popmq offsets clone orders billing audit --yes
    """
    client.groups.get(group)
    sure(f"Move {group} in {topic} to where {from_group} is?", yes)
    _moved(output, topic, group, client.offsets.clone(topic, from_group, group))


@click.command()
@click.argument("topic", shell_complete=topics)
@click.argument("group", shell_complete=groups)
@click.argument("mode", type=click.Choice(["POP", "PULL"], case_sensitive=False), required=False)
@click.option("--share-number", type=click.IntRange(0), default=0, help="For this topic; 0: the group's.")
@click.option("--start", help='Where a new group begins: "earliest", "latest", or a time: 2026-01-31T12:00, 1h (ago).')
@asks
def mode(
    client: popmq.Client,
    output: Output,
    topic: str,
    group: str,
    mode: str | None,
    share_number: int,
    start: str | None,
) -> None:
    """Show or set how GROUP reads TOPIC: pop or pull.

    pop reads by leases, pull by offsets. With MODE it switches the group while consumers run. No message is lost, and
    no acked message is delivered again.

    \b
    Examples:
      popmq mode orders billing
      popmq mode orders billing pull
      popmq mode orders billing pop --share-number 2
      popmq mode orders audit pull --start latest
    """
    if mode is not None:
        where = None if start is None else start_of(start, "--start")
        read = client.groups.set_consume_mode(topic, group, mode, share_number, where)
        output.done(f"{group} reads {topic} by {read.mode}", read)
        return
    known = [read for read in client.groups.subscriptions(group) if read.topic == topic]
    output.listing("", SUBSCRIPTION_COLUMNS, known or [popmq.Subscription(topic)], subscription_row)


def _destination(where: popmq.topic.Place | dict[int, int]) -> str:
    if isinstance(where, dict):
        return ", ".join(f"offset {offset} of queue {queue}" for queue, offset in sorted(where.items()))
    if isinstance(where, str):
        return {"earliest": "the first message", "latest": "the end, behind all messages"}[where]
    return f"the messages stored since {place_text(where)}"


def _moved(output: Output, topic: str, group: str, offsets: dict[int, int]) -> None:
    if output.as_json:
        output.objects([{"topic": topic, "group": group, "offsets": offsets}])
    else:
        output.table(f"{group} in {topic}", ["QUEUE#", "OFFSET#"], sorted(offsets.items()))


def _row(row: popmq.QueueOffsets, at_time: bool) -> Row:
    known = row.committed >= 0
    cells = (row.queue, row.min_offset, row.max_offset, row.committed if known else "–")
    left = row.max_offset - max(row.committed, row.min_offset) if known else "–"
    behind = size(row.bytes_behind) if known else "–"
    least = "–" if row.least_committed in (None, -1) else row.least_committed
    shown = (*cells, left, behind, least, moment(row.read_ms))
    return (*shown, row.at_timestamp) if at_time else shown


def _pair(text: str) -> tuple[int, int]:
    queue, _, offset = text.partition("=")
    if not (queue.isdecimal() and offset.isdecimal()):
        raise click.BadParameter(f"{text!r} is not QUEUE=OFFSET", param_hint="--queue")
    return int(queue), int(offset)
