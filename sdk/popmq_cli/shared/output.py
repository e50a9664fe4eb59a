"""The output of commands: tables on a terminal, plain lines in a pipe, one JSON object a line with --json.

Results go to stdout, everything else (progress, notes, errors) to stderr, so that a pipe carries only results.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import click

import popmq
from popmq import errors
from popmq_cli.shared import visible

Row = Sequence[Any]
T = TypeVar("T")

#: Characters that a table shows of a body.
BODY_CHARACTERS = 40
#: Characters that a narrow table leaves to a column of names, which are folded, before it leaves out a number.
NAME_WIDTH = 16
#: Characters at which it is folded where even that is too wide.
NAME_LEAST = 4
#: In place of a number that the broker's engine does not know.
UNKNOWN = "–"
_TIME = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")


class Output:
    """The output of one command."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def note(self, sentence: str) -> None:
        """A message for a human."""
        if not self.as_json:
            click.echo(visible.lines(sentence), err=True)

    def done(self, sentence: str, result: Any) -> None:
        """Reports a finished action: a sentence for a human, the object itself as JSON."""
        self.note(sentence)
        if self.as_json:
            self.objects([result])

    def listing(self, title: str, columns: Sequence[str], items: Iterable[T], row: Callable[[T], Row]) -> None:
        """Things of one kind: as JSON, or as a table with a `row` for each."""
        if self.as_json:
            self.objects(items)
        else:
            self.table(title, columns, [row(item) for item in items])

    def objects(self, items: Iterable[Any]) -> None:
        """One JSON object a line."""
        for item in items:
            click.echo(visible.in_json(json.dumps(plain(item), ensure_ascii=False)))

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        """A table on a terminal, tab-separated lines under a heading elsewhere. A column named "…#" is a number."""
        names = [column.removesuffix("#") for column in columns]
        if sys.stdout.isatty():
            self._rich_table(title, columns, rows)
        else:
            click.echo("\t".join(names))
            for row in rows:
                click.echo("\t".join(map(_cell, row)))

    def fields(self, title: str, fields: dict[str, Any]) -> None:
        """The fields of one thing, a line each."""
        width = max(len(name) for name in fields)
        click.secho(title, bold=True)
        for name, value in fields.items():
            click.echo(f"  {name:{width}}  {_cell(value)}")

    def error(self, error: errors.PopMQError) -> None:
        """One sentence, with what to do about it."""
        if self.as_json:
            click.echo(visible.in_json(json.dumps({"error": told(error)}, ensure_ascii=False)), err=True)
        else:
            click.secho(f"popmq: {visible.lines(error.message)}", fg="red", err=True)
            if error.action:
                click.echo(f"  → {visible.lines(error.action)}", err=True)

    def _rich_table(self, title: str, columns: Sequence[str], rows: Iterable[Row]) -> None:
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console = Console()
        cells = [[_cell(value) for value in row] for row in rows]
        shown = fitting(columns, cells, console.width)
        left_out = [column.removesuffix("#") for index, column in enumerate(columns) if index not in shown]
        caption = f"no room for {', '.join(left_out)}: widen the terminal, or use --json" if left_out else None
        look: Any = {"title_justify": "left", "title_style": "bold", "box": box.SIMPLE_HEAD, "pad_edge": False}
        table = Table(title=title, caption=caption, caption_justify="left", padding=(0, 1, 0, 0), **look)
        name_width = _name_width(columns, cells, shown, console.width)
        for index in shown:
            # In a narrow terminal only names are folded: a number in two lines would be read as two numbers.
            table.add_column(
                columns[index].removesuffix("#"),
                justify="right" if columns[index].endswith("#") else "left",
                no_wrap=_is_whole(columns, cells, index),
                overflow="fold",
                min_width=_least(columns, cells, index, name_width),
            )
        for row in cells:
            # Text, not str: a client id may hold what rich would take for markup.
            dead = [columns[index] == "DEAD#" and row[index] != "0" for index in shown]
            table.add_row(*[Text(row[index], "red" if red else "") for index, red in zip(shown, dead, strict=True)])
        console.print(table)


def _cell(value: object) -> str:
    return UNKNOWN if value is None else visible.line(value)


