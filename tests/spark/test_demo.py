"""The demo's verdict: only what was sent, all of it, and nothing twice is a success; and its picture."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from demo import picture
from demo.flights import Carrier
from demo.outcome import Outcome

GOOD = Outcome(
    sent=336_776,
    stored=336_776,
    acked=336_776,
    in_flight=0,
    rows=336_776,
    different=336_776,
    repeated=0,
    same_delays=True,
    same_hours=True,
)


def test_a_table_that_is_what_was_sent_has_no_faults() -> None:
    assert GOOD.line == "336776 flights, 0 missing, 0 duplicates"
    assert GOOD.faults() == []


@pytest.mark.parametrize(
    ("outcome", "fault"),
    [
        (replace(GOOD, rows=336_775, different=336_775), "1 flights are missing"),
        (replace(GOOD, rows=336_777), "1 rows of the table are duplicates"),
        (replace(GOOD, repeated=3), "3 messages were delivered more than once"),
        (replace(GOOD, stored=337_776), "the topic holds 337776 messages"),
        (replace(GOOD, acked=336_000), "the group acked 336000 messages"),
        (replace(GOOD, in_flight=5), "5 messages are still in flight"),
        (replace(GOOD, same_delays=False), "the delays in the table are not those of the CSV"),
        (replace(GOOD, same_hours=False), "the delays in the topic of the windows are not those of the CSV"),
        (replace(GOOD, spared=("driver",)), "the driver was not killed"),
    ],
)
def test_anything_else_is_a_fault_also_a_repetition_that_was_removed_on_the_way(outcome: Outcome, fault: str) -> None:
    assert any(found.startswith(fault) for found in outcome.faults())


CELLS = {
    ("AA", 5): Carrier(flights=3, delayed=2, minutes=30),
    ("AA", 8): Carrier(flights=2, delayed=0, minutes=0),
    ("UA", 6): Carrier(flights=1, delayed=1, minutes=-4),
}
NAMES = {"AA": "American Airlines Inc.", "UA": "United Air Lines Inc."}


def test_the_picture_of_the_delays_is_drawn_and_named(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    assert picture.drawn(tmp_path / "delays.png", CELLS, NAMES).endswith("delays.png")
    assert (tmp_path / "delays.png").read_bytes().startswith(b"\x89PNG")


def test_the_picture_names_airlines_and_has_a_place_for_each_hour_also_without_flights() -> None:
    pytest.importorskip("matplotlib")
    axes = picture.draw(CELLS, NAMES).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [*NAMES.values()]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["5:00", "6:00", "7:00", "8:00"]
    assert [(*text.get_position(), text.get_text()) for text in axes.texts] == [
        (0, 0, "15"),
        (3, 0, "×"),  # flights, and none arrived
        (1, 1, "-4"),
    ]
    assert axes.patch.get_hatch()


def test_a_missing_matplotlib_is_reported_in_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert picture.drawn(tmp_path / "delays.png", CELLS, NAMES) == (
        "no picture of the delays: matplotlib is not installed"
    )
    assert not (tmp_path / "delays.png").exists()
