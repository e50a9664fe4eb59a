"""scripts/mutate.py: every mutation still fits the source, and the runner tells who noticed from who did not."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from scripts import mutate
from scripts.mutate import CannotMutate, Mutation
from tests.mechanisms import ROWS, unusable_test

ROOT = Path(__file__).parent.parent
ALL = mutate.mutations()


@pytest.mark.parametrize("mutation", ALL, ids=lambda mutation: f"{mutation.id} {mutation.what}")
def test_a_mutation_fits_the_source(mutation: Mutation) -> None:
    changed = mutation.applied(ROOT)
    assert ast.dump(ast.parse(changed)) != ast.dump(ast.parse((ROOT / mutation.file).read_text()))


@pytest.mark.parametrize("mutation", ALL, ids=lambda mutation: f"{mutation.id} {mutation.what}")
def test_the_test_that_has_to_notice_is_the_one_of_the_row(mutation: Mutation) -> None:
    rows = [row for row in ROWS if row.id == mutation.id]
    assert [mutation.test in row.tests() for row in rows] == [True] or mutation.id.startswith(f"{CODE}.")
    assert unusable_test(mutation.test) == ""


@pytest.mark.parametrize("mutation", ALL, ids=lambda mutation: f"{mutation.id} {mutation.what}")
def test_a_mutation_names_no_import(mutation: Mutation) -> None:
    """A module that moves takes its mutations along when their `file` is changed, and nothing else."""
    assert not re.search(r"^(from|import) |popmq_server\.", mutation.old, re.MULTILINE)


#: The family of mutations of code that no row names.
CODE = "code"


@pytest.mark.parametrize("family", sorted({row.id.partition(".")[0] for row in ROWS}))
def test_every_mechanism_is_broken_once(family: str) -> None:
    """A mechanism that no change breaks has a test that shows nothing: the row is not proven."""
    broken = [mutation.id for mutation in ALL if mutation.id.startswith(f"{family}.")]
    assert sorted(broken) == [row.id for row in ROWS if row.id.startswith(f"{family}.") and row.has_a_place]


def test_mutations_that_belong_to_no_mechanism_have_ids_of_their_own() -> None:
    own = {mutation.id for mutation in ALL} - {row.id for row in ROWS}
    assert len({mutation.id for mutation in ALL}) == len(ALL)
    assert len(own) >= 5
    assert {id.partition(".")[0] for id in own} == {CODE}


# ── A share of them ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_share_is_the_same_whenever_it_is_asked_for_and_all_shares_are_everything_once() -> None:
    parts = mutate.parts(ALL)
    days = [mutate.share(ALL, 20_000 + day) for day in range(parts)]
    assert sorted(one.id for chosen in days for one in chosen) == sorted(one.id for one in ALL)
    assert max(map(len, days)) <= mutate.SHARE
    assert mutate.share(ALL, 20_000 + parts) == days[0] == mutate.share(ALL[::-1], 20_000)


def test_the_day_of_a_tree_is_that_of_its_commit_or_else_today(tmp_path: Path) -> None:
    assert mutate.day_of(tmp_path) == int(time.time()) // mutate.DAY_S
    for how in ("init -q", "-c user.name=a -c user.email=b commit -q --allow-empty -m x --date=2020-01-01T00:00Z"):
        environment = os.environ | {"GIT_COMMITTER_DATE": "2020-01-02T03:04:05Z"}
        subprocess.run(["git", *how.split()], cwd=tmp_path, env=environment, check=True)
    assert mutate.day_of(tmp_path) == 18_263


# ── The runner ───────────────────────────────────────────────────────────────────────────────────────────────────────

SMALL = Mutation("S1.01", "two and two", "server/sum.py", "a + b", "a - b", "tests/test_sum.py::test_sum")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with one function and one test of it."""
    for name, text in {
        "server/sum.py": "def add(a, b):\n    return a + b\n",
        "tests/test_sum.py": "from sum import add\n"
        "def test_sum(): assert add(2, 2) == 4\n"
        "def test_zero(): assert add(2, 0) == 2\n",
    }.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return tmp_path / "tree"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mutation", "verdict"),
    [
        (SMALL, "PASS"),
        (replace(SMALL, test="tests/test_sum.py::test_zero"), "FAIL"),
        (replace(SMALL, new="a +"), "ERROR"),
        (replace(SMALL, test="tests/test_sum.py::test_nothing"), "ERROR"),
        (replace(SMALL, old="a * b"), "ERROR"),
    ],
    ids=["noticed", "survived", "not even imported", "no such test", "old text gone"],
)
def test_a_noticed_mutation_differs_from_a_surviving_one_and_an_error(
    tree: Path, mutation: Mutation, verdict: str
) -> None:
    before = (tree / SMALL.file).read_text()
    assert mutate.try_one(tree, mutation).verdict == verdict
    assert (tree / SMALL.file).read_text() == before


@pytest.mark.slow
def test_a_test_that_fails_without_a_change_proves_nothing(tree: Path) -> None:
    (tree / SMALL.file).write_text("def add(a, b):\n    return 5\n")
    assert list(mutate.failing_unchanged(tree, [SMALL])) == [SMALL.test]


def test_a_text_that_is_missing_or_occurs_twice_is_an_error(tree: Path) -> None:
    with pytest.raises(CannotMutate, match=r"0 times instead of once: 'a \* b'"):
        replace(SMALL, old="a * b").applied(tree)
    with pytest.raises(CannotMutate, match="3 times instead of once"):
        replace(SMALL, old="a").applied(tree)
    with pytest.raises(CannotMutate, match="gone"):
        replace(SMALL, file="server/none.py").applied(tree)


def test_a_copy_has_no_caches(tree: Path, tmp_path: Path) -> None:
    (tree / "server" / "__pycache__").mkdir()
    copy = mutate.copy_tree(tree, tmp_path / "copy")
    assert sorted(path.name for path in copy.rglob("*.py")) == ["sum.py", "test_sum.py"]
    assert list(copy.rglob("__pycache__")) == []
