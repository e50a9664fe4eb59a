"""mechanisms.md is whole and true by name: every id once, every place and every test there.

    | id | mechanism | where it lives | test |        a row; the second last cell may say `no place`, the last one why

That a test shows what its row says is for readers to judge, and for `make mutate-mechanisms`, which breaks each one.
"""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.mechanisms import COLLECTED, PAGE, ROW, ROWS, Row, rows, unusable_test

ROOT = Path(__file__).parent.parent
#: How many mechanisms of the list may have no place here.
NO_PLACE_MAX = 12
#: Numbers that the list of defects leaves out.
DEFECTS = [*range(1, 18), *range(20, 31), *range(35, 49), *range(50, 64), *range(70, 76)]
LISTS = {"S0": range(1, 53), "S1": range(1, 59), "S2": range(1, 61), "S3": range(1, 36), "S4": range(1, 22)} | {
    "D": DEFECTS,
    "I": range(1, 31),
    "H": range(1, 36),
    "C": range(1, 8),
}


IDS = [f"{name}.{number:02}" for name, numbers in LISTS.items() for number in numbers]

# ── What is wrong with a row ─────────────────────────────────────────────────────────────────────────────────────────


def missing_or_twice(found: Iterable[str]) -> list[str]:
    counted = Counter(found)
    return sorted(id for id in counted.keys() | set(IDS) if counted[id] != 1 or id not in IDS)


def unknown_place(place: str) -> str:
    """`module:name` of the server, or of the SDK when it begins with `popmq`; what is wrong, or nothing."""
    module, _, name = place.partition(":")
    try:
        found = importlib.import_module(module if module.startswith("popmq") else f"popmq_server.{module}")
    except ImportError as error:
        return f"{place}: {error}"
    for part in name.split("."):
        if not hasattr(found, part) and part not in getattr(found, "__annotations__", {}):
            return f"{place}: {found.__name__} has no {part}" if hasattr(found, "__name__") else f"{place}: no {part}"
        found = getattr(found, part, found)
    return "" if name else f"{place} names a module, and nothing in it"


def complaints(row: Row) -> Iterator[str]:
    if not row.has_a_place:
        if not row.id.startswith("S"):
            yield f"{row.id}: a defect and an invariant have a place everywhere"
        if len(row.test) < 20:
            yield f"{row.id}: why has it no place?"
        return
    if not row.places():
        yield f"{row.id}: where does it live?"
    if not row.tests():
        yield f"{row.id}: which test shows it?"
    yield from (f"{row.id} {wrong}" for place in row.places() if (wrong := unknown_place(place)))
    yield from (f"{row.id} {wrong}" for test in row.tests() if (wrong := unusable_test(test)))


# ── The page ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_id_of_the_lists_has_one_row() -> None:
    assert missing_or_twice(row.id for row in ROWS) == []


def test_every_line_of_the_tables_is_a_row() -> None:
    lines = [line for line in PAGE.read_text().splitlines() if re.match(r"\| [SDIHC]\d*\.", line)]
    assert len(lines) == len(ROWS), [line for line in lines if not ROW.match(line)]


@pytest.mark.parametrize("family", LISTS)
def test_places_and_tests_of_every_row_are_there(family: str) -> None:
    assert [wrong for row in ROWS if row.id.startswith(f"{family}.") for wrong in complaints(row)] == []


def test_few_mechanisms_have_no_place_here() -> None:
    assert sum(not row.has_a_place for row in ROWS) <= NO_PLACE_MAX


def test_no_test_is_named_for_too_much() -> None:
    """A test that shows everything shows nothing: the state machine may, others may for a handful of rows."""
    counted = Counter(test for row in ROWS for test in row.tests())
    assert {test: count for test, count in counted.items() if count > 6 and "test_machine" not in test} == {}


def collected(files: Iterable[str]) -> set[str]:
    """The tests that pytest finds in some files, asked of another run."""
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout[-2000:]
    return {line.partition("[")[0].strip() for line in told.stdout.splitlines() if "::" in line}


@pytest.mark.slow
def test_pytest_collects_every_named_test(request: pytest.FixtureRequest) -> None:
    """What the syntax tree says, asked of pytest itself: of this run, as far as it has seen the files."""
    named = {test for row in ROWS for test in row.tests()}
    here = request.config.stash[COLLECTED]
    others = {test.partition("::")[0] for test in named} - {test.partition("::")[0] for test in here}
    assert sorted(named - here - (collected(sorted(others)) if others else set())) == []


# ── The judge ────────────────────────────────────────────────────────────────────────────────────────────────────────

GOOD = Row(
    "S1.36",
    "retries",
    "`embedded.rules.delivery.pop:choose`",
    "`tests/test_mechanisms.py::test_every_id_of_the_lists_has_one_row`",
)


def test_a_good_row_is_not_a_complaint() -> None:
    assert list(complaints(GOOD)) == []
    assert list(complaints(GOOD._replace(where="no place", test="one node: there is no other one"))) == []
    assert rows("| " + " | ".join(GOOD) + " |") == [GOOD]


@pytest.mark.parametrize(
    "bad",
    [
        GOOD._replace(where="`nowhere:choose`"),
        GOOD._replace(where="`delivery.pop:nothing`"),
        GOOD._replace(where="`delivery.pick:Pick.nothing`"),
        GOOD._replace(where="`pop`"),
        GOOD._replace(where="in the pop"),
        GOOD._replace(test="`tests/test_nowhere.py::test_it`"),
        GOOD._replace(test="`tests/test_mechanisms.py::test_it`"),
        GOOD._replace(test="`tests/test_mechanisms.py::complaints`"),
        GOOD._replace(test="`tests/polyglot/test_polyglot.py::test_it`"),
        GOOD._replace(test="seen by eye"),
        GOOD._replace(where="no place", test="legacy"),
        GOOD._replace(id="D.01", where="no place", test="it cannot happen on a single node"),
    ],
    ids=lambda row: " ".join(row[2:]),
)
def test_a_bad_row_is_a_complaint(bad: Row) -> None:
    assert list(complaints(bad))


def test_a_missing_id_a_double_one_and_an_unknown_one_are_noticed() -> None:
    assert missing_or_twice([*IDS[1:], IDS[5], "S9.01"]) == sorted([IDS[0], IDS[5], "S9.01"])


def test_a_test_that_may_be_skipped_is_noticed(tmp_path: Path) -> None:
    for number, text in enumerate(
        [
            "@pytest.mark.skipif(True, reason='')\ndef test_it(): ...",
            "pytestmark = pytest.mark.skip\ndef test_it(): ...",
            "def test_it():\n    pytest.importorskip('x')",
        ]
    ):
        path = tmp_path / f"test_{number}.py"
        path.write_text(text)
        assert "skipped" in unusable_test(f"{path}::test_it")
