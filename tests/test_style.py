"""The form of the code in numbers, within the ranges of well-known code bases: a lower limit, not the goal."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.sources import PACKAGES, ROOT, nodes, sources, tree_of

#: A rule of the type checker that is switched off, with its code and a reason.
IGNORED = re.compile(r"# type: ignore\b(?!\[[\w, -]+\]  # \w)")


def sleeps_outside_a_loop(tree: ast.AST) -> Iterator[int]:
    """Lines that sleep for time to pass. Inside `while` a sleep may be the pause between two looks at a condition."""
    waiting = {id(child) for loop in nodes(tree) if isinstance(loop, ast.While) for child in ast.walk(loop)}
    for node in nodes(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "sleep" and id(node) not in waiting:
            nothing = [isinstance(given, ast.Constant) and given.value == 0 for given in node.args]
            if nothing != [True]:
                yield node.lineno


def test_every_ignored_type_error_has_a_reason() -> None:
    lines = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources(*PACKAGES, "harness", "bench", "scripts", "demo")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if IGNORED.search(line)
    ]
    assert lines == []


@pytest.mark.parametrize("line", ["x = f()  # type: ignore", "x = f()  # type: ignore[misc]"])
def test_an_ignored_type_without_a_reason_is_noticed(line: str) -> None:
    assert IGNORED.search(line)
    assert not IGNORED.search(f"{line.removesuffix('[misc]')}[misc]  # f has no types")


def test_no_test_sleeps_for_time_to_pass() -> None:
    sleepers = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sources("tests")
        # A kill at a random moment of a real process, or what a client in another process does with its time, is what
        # these folders are about; the time of `simulated` is virtual.
        if not {"crash", "interop", "chaos", "simulated"} & {*path.parts}
        for line in sleeps_outside_a_loop(tree_of(path))
    ]
    assert sleepers == []


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        ("time.sleep(1)", [1]),
        ("await asyncio.sleep(pause)", [1]),
        ("await asyncio.sleep(0)", []),
        ("while not ready():\n    time.sleep(0.01)", []),
    ],
)
def test_a_sleep_differs_from_a_wait(code: str, lines: list[int]) -> None:
    assert list(sleeps_outside_a_loop(ast.parse(code))) == lines
