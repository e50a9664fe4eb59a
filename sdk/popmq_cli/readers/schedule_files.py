"""`popmq schedule export` and `popmq schedule import`: schedules as JSON lines, and back."""

from __future__ import annotations

import json
from typing import IO, Any

import click

import popmq
from popmq_cli.shared import rows
from popmq_cli.shared.asking import asks
from popmq_cli.shared.output import Output, counted

#: The fields of a line besides its message.
SETTINGS = ("name", "cron", "tz", "topic", "missed", "paused")


@click.command(name="export")
@click.argument("target", type=click.File("w", encoding="utf-8", lazy=True), metavar="FILE|-")
@asks
def export_(client: popmq.Client, output: Output, target: IO[str]) -> None:
    """Write all schedules to FILE, or to standard output: one JSON object a line, for `popmq schedule import`.

    The file does not say which messages a schedule has sent.

    \b
    Examples:
      popmq schedule export schedules.jsonl
      popmq schedule export - --endpoint old:8081 | popmq schedule import - --endpoint new:8081
    """
    found = client.schedules.list()
    for each in found:
        held = {name: getattr(each, name) for name in SETTINGS} | {
            "message": rows.json_of(rows.fields_of(each.message))
        }
        target.write(json.dumps(held, ensure_ascii=False) + "\n")
    target.flush()
    output.note(f"{counted(len(found), 'schedule')} exported")


@click.command(name="import")
@click.argument("source", type=click.File("rb"), metavar="FILE|-")
@asks
def import_(client: popmq.Client, output: Output, source: IO[bytes]) -> None:
    """Create the schedules of FILE, as `popmq schedule export` writes it. Their topics must exist.

    A schedule that exists with the same settings stays as it is, so you may repeat the command. The command ends at a
    line that is refused; the schedules of earlier lines exist then. A schedule that was paused in the file is paused.

    \b
    Examples:
      popmq schedule import schedules.jsonl
    """
    made = number = 0
    try:
        for number, line in enumerate(rows.lines(source), 1):
            if line.strip():
                _make(client, number, _settings(number, line))
                made += 1
    except rows.BadRow as bad:
        raise click.UsageError(f"line {number + 1} is not a schedule: {bad}") from None
    output.note(f"{counted(made, 'schedule')} imported")


def _settings(number: int, line: bytes) -> dict[str, Any]:
    """The fields of a line, its message as a popmq.Message. Raises UsageError."""
    try:
        held = json.loads(line)
        if not isinstance(held, dict) or (unknown := sorted(held.keys() - {*SETTINGS, "message"})):
            raise rows.BadRow(
                "it is not a JSON object" if not isinstance(held, dict) else f"no field {unknown[0]!r} is known"
            )
        if missing := [name for name in ("name", "cron", "topic", "message") if not held.get(name)]:
            raise rows.BadRow(f"{missing[0]!r} is missing")
        held["message"] = rows.message_of(rows.from_json(held["message"]))
    except (ValueError, RecursionError, rows.BadRow) as error:
        raise click.UsageError(f"line {number} is not a schedule: {error}") from None
    return held


def _make(client: popmq.Client, number: int, held: dict[str, Any]) -> None:
    paused = bool(held.pop("paused", False))
    name = held["name"]
    try:
        there = client.schedules.create(**held)
    except popmq.PopMQError as error:
        error.message = f"line {number}: schedule {name!r}: {error.message}"
        raise
    except (TypeError, ValueError) as error:
        raise click.UsageError(f"line {number} is not a schedule: {error}") from None
    if paused and not there.paused:
        client.schedules.pause(name)
