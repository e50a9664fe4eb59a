"""`popmq history`: the last hour of a topic, a group, or the whole broker, a line for each number."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import click

import popmq
from popmq_cli.shared.asking import asks
from popmq_cli.shared.completing import groups, topics
from popmq_cli.shared.output import UNKNOWN, Output, seconds, size

MINUTES = 60
#: Bars of a line; fewer in a narrow terminal, where a line that is folded could not be read.
WIDTHS = (60, 30, 20)
BARS = "▁▂▃▄▅▆▇█"
COLUMNS = ["NUMBER", "THE LAST HOUR", "LEAST#", "MOST#", "NOW#"]


class Number(NamedTuple):
    """One number of a point: its name, its value, and how it is shown."""

    name: str
    value: Callable[[popmq.HistoryPoint], float | None]
    text: Callable[[float], str]


def _rate(value: float) -> str:
    return f"{value:.1f}"


def _count(value: float) -> str:
    return f"{value:.0f}"


def _size(value: float) -> str:
    return size(round(value))


NUMBERS = (
    Number("SENT/S", lambda one: one.sent_per_s, _rate),
    Number("SENT BYTES/S", lambda one: one.sent_bytes_per_s, _size),
    Number("STORED", lambda one: one.bytes, _size),
    Number("POP/S", lambda one: one.popped_per_s, _rate),
    Number("ACK/S", lambda one: one.acked_per_s, _rate),
    Number("BACKLOG", lambda one: one.backlog, _count),
    Number("IN FLIGHT", lambda one: one.in_flight, _count),
    Number("RETRIES", lambda one: one.retries, _count),
    Number("DEAD", lambda one: one.dead, _count),
    Number("OLDEST", lambda one: one.oldest_age, seconds),
)
#: Of the whole broker.
BROKER = (
    Number("LEASES LATE", lambda one: one.leases_late, seconds),
    Number("DELAYED LATE", lambda one: one.delayed_late, seconds),
    Number("STORE", lambda one: one.used_bytes, _size),
)


@click.command()
@click.argument("topic", default="", shell_complete=topics)
@click.argument("group", default="", shell_complete=groups)
@click.option("--group", "of_group", default="", help="Only this group, of TOPIC or of all.")
@asks
def history(client: popmq.Client, output: Output, topic: str, group: str, of_group: str) -> None:
    """Show the last hour of a topic, a group, or the whole broker.

    Of all, of TOPIC, or of GROUP in TOPIC.

    A line has a bar for each minute, in a narrow terminal for two or three, the highest one for MOST. A minute in which
    the broker was down, or did not know the number, has none. The broker takes the numbers every 30 s: --json prints
    each of them.

    \b
    Examples:
      popmq history
      popmq history orders billing
      popmq history --group billing
      popmq history orders --json | jq '.points[].backlog'
    """
    if group and of_group:
        raise click.UsageError("name the group once: as an argument or as an option")
    shown = client.broker.history(topic, group or of_group)
    if output.as_json:
        output.objects([shown])
        return
    numbers = NUMBERS if topic or group or of_group else NUMBERS + BROKER
    if shown.points:
        output.table("History", COLUMNS, _rows(numbers, shown))
    elif not shown.left_out:
        output.note(f"no numbers yet: the broker takes them every {shown.step:.0f} s")
    if shown.left_out:
        output.note("not all is kept: there are more topics and groups than the broker keeps the history of")


def _rows(numbers: Sequence[Number], history: popmq.History) -> list[Sequence[str]]:
    """The rows, with as many bars as fit beside the other columns."""
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else math.inf
    for width in WIDTHS:
        rows = [_row(number, history, width) for number in numbers]
        if sum(max(map(len, column)) + 2 for column in zip(COLUMNS, *rows, strict=True)) <= room:
            break
    return rows


def _row(number: Number, history: popmq.History, width: int) -> Sequence[str]:
    values = [number.value(point) for point in history.points]
    line = bars([(history.now_ms - point.time_ms) / 1000 for point in history.points], values, width)
    known = [value for value in values if value is not None]
    ends = min(known, default=None), max(known, default=None), values[-1]
    return number.name, line, *(UNKNOWN if value is None else number.text(value) for value in ends)


def bars(ages_s: Sequence[float], values: Sequence[float | None], width: int = MINUTES) -> str:
    """A line of `width` characters, the newest on the right. A bar shows the highest known value of its minutes."""
    highest: dict[int, float] = {}
    for age_s, value in zip(ages_s, values, strict=True):
        if value is not None:
            place = width - 1 - int(age_s // 60) * width // MINUTES
            highest[place] = max(value, highest.get(place, 0.0))
    most = max(highest.values(), default=0.0) or 1.0
    return "".join(
        BARS[round(highest[place] / most * (len(BARS) - 1))] if place in highest else " " for place in range(width)
    )
