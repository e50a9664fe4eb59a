"""Breaks the functions of the mechanisms one change at a time, and checks that the tests which bear their ids fail.

    make mutate                            every mechanism of docs/contributing/mechanisms.md
    python -m scripts.mutate S1.36 D.59    some of them

    mechanisms.md      a copy of the tree, in a temporary folder
    id, function ──▶ unchanged:  its tests pass
    id, tests        changed:    a statement is left out, a condition negated, a comparison or a number changed

A mechanism is proven as soon as one change of its function makes one of its tests fail; the changes that were tried
before are named, for those who want a closer test. The working tree is never touched. Exit code 1 when all changes of a
mechanism survive.
"""

import argparse
import ast
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from rich.console import Console
from rich.table import Table

from scripts.mechanisms import PAGE, rows, tests_of

ROOT = Path(__file__).parent.parent
#: Where the packages lie in the tree; these come first on the path of a test that runs in a copy.
ROOMS = ("proto", "http2", "remoting", "sdk", "server", "spark_connector")
#: The parts of the tree that tests need.
COPIED = (*ROOMS, "tests", "harness", "docs", "scripts", "bench", "demo", "pyproject.toml", "README.md", "Makefile")
#: Seconds after which a test that hangs has failed, and those that a whole run of tests may take.
HANGING_S, TESTS_S = 30, 180
WORKERS = 2
#: Changes that are tried for one mechanism.
CHANGES_MAX = 12
PASSED = 0  # the exit code of pytest

_OTHER = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
_FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


