"""Tables with times in a narrow terminal."""

import re
import sys

import pytest

import popmq
from popmq_cli.readers import history
from popmq_cli.readers.leases import COLUMNS
from popmq_cli.shared.output import Output

TIMES = ["2026-11-26T18:03:14Z", "2026-11-26T18:02:14Z"]
LEASE = ("live", "shop.orders", "normal", "shop-worker-7f3a@host-12.internal@4711", "15/20", TIMES[0], "57s", TIMES[1])


@pytest.mark.parametrize("width", [40, 60, 80, 100, 140])
def test_a_narrow_table_shows_a_time_in_one_line_or_names_its_column_below(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    Output(False).table("Leased", COLUMNS, [LEASE])
    text = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    table, _, left_out = text.partition("no room for ")
    for name, time in zip(("DUE", "POPPED"), TIMES, strict=True):
        assert (time in table) != (name in left_out)
    assert (TIMES[0] in table) == (width >= 80)
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize(("width", "bars"), [(120, 60), (80, 30), (70, 20)])
def test_a_narrow_history_has_fewer_bars_in_one_line(
    width: int, bars: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    points = tuple(popmq.HistoryPoint(time_ms=minute * 60_000, bytes=150_000) for minute in range(60))
    shown = popmq.History(now_ms=59 * 60_000, step=30.0, points=points, left_out=False)
    Output(False).table("History", history.COLUMNS, history._rows(history.NUMBERS, shown))
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "STORED" in line]
    assert (line.count("█"), line.count("146.5 KiB")) == (bars, 3)


@pytest.mark.parametrize("width", [40, 60])
def test_a_narrow_table_folds_a_long_name_and_loses_nothing_of_it(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    Output(False).table("Leased", COLUMNS, [("g" * 16, "t" * 16, "normal", "c" * 38, *LEASE[4:])])
    table, _, _ = capsys.readouterr().out.partition("no room for ")
    assert [table.count(letter) for letter in "gtc"] == [16, 16, 38]
