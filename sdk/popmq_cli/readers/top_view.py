"""The view of `popmq top` and the effect of each key. Pure: numbers and keys in, rows out; top.py draws."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import popmq
from popmq_cli.shared import visible
from popmq_cli.shared.output import UNKNOWN, seconds, size

#: How the names of dead-letter topics begin: those that are empty are not shown.
DEAD = "%DLQ%"
ViewName = Literal["groups", "topics", "leases"]


class Column(NamedTuple):
    """A column: its heading ("…#": a number), what it is sorted by, and how it is shown."""

    name: str
    value: Callable[[Any], Any]
    text: Callable[[Any], str] = str

    def shown(self, row: Any) -> str:
        """How it shows a row; – if its value is unknown."""
        value = self.value(row)
        return UNKNOWN if value is None else self.text(value)

    def order(self, row: Any) -> tuple[bool, Any]:
        """What rows are sorted by: an unknown value is less than every other one."""
        value = self.value(row)
        return value is not None, value


def _span(value: float) -> str:
    return seconds(round(value))


def _rate(value: float) -> str:
    return f"{value:.1f}"


GROUPS = (
    Column("GROUP", lambda row: row.group),
    Column("TOPIC", lambda row: row.topic),
    Column("READY#", lambda row: row.ready),
    Column("IN FLIGHT#", lambda row: row.in_flight),
    Column("RETRY#", lambda row: row.retry),
    Column("BACKOFF#", lambda row: row.backoff),
    Column("WAITING#", lambda row: row.waiting),
    Column("DEAD#", lambda row: row.dead),
    Column("OLDEST#", lambda row: row.oldest_age, _span),
    Column("POP/S#", lambda row: row.popped_per_s, _rate),
    Column("ACK/S#", lambda row: row.acked_per_s, _rate),
)
TOPICS = (
    Column("TOPIC", lambda row: row.topic),
    Column("MESSAGES#", lambda row: row.messages),
    Column("BYTES#", lambda row: row.bytes, size),
    Column("QUEUES#", lambda row: len(row.queues)),
    Column("DELAYED#", lambda row: row.delayed),
    Column("HALF#", lambda row: row.half),
    Column("SENT/S#", lambda row: row.sent_per_s, _rate),
)


@dataclass(frozen=True)
class Numbers:
    """The broker's numbers at one moment, `now_ms` of this machine."""

    stats: popmq.Stats
    leases: popmq.Leases
    sessions: Sequence[popmq.ClientSession]
    now_ms: int


def lease_columns(now_ms: int) -> tuple[Column, ...]:
    """Leases are soonest first by default: their end is the first column."""
    return (
        Column("ENDS IN#", lambda row: max(0, row.due_ms - now_ms) / 1000, _span),
        Column("KIND", lambda row: row.kind),
        Column("UNDONE#", lambda row: row.undone),
        Column("OF#", lambda row: row.messages),
        Column("AGE#", lambda row: max(0, now_ms - row.popped_ms) / 1000 if row.popped_ms else 0.0, _span),
        Column("CLIENT", lambda row: row.owner or row.client_id, visible.line),
    )


@dataclass
class View:
    """One list on the screen: its order and the row that is marked."""

    sort: int
    descending: bool
    marked: int = 0


