"""Line charts as SVG that the server draws: no script is needed to see them, colours come from the style sheet.

They show the last hour as the broker has it, from the first visit on. A chart is CHART_WIDTH × CHART_HEIGHT units,
newest on the right; the template adds the words.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import popmq
from popmq import errors
from popmq_console.asking import Ask

CHART_WIDTH = 720
CHART_HEIGHT = 160
#: The least upper edge of a chart, since smaller values are noise.
LEAST = {"rate": 1.0, "count": 1.0, "bytes": 1024.0, "seconds": 0.1}
DAY_S = 86_400.0
#: Upper edges above a minute.
EDGES_S = (60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 18_000.0, 43_200.0, DAY_S)
#: Seconds that charts show: the least that holds all points, so that those of a new broker or topic show something.
WINDOWS_S = (300.0, 900.0, 3600.0)
#: Points that are further apart than so many steps are not joined: in between the broker was down. A point may be late.
GAP_STEPS = 2.5


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its name, how it is drawn, its newest value."""

    name: str
    path: str  # of an SVG path element
    latest: float | None


@dataclass(frozen=True, slots=True)
class Chart:
    """A titled chart with one scale.

    `unit`: the template's filter for its values: rate, count, seconds or bytes. `top`: the value at the upper edge; the
    lower edge is 0, so that a flat line near the top never looks like a change.
    """

    title: str
    unit: str
    top: float
    window_s: float
    lines: Sequence[Line]


def ceiling(value: float, step: float = 1.0) -> float:
    """The least of 1, 2, 5, 10, 20 … times `step` that is not below the value; the upper edge of a chart."""
    while True:
        for factor in (1, 2, 5):
            if step * factor >= value:
                return step * factor
        step *= 10


def upper_edge(value: float, unit: str) -> float:
    """The upper edge of a chart: a round number in the unit in which the template writes it."""
    if unit != "seconds" or value <= 50:
        return ceiling(value, LEAST[unit])
    return next((one for one in EDGES_S if one >= value), ceiling(value / DAY_S) * DAY_S)


def window(age_s: float) -> float:
    """The window for points of this age."""
    return next((one for one in WINDOWS_S if age_s <= one), WINDOWS_S[-1])


def chart(
    title: str, unit: str, history: popmq.History, **values: Callable[[popmq.HistoryPoint], float | None]
) -> Chart:
    """A chart with a line for each of `values`, by name. The history has points; a line has none for unknown values.

    All lines share one scale: they are compared with each other more often than with their own past.
    """
    points = [((history.now_ms - one.time_ms) / 1000, one) for one in history.points]
    rows = {name.replace("_", " "): [(age_s, value(one)) for age_s, one in points] for name, value in values.items()}
    known = (value for row in rows.values() for _, value in row if value is not None)
    top = upper_edge(max(known, default=0.0), unit)
    window_s, gap_s = window(points[0][0]), GAP_STEPS * history.step
    lines = [Line(name, _path(row, window_s, top, gap_s), row[-1][1]) for name, row in rows.items()]
    return Chart(title, unit, top, window_s, lines)


def _path(row: Sequence[tuple[float, float | None]], window_s: float, top: float, gap_s: float) -> str:
    """Moves and lines in units of the chart, of (age, value); an unknown value is a gap.

    A single point is a dot, which a line of no length with round ends shows. A gap starts a new line: a line
    across it would show values for a time without points.
    """
    commands, before_s = [], float("inf")
    for age_s, value in row:
        x = CHART_WIDTH * (1 - age_s / window_s)
        if x < 0 or value is None:
            before_s = float("inf")
            continue
        y = CHART_HEIGHT * (1 - value / top)
        verb = "L" if before_s - age_s <= gap_s else "M"
        commands.append(f"{verb}{x:.1f} {y:.1f}" if verb == "L" else f"M{x:.1f} {y:.1f}h.01")
        before_s = age_s
    return "".join(commands)


def overview(history: popmq.History) -> list[Chart]:
    """The charts of the first page."""
    return [
        _messages(history),
        _backlog(history),
        _oldest(history),
        chart("Lateness", "seconds", history, leases=lambda one: one.leases_late, delayed=lambda one: one.delayed_late),
        _dead(history),
        chart("Store", "bytes", history, used=lambda one: one.used_bytes),
    ]


def of_topic(history: popmq.History) -> list[Chart]:
    """The charts of a topic, with the sums over the groups that read it."""
    stored = chart("Stored bytes", "bytes", history, stored=lambda one: one.bytes)
    return [_messages(history), _backlog(history), _oldest(history), stored]


def of_group(history: popmq.History) -> list[Chart]:
    """The charts of a group, with the sums over the topics that it reads."""
    return [_messages(history), _backlog(history), _oldest(history), _dead(history)]


def _messages(history: popmq.History) -> Chart:
    return chart(
        "Messages a second",
        "rate",
        history,
        sent=lambda one: one.sent_per_s,
        popped=lambda one: one.popped_per_s,
        acked=lambda one: one.acked_per_s,
    )


def _backlog(history: popmq.History) -> Chart:
    return chart(
        "Backlog",
        "count",
        history,
        unfinished=lambda one: one.backlog,
        in_flight=lambda one: one.in_flight,
        retries=lambda one: one.retries,
    )


def _oldest(history: popmq.History) -> Chart:
    return chart("Age of the oldest unfinished message", "seconds", history, oldest=lambda one: one.oldest_age)


def _dead(history: popmq.History) -> Chart:
    return chart("Dead letters", "count", history, dead=lambda one: one.dead)


async def drawn(
    ask: Ask, draw: Callable[[popmq.History], list[Chart]], topic: str = "", group: str = ""
) -> dict[str, Any]:
    """The charts of a page as values of its template: `charts`, or `no_charts`, a sentence. Raises PopMQError."""
    try:
        history = await ask.login.numbers.history(topic, group)
    except errors.Unsupported:
        return {"charts": [], "no_charts": "The charts need a newer broker: this one keeps no history of its numbers."}
    if history.points:
        return {"charts": draw(history), "no_charts": ""}
    if history.left_out:
        return {
            "charts": [],
            "no_charts": "The broker keeps no more histories than it does of others: there is none of this one.",
        }
    return {"charts": [], "no_charts": f"The charts begin in {history.step:.0f} s at the latest."}
