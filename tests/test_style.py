"""The form of the code in numbers, within the ranges of well-known code bases: a lower limit, not the goal."""

import ast
import re
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.sources import tree_of

ROOT = Path(__file__).parent.parent
ROOMS = (
    "server/popmq_server",
    "http2/popmq_http2",
    "remoting/popmq_remoting",
    "server/popmq_verify",
    "sdk/popmq",
    "sdk/popmq_cli",
    "sdk/popmq_console",
    "spark_connector/popmq_spark",
)
VAGUE = re.compile(r"(?:^|_)(?:utils?|helpers?|common|misc|manager)$|(?:Manager|Helper|Utils?)$")

#: A sentence that was true of a module until it moved into a package of the wheel.
NOT_IN_THE_WHEEL = re.compile(r"(?i)\bnot (?:part of|in)\s+the\s+wheel\b")

#: A rule of the type checker that is switched off, with its code and a reason.
IGNORED = re.compile(r"# type: ignore\b(?!\[[\w, -]+\]  # \w)")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def functions(tree: ast.AST) -> Iterator[Function]:
    yield from (node for node in ast.walk(tree) if isinstance(node, Function))


def sleeps_outside_a_loop(tree: ast.AST) -> Iterator[int]:
    """Lines that sleep for time to pass. Inside `while` a sleep may be the pause between two looks at a condition."""
    waiting = {id(child) for loop in ast.walk(tree) if isinstance(loop, ast.While) for child in ast.walk(loop)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".sleep") and id(node) not in waiting:
            nothing = [isinstance(given, ast.Constant) and given.value == 0 for given in node.args]
            if nothing != [True]:
                yield node.lineno


class Facts(NamedTuple):
    """What the tests ask of one file."""

    documented: bool
    classes: tuple[str, ...]
    tests: tuple[str, ...]
    sleeps: tuple[int, ...]


@cache
def facts(path: Path) -> Facts:
    tree = tree_of(path)
    return Facts(
        bool(ast.get_docstring(tree)),
        tuple(node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)),
        tuple(node.name for node in functions(tree) if node.name.startswith("test_")),
        tuple(sleeps_outside_a_loop(tree)) if ROOT / "tests" in path.parents else (),
    )


def test_every_module_says_what_it_is_for() -> None:
    silent = [path for path in sources(*ROOMS, "tests") if not facts(path).documented]
    assert silent == []


def misplaced(path: Path) -> bool:
    """Whether the docstring of a module says that the wheel does not have it."""
    return bool(NOT_IN_THE_WHEEL.search(ast.get_docstring(tree_of(path)) or ""))


def test_no_module_of_the_wheel_says_that_it_is_not_in_the_wheel() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert "server/popmq_verify" in wheel["packages"]
    assert [path for path in sources(*wheel["packages"]) if misplaced(path)] == []


def test_a_module_that_says_so_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "kills.py"
    path.write_text('"""Kills brokers. Not part of\nthe wheel."""\n')
    assert misplaced(path)


def test_names_say_what_a_thing_is() -> None:
    files = [path for path in sources(*ROOMS, "tests") if VAGUE.search(path.stem)]
    classes = [
        f"{path.name}:{name}" for path in sources(*ROOMS, "tests") for name in facts(path).classes if VAGUE.search(name)
    ]
    assert files + classes == []


def test_every_ignored_type_error_has_a_reason() -> None:
    lines = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in sources(*ROOMS, "harness", "bench", "scripts", "demo")
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
        # these folders are about.
        if "crash" not in path.parts and "interop" not in path.parts
        for line in facts(path).sleeps
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
