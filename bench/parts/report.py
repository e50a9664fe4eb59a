"""Writes the figures as a table, as JSON, and as a plot if matplotlib is installed."""

import importlib
import importlib.util
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.measuring.measure import Resting
from bench.parts.legs import Results

#: A warning is printed when other programs use more than this share of the cores.
OTHERS_MAX = 0.1


def show(console: Console, machine: dict[str, Any], results: Results) -> None:
    console.print(", ".join(f"{name} {value}" for name, value in machine.items()), highlight=False)
    legs = Table(
        "leg", "batch", "callers", "messages/s", "p50 ms", "p99 ms", "broker µs", "load µs", "messages/fsync", "others"
    )
    for column in legs.columns[1:]:
        column.justify = "right"
    for leg in results.legs:
        shape = (leg.name, str(leg.batch), str(leg.callers), f"{leg.messages_per_s:,.0f}")
        costs = (leg.p50_ms, leg.p99_ms, leg.broker_us_per_message, leg.load_us_per_message, leg.messages_per_fsync)
        legs.add_row(*shape, *(f"{cost:,.1f}" if cost else "–" for cost in costs), f"{leg.others_share:.0%}")
    console.print(legs)
    if any(leg.others_share > OTHERS_MAX for leg in results.legs):
        console.print(
            "Other programs used this machine meanwhile: rates and latencies are worse than it can do.", style="yellow"
        )
    notes = Table("also", "measured")
    for name, value in results.notes.items():
        notes.add_row(name, f"{value:.2f}")
    console.print(notes)
    if results.resting:
        for what in dict.fromkeys(size.what for size in results.resting):
            console.print(_resting([size for size in results.resting if size.what == what]))
    floors = Table("floor", "measured", "bound", "")
    for floor in results.floors:
        bound = f"{'≤' if floor.at_most else '≥'} {floor.bound:,g} {floor.unit}"
        colour = "green" if floor.holds else "bold red"
        floors.add_row(floor.name, f"{floor.measured:,.2f}", bound, f"[{colour}]{floor.verdict}[/]")
    console.print(floors)


def _resting(sizes: list[Resting]) -> Table:
    """µs of CPU for each operation, by the number of what is at rest."""
    table = Table(f"beside {sizes[0].what} at rest, µs CPU", *(f"{size.count:,}" for size in sizes))
    for name in sizes[0].costs_us:
        table.add_row(name, *(f"{size.costs_us[name]:,.0f}" for size in sizes))
    table.add_row("longest at a time, ms", *(f"{size.longest_ms:.1f}" for size in sizes))
    if sizes[0].start_s:
        table.add_row("start, s", *(f"{size.start_s:.2f}" for size in sizes))
        table.add_row("memory of a lease, B", *(f"{size.lease_bytes:,.0f}" for size in sizes))
    for column in table.columns[1:]:
        column.justify = "right"
    return table


def save(file: Path, machine: dict[str, Any], results: Results) -> None:
    """Writes all measurements, with the rates and verdicts computed from them, as JSON."""
    legs = [{**asdict(leg), "messages_per_s": leg.messages_per_s} for leg in results.legs]
    floors = [{**asdict(floor), "verdict": floor.verdict} for floor in results.floors]
    resting = [asdict(size) for size in results.resting]
    content = {"machine": machine, "legs": legs, "notes": results.notes, "resting": resting, "floors": floors}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def plot(file: Path, results: Results) -> bool:
    """Messages a second by leg and batch; False if matplotlib is not installed."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    figure, axes = importlib.import_module("matplotlib.pyplot").subplots(figsize=(9, 5), layout="constrained")
    legs = [leg for leg in results.legs if leg.messages_per_s and leg.callers > 1 and not leg.name.startswith("fill")]
    labels = [f"{leg.name}, {leg.batch}" for leg in legs]
    axes.barh(labels[::-1], [leg.messages_per_s for leg in legs][::-1])
    axes.set_xlabel("messages/s")
    figure.savefig(file)
    return True
