"""Line charts as SVG that the server draws: no script is needed to see them, colours come from the style sheet.

A chart is CHART_WIDTH × CHART_HEIGHT units, newest on the right; the template adds the words.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from popmq_console.numbers import SAMPLE_S, Sample

CHART_WIDTH = 720
CHART_HEIGHT = 160
#: The least upper edge of a chart, since smaller values are noise.
LEAST = {"rate": 1.0, "count": 1.0, "bytes": 1024.0, "seconds": 0.1}
DAY_S = 86_400.0
#: Upper edges above a minute.
EDGES_S = (60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0, 18_000.0, 43_200.0, DAY_S)
#: Seconds that charts show: the least that holds all samples, so that a console that has just begun shows something.
WINDOWS_S = (300.0, 900.0, 3600.0)
#: Samples that are further apart than this are not joined: in between the console had no numbers.
GAP_S = 30.0


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its name, how it is drawn, its newest value."""

    name: str
    path: str  # of an SVG path element
    latest: float


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
    """The window for samples of this age; one sample more than fits does not select the next one."""
    return next((one for one in WINDOWS_S if age_s <= one + SAMPLE_S), WINDOWS_S[-1])


def chart(title: str, unit: str, samples: Sequence[Sample], now_s: float, **values: Callable[[Sample], float]) -> Chart:
    """A chart with a line for each of `values`, by name.

    All lines share one scale: they are compared with each other more often than with their own past.
    """
    rows = {name.replace("_", " "): [(one.time_s, value(one)) for one in samples] for name, value in values.items()}
    top = upper_edge(max((value for row in rows.values() for _, value in row), default=0.0), unit)
    window_s = window(now_s - samples[0].time_s if samples else 0.0)
    return Chart(
        title,
        unit,
        top,
        window_s,
        [Line(name, _path(row, now_s, window_s, top), row[-1][1] if row else 0.0) for name, row in rows.items()],
    )


def _path(row: Sequence[tuple[float, float]], now_s: float, window_s: float, top: float) -> str:
    """Moves and lines in units of the chart.

    A single sample is a dot, which a line of no length with round ends shows. A gap starts a new line: a line
    across it would show values for a time without samples.
    """
    commands, before_s = [], float("-inf")
    for time_s, value in row:
        x = CHART_WIDTH * (1 - (now_s - time_s) / window_s)
        if x < 0:
            continue
        y = CHART_HEIGHT * (1 - value / top)
        verb = "L" if time_s - before_s <= GAP_S else "M"
        commands.append(f"{verb}{x:.1f} {y:.1f}" if verb == "L" else f"M{x:.1f} {y:.1f}h.01")
        before_s = time_s
    return "".join(commands)


def overview(samples: Sequence[Sample], now_s: float) -> list[Chart]:
    """The charts of the first page.

    Rates are the broker's own means over a minute, so a chart is as smooth as they are, and a sample that is missing
    hides nothing.
    """
    return [
        chart(
            "Messages a second",
            "rate",
            samples,
            now_s,
            sent=lambda one: one.sent,
            popped=lambda one: one.popped,
            acked=lambda one: one.acked,
        ),
        chart(
            "Backlog", "count", samples, now_s, unfinished=lambda one: one.backlog, in_flight=lambda one: one.in_flight
        ),
        chart("Age of the oldest unfinished message", "seconds", samples, now_s, oldest=lambda one: one.oldest_s),
        chart(
            "Lateness",
            "seconds",
            samples,
            now_s,
            leases=lambda one: one.leases_late_s,
            delayed=lambda one: one.delayed_late_s,
        ),
        chart("Dead letters", "count", samples, now_s, dead=lambda one: one.dead),
        chart("Store", "bytes", samples, now_s, used=lambda one: one.used),
    ]
