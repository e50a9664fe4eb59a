"""The page of the comparison and its plots, from the figures of bench/compare.py."""

import json
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench import reach
from harness.broker_process import ROOT

Row = dict[str, Any]
#: The last results of bench/lasting.py.
LONG = ROOT / "docs" / "benchmarks" / "long.json"
#: The last results of `python -m bench.compare --python --keep`.
PYTHON_RESULTS = ROOT / "docs" / "benchmarks" / "python.json"
#: (broker, protocol) → its name in the tables.
NAMES = {
    ("popmq-python", "popmq"): "PopMQ, `python`, popmq.v1",
    ("popmq-python", "rocketmq"): "PopMQ, `python`, rocketmq.v2",
    ("popmq-grpcio", "popmq"): "PopMQ, `grpcio`, popmq.v1",
    ("popmq-grpcio", "rocketmq"): "PopMQ, `grpcio`, rocketmq.v2",
    ("rocketmq-async", "rocketmq"): "RocketMQ 5.5.0, ASYNC_FLUSH",
    ("rocketmq-sync", "rocketmq"): "RocketMQ 5.5.0, SYNC_FLUSH",
    ("redis-always", "redis"): "Redis Streams, fsync always",
    ("nats", "nats"): "NATS JetStream 2.15, fsync every 2 min",
    ("nats-always", "nats"): "NATS JetStream 2.15, fsync always",
    ("rabbitmq-quorum", "rabbitmq"): "RabbitMQ, quorum queues",
    ("popmq-sdk", "popmq-sdk"): "PopMQ, its Python SDK",
    ("popmq-embedded", "popmq-embedded"): "PopMQ, its Python SDK, broker in the program",
    ("pgqueuer", "pgqueuer"): "pgqueuer, PostgreSQL",
    ("honker", "honker"): "honker, SQLite NORMAL",
    ("honker-full", "honker-full"): "honker, SQLite FULL",
    ("simplebroker", "simplebroker"): "simplebroker, SQLite FULL",
}
#: Ratios that the page shows: (leg, of, beside).
RATIOS = (
    ("send 1, 64 callers", ("popmq-python", "rocketmq"), ("rocketmq-async", "rocketmq")),
    ("send 1, 64 callers", ("popmq-python", "rocketmq"), ("rocketmq-sync", "rocketmq")),
    ("send 32, 16 callers", ("popmq-python", "rocketmq"), ("rocketmq-async", "rocketmq")),
    ("receive + ack 32, 16 callers", ("popmq-python", "rocketmq"), ("rocketmq-async", "rocketmq")),
    ("receive + ack 32, 16 callers", ("popmq-python", "rocketmq"), ("rocketmq-sync", "rocketmq")),
    ("send 256, 8 callers", ("popmq-python", "popmq"), ("redis-always", "redis")),
    ("receive + ack 256, 8 callers", ("popmq-python", "popmq"), ("redis-always", "redis")),
    ("send 1, 64 callers", ("popmq-python", "popmq"), ("popmq-grpcio", "popmq")),
    ("receive + ack 1, 64 callers", ("popmq-python", "popmq"), ("popmq-grpcio", "popmq")),
)
HEAD = """\
# Benchmarks

`make bench-compare` writes this page ([how it measures](bench/README.md#beside-other-brokers)). Compare only figures of
one run: absolute figures halve or double with the machine and its load.

{machine}

Messages have 1 KiB and do not compress. A leg takes {seconds:g} s; each figure is {rounds}.
One broker runs at a time.

- *server µs* is the CPU time of the broker's processes for each message, *load µs* that of the load generator.
- *fsyncs* is the number of calls of fsync, fdatasync and msync for each message (– if they cannot be counted).
- *disk ms* is the longest time that another program needed during the leg to sync 4 KiB, ten times a second. If a p99.9
  has this size, the disk caused it.
- *others* is the share of all cores that other programs used during the leg. Above a tenth, the rate is a lower bound,
  and *server µs* is the better figure.
- Latencies are those of a whole request. In *send → received* they count from the time at which a message was due to be
  sent.

PopMQ, Redis, RabbitMQ, RocketMQ with SYNC_FLUSH and NATS with fsync always confirm a message when it is on disk.
RocketMQ with ASYNC_FLUSH and NATS by default confirm it earlier, and can lose the last messages in a power failure.
Each broker is one node.
"""
PYTHON_TITLE = "## Durable queues in Python"
PYTHON_HEAD = """\
{title}

This was a separate run, during which other programs used {others:.0%} of the cores: {machine} A leg takes
{seconds:g} s; each figure is {rounds}.

Each was driven [from Python](bench/peers/drivers), by tasks or threads of one process, as its documents suggest. PopMQ
was also driven by the Go program of the other tables.

- pgqueuer stores jobs in PostgreSQL with its defaults: a job is on disk when it is enqueued, and its end when it is
  logged.
- honker opens SQLite with `synchronous = NORMAL`, and can lose the last jobs in a power failure. With FULL, which the
  load program sets for it, it confirms a job when it is on disk.
- simplebroker opens SQLite with FULL. It has no acks: a read removes messages before the program has them. It has no
  call that sends a batch.
- honker, simplebroker and a broker in the program have no server: all their work is in *load µs*.
"""
WIDTH, BAR, GAP, LEFT = 720, 16, 6, 250


