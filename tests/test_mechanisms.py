"""docs/contributing/mechanisms.md: each mechanism with a place names what is there, and has a test that bears its id.

That a test shows what its row says is for readers to judge, and for `make mutate`, which changes each function.
"""

import ast
import importlib
import re

import pytest

from scripts.mechanisms import PAGE, Row, ids_of, marked, rows, written

ROWS = rows(PAGE.read_text())


def unknown_place(place: str) -> str:
    """`module:name` of the server, or of the SDK when it begins with `popmq`; what is wrong, or nothing."""
    module, _, name = place.partition(":")
    try:
        found = importlib.import_module(module if module.startswith("popmq") else f"popmq_server.{module}")
    except ImportError as error:
        return f"{place}: {error}"
    for part in name.split("."):
        if not hasattr(found, part) and part not in getattr(found, "__annotations__", {}):
            return f"{place}: there is no {part}" if part else f"{place} names a module, and nothing in it"
        found = getattr(found, part, found)
    return ""


def test_every_line_of_the_tables_is_a_row_of_its_own() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| [SDIHC]\d*\.", line)]
    assert len(lines) == len({row.id for row in ROWS}) > 300


def test_each_place_is_there() -> None:
    assert [wrong for row in ROWS for place in row.places if (wrong := unknown_place(place))] == []
    assert [row.id for row in ROWS if row.has_a_place and not row.places] == []


def test_each_mechanism_with_a_place_has_a_test_and_each_mark_a_row() -> None:
    assert {id for id, _ in marked()} == {row.id for row in ROWS if row.has_a_place}


def test_the_page_names_the_tests_that_bear_the_ids() -> None:
    assert written(PAGE.read_text()) == PAGE.read_text(), "run python -m scripts.mechanisms"


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("embedded.rules.delivery.pop:choose", ""),
        ("popmq.process_queue:ProcessQueue.drop", ""),
        ("nowhere:choose", "No module named"),
        ("embedded.rules.delivery.pop:nothing", "there is no nothing"),
        ("embedded.rules.delivery.pop", "names a module"),
    ],
)
def test_a_place_that_is_missing_is_noticed(place: str, told: str) -> None:
    assert told in unknown_place(place)
    assert bool(told) == bool(unknown_place(place))


def test_a_test_may_bear_several_ids_in_one_mark_or_more() -> None:
    (function,) = ast.parse(
        '@pytest.mark.mechanism("S1.01", "S1.02")\n@pytest.mark.slow\n@pytest.mark.mechanism("D.03")\n'
        "def test_it(): ..."
    ).body
    assert isinstance(function, ast.FunctionDef)
    assert ids_of(function) == ["S1.01", "S1.02", "D.03"]


def test_a_row_without_a_place_has_its_reason() -> None:
    (row,) = rows("| S1.36 | retries | no place | one node: there is no other one |")
    assert row == Row("S1.36", "retries", "no place", "one node: there is no other one")
    assert not row.places
