"""scripts/mutate.py: the changes that it makes, and whether a test noticed one."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from scripts import mutate
from scripts.mutate import Mechanism, mutants

SOURCE = '''
class Sum:
    """Adds."""

    def add(self, a, b):
        if a < 0:
            raise ValueError(a)
        self.last = a + b + 0
        return self.last


def other():
    return 1
'''
SMALL = Mechanism("S1.01", "two and two", (("server/popmq_server/sum.py", "add"),), ("tests/test_sum.py::test_sum",))


def test_each_statement_condition_comparison_and_number_of_a_function_is_changed_once() -> None:
    changes = [what for what, _ in mutants(SOURCE, "Sum.add")]
    assert changes == [
        "line 6: 'if a < 0: raise ValueError(a)' → 'if not a < 0: raise ValueError(a)'",
        "line 6: 'a < 0' → 'a <= 0'",
        "line 6: '0' → '1'",
        "line 8: '0' → '1'",
        "line 7: 'raise ValueError(a)' → 'pass'",
        "line 8: 'self.last = a + b + 0' → 'pass'",
        "line 9: 'return self.last' → 'pass'",
    ]
    texts = [text for _, text in mutants(SOURCE, "Sum")]
    assert len(set(texts)) == len(changes)
    assert all("def other():\n    return 1" in text and ast.parse(text) for text in texts)


def test_no_more_changes_than_the_limit_are_tried_and_they_are_spread() -> None:
    body = "".join(f"    f({number})\n" for number in range(100))
    lines = [what.partition(":")[0] for what, _ in mutants(f"def g():\n{body}", "g")]
    assert len(lines) <= mutate.CHANGES_MAX
    assert lines[-1] >= "line 80"


def test_a_name_that_is_no_function_is_an_error() -> None:
    with pytest.raises(LookupError, match=r"Sum\.subtract"):
        list(mutants(SOURCE, "Sum.subtract"))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with one function and tests of it."""
    for name, text in {
        "server/popmq_server/sum.py": "def add(a, b):\n    return a + b\n",
        "tests/test_sum.py": "import sys\nsys.path.append('server/popmq_server')\nfrom sum import add\n"
        "def test_sum(): assert add(2, 2) == 4\n"
        "def test_nothing(): add(2, 2)\n"
        "def test_wrong(): assert add(2, 2) == 5\n",
    }.items():
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return tmp_path / "tree"


@pytest.mark.slow
@pytest.mark.parametrize(("test", "verdict"), [("sum", "PASS"), ("nothing", "FAIL"), ("wrong", "ERROR")])
def test_a_noticed_change_differs_from_one_that_survives_and_from_an_error(tree: Path, test: str, verdict: str) -> None:
    before = (tree / SMALL.places[0][0]).read_text()
    outcome = mutate.try_one(tree, replace(SMALL, tests=(f"tests/test_sum.py::test_{test}",)))
    assert outcome.verdict == verdict
    assert (tree / SMALL.places[0][0]).read_text() == before


def test_a_copy_has_no_caches(tree: Path, tmp_path: Path) -> None:
    (tree / "server" / "__pycache__").mkdir()
    copy = mutate.copy_tree(tree, tmp_path / "copy")
    assert sorted(path.name for path in copy.rglob("*.py")) == ["sum.py", "test_sum.py"]
    assert list(copy.rglob("__pycache__")) == []
