"""Writes the tests of each mechanism into docs/contributing/mechanisms.md: those that bear its id.

    @pytest.mark.mechanism("S1.42")     on a test; the page names the test in the row of S1.42
    python -m scripts.mechanisms        writes the last column of the page anew

The other columns are written by hand: the id, the mechanism, and `module:function` of the server (or of the SDK, where
it begins with `popmq`).
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "contributing" / "mechanisms.md"
ROW = re.compile(r"^\| ([SDIHC]\d*\.\d\d) \| ([^|]+) \| ([^|]+) \| ([^|]*) \|$", re.MULTILINE)
QUOTED = re.compile(r"`([^`]+)`")
NO_PLACE = "no place"


class Row(NamedTuple):
    """A mechanism. `tests`: why it has no place here, for one that has none."""

    id: str
    what: str
    where: str
    tests: str

    @property
    def has_a_place(self) -> bool:
        return self.where != NO_PLACE

    @property
    def places(self) -> list[str]:
        return QUOTED.findall(self.where) if self.has_a_place else []


def rows(page: str) -> list[Row]:
    return [Row(*cells) for cells in ROW.findall(page)]


def ids_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """The mechanisms whose mark a test bears."""
    marks = [node for node in function.decorator_list if isinstance(node, ast.Call)]
    named = [mark.args for mark in marks if ast.unparse(mark.func) == "pytest.mark.mechanism"]
    return [ast.literal_eval(argument) for arguments in named for argument in arguments]


def marked(folder: Path = ROOT / "tests") -> Iterator[tuple[str, str]]:
    """(id, test as pytest takes it) of each mark, by the names of the files."""
    for path in sorted(folder.rglob("test_*.py")):
        text = path.read_text()
        if "pytest.mark.mechanism(" not in text:
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                test = f"{path.relative_to(folder.parent).as_posix()}::{node.name}"
                yield from ((id, test) for id in ids_of(node))


def tests_of() -> dict[str, list[str]]:
    """The tests of each mechanism."""
    found: dict[str, list[str]] = {}
    for id, test in marked():
        found.setdefault(id, []).append(test)
    return found


def written(page: str) -> str:
    """The page with the tests of each row."""
    tests = tests_of()

    def whole(match: re.Match[str]) -> str:
        row = Row(*match.groups())
        if not row.has_a_place:
            return match.group()
        return f"| {row.id} | {row.what} | {row.where} | {', '.join(f'`{test}`' for test in tests.get(row.id, []))} |"

    return ROW.sub(whole, page)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
    sys.stdout.write(f"mechanisms: {PAGE.relative_to(ROOT)} is written\n")