def fitting(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The columns for `width` characters: all but some numbers and times, first those without a number but 0 or –.

    Names stay, and so does the first column, which may be a number, such as that of a queue.
    """
    numbers = [index for index in range(1, len(columns)) if _is_whole(columns, rows, index)]
    shown = [index for index in range(len(columns)) if index not in numbers]
    for index in sorted(numbers, key=lambda index: not any(row[index].strip("0.sB –") for row in rows)):
        if _width(columns, rows, [*shown, index]) <= width:
            shown.append(index)
    return sorted(shown)


def _name_width(columns: Sequence[str], rows: Sequence[Sequence[str]], shown: Sequence[int], width: int) -> int:
    """Characters at which names are folded, so that nothing of the table is cut off."""
    fit = (most for most in range(NAME_WIDTH, NAME_LEAST, -1) if _width(columns, rows, shown, most) <= width)
    return next(fit, NAME_LEAST)


def _width(
    columns: Sequence[str], rows: Sequence[Sequence[str]], shown: Sequence[int], name_width: int = NAME_WIDTH
) -> int:
    return sum(_least(columns, rows, index, name_width) for index in shown) + 2 * len(shown)


def _is_whole(columns: Sequence[str], rows: Sequence[Sequence[str]], index: int) -> bool:
    """Whether a column is never folded: a number, or a time, which in two lines would be read as two."""
    return columns[index].endswith("#") or any(_TIME.fullmatch(row[index]) for row in rows)


def _least(columns: Sequence[str], rows: Sequence[Sequence[str]], index: int, name_width: int) -> int:
    """The characters that a column needs: a number and a time all of theirs, a name at most `name_width`."""
    longest = max(len(text) for text in (columns[index].removesuffix("#"), *(row[index] for row in rows)))
    return longest if _is_whole(columns, rows, index) else min(longest, name_width)


def plain(value: Any) -> Any:
    """A value as JSON knows it. The body of a message or result is text under `body`, or base64 under `body_base64`."""
    if isinstance(value, popmq.Delivery | popmq.Message | popmq.Result):
        return _plain_message(value)
    if isinstance(value, popmq.MessagePreview):
        return _plain_preview(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, errors.PopMQError):
        return told(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value


def told(error: errors.PopMQError) -> dict[str, Any]:
    """A refusal of the broker as JSON values."""
    return {name: getattr(error, name) for name in ("message", "code", "field", "action", "retryable")}


def _plain_message(delivery: popmq.Delivery | popmq.Message | popmq.Result) -> dict[str, Any]:
    raw = delivery.body.encode() if isinstance(delivery.body, str) else bytes(delivery.body)
    body = text_of(raw)
    fields = {
        field.name: plain(getattr(delivery, field.name))
        for field in dataclasses.fields(delivery)
        if field.name != "body" and not field.name.startswith("_")
    }
    if body is None:
        return {"body_base64": base64.b64encode(raw).decode(), **fields}
    return {"body": body, **fields}


def _plain_preview(preview: popmq.MessagePreview) -> dict[str, Any]:
    fields = {"keys": list(preview.keys), "tag": preview.tag, "body_bytes": preview.body_bytes}
    try:
        return {"body": preview.text(), **fields}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(preview.body).decode(), **fields}


def previewed(preview: popmq.MessagePreview | None) -> tuple[str, str, str]:
    """The cells KEYS, TAG and BODY of a message that is not visible yet; empty ones for who may not read it."""
    if preview is None:
        return "", "", ""
    try:
        text = preview.text()
    except UnicodeDecodeError:
        text = preview.body.decode(errors="backslashreplace")
    whole = len(text) <= BODY_CHARACTERS and len(preview.body) == preview.body_bytes
    return ", ".join(preview.keys), preview.tag, text if whole else f"{text[:BODY_CHARACTERS]}…"


def heading(delivery: popmq.Delivery, *more: str) -> str:
    """One line about a message: its place, `more`, and the fields that are set."""
    parts = [
        f"queue {delivery.queue} offset {delivery.offset}",
        *more,
        f"message group {delivery.message_group}" if delivery.message_group else "",
        f"lite topic {delivery.lite_topic}" if delivery.lite_topic else "",
        f"priority {delivery.priority}" if delivery.priority else "",
        f"key {delivery.key}" if delivery.key else "",
        f"tag {delivery.tag}" if delivery.tag else "",
        " ".join(f"{name}={value}" for name, value in delivery.properties.items()),
    ]
    return visible.line(" · ".join(part for part in parts if part))


def show_body(body: bytes) -> None:
    """A body on a line of its own: as it is in a pipe or a file; on a terminal with escapes for its controls."""
    text = text_of(body)
    if sys.stdout.isatty():
        click.echo(visible.lines(body.decode(errors="backslashreplace")))
    elif text is None:
        sys.stdout.flush()
        sys.stdout.buffer.write(body + b"\n")
        sys.stdout.buffer.flush()
    else:
        click.echo(text, color=True)  # else click removes what looks like a colour


def text_of(body: bytes) -> str | None:
    """A body as text; None when it is not UTF-8."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def counted(count: int, noun: str) -> str:
    """A number with its noun: "1 message", "2 messages"."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def seconds(value: float | None) -> str:
    """A duration as a human reads it: "1h 30m", "45s", "0.25s"; "–" for an unknown one."""
    if value is None:
        return UNKNOWN
    if value < 60:
        return f"{value:g}s" if value < 10 else f"{value:.0f}s"
    parts = []
    rest = round(value)
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts[:2])


def size(count: int | None) -> str:
    """Bytes as a human reads them; "–" for an unknown number."""
    if count is None:
        return UNKNOWN
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
