"""Curves over time as an SVG: one small chart below the other, each from zero to its highest value."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WIDTH, HEIGHT, LEFT, GAP = 720, 90, 90, 34
#: Places of a curve side by side; each shows the lowest and the highest value of its time.
PLACES = 360


def draw(path: Path, rows: list[dict[str, float]], names: tuple[str, ...]) -> None:
    """Writes a chart for each name; `rows` have the time in seconds as "s"."""
    end = max((row["s"] for row in rows), default=1.0)
    parts = [_chart(rows, name, GAP + place * (HEIGHT + GAP), end) for place, name in enumerate(names)]
    height = GAP + len(names) * (HEIGHT + GAP)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {LEFT + WIDTH + 20} {height}" '
        f'font-family="system-ui, sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>'
        f"{''.join(parts)}</svg>\n"
    )


def _chart(rows: list[dict[str, float]], name: str, top: float, end: float) -> str:
    most = max((row[name] for row in rows), default=0.0) or 1.0
    points = " ".join(
        f"{LEFT + WIDTH * seconds / end:.1f},{top + HEIGHT * (1 - value / most):.1f}"
        for seconds, value in _points(rows, name, end)
    )
    bottom = top + HEIGHT
    return (
        f'<text x="{LEFT}" y="{top - 6}" font-weight="bold">{name}</text>'
        f'<text x="{LEFT - 6}" y="{top + 10}" text-anchor="end">{most:,.1f}</text>'
        f'<text x="{LEFT - 6}" y="{bottom}" text-anchor="end">0</text>'
        f'<text x="{LEFT + WIDTH}" y="{bottom + 14}" text-anchor="end">{end / 60:.0f} min</text>'
        f'<path d="M{LEFT} {top}V{bottom}H{LEFT + WIDTH}" fill="none" stroke="#999"/>'
        f'<polyline points="{points}" fill="none" stroke="#1f6feb" stroke-width="1.5"/>'
    )


def _points(rows: list[dict[str, float]], name: str, end: float) -> Iterator[tuple[float, float]]:
    """(seconds, value) of the lowest and the highest row of each place, in the order of time."""
    places: dict[int, list[dict[str, float]]] = {}
    for row in rows:
        places.setdefault(int(PLACES * row["s"] / end), []).append(row)
    for place in sorted(places):
        ends = [min(places[place], key=lambda row: row[name]), max(places[place], key=lambda row: row[name])]
        for row in sorted(ends, key=lambda row: row["s"]):
            yield row["s"], row[name]
