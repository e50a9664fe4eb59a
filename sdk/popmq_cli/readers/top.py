"""`popmq top`: groups and topics, live, sorted, and down to the leases of a group."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

import popmq
from popmq_cli.readers.top_view import Numbers, Screen, fitting, window
from popmq_cli.shared import visible
from popmq_cli.shared.asking import DURATION, asks
from popmq_cli.shared.output import Output

if TYPE_CHECKING:
    from rich.console import ConsoleDimensions

HELP = "↑↓ row  ←→ sort  r reverse  ⏎ open  Esc back  Tab topics  Space pause  q quit"
#: At most this many leases are requested.
LEASES = 500
#: Lines around the rows: title, heading with its line, and the help.
FRAME = 6
_SEQUENCES = {
    b"\x1b[A": "up", b"\x1b[B": "down", b"\x1b[C": "right", b"\x1b[D": "left", b"\x1bOA": "up", b"\x1bOB": "down",
    b"\x1bOC": "right", b"\x1bOD": "left", b"\x1b[5~": "page up", b"\x1b[6~": "page down",
}  # fmt: skip
_SINGLE = {b"\x1b": "escape", b"\r": "enter", b"\n": "enter", b"\t": "tab", b"\x7f": "backspace", b"\x08": "backspace"}


@click.command()
@click.option(
    "--every",
    type=DURATION,
    default=1.0,
    metavar="DURATION",
    help="Interval between two requests to the broker.  [default: 1s]",
)
@asks
def top(client: popmq.Client, output: Output, every: float) -> None:
    """Watch groups and topics: sorted, and down to the leases of a group.

    \b
    Keys:
      up, down       another row                Enter   the leases of a group, the groups of a topic
      left, right    sort by another column     Esc     back
      r              turn the order around      Tab     groups or topics
      Space          pause                      q       quit

    Rates are of the last minute. For scripts there is `popmq stats --json`.

    \b
    Examples:
      popmq top
      popmq top --every 5s
    """
    if output.as_json or not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError("this needs a terminal; in a script: popmq stats --json")
    from rich.console import Console
    from rich.live import Live

    console, screen = Console(), Screen()
    numbers = _ask(client, screen)
    with _keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        while not screen.ended:
            live.update(_drawn(client, screen, numbers, console.size), refresh=True)
            pressed = list(_pressed(keys, every))
            for key in pressed:
                opened = (screen.name, screen.group, screen.topic)
                screen.press(key, numbers)
                if opened != (screen.name, screen.group, screen.topic):
                    numbers = _ask_again(client, screen, numbers)
            if not pressed and not screen.paused:
                numbers = _ask_again(client, screen, numbers)


def _ask(client: popmq.Client, screen: Screen) -> Numbers:
    """The broker's current numbers. Raises PopMQError."""
    leases, sessions = popmq.Leases((), 0), list[popmq.ClientSession]()
    if screen.name == "leases":
        leases = client.leases.list(screen.group, screen.topic, LEASES)
        sessions = client.sessions.list(screen.group, recent=True)
    topic = screen.topic if screen.name == "groups" else ""
    return Numbers(client.broker.stats(topic), leases, sessions, int(time.time() * 1000))


def _ask_again(client: popmq.Client, screen: Screen, before: Numbers) -> Numbers:
    """As `_ask`; the earlier numbers while the broker does not answer, or if the shown topic or group was deleted."""
    try:
        numbers = _ask(client, screen)
    except (popmq.errors.TryLater, popmq.errors.NotFound) as error:
        screen.trouble = error.message
        return before
    screen.trouble = ""
    return numbers


def _drawn(client: popmq.Client, screen: Screen, numbers: Numbers, room: ConsoleDimensions) -> Any:
    """The screen: one table, and the help below it."""
    from rich import box
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    title = Text(_title(client, screen, numbers), "bold", overflow="ellipsis", no_wrap=True)
    view, rows = screen.view, screen.rows(numbers)
    marked = min(view.marked, len(rows) - 1)
    shown = window(marked, len(rows), room.height - FRAME)
    sorted_by = (every := screen.columns(numbers))[view.sort]
    columns = fitting(every, sorted_by, [rows[index] for index in shown], room.width)
    for column in columns:
        arrow = ("", " ▼" if view.descending else " ▲")[column is sorted_by]
        number = column.name.endswith("#")
        header = Text(column.name.removesuffix("#") + arrow, "reverse" if column is sorted_by else "")
        table.add_column(header, justify="right" if number else "left", no_wrap=True, overflow="ellipsis")
    for index in shown:
        cells = [Text(column.shown(rows[index])) for column in columns]
        table.add_row(*cells, style="reverse" if index == marked else "")
    if not rows:
        table.add_row(Text("nothing is here", "dim"))
    return Group(title, table, Text(visible.line(screen.trouble), "red") if screen.trouble else Text(HELP, "dim"))


def _title(client: popmq.Client, screen: Screen, numbers: Numbers) -> str:
    place = {"groups": "groups", "topics": "topics", "leases": f"leases of {screen.group} in {screen.topic}"}
    said = [client.endpoint, place[screen.name], time.strftime("%H:%M:%S", time.localtime(numbers.now_ms / 1000))]
    if screen.name == "groups" and screen.topic:
        said[1] += f" of {screen.topic}"
    if screen.name == "leases":
        said.insert(2, f"{numbers.leases.total} leases, {len(numbers.sessions)} clients")
    return " · ".join([*said, *(["paused"] if screen.paused else [])])


@contextmanager
def _keys() -> Iterator[int]:
    """Switches the terminal to single keys, and back at the end; gives its file number."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield terminal
    finally:
        with contextlib.suppress(termios.error):  # it was closed
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _pressed(terminal: int, seconds: float) -> Iterator[str]:
    """The keys that are pressed within this number of seconds; returns as soon as there are some."""
    if select.select([terminal], [], [], seconds)[0]:
        yield from keys_of(os.read(terminal, 1024))


def keys_of(typed: bytes) -> Iterator[str]:
    """Names of the keys that a terminal sends as these bytes."""
    while typed:
        found = next((each for each in _SEQUENCES if typed.startswith(each)), None)
        if found is not None:
            yield _SEQUENCES[found]
        else:
            found = typed[:1]
            yield _SINGLE.get(found) or found.decode("latin-1")
        typed = typed[len(found) :]
