"""The walks of the README's "Reading the source": each arrow leads somewhere.

A → B   the file of A calls B
A ⇢ B   the file of A runs a command, and the writer's tables of handlers name B
A ⇒ B   later: B exists
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.sources import ROOT, tree_of

FILES_MAX = 7
HANDLERS = sorted((ROOT / "server" / "popmq_server" / "writer").glob("*.py"))
#: How a command is given to the engine, also by the broker itself.
RUNS = {"execute", "_execute"}
#: A linked name, an arrow, or the end of a chain.
TOKEN = re.compile(r"\[`[^`:\]]+(?::([\w.]+))?`\]\(([^)#]+)\)|([→⇢⇒])|( · |[\n|])")
DEFINITION = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Stop(NamedTuple):
    """A name in a file: `Core.run` in core.py."""

    path: str
    name: str

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]


class Step(NamedTuple):
    source: Stop
    arrow: str
    target: Stop


def steps(text: str) -> Iterator[Step]:
    """The arrows between two links."""
    source, arrow = None, ""
    for match in TOKEN.finditer(text):
        if match[4]:
            source, arrow = None, ""
        elif match[3]:
            arrow = match[3]
        else:
            target = Stop(match[2], match[1] or "")
            if source and arrow:
                yield Step(source, arrow, target)
            source, arrow = target, ""


def called(tree: ast.AST) -> set[str]:
    """The last names of all that a file calls: `self.timetable.run(…)` is `run`, `HANDLERS[kind](…)` is itself."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            what = node.func.value if isinstance(node.func, ast.Subscript) else node.func
            found.add(ast.unparse(what).rpartition(".")[2])
    return found


def named(tree: ast.AST) -> set[str]:
    """All attributes that a file uses: `send.send` is `send`."""
    return {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}


def defined(tree: ast.Module) -> set[str]:
    """Functions and classes by their name, methods also with their class, and variables of the module."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, DEFINITION):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, DEFINITION)}
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names |= {ast.unparse(target) for target in targets}
    return names


def holds(step: Step) -> bool:
    """Whether the step is as its arrow says."""
    if step.target.name not in defined(tree_of(ROOT / step.target.path)):
        return False
    calls = called(tree_of(ROOT / step.source.path))
    if step.arrow == "→":
        return step.target.last in calls
    if step.arrow == "⇢":
        return bool(RUNS & calls) and any(step.target.last in named(tree_of(path)) for path in HANDLERS)
    return True


def section() -> str:
    return (ROOT / "README.md").read_text().partition("\n## Reading the source\n")[2].partition("\n## ")[0]


def test_each_arrow_of_the_walks_is_a_call() -> None:
    found = list(steps(section()))
    assert len(found) > 40
    assert [step for step in found if not holds(step)] == []


def test_a_walk_passes_through_seven_files_at_most() -> None:
    rows = [row for row in section().splitlines() if row.startswith("| ") and "[`" in row]
    assert len(rows) > 10
    files = {row.split("|")[1].strip(): {match[2] for match in TOKEN.finditer(row) if match[2]} for row in rows}
    assert {act: len(paths) for act, paths in files.items() if len(paths) > FILES_MAX} == {}


SEND, LEASE = "server/popmq_server/sending/send.py", "server/popmq_server/delivery/lease.py"


@pytest.mark.parametrize(
    ("arrow", "target", "true"),
    [
        ("→", f"[`send.py:_stored`]({SEND})", True),
        ("→", f"[`lease.py:ack`]({LEASE})", False),  # send.py does not call it
        ("→", f"[`send.py:sent`]({SEND})", False),  # there is no such function
        ("⇢", f"[`lease.py:ack`]({LEASE})", False),  # send.py runs no command
        ("⇒", f"[`lease.py:ack`]({LEASE})", True),
    ],
)
def test_a_wrong_arrow_is_noticed(arrow: str, target: str, true: bool) -> None:
    (step,) = steps(f"[`send.py:send`]({SEND}) {arrow} then {target} · [`lease.py:find`]({LEASE})")
    assert holds(step) is true


def test_a_chain_ends_at_a_dot_and_at_a_cell() -> None:
    assert (
        list(steps(f"→ [`send.py:send`]({Path(SEND)}) · [`lease.py:ack`]({LEASE}) | [`lease.py:find`]({LEASE})")) == []
    )
