"""The output of the demo: the progress of its legs, then the flights by carrier."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from demo.flights import Carrier

LINE_SECONDS = 5.0


@dataclass
class Leg:
    """One way that the messages go, timed from its first message to its last."""

    name: str
    total: int
    done: int = 0
    began: float = 0.0
    ended: float = 0.0

    def begin(self) -> None:
        """A second call changes nothing."""
        if not self.began:
            self.began = self.ended = time.monotonic()

    def reach(self, done: int) -> None:
        self.done = done
        self.ended = time.monotonic()

    @property
    def seconds(self) -> float:
        return self.ended - self.began if self.done else 0.0

    @property
    def rate(self) -> float:
        """Messages a second, since the leg began."""
        return self.done / self.seconds if self.seconds > 0 else 0.0


class Screen:
    """Shows `legs` and one line of `news` until it is left; in a pipe, a line every few seconds."""

    def __init__(self, console: Console, legs: list[Leg], news: Callable[[], str]) -> None:
        self._console = console
        self._legs = legs
        self._news = news
        self._live = Live(console=console, get_renderable=self._render, refresh_per_second=8, transient=False)
        self._lined = time.monotonic()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._console.is_terminal:
            self._live.stop()
        else:
            self._line()

    def tick(self) -> None:
        """Called from time to time; writes a line when the output is not a terminal and the last one is old."""
        if not self._console.is_terminal and time.monotonic() - self._lined >= LINE_SECONDS:
            self._line()

    def _line(self) -> None:
        self._lined = time.monotonic()
        legs = ", ".join(f"{leg.name} {leg.done:,} ({leg.rate:,.0f}/s)" for leg in self._legs)
        self._console.print(f"  {legs}; {self._news()}", markup=False, soft_wrap=True)

    def _render(self) -> RenderableType:
        grid = Table.grid(padding=(0, 2), pad_edge=True, expand=True)
        grid.add_column(no_wrap=True)
        grid.add_column(ratio=1)
        for _ in range(3):
            grid.add_column(justify="right", no_wrap=True)
        for leg in self._legs:
            grid.add_row(
                Text(leg.name, "bold"),
                ProgressBar(leg.total, leg.done),
                f"[bold]{leg.done:,}[/] of {leg.total:,}",
                f"[cyan]{leg.rate:,.0f}/s[/]",
                f"[dim]{leg.seconds:.1f} s[/]",
            )
        return Group(grid, Text(f"  {self._news()}", "dim"))


def carrier_table(names: Mapping[str, str], ours: Mapping[str, Carrier], theirs: Mapping[str, Carrier]) -> Table:
    """The carriers of the Spark table (`ours`) beside those of the CSV (`theirs`)."""
    title = "\nFlights, and the mean arrival delay of those that have one: table and CSV"
    table = Table(box=SIMPLE_HEAD, pad_edge=False, title=title, title_style="bold", title_justify="left")
    for heading in ("", "airline"):
        table.add_column(heading, no_wrap=True)
    for heading in ("flights", "CSV", "minutes", "CSV", ""):
        table.add_column(heading, justify="right", no_wrap=True)
    for carrier in sorted(theirs.keys() | ours.keys(), key=lambda carrier: -theirs.get(carrier, NONE).flights):
        table_has, csv_has = ours.get(carrier, NONE), theirs.get(carrier, NONE)
        table.add_row(
            f"[bold]{carrier}[/]",
            names.get(carrier, ""),
            f"{table_has.flights:,}",
            f"[dim]{csv_has.flights:,}[/]",
            _minutes(table_has),
            f"[dim]{_minutes(csv_has)}[/]",
            "[green]✓[/]" if table_has == csv_has else "[red]✗[/]",
        )
    return table


NONE = Carrier(0, 0, 0)


def _minutes(carrier: Carrier) -> str:
    return "–" if carrier.mean is None else f"{carrier.mean:.2f}"
