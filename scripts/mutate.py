"""Breaks the mechanisms of the broker one by one, and checks that the test which mechanisms.md names for it fails.

    make mutate-mechanisms                           all of scripts/mutations
    python scripts/mutate.py --only S1.36 D.59       some of them
    python scripts/mutate.py --share                 the share of the day of the last commit: make test
    python scripts/mutate.py --share 20779           the share of that day, counted from 1970

             mutations/*.toml               a copy of the tree, in a temporary folder
    id, file, old → new, test ──▶ unchanged: every named test passes
                                  changed:   the named test fails, else nothing tests the mechanism

The working tree is never touched. Exit code 1 when a test passes in spite of its change, or a change cannot be made:
`old` must be in the file exactly once.
"""

import argparse
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, time

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parent.parent
#: A file for each section of the page.
MUTATIONS = ROOT / "scripts" / "mutations"
#: Where the packages lie in the tree; these come first on the path of a test that runs in a copy.
ROOMS = ("proto", "http2", "sdk", "server", "spark_connector")
#: The parts of the tree that tests need.
COPIED = (*ROOMS, "tests", "harness", "docs", "scripts", "bench", "demo", "pyproject.toml", "README.md", "Makefile")
#: Seconds after which a test that hangs has failed, and those that its whole run may take.
HANGING_S, TEST_S = 30, 90
WORKERS = 2
#: Mutations in one share: with the run of their tests without a change, at most 25 s of CPU; pytest starts in 4 s.
SHARE = 3
DAY_S = 86_400
PASSED, FAILED = 0, 1  # exit codes of pytest; the others say that nothing was tested


class CannotMutate(Exception):
    """The change does not fit the source any more."""


@dataclass(frozen=True)
class Mutation:
    """One small change that breaks one mechanism. `test`: who must notice."""

    id: str
    what: str  # is broken
    file: str
    old: str
    new: str
    test: str

    def applied(self, tree: Path) -> str:
        """The text of the file with the change. Raises CannotMutate."""
        path = tree / self.file
        if not path.exists():
            raise CannotMutate(f"{self.id}: {self.file} is gone")
        text = path.read_text()
        if (count := text.count(self.old)) != 1:
            raise CannotMutate(f"{self.id}: {self.file} has this {count} times instead of once: {self.old.strip()!r}")
        return text.replace(self.old, self.new)


@dataclass(frozen=True)
class Outcome:
    """`verdict`: PASS when the test noticed."""

    mutation: Mutation
    verdict: str
    told: str
    seconds: float = 0.0


def mutations(folder: Path = MUTATIONS) -> list[Mutation]:
    files = sorted(folder.glob("*.toml"))
    return [Mutation(**fields) for path in files for fields in tomllib.loads(path.read_text())["mutation"]]