def write(results: dict[str, Any], works: list[str], keep: Path | None) -> str:
    """The text of the page; written below `keep` with its plots if that is given."""
    rows = medians(results["figures"])
    parts = [HEAD.format(machine=_machine(results), seconds=results["seconds"], rounds=_rounds(results["rounds"]))]
    for work in works:
        chosen = [row for row in rows if row["work"] == work]
        if not chosen:
            continue
        name = "-".join(re.findall(r"[a-z0-9]+", work.lower()))
        parts.append(f"## {work[0].upper()}{work[1:]}\n")
        parts.append(f"![{work}](docs/benchmarks/{name}.svg)\n")
        parts.append("\n".join(_table(chosen)) + "\n")
        if keep:
            (keep / "docs" / "benchmarks" / f"{name}.svg").write_text(plot(work, chosen))
    parts.append(_floors(results, rows))
    parts.append("## Ratios\n")
    parts.append("\n".join(_ratios(rows)) + "\n")
    if PYTHON_RESULTS.exists():
        parts.append(python_section(json.loads(PYTHON_RESULTS.read_text()), works))
    if results["missing"]:
        parts.append("## Left out\n")
        parts.append("\n".join(f"- {name}: {reason}" for name, reason in results["missing"].items()) + "\n")
    text = "\n".join(parts)
    if keep:
        (keep / "BENCHMARKS.md").write_text(text)
    return text


def _rounds(count: int) -> str:
    if count == 1:
        return "of one round with an empty data folder"
    return f"the median of {count} rounds with an empty data folder each"


def _floors(results: dict[str, Any], rows: list[Row]) -> str:
    """The table of floors, followed by that of the long runs as they were last measured."""
    text = "## Floors\n\n" + "\n".join(reach.table(rows, results.get("alone", {}))) + "\n"
    return f"{text}\n{long(json.loads(LONG.read_text()))}" if LONG.exists() else text


def long(told: dict[str, Any]) -> str:
    """The section with the results of bench/lasting.py."""
    lines = reach.table([], told["figures"], reach.LONG_ROWS)
    head = (
        f"This was a separate run, during which other programs used {told['others']:.0%} of the cores: {_machine(told)}"
    )
    return "## Long runs\n\n" + head + "\n\n" + "\n".join(lines) + "\n"


def long_fails(told: dict[str, Any]) -> list[str]:
    """The rows of the long runs whose floors do not hold."""
    return reach.failed([], told["figures"], reach.LONG_ROWS)


def put_long(told: dict[str, Any], page: Path) -> None:
    """Replaces the section of the long runs; the other parts of the page stay."""
    before, _, after = page.read_text().partition("## Ratios\n")
    page.write_text(f"{before.partition('## Long runs')[0]}{long(told)}\n## Ratios\n{after}")


def put_floors(results: dict[str, Any], page: Path) -> str:
    """The table of floors of one run, which replaces that of the page; the other parts of the page stay."""
    told = f"This was a separate run: {_machine(results)}\n"
    part = _floors(results, medians(results["figures"])).replace("## Floors\n", f"## Floors\n\n{told}", 1)
    before, found, after = page.read_text().partition("## Floors\n")
    if not found:
        before, _, after = before.partition("## Ratios\n")
        after = "\n## Ratios\n" + after
    page.write_text(before + part + "\n" + after[after.index("## Ratios") :])
    return part


def python_section(results: dict[str, Any], works: list[str]) -> str:
    """The section with the results of `--python`."""
    told = {"machine": _machine(results), "rounds": _rounds(results["rounds"]), "seconds": results["seconds"]}
    others = statistics.median(figure["others"] for figure in results["figures"])
    parts, rows = [PYTHON_HEAD.format(title=PYTHON_TITLE, others=others, **told)], medians(results["figures"])
    for work in dict.fromkeys(work for work in works if any(row["work"] == work for row in rows)):
        lines = _table([row for row in rows if row["work"] == work])
        parts.append(f"### {work[0].upper()}{work[1:]}, in Python\n\n" + "\n".join(lines) + "\n")
    parts += [f"Left out: {name}: {reason}\n" for name, reason in results["missing"].items()]
    return "\n".join(parts)


