"""The page of benchmarks: the median of the rounds, every broker with a name, and what was left out with its reason."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from bench import reach, tables
from bench.compare import PYTHON_SUBJECTS, SUBJECTS, WORDS, Figure
from bench.measuring import disk, measure
from bench.parts import interpreters, one_request


def figure(broker: str, face: str, rate: float, **more: Any) -> dict[str, Any]:
    """One leg of one round."""
    plain = dict.fromkeys(("p50_ms", "p99_ms", "p999_ms", "load_us", "undelivered", "others", "disk_ms"), 0)
    return {
        "broker": broker, "face": face, "work": WORDS[0].name, "messages_per_s": rate, "server_us": 1e6 / rate,
        "fsyncs": 0.5, **plain, **more,
    }  # fmt: skip


def results(*figures: dict[str, Any]) -> dict[str, Any]:
    told = dict.fromkeys(("date", "cores", "processor", "kernel", "python", "build", "grpcio", "fsync_ms"), "–")
    missing = {"nats": "go is not on the PATH"}
    return {"machine": told, "seconds": 4, "rounds": 3, "missing": missing, "figures": list(figures)}


@pytest.mark.parametrize(
    ("configured", "flags", "maps", "told"),
    [
        (
            "'--enable-shared' '--prefix=/x'",
            "-O3",
            "7f00 /x/lib/libpython3.11.so.1.0",
            "shared library, PGO not named, LTO not named",
        ),
        ("'--enable-optimizations' '--with-lto'", "", "5500 /usr/bin/python3.11", "one program, PGO named, LTO named"),
        ("'--enable-shared'", "-fprofile-use -flto=8", "5500 /usr/bin/python3.11", "one program, PGO named, LTO named"),
    ],
)
def test_the_head_names_how_the_interpreter_was_built(configured: str, flags: str, maps: str, told: str) -> None:
    assert measure.build(configured, flags, maps) == told
    page = tables.write({**results(), "machine": {**results()["machine"], "build": told}}, [], None)
    assert f"({told})" in page


@pytest.mark.parametrize(
    ("rounds", "text"),
    [(1, "one round with an empty data folder."), (3, "median of 3 rounds with an empty data folder")],
)
def test_the_head_counts_the_rounds(rounds: int, text: str) -> None:
    assert text in tables.write({**results(), "rounds": rounds}, [], None)


def test_each_column_is_the_median_of_its_rounds() -> None:
    rounds = [figure("nats", "nats", rate, p99_ms=ms) for rate, ms in ((100.0, 9.0), (300.0, 1.0), (200.0, 2.0))]
    (row,) = tables.medians(rounds)
    assert (row["messages_per_s"], row["p99_ms"], row["spread"]) == (200.0, 2.0, 1.0)


def test_fsyncs_that_were_not_counted_are_no_zero() -> None:
    text = tables.write(results(figure("nats", "nats", 100.0, fsyncs=None)), [WORDS[0].name], None)
    assert "| – | 0 | 0% |" in text


def test_a_ratio_compares_rates_and_cpu() -> None:
    two = figure("popmq-python", "rocketmq", 300.0), figure("rocketmq-async", "rocketmq", 200.0)
    text = tables.write(results(*two), [WORDS[0].name], None)
    assert "| 1.50 | 0.67 |" in text


def test_a_broker_left_out_of_the_comparison_is_reported_with_its_reason() -> None:
    assert "- nats: go is not on the PATH" in tables.write(results(), [WORDS[0].name], None)


def test_every_broker_and_every_ratio_has_names() -> None:
    both = [*SUBJECTS.items(), *PYTHON_SUBJECTS.items()]
    pairs = {(name, face) for name, subject in both for face in subject.faces}
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


def test_a_floor_is_judged_by_the_medians_of_both_brokers() -> None:
    figures = [figure("popmq-python", "rocketmq", 500.0), figure("rocketmq-async", "rocketmq", 200.0)]
    figures += [figure("popmq-python", "popmq", 800.0), figure("rabbitmq-quorum", "rabbitmq", 1_000.0)]
    rows = tables.medians(results(*figures)["figures"])
    lines = [line for line in reach.table(rows, {"ready": 250.0, "late": 31.0}) if "PASS" in line or "FAIL" in line]
    assert lines == [
        "| send 1, 64 callers, beside RabbitMQ | 1 | 1.3 | 0.8 × | FAIL |",
        "| v2 send 1, 64 callers, beside RocketMQ ASYNC | 2 | 3 | 2.5 × | PASS |",
        "| lease comes back late, p99, idle | ≤ 30 | ≤ 15 | 31 ms | FAIL |",
        "| ready on an empty folder | ≤ 400 | ≤ 250 | 250 ms | PASS |",
    ]
    assert reach.failed(rows, {"late": 31.0}) == [
        "send 1, 64 callers, beside RabbitMQ",
        "lease comes back late, p99, idle",
    ]


def test_every_floor_names_brokers_and_legs_that_are_measured() -> None:
    names = {work.name for work in WORDS}
    for row in reach.ROWS:
        pairs = [(row.of, row.work)] if row.work else []
        pairs += [row.beside] if row.beside else []
        assert all(face in tables.NAMES and work in names for face, work in pairs), row


def test_new_floors_replace_only_the_floors_of_the_page(tmp_path: Path) -> None:
    page = tmp_path / "BENCHMARKS.md"
    page.write_text("# Benchmarks\n\n## Send\n\nkept\n\n## Ratios\n\n| a |\n")
    for rate in (300.0, 100.0):
        told = results(figure("popmq-python", "rocketmq", rate), figure("rocketmq-async", "rocketmq", 100.0))
        assert tables.put_floors(told, page) in page.read_text()
    text = page.read_text()
    assert text.startswith("# Benchmarks\n\n## Send\n\nkept\n\n## Floors\n")
    assert text.endswith("\n\n## Ratios\n\n| a |\n")
    assert "| 1 × | FAIL |" in text
    assert "| 3 × |" not in text


def test_new_figures_of_python_libraries_replace_only_their_section(tmp_path: Path) -> None:
    page = tmp_path / "BENCHMARKS.md"
    page.write_text("# Benchmarks\n\n## Ratios\n\n| a |\n")
    for rate in (300.0, 100.0):
        part = tables.put_python(results(figure("honker", "honker", rate)), [WORDS[0].name], page)
        assert part in page.read_text()
    page.write_text(page.read_text() + "\n## Left out\n\n- nats\n")
    part = tables.put_python(results(figure("pgqueuer", "pgqueuer", 200.0, others=0.3)), [WORDS[0].name], page)
    assert page.read_text() == f"# Benchmarks\n\n## Ratios\n\n| a |\n\n{part}\n## Left out\n\n- nats\n"
    assert "| pgqueuer, PostgreSQL | 200 |" in part
    assert "other programs used 30% of the cores" in part
    assert "Left out: nats: go is not on the PATH" in part


def test_a_table_of_interpreters_has_a_row_for_each_and_a_cell_for_each_leg() -> None:
    works = interpreters.WORKS[:-1]
    rounds = [figure("popmq: 3.14.8, PGO", "popmq", rate) for rate in (1e5, 5e4, 2e5)]
    figures = [Figure(**{**one, "round": 1, "messages": 1, "work": work.name}) for one in rounds for work in works]
    head, _, row = interpreters.table(figures)
    assert head.count("|") == row.count("|") == len(interpreters.WORKS) + 2
    assert row.startswith("| 3.14.8, PGO | 100,000 · 5.0 |"), "the median of rates, the least of CPU"
    assert row.endswith("| – |"), "a leg that failed"


def test_the_least_of_requests_in_memory_is_that_of_all_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    told = iter([dict.fromkeys(one_request.LEGS, us) for us in (9.0, 7.25, 8.0)])
    monkeypatch.setattr("bench.peers.install.run", lambda *_, **__: json.dumps(next(told)))
    python = interpreters.Interpreter(Path("python3"), Path("modules"), "3.14.8", "PGO")
    _, _, row = interpreters.table_of_least(interpreters.least_us([python], 3))
    assert row == "| 3.14.8, PGO" + " | 7.2" * len(one_request.LEGS) + " |"


def test_a_stall_of_the_disk_is_reported_also_while_it_lasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stalls, ends = threading.Event(), threading.Event()

    def stalled(_: int) -> None:
        stalls.set()
        ends.wait(30)

    monkeypatch.setattr(disk, "EVERY_S", 0.0)
    monkeypatch.setattr("os.fdatasync", stalled)
    with disk.DiskWatch(tmp_path) as watch:
        assert stalls.wait(30)
        assert watch.take_ms() > 0
        ends.set()
