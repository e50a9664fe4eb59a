"""`popmq export` and `popmq import`: the messages of a topic as a file, and back."""

from __future__ import annotations

import contextlib
import os
import pathlib
import secrets
import sys
from collections.abc import Iterator
from typing import IO

import click

import popmq
from popmq_cli.messages.send import progress
from popmq_cli.shared import rows
from popmq_cli.shared.asking import asks
from popmq_cli.shared.completing import topics
from popmq_cli.shared.line_sending import LineSender
from popmq_cli.shared.output import Output, counted

#: Messages that are read at once.
BATCH = 500
_PARQUET = ".parquet"


@click.command(name="export")
@click.argument("topic", shell_complete=topics)
@click.argument("target", metavar="FILE|-")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@asks
def export_(client: popmq.Client, output: Output, topic: str, target: str, force: bool) -> None:
    """Write the messages of TOPIC to FILE, or to standard output.

    It writes JSON lines, or Parquet for a FILE.parquet: all messages that are in the topic's queues when the command
    begins, queue by queue, read or not. A dead-letter topic is %DLQ%GROUP. It does not write delayed and half messages,
    lite topics, leases and offsets; a backup has them. It changes nothing in the broker, so you may repeat it. FILE
    gets its name when it is complete; an existing file is replaced only with --force.

    \b
    Examples:
      popmq export orders orders.jsonl
      popmq export orders orders.parquet
      popmq export %DLQ%billing - | jq -r .body
    """
    if target != "-" and os.path.lexists(target) and not force:
        raise click.UsageError(f"{target} exists: name another file, or replace it with --force")
    if os.path.lexists(target) and not (os.path.islink(target) or os.path.isfile(target)):
        raise click.UsageError(f"{target} is not a regular file: name another, or - for standard output")
    ends = {queue.queue: queue.max_offset for queue in client.broker.stats(topic).topics[0].queues}
    with _created(target) as file:
        writer = rows.parquet_writer if target.endswith(_PARQUET) else rows.json_writer
        written = 0
        with writer(file) as write:
            for delivery in _stored(client, topic, ends):
                write(rows.row_of(delivery))
                written += 1
                if sys.stderr.isatty() and written % BATCH == 0:
                    click.echo(f"\rexported {written:,} of {sum(ends.values()):,}", nl=False, err=True)
    output.note(f"{counted(written, 'message')} of {topic} exported")


def _stored(client: popmq.Client, topic: str, ends: dict[int, int]) -> Iterator[popmq.Delivery]:
    for queue, end in ends.items():
        offset = 0
        while offset < end:
            page = client.messages.browse(topic, queue, offset, BATCH)
            yield from (delivery for delivery in page.deliveries if delivery.offset < end)
            if page.next_offset <= offset:
                break
            offset = page.next_offset


@contextlib.contextmanager
def _created(target: str) -> Iterator[IO[bytes]]:
    """A file that gets its name when it is complete, or standard output."""
    if target == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = pathlib.Path(f"{target}.{secrets.token_hex(4)}.part")
    try:
        with open(part, "xb") as file:
            yield file
        os.replace(part, target)
    except OSError as error:
        raise click.ClickException(f"{target} cannot be written: {error.strerror}") from None
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


@click.command(name="import")
@click.argument("topic", shell_complete=topics)
@click.argument("source", type=click.File("rb"), metavar="FILE|-")
@click.option("--from-line", type=click.IntRange(1), default=1, help="Begin with this line (of Parquet: this row).")
@asks
def import_(client: popmq.Client, output: Output, topic: str, source: IO[bytes], from_line: int) -> None:
    """Send the messages of FILE to TOPIC.

    FILE is as `popmq export` writes it, and TOPIC must exist. Message ids, keys, tags, properties, message groups,
    priorities and times are those of the file; offsets are new. A message whose delivery time has passed is delivered
    at once. Messages of a message group keep their order. If a line is refused, the command ends and prints the
    --from-line with which to continue. Do not repeat the whole file: repeated lines are stored again, unless TOPIC
    compares message ids (popmq topic create --unique-ids 1h). If the broker did not answer, it may have stored the last
    lines.

    \b
    Examples:
      popmq import orders orders.jsonl
      popmq import orders orders.jsonl --from-line 5001
      popmq export orders - | popmq import orders-copy -
    """
    with progress(source, "importing") as moved:
        going = LineSender(client, topic, from_line)
        try:
            for line, message in enumerate(_messages(source), 1):
                if line < from_line:
                    continue
                if isinstance(message, rows.BadRow):
                    going.refuse(line, message)
                if message is not None:
                    going.add(line, message)
                    moved(going.sent)
            going.flush()
        except BaseException:
            output.note(f"{counted(going.sent, 'message')} sent to {topic}; go on with --from-line {going.next_line}")
            raise
    output.note(f"{counted(going.sent, 'message')} sent to {topic}")


def _messages(source: IO[bytes]) -> Iterator[popmq.Message | rows.BadRow | None]:
    """The message of each line, why it is none, or None for an empty one. The caller ends at an invalid one."""
    found: Iterator[rows.Row | rows.BadRow | None]
    is_parquet = str(getattr(source, "name", "")).endswith(_PARQUET)
    found = rows.parquet_rows(source) if is_parquet else rows.json_rows(source)
    try:
        for row in found:
            yield _message(row)
    except rows.BadRow as bad:  # of the file itself
        yield bad


def _message(row: rows.Row | rows.BadRow | None) -> popmq.Message | rows.BadRow | None:
    if row is None or isinstance(row, rows.BadRow):
        return row
    try:
        return rows.message_of(row)
    except rows.BadRow as bad:
        return bad