# ── Changes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def mutants(source: str, name: str) -> Iterator[tuple[str, str]]:
    """(what is changed, the whole source with it) of at most CHANGES_MAX changes of a function or class."""
    count = len(changes(ast.parse(source), name))
    for index in range(0, count, -(-count // CHANGES_MAX) or 1):
        tree = ast.parse(source)
        old, new = changes(tree, name)[index]
        told = " ".join(ast.unparse(old).split())
        what = f"line {old.lineno}: {told[:60]!r} → {' '.join(ast.unparse(new).split())[:60]!r}"
        yield what, ast.unparse(ast.fix_missing_locations(_Replace(old, new).visit(tree)))


def changes(tree: ast.Module, name: str) -> list[tuple[ast.expr | ast.stmt, ast.expr | ast.stmt]]:
    """(node, what it becomes) of a function or class: first the small changes, last the returns that are left out,
    which any test notices. Raises LookupError.
    """
    nodes = [node for node in ast.walk(defined(tree, name)) if isinstance(node, ast.expr | ast.stmt)]
    found = [(node, new) for node in nodes if (new := changed(node)) is not None]
    return sorted(found, key=lambda pair: (_size(pair), pair[0].lineno, pair[0].col_offset))


def _size(change: tuple[ast.AST, ast.AST]) -> int:
    old, new = change
    return 2 if isinstance(old, ast.Return) else 1 if isinstance(new, ast.Pass) else 0


def defined(tree: ast.Module, name: str) -> ast.AST:
    """The function, method or class of this dotted name. Raises LookupError."""
    found: ast.AST = tree
    for part in name.split("."):
        inner = [each for each in ast.walk(found) if isinstance(each, _FUNCTION | ast.ClassDef) and each.name == part]
        if not inner:
            raise LookupError(f"there is no function or class {name}")
        found = inner[0]
    return found


def changed(node: ast.AST) -> ast.expr | ast.stmt | None:
    """What a node becomes; None for one that stays as it is."""
    match node:
        case ast.Expr(value=ast.Constant()):  # a docstring
            return None
        case ast.Expr() | ast.Assign() | ast.AugAssign() | ast.Delete() | ast.Return() | ast.Raise():
            return ast.copy_location(ast.Pass(), node)
        case ast.If(test, body, orelse):
            return ast.copy_location(ast.If(ast.UnaryOp(ast.Not(), test), body, orelse), node)
        case ast.Compare(left, [op], right) if type(op) in _OTHER:
            return ast.copy_location(ast.Compare(left, [_OTHER[type(op)]()], right), node)
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return ast.copy_location(ast.Constant(number + 1), node)
    return None


class _Replace(ast.NodeTransformer):
    """Puts one node in the place of another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self._old, self._new = old, new

    def visit(self, node: ast.AST) -> ast.AST:
        return self._new if node is self._old else self.generic_visit(node)


# ── Mechanisms ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Mechanism:
    """A row of the page: what is changed, and who has to notice. `places`: (file, name) of its functions."""

    id: str
    what: str
    places: tuple[tuple[str, str], ...]
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """`verdict`: PASS when a test noticed a change. `survived`: the changes that none noticed."""

    mechanism: Mechanism
    verdict: str
    told: str
    survived: tuple[str, ...] = ()
    seconds: float = 0.0


def file_of(module: str, root: Path = ROOT) -> str:
    """The path of a module in the tree. Raises LookupError."""
    inside = (module if module.startswith("popmq") else f"popmq_server.{module}").replace(".", "/")
    for room in ROOMS:
        for path in (f"{room}/{inside}.py", f"{room}/{inside}/__init__.py"):
            if (root / path).exists():
                return path
    raise LookupError(f"there is no module {module}")


def mechanisms(page: str) -> Iterator[Mechanism]:
    """Those that have a place here."""
    tests = tests_of()
    for row in rows(page):
        places = (place.partition(":") for place in row.places)
        if row.has_a_place:
            yield Mechanism(
                row.id, row.what, tuple((file_of(module), name) for module, _, name in places), tuple(tests[row.id])
            )


def of_all(tree: Path, mechanism: Mechanism) -> Iterator[tuple[str, str, str]]:
    """(file, what is changed, its text with it) of all its functions, in turn."""
    for file, name in mechanism.places:
        try:
            yield from ((file, what, text) for what, text in mutants((tree / file).read_text(), name))
        except LookupError:
            continue  # a constant, or an attribute


# ── The runner ───────────────────────────────────────────────────────────────────────────────────────────────────────


def copy_tree(source: Path, target: Path) -> Path:
    """Without caches: a module that was compiled a moment ago would hide a change of the same length."""
    target.mkdir()
    for name in COPIED:
        path = source / name
        if path.is_dir():
            shutil.copytree(path, target / name, ignore=shutil.ignore_patterns("__pycache__", "results", "*.mdb"))
        elif path.exists():
            shutil.copy(path, target / name)
    return target


def pytest(tree: Path, tests: list[str], seconds: float) -> tuple[int, str]:
    """(exit code, output) of these tests in a copy; the code is -1 when they took too long."""
    rooms = os.pathsep.join(str(tree / room) for room in ROOMS)
    environment = os.environ | {"PYTHONPATH": rooms, "PYTHONDONTWRITEBYTECODE": "1"}
    options = ["-x", "-q", "--no-header", "--tb=line", "-p", "no:cacheprovider", f"--timeout={HANGING_S}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=tree,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return -1, output
    return process.returncode, output


def where_it_runs(tree: Path) -> str:
    """Which popmq_server a test in this copy would import."""
    rooms = os.pathsep.join(str(tree / room) for room in ROOMS)
    told = subprocess.run(
        [sys.executable, "-c", "import popmq_server; print(popmq_server.__file__)"],
        cwd=tree,
        env=os.environ | {"PYTHONPATH": rooms, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    return told.stdout.strip()


def try_one(tree: Path, mechanism: Mechanism) -> Outcome:
    """Makes one change after the other in the copy until a test notices one."""
    began, survived = monotonic(), list[str]()
    code, output = pytest(tree, list(mechanism.tests), TESTS_S)
    if code != PASSED:
        return Outcome(mechanism, "ERROR", f"its tests fail without a change: {output.strip()[-300:]}")
    for file, what, text in of_all(tree, mechanism):
        whole = (tree / file).read_text()
        try:
            (tree / file).write_text(text)
            code, _ = pytest(tree, list(mechanism.tests), TESTS_S)
        finally:
            (tree / file).write_text(whole)
        if code != PASSED:  # failed, hung, or could not even be imported
            return Outcome(mechanism, "PASS", what, tuple(survived), monotonic() - began)
        survived.append(what)
    return Outcome(mechanism, "FAIL", "no change was noticed", tuple(survived), monotonic() - began)


def try_all(trees: list[Path], chosen: list[Mechanism]) -> Iterator[Outcome]:
    """Outcomes in the order of the mechanisms; each worker has a copy of its own."""
    free: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for tree in trees:
        free.put(tree)

    def work(mechanism: Mechanism) -> Outcome:
        tree = free.get()
        try:
            return try_one(tree, mechanism)
        finally:
            free.put(tree)

    with ThreadPoolExecutor(len(trees)) as pool:
        yield from pool.map(work, chosen)


def run(console: Console, chosen: list[Mechanism], scratch: Path) -> list[Outcome]:
    """Tries the mechanisms and returns their outcomes; progress goes to the console."""
    trees = [copy_tree(ROOT, scratch / f"tree-{number}") for number in range(WORKERS)]
    if not Path(where_it_runs(trees[0])).is_relative_to(trees[0]):
        raise SystemExit(f"mutate: tests in a copy would import {where_it_runs(trees[0])}")
    outcomes, began = list[Outcome](), monotonic()
    for number, outcome in enumerate(try_all(trees, chosen), 1):
        outcomes.append(outcome)
        left_s = (monotonic() - began) / number * (len(chosen) - number)
        place = f"{number:>{len(str(len(chosen)))}}/{len(chosen)}, {left_s / 60:.0f} min left"
        line = f"mutate: {place}  {outcome.verdict}  {outcome.mechanism.id} {outcome.told}"
        console.print(line, style="dim" if outcome.verdict == "PASS" else "red", highlight=False, markup=False)
    return outcomes


def show(console: Console, outcomes: list[Outcome]) -> None:
    """Prints the mechanisms of which no change was noticed, each with the changes that were tried."""
    table = Table("mechanism", "what it does", "changes that its tests did not notice", title="Not noticed")
    for outcome in outcomes:
        if outcome.verdict != "PASS":
            survived = "\n".join(outcome.survived) or outcome.told
            table.add_row(outcome.mechanism.id, outcome.mechanism.what, survived)
    if table.row_count:
        console.print(table, markup=False)


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutate", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("ids", nargs="*", metavar="ID", help="only these mechanisms")
    wanted = parser.parse_args().ids
    chosen = [each for each in mechanisms(PAGE.read_text()) if not wanted or each.id in wanted]
    if not chosen:
        parser.error("no mechanism with a place has this id")
    console, began = Console(width=None if sys.stdout.isatty() else 150), monotonic()
    with tempfile.TemporaryDirectory(prefix="popmq-mutate-") as scratch:
        outcomes = run(console, chosen, Path(scratch))
    show(console, outcomes)
    noticed = sum(outcome.verdict == "PASS" for outcome in outcomes)
    verdict = "PASS" if noticed == len(outcomes) else "FAIL"
    console.print(f"{verdict}: {noticed} of {len(outcomes)} mechanisms are noticed, in {monotonic() - began:.0f} s")
    return 0 if verdict == "PASS" else 1


if __name__ == "__main__":
    sys.exit(main())
