"""The table of invariants: each is compared somewhere, broken by a test, and shown by the page."""

import ast
from collections.abc import Iterator

import pytest

from popmq_server.embedded.invariants.broken import BrokenInvariant
from popmq_server.embedded.invariants.listed import BY_NAME, COUNTED, INVARIANTS, MENDED, STEP, STORED
from scripts import invariants
from tests.engine.invariants.every import CASES
from tests.engine.invariants.of_starts import STARTS
from tests.sources import ROOT, tree_of

EMBEDDED = ROOT / "server" / "popmq_server" / "embedded"


def compared() -> Iterator[tuple[str, str]]:
    """(name, place) of each comparison in the broker: the first argument of `broken`."""
    for path in sorted(EMBEDDED.rglob("*.py")):
        functions = ("broken", "_found") if path.name == "at_start.py" else ("broken",)
        yield from ((name, path.name) for name in names_in(tree_of(path), functions))


def names_in(tree: ast.AST, functions: tuple[str, ...]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in functions and node.args:
            yield str(node.args[0].value) if isinstance(node.args[0], ast.Constant) else ""


#: Chosen by the row in at_start.py: `_names`, `_counts` and `_topic_counts`.
CHOSEN = {"finished_counted"}


def test_each_comparison_names_an_invariant_and_each_invariant_is_compared() -> None:
    names = {name for name, _ in compared()} - {""}
    assert names | CHOSEN == set(BY_NAME)


def test_a_name_that_is_put_together_is_found_in_one_module_only() -> None:
    assert {place for name, place in compared() if not name} == {"at_start.py"}


def test_each_invariant_is_broken_by_a_test() -> None:
    assert {case.name for case in CASES} | {name for name, _ in STARTS} == set(BY_NAME)


def test_each_invariant_has_a_name_of_its_own_a_sentence_and_a_repair() -> None:
    assert len(BY_NAME) == len(INVARIANTS)
    assert len({one.sentence for one in INVARIANTS}) == len(INVARIANTS)
    assert {one.repair for one in INVARIANTS} == {COUNTED, MENDED, STEP, STORED}
    assert all(one.sentence[0].isupper() and one.sentence.endswith(".") for one in INVARIANTS)


def test_the_page_is_written_from_the_table() -> None:
    assert invariants.PAGE.read_text() == invariants.written(invariants.PAGE.read_text()), (
        "run python -m scripts.invariants"
    )


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(KeyError):
        BrokenInvariant("none", None, {})
