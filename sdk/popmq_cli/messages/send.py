"""`popmq send`: messages from arguments, from a file, or from standard input."""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import IO, Any

import click

import popmq
from popmq_cli.shared import rows
from popmq_cli.shared.asking import DURATION, LATER, asks, pair
from popmq_cli.shared.completing import topics
from popmq_cli.shared.line_sending import LineSender
from popmq_cli.shared.output import Output, counted

#: A message with the number of its line.
Line = tuple[int, bytes]
#: What a JSON line may have.
FIELDS = {field.name for field in dataclasses.fields(popmq.Message)}
#: Bytes read at once.
READ_BYTES = 1 << 16


@click.command()
@click.argument("topic", shell_complete=topics)
@click.argument("messages", nargs=-1)
@click.option("--file", "source", type=click.File("rb"), help="Send its lines; - or no message: standard input.")
@click.option("--whole", is_flag=True, help="The file is one message, not one a line.")
@click.option(
    "--json-lines", is_flag=True, help='Lines are {"body": …, "key": …, "delay": "10m", …}: fields of a message.'
)
@click.option("--from-line", type=click.IntRange(1), default=1, help="Begin with this line of the input.")
@click.option("--key", default="", help="For look-ups.")
@click.option("--tag", default="", help="One word, for filters.")
@click.option("--message-group", default="", help="FIFO topics: the messages of one group keep their order.")
@click.option("--lite-topic", default="", help="LITE topics: the lite topic; created if it does not exist.")
@click.option("--delay", type=DURATION, default=0.0, metavar="DURATION", help="Visible this long after it was stored.")
@click.option(
    "--deliver-at", type=LATER, metavar="TIME", help='Not visible before: 2026-01-31T12:00, 10m, "tomorrow 9:00".'
)
@click.option("--ttl", type=DURATION, default=0.0, metavar="DURATION", help="It expires this long after it is visible.")
@click.option("--priority", type=click.IntRange(0), default=0, help="PRIORITY topics: higher first.")
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE", help="May be repeated.")
@asks
def send(
    client: popmq.Client,
    output: Output,
    topic: str,
    messages: tuple[str, ...],
    source: IO[bytes] | None,
    whole: bool,
    json_lines: bool,
    from_line: int,
    properties: tuple[str, ...],
    **fields: Any,
) -> None:
    """Send messages to TOPIC.

    The messages are the arguments, or the lines of a file or of standard input; empty lines are skipped. The command
    ends when the messages are on the broker's disk. If the broker refuses a line, it ends and prints the --from-line
    with which to continue. With --json it prints a receipt for each message, with the recall handle of a delayed one.

    \b
    Examples:
      popmq send orders hello
      popmq send orders --key AA1 --tag AA --property origin=JFK '{"flight": 1}'
      cat lines.txt | popmq send orders
      popmq send orders --file messages.jsonl --json-lines
      popmq send orders --file picture.png --whole
      popmq send accounts --message-group customer-7 first second
      popmq send chats --lite-topic alice "how are you?"
      popmq send mail --delay 10m "good morning" --json | jq -r .recall_handle
      popmq send mail --deliver-at "tomorrow 9:00" "good morning"
      popmq send prices --ttl 30s "EUR 1.08"
    """
    if messages and source:
        raise click.UsageError("give messages as arguments or with --file, not both")
    fields["properties"] = dict(pair(text) for text in properties)
    if messages:
        bodies: Iterator[list[Line]] = iter([list(enumerate(map(os.fsencode, messages), 1))])
    else:
        if source is None and sys.stdin.isatty():
            output.note("reading messages from the terminal, one a line; Ctrl-D ends them")
        bodies = _bodies(source or sys.stdin.buffer, whole)
    of_lines = not (messages or whole)
    take = output.objects if output.as_json else lambda _: None
    going = LineSender(client, topic, from_line, "line" if of_lines else "message", take)
    try:
        with progress(source) as moved:
            for lines in bodies:
                for line, body in lines:
                    if line >= from_line:
                        made = _from_json(body, fields) if json_lines else popmq.Message(body, **fields)
                        going.refuse(line, made) if isinstance(made, Exception) else going.add(line, made)
                        moved(going.sent)
                going.flush()
    except BaseException:
        on = f"; go on with --from-line {going.next_line}" if of_lines else ""
        output.note(f"{counted(going.sent, 'message')} sent to {topic}{on}")
        raise
    output.note(f"{counted(going.sent, 'message')} sent to {topic}")


@contextmanager
def progress(source: IO[bytes] | None, doing: str = "sending") -> Iterator[Any]:
    """Shows how far a long input is, on a terminal; nothing elsewhere, or when messages came as arguments."""
    if source is None or not sys.stderr.isatty():
        yield lambda sent: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn(doing), BarColumn(), TextColumn("{task.fields[sent]:,} messages"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=_size(source), sent=0)
        yield lambda sent: bar.update(task, completed=source.tell() if source.seekable() else 0, sent=sent)


def _size(source: IO[bytes]) -> int | None:
    """Bytes of a file; None for a pipe."""
    if not source.seekable():
        return None
    size = source.seek(0, 2)
    source.seek(0)
    return size


def _bodies(source: IO[bytes], whole: bool) -> Iterator[list[Line]]:
    """The messages of an input, as they come: a pipe may be quiet for hours, and what came before must not wait."""
    if whole:
        yield [(1, _bounded(source.read(rows.LINE_BYTES_MAX + 1), "the file"))]
        return
    left, next_line = b"", 1
    while chunk := _available(source):
        *lines, left = (left + chunk).split(b"\n")
        if bodies := [(line, body) for line, text in enumerate(lines, next_line) if (body := text.rstrip(b"\r"))]:
            yield bodies
        next_line += len(lines)
        _bounded(left, f"line {next_line}")
    if body := left.rstrip(b"\r"):
        yield [(next_line, body)]


def _bounded(body: bytes, what: str) -> bytes:
    """The body. Raises UsageError for one that no broker takes: an endless line would fill the memory."""
    if len(body) > rows.LINE_BYTES_MAX:
        raise click.UsageError(f"{what} is not a message: {rows.TOO_LONG}")
    return body


def _available(source: Any) -> bytes:
    """Waits for some bytes of an input; b"" at its end."""
    found: bytes = source.read1(READ_BYTES) if hasattr(source, "read1") else source.read(READ_BYTES)
    return found


def _from_json(line: bytes, fields: dict[str, Any]) -> popmq.Message | Exception:
    """A message from one JSON line, or why it is none; a body that is not a text is sent as JSON."""
    try:
        given = json.loads(line)
        if not isinstance(given, dict):
            raise TypeError("it is not a JSON object")
        if "body" not in given:
            raise TypeError("it has no body")
        if unknown := sorted(given.keys() - FIELDS):
            raise TypeError(f"there is no field {unknown[0]!r}")
        body = given.pop("body")
        if isinstance(given.get("deliver_at"), str):
            given["deliver_at"] = datetime.fromisoformat(given["deliver_at"])
        text = body if isinstance(body, str) else json.dumps(body, separators=(",", ":"), ensure_ascii=False)
        return popmq.Message(text, **{**fields, **given})
    except (ValueError, TypeError, RecursionError) as error:
        return error