def put_python(results: dict[str, Any], works: list[str], page: Path) -> str:
    """The section with the results of `--python`, which replaces that of the page; the other parts of the page stay."""
    part, (before, _, after) = python_section(results, works), page.read_text().partition(PYTHON_TITLE)
    _, found, rest = after.partition("\n## ")
    page.write_text(f"{before.rstrip()}\n\n{part}{found}{rest}")
    return part


def medians(figures: list[Row]) -> list[Row]:
    """One row for each broker, face and leg: the median of its rounds, each column by itself."""
    found: dict[tuple[str, str, str], list[Row]] = {}
    for figure in figures:
        found.setdefault((figure["broker"], figure["face"], figure["work"]), []).append(figure)
    rows = []
    for (broker, face, work), rounds in found.items():
        row: Row = {"broker": broker, "face": face, "work": work}
        for column, value in rounds[0].items():
            if isinstance(value, int | float):
                row[column] = statistics.median(one[column] for one in rounds)
        rates = [one["messages_per_s"] for one in rounds]
        row["spread"] = (max(rates) - min(rates)) / max(row["messages_per_s"], 1e-9)
        rows.append(row)
    return rows


def _machine(results: dict[str, Any]) -> str:
    told = results["machine"]
    return (
        f"{told['date']}, {told['cores']} cores ({told['processor']}), Linux {told['kernel']}, "
        f"Python {told['python']} ({told['build']}), grpcio {told['grpcio']}, fsync of 4 KiB {told['fsync_ms']} ms."
    )


def _table(rows: list[Row]) -> Iterator[str]:
    yield "| | messages/s | ± | p50 ms | p99 | p99.9 | server µs | load µs | fsyncs | disk ms | others |"
    yield "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
    for row in rows:
        fsyncs = f"{row['fsyncs']:.4f}" if "fsyncs" in row else "–"
        late = f" ({row['undelivered']:.0f} did not come)" if row["undelivered"] else ""
        yield (
            f"| {NAMES[row['broker'], row['face']]} | {row['messages_per_s']:,.0f}{late} | {row['spread'] / 2:.0%} | "
            f"{row['p50_ms']:.2f} | {row['p99_ms']:.1f} | {row['p999_ms']:.1f} | {row['server_us']:.1f} | "
            f"{row['load_us']:.1f} | {fsyncs} | {row['disk_ms']:.0f} | {row['others']:.0%} |"
        )


def _ratios(rows: list[Row]) -> Iterator[str]:
    """The first beside the second: above 1 it moves more messages, below 1 it takes less CPU for each."""
    by = {(row["work"], row["broker"], row["face"]): row for row in rows}
    yield "| leg | | beside | messages/s | server µs |"
    yield "|---|---|---|--:|--:|"
    for work, one, other in RATIOS:
        if (work, *one) in by and (work, *other) in by:
            first, second = by[work, *one], by[work, *other]
            rate, cpu = (first[column] / second[column] for column in ("messages_per_s", "server_us"))
            yield f"| {work} | {NAMES[one]} | {NAMES[other]} | {rate:.2f} | {cpu:.2f} |"


def plot(work: str, rows: list[Row]) -> str:
    """Horizontal bars, as SVG: rates, or the p99 where the rate was given."""
    at_rate = "→" in work
    column, unit = ("p99_ms", "ms p99") if at_rate else ("messages_per_s", "messages/s")
    most = max(row[column] for row in rows) or 1.0
    height = len(rows) * (BAR + GAP) + GAP
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-size="12">',
        "<style>text { font-family: sans-serif; fill: #222 }</style>",
        f"<title>{work}: {unit}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
    ]
    for place, row in enumerate(rows):
        y, length = GAP + place * (BAR + GAP), row[column] / most * (WIDTH - LEFT - 130)
        colour = "#2a6f97" if row["broker"].startswith("popmq") else "#a9a9a9"
        name = NAMES[row["broker"], row["face"]].replace("`", "")
        value = f"{row[column]:,.1f}" if at_rate else f"{row[column]:,.0f}"
        lines += [
            f'<text x="{LEFT - 8}" y="{y + 12}" text-anchor="end">{name}</text>',
            f'<rect x="{LEFT}" y="{y}" width="{max(length, 1):.1f}" height="{BAR}" fill="{colour}"/>',
            f'<text x="{LEFT + length + 6:.1f}" y="{y + 12}">{value} {unit}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])