def parts(all_: list[Mutation]) -> int:
    """The number of shares that all mutations are divided into."""
    return -(-len(all_) // SHARE)


def share(all_: list[Mutation], day: int) -> list[Mutation]:
    """The mutations of a day. Each day takes some of every section; after `parts` days all have been run."""
    return sorted(all_, key=lambda one: one.id)[day % parts(all_) :: parts(all_)]


def day_of(tree: Path) -> int:
    """The day of the last commit, so that a tree has the same share whenever it is tested; outside git today."""
    asked = ["git", "-C", str(tree), "log", "-1", "--format=%ct"]
    told = subprocess.run(asked, capture_output=True, text=True, check=False).stdout.strip()
    return int(told or time()) // DAY_S


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
        [sys.executable, "-m", "pytest", *(options if len(tests) == 1 else options[1:]), *tests],
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


def failing_unchanged(tree: Path, chosen: list[Mutation]) -> dict[str, str]:
    """Tests that fail in an unchanged copy, and the end of their output: they say nothing about a change."""
    tests = sorted({mutation.test for mutation in chosen})
    code, output = pytest(tree, tests, TEST_S * len(tests))
    if code not in (PASSED, FAILED):
        raise SystemExit(f"{output}\nmutate: the tests cannot even be run without a change")
    alone = {test: pytest(tree, [test], TEST_S) for test in tests if code == FAILED}
    return {test: output.strip()[-500:] for test, (code, output) in alone.items() if code != PASSED}


def try_one(tree: Path, mutation: Mutation) -> Outcome:
    """Changes the copy, runs the test, and changes it back."""
    began = monotonic()
    path = tree / mutation.file
    try:
        changed = mutation.applied(tree)
    except CannotMutate as error:
        return Outcome(mutation, "ERROR", str(error))
    whole = path.read_text()
    try:
        path.write_text(changed)
        code, output = pytest(tree, [mutation.test], TEST_S)
    finally:
        path.write_text(whole)
    seconds = monotonic() - began
    if code == FAILED:
        return Outcome(mutation, "PASS", "the test fails", seconds)
    if code == PASSED:
        return Outcome(mutation, "FAIL", "survived: the test passes all the same", seconds)
    last = output.strip().splitlines()[-1:] or ["nothing was said"]
    return Outcome(
        mutation, "ERROR", "it took too long" if code < 0 else f"pytest ended with {code}: {last[0]}", seconds
    )


def try_all(trees: list[Path], chosen: list[Mutation]) -> Iterator[Outcome]:
    """Outcomes in the order in which they are ready; each worker has a copy of its own."""
    free: queue.SimpleQueue[Path] = queue.SimpleQueue()
    for tree in trees:
        free.put(tree)

    def work(mutation: Mutation) -> Outcome:
        tree = free.get()
        try:
            return try_one(tree, mutation)
        finally:
            free.put(tree)

    with ThreadPoolExecutor(len(trees)) as pool:
        yield from pool.map(work, chosen)


def show(console: Console, outcomes: list[Outcome]) -> None:
    """Prints how many of each section were noticed, and a row for each that was not."""
    sections = Table("section", "noticed", "of", "s", title="Mutations")
    for name in sorted({outcome.mutation.id.partition(".")[0] for outcome in outcomes}):
        rows = [outcome for outcome in outcomes if outcome.mutation.id.startswith(f"{name}.")]
        noticed = sum(row.verdict == "PASS" for row in rows)
        sections.add_row(name, str(noticed), str(len(rows)), f"{sum(row.seconds for row in rows):.0f}")
    console.print(sections)
    survivors = [outcome for outcome in outcomes if outcome.verdict != "PASS"]
    table = Table("mutation", "what was broken", "the test that has to notice", "what happened", title="Not noticed")
    for outcome in survivors:
        mutation = outcome.mutation
        place, told = mutation.test.replace("::", "\n"), f"{outcome.verdict}: {outcome.told}"
        table.add_row(mutation.id, mutation.what, place, f"[red]{told}[/]")
    if survivors:
        console.print(table)


def run(console: Console, chosen: list[Mutation], scratch: Path) -> list[Outcome]:
    """Runs the mutations and returns their outcomes; progress goes to the console."""
    trees = [copy_tree(ROOT, scratch / f"tree-{number}") for number in range(WORKERS)]
    if not Path(where_it_runs(trees[0])).is_relative_to(trees[0]):
        raise SystemExit(f"mutate: tests in a copy would import {where_it_runs(trees[0])}")
    console.print(f"mutate: {len(chosen)} named tests without a change …", style="dim")
    broken = failing_unchanged(trees[0], chosen)
    for test, told in broken.items():
        console.print(f"mutate: {test} fails without a change\n{told}", style="red", highlight=False, markup=False)
    outcomes = [
        Outcome(mutation, "ERROR", "its test fails without the change")
        for mutation in chosen
        if mutation.test in broken
    ]
    sound, began = [mutation for mutation in chosen if mutation.test not in broken], monotonic()
    for number, outcome in enumerate(try_all(trees, sound), 1):
        outcomes.append(outcome)
        left_s = (monotonic() - began) / number * (len(sound) - number)
        place = f"{number:>{len(str(len(sound)))}}/{len(sound)}, {left_s / 60:.0f} min left"
        line = f"mutate: {place}  {outcome.verdict}  {outcome.mutation.id} {outcome.mutation.what}"
        console.print(line, style="dim" if outcome.verdict == "PASS" else "red", highlight=False, markup=False)
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(prog="mutate", description=(__doc__ or "").partition("\n")[0])
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--only", nargs="+", metavar="ID", help="only the mutations of these mechanisms")
    which.add_argument("--share", nargs="?", type=int, const=-1, metavar="DAY", help="only those whose turn it is")
    options = parser.parse_args()
    chosen = [one for one in mutations() if not options.only or one.id in options.only]
    if not chosen:
        parser.error("no mutation has this id")
    console = Console(width=None if sys.stdout.isatty() else 150)
    if options.share is not None:
        day, everything = options.share if options.share >= 0 else day_of(ROOT), len(chosen)
        chosen = share(chosen, day)
        which_ones = " ".join(one.id for one in chosen)
        console.print(f"mutate: {len(chosen)} of {everything}, those of day {day}: {which_ones}", highlight=False)
        console.print(f"mutate: again with: python scripts/mutate.py --share {day}", highlight=False)
    began = monotonic()
    with tempfile.TemporaryDirectory(prefix="popmq-mutate-") as scratch:
        outcomes = run(console, chosen, Path(scratch))
    show(console, outcomes)
    noticed = sum(outcome.verdict == "PASS" for outcome in outcomes)
    verdict = "PASS" if noticed == len(outcomes) else "FAIL"
    console.print(f"{verdict}: {noticed} of {len(outcomes)} were noticed, in {monotonic() - began:.0f} s")
    return 0 if verdict == "PASS" else 1


if __name__ == "__main__":
    sys.exit(main())
