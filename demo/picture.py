"""The delays as a picture: airlines from top to bottom, hours from left to right, a colour and a number for each mean.

Blue is early and red is late: the colour-blind can tell these two. A field without flights is hatched.
"""

import importlib
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from demo.delays import Cells

#: The colours end at so many minutes; what is beyond has the last one.
MINUTES_MAX = 40


def drawn(file: Path, found: Cells, names: Mapping[str, str]) -> str:
    """Draws the picture; returns a sentence that tells where it is, or why there is none.

    `names`: carrier → the name of the airline.
    """
    try:
        matplotlib = importlib.import_module("matplotlib")
    except ImportError:
        return "no picture of the delays: matplotlib is not installed"
    matplotlib.use("Agg")
    file.parent.mkdir(parents=True, exist_ok=True)
    draw(found, names).savefig(file, dpi=110)
    return f"the delays by airline and hour: {file}"


def draw(found: Cells, names: Mapping[str, str]) -> Any:
    """The figure of matplotlib: one row of fields for each airline that has flights, one field for each hour."""
    figure, axes = importlib.import_module("matplotlib.pyplot").subplots(figsize=(13, 7), layout="constrained")
    carriers = sorted({carrier for carrier, _ in found}, key=lambda carrier: names.get(carrier, carrier))
    known = [hour for _, hour in found]
    hours = range(min(known, default=0), max(known, default=0) + 1)  # also those in which nothing leaves
    means = [[_mean(found, carrier, hour) for hour in hours] for carrier in carriers]
    axes.patch.set(facecolor="0.95", hatch="////", edgecolor="0.8")
    colours = axes.imshow(means, aspect="auto", cmap="RdBu_r", vmin=-MINUTES_MAX, vmax=MINUTES_MAX)
    for row, of_carrier in enumerate(means):
        for column, (hour, mean) in enumerate(zip(hours, of_carrier, strict=True)):
            if (carriers[row], hour) in found:
                _write(axes, column, row, mean)
    axes.set_xticks(range(len(hours)), [f"{hour}:00" for hour in hours], rotation=45)
    axes.set_yticks(range(len(carriers)), [names.get(carrier, carrier) for carrier in carriers])
    axes.set_xlabel("scheduled hour of departure (hatched: no flight; ×: flights of which none arrived)")
    axes.set_title("New York 2013: mean arrival delay in minutes, by airline and hour of departure")
    figure.colorbar(colours, extend="both", label="early  ←  minutes  →  late")
    return figure


def _write(axes: Any, column: int, row: int, mean: float) -> None:
    """The mean as a number in its field, white where the field is dark; a cross if no flight of the hour arrived."""
    text = "×" if math.isnan(mean) else f"{round(mean)}"
    axes.text(column, row, text, ha="center", va="center", color="white" if abs(mean) > 0.7 * MINUTES_MAX else "black")


def _mean(found: Cells, carrier: str, hour: int) -> float:
    cell = found.get((carrier, hour))
    return math.nan if cell is None or cell.mean is None else cell.mean
