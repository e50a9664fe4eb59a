"""The page of benchmarks: the median of the rounds, every broker with a name, and what was left out with its reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench import tables
from bench.compare import SUBJECTS, WORDS


def figure(broker: str, face: str, rate: float, **more: Any) -> dict[str, Any]:
    """One leg of one round."""
    plain = dict.fromkeys(("p50_ms", "p99_ms", "p999_ms", "load_us", "undelivered", "others"), 0)
    return {
        "broker": broker, "face": face, "work": WORDS[0].name, "messages_per_s": rate, "server_us": 1e6 / rate,
        "fsyncs": 0.5, **plain, **more,
    }  # fmt: skip


def results(*figures: dict[str, Any]) -> dict[str, Any]:
    told = dict.fromkeys(("date", "cores", "processor", "kernel", "python", "grpcio", "fsync_ms"), "–")
    missing = {"nats": "go is not on the PATH"}
    return {"machine": told, "seconds": 4, "rounds": 3, "missing": missing, "figures": list(figures)}


def test_each_column_is_the_median_of_its_rounds() -> None:
    rounds = [figure("nats", "nats", rate, p99_ms=ms) for rate, ms in ((100.0, 9.0), (300.0, 1.0), (200.0, 2.0))]
    (row,) = tables.medians(rounds)
    assert (row["messages_per_s"], row["p99_ms"], row["spread"]) == (200.0, 2.0, 1.0)


def test_fsyncs_that_were_not_counted_are_no_zero() -> None:
    text = tables.write(results(figure("nats", "nats", 100.0, fsyncs=None)), [WORDS[0].name], None)
    assert "| – | 0% |" in text


def test_a_ratio_compares_rates_and_cpu() -> None:
    two = figure("popmq-python", "rocketmq", 300.0), figure("rocketmq-async", "rocketmq", 200.0)
    text = tables.write(results(*two), [WORDS[0].name], None)
    assert "| 1.50 | 0.67 |" in text


def test_what_was_left_out_is_reported_with_its_reason() -> None:
    assert "- nats: go is not on the PATH" in tables.write(results(), [WORDS[0].name], None)


def test_every_broker_and_every_ratio_has_names() -> None:
    pairs = {(name, face) for name, subject in SUBJECTS.items() for face in subject.faces}
    assert pairs == set(tables.NAMES)
    assert {work for work, _, _ in tables.RATIOS} <= {work.name for work in WORDS}
    assert {pair for _, one, other in tables.RATIOS for pair in (one, other)} <= pairs


def test_page_and_plots_are_written_together(tmp_path: Path) -> None:
    (tmp_path / "docs" / "benchmarks").mkdir(parents=True)
    tables.write(results(figure("popmq-python", "popmq", 300.0)), [WORDS[0].name], tmp_path)
    page = (tmp_path / "BENCHMARKS.md").read_text()
    (plot,) = (tmp_path / "docs" / "benchmarks").iterdir()
    assert f"docs/benchmarks/{plot.name}" in page
    assert plot.read_text().startswith("<svg ")
