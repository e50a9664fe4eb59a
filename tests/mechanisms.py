"""The rows of mechanisms.md, and which tests may stand in them."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "contributing" / "mechanisms.md"
ROW = re.compile(r"^\| ([SDIHC]\d*\.\d\d) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
QUOTED = re.compile(r"`([^`]+)`")
#: The tests that this run of pytest has collected, including those that it deselects.
COLLECTED = pytest.StashKey[set[str]]()
SKIPPED = re.compile(r"pytest\.(?:mark\.)?(?:skip|skipif|xfail|importorskip|polyglot)\b")


class Row(NamedTuple):
    """A line of the tables."""

    id: str
    what: str
    where: str
    test: str

    @property
    def has_a_place(self) -> bool:
        return self.where != "no place"

    def tests(self) -> list[str]:
        return QUOTED.findall(self.test) if self.has_a_place else []

    def places(self) -> list[str]:
        return QUOTED.findall(self.where) if self.has_a_place else []


def rows(text: str) -> list[Row]:
    return [Row(*cells) for cells in ROW.findall(text)]


@cache
def functions(path: Path) -> dict[str, list[str]]:
    """Name → decorators and calls of each test of a file; under "" the marks that apply to the whole file."""
    tree = ast.parse(path.read_text())
    found = {
        "": [
            ast.unparse(node)
            for node in tree.body
            if isinstance(node, ast.Assign) and "pytestmark" in ast.unparse(node)
        ]
    }
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            calls = [ast.unparse(child.func) for child in ast.walk(node) if isinstance(child, ast.Call)]
            found[node.name] = [*map(ast.unparse, node.decorator_list), *calls]
    return found


def unusable_test(test: str) -> str:
    """Why a test cannot stand in a row: it does not exist, or does not run everywhere; "" if it can."""
    name, _, function = test.partition("::")
    path = ROOT / name
    if not path.exists() or not function.startswith("test_"):
        return f"{test}: no such file, or no test"
    found = functions(path)
    if function not in found:
        return f"{test}: {name} has no such test"
    marks = " ".join([*found[""], *found[function]])
    return f"{test} may be skipped" if SKIPPED.search(marks) else ""


ROWS = rows(PAGE.read_text())