@dataclass
class Screen:
    """The shown list, and its group or topic."""

    name: ViewName = "groups"
    group: str = ""
    topic: str = ""
    paused: bool = False
    ended: bool = False
    before: ViewName = "groups"
    trouble: str = ""  # why the numbers are old; "" if they are current
    views: dict[ViewName, View] = field(
        default_factory=lambda: {"groups": View(2, True), "topics": View(6, True), "leases": View(0, False)}
    )

    @property
    def view(self) -> View:
        """The list that is shown."""
        return self.views[self.name]

    def columns(self, numbers: Numbers) -> tuple[Column, ...]:
        """Its columns."""
        return {"groups": GROUPS, "topics": TOPICS}.get(self.name) or lease_columns(numbers.now_ms)

    def rows(self, numbers: Numbers) -> list[Any]:
        """Its rows in their order. Rows with equal values keep the order of their names."""
        all_rows: dict[str, Sequence[Any]] = {
            "groups": numbers.stats.groups,
            "topics": [row for row in numbers.stats.topics if row.messages or not row.topic.startswith(DEAD)],
            "leases": numbers.leases.leases,
        }
        column = self.columns(numbers)[self.view.sort]
        named = sorted(all_rows[self.name], key=lambda row: (row.topic, getattr(row, "group", "")))
        return sorted(named, key=column.order, reverse=self.view.descending)

    def press(self, key: str, numbers: Numbers) -> None:
        """Performs the action of a key; an unknown one does nothing."""
        step = {"up": -1, "k": -1, "down": 1, "j": 1, "page up": -10, "page down": 10}.get(key)
        turn = {"left": -1, "<": -1, "right": 1, ">": 1}.get(key)
        if step:
            self.view.marked += step
        elif turn:
            self.view.sort = (self.view.sort + turn) % len(self.columns(numbers))
        elif action := _KEYS.get(key):
            action(self, numbers)
        self.view.marked = max(0, min(self.view.marked, len(self.rows(numbers)) - 1))

    def reverse(self, _numbers: Numbers) -> None:
        """Turns the order around."""
        self.view.descending = not self.view.descending

    def turn(self, _numbers: Numbers) -> None:
        """From groups to topics and back."""
        self.name = "topics" if self.name == "groups" else "groups"
        self.group = self.topic = ""

    def enter(self, numbers: Numbers) -> None:
        """Down to the leases of the marked group, or to the groups of the marked topic."""
        rows = self.rows(numbers)
        if self.name == "leases" or not rows:
            return
        row = rows[min(self.view.marked, len(rows) - 1)]
        self.before = self.name
        self.name, self.topic = ("leases", row.topic) if self.name == "groups" else ("groups", row.topic)
        self.group = getattr(row, "group", "")
        self.view.marked = 0

    def back(self, _numbers: Numbers) -> None:
        """Up again."""
        if self.name == "leases":
            self.name, self.group = "groups", ""
            self.topic = self.topic if self.before == "topics" else ""
        elif self.topic:
            self.name, self.topic = "topics", ""

    def pause(self, _numbers: Numbers) -> None:
        """Keeps the numbers as they are, or lets them run."""
        self.paused = not self.paused

    def quit(self, _numbers: Numbers) -> None:
        """Ends."""
        self.ended = True


_KEYS: dict[str, Callable[[Screen, Numbers], None]] = {
    "r": Screen.reverse,
    "tab": Screen.turn,
    "enter": Screen.enter,
    "escape": Screen.back,
    "backspace": Screen.back,
    " ": Screen.pause,
    "q": Screen.quit,
}


def window(marked: int, count: int, height: int) -> range:
    """Which of `count` rows are shown where only `height` fit: the marked one is among them."""
    first = max(0, min(marked - height // 2, count - height))
    return range(first, min(count, first + max(1, height)))


#: Columns that a narrow terminal does without, the first one first.
OPTIONAL = ("WAITING#", "BACKOFF#", "POP/S#", "RETRY#", "HALF#", "QUEUES#", "OF#", "AGE#", "OLDEST#", "IN FLIGHT#")
#: Beside its texts, a column takes the mark of the order and a gap.
GAP = 3


def fitting(columns: Sequence[Column], kept: Column, rows: Sequence[Any], width: int) -> Sequence[Column]:
    """The columns for `width` characters and these rows: some are left out before a number is cut."""
    widths = {column: GAP + max([len(column.name), *(len(column.shown(row)) for row in rows)]) for column in columns}
    left = list(columns)
    for name in OPTIONAL:
        if sum(widths[column] for column in left) <= width:
            break
        left = [column for column in left if column.name != name or column is kept]
    return left
