"""The rows of the long runs: how they are judged, and where they go."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from bench import lasting, tables
from bench.lasting import Sample


def samples(first: int, later: int, minutes: int = 8, file: int = 120) -> list[Sample]:
    """One each five seconds: so many messages a second in the first minute, and later; 100 stored bytes."""
    found, moved = [], 0
    for at in range(5, minutes * 60 + 1, 5):
        moved += 5 * (first if at <= 60 else later)
        found.append(Sample(at, moved, file if at > 60 else 10, 100))
    return found


def told(**figures: float) -> dict[str, Any]:
    machine = dict.fromkeys(("date", "cores", "processor", "kernel", "python", "build", "grpcio", "fsync_ms"), "–")
    return {"machine": machine, "others": 0.04, "figures": figures}


def test_the_last_quarter_is_compared_with_the_first_minute() -> None:
    judged = lasting.judged(samples(1_000, 800, file=160))
    assert judged == {"rate_kept": pytest.approx(0.8), "file_share": pytest.approx(1.6)}


def test_a_stall_of_some_seconds_does_not_count_for_all() -> None:
    steady = samples(1_000, 1_000)
    stalled = [*steady[:-3], *(Sample(one.at_s, steady[-4].moved, one.data_bytes, 100) for one in steady[-3:])]
    assert lasting.judged(stalled)["rate_kept"] == pytest.approx(1.0)


def test_a_run_that_is_not_longer_than_its_first_minute_tells_nothing() -> None:
    with pytest.raises(ValueError, match="two minutes"):
        lasting.judged(samples(1_000, 1_000, minutes=1))


def test_the_section_of_long_runs_is_replaced_and_kept_by_the_table_of_floors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "BENCHMARKS.md"
    page.write_text("# Benchmarks\n\n## Floors\n\n| f |\n\n## Ratios\n\n| r |\n")
    for ready in (9.0, 2.0):
        tables.put_long(told(ready_large=ready, rate_kept=0.95, file_share=1.6), page)
    text = page.read_text()
    assert text.startswith("# Benchmarks\n\n## Floors\n\n| f |\n\n## Long runs\n")
    assert text.endswith("\n\n## Ratios\n\n| r |\n")
    verdicts = [line.split("|")[-2].strip() for line in text.splitlines() if line.endswith(("PASS |", "FAIL |"))]
    assert verdicts == ["PASS", "PASS", "FAIL"]
    assert "9 s" not in text
    monkeypatch.setattr(tables, "LONG", tmp_path / "long.json")
    tables.LONG.write_text(json.dumps(told(ready_large=2.0, rate_kept=0.95, file_share=1.6)))
    whole = told() | {"alone": {}, "figures": []}
    tables.put_floors(whole, page)
    assert page.read_text().partition("## Long runs")[1:] == text.partition("## Long runs")[1:]


def test_a_run_with_a_row_below_its_floor_fails() -> None:
    assert tables.long_fails(told(ready_large=2.0, rate_kept=0.95, file_share=1.2)) == []
    assert len(tables.long_fails(told(ready_large=4.0, rate_kept=0.8, file_share=1.6))) == 3


def test_only_the_whole_measurement_goes_into_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (["1"], ["30", "--messages", "5"], ["30", "--leases", "5"]):
        monkeypatch.setattr("sys.argv", ["lasting", *words, "--keep"])
        with pytest.raises(SystemExit):
            lasting.main()


@pytest.mark.parametrize(("ready", "code"), [(2.0, 0), (4.0, 1)])
def test_a_floor_that_does_not_hold_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ready: float, code: int
) -> None:
    async def lasted(*_: object) -> list[Sample]:
        return samples(1_000, 1_000)

    class Broker:
        pid = os.getpid()

        def __init__(self, *_: object) -> None: ...

        def __enter__(self) -> Broker:
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(lasting, "ready_s", lambda *_: ready)
    monkeypatch.setattr(lasting, "lasting", lasted)
    monkeypatch.setattr(lasting, "BrokerProcess", Broker)
    monkeypatch.setattr("sys.argv", ["lasting", "8", "--scratch", str(tmp_path)])
    assert lasting.main() == code
