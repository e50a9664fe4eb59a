"""The last commits: a subject that one line of a log can show, and a body that says why.

Without a history (an archive, a copy of the tree, a shallow clone) there is nothing to test.
"""

import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.sources import ROOT

#: The commits up to this one are older than the rule.
EXEMPT = "d4c6f6e3db6422b400a7e7101229017a4024bd8a"
COMMITS = 60
SUBJECT_MAX = 72
#: Words of the shortest sentence that gives a reason.
BODY_WORDS_MIN = 5


class Commit(NamedTuple):
    """A commit as its author wrote it."""

    subject: str
    body: str


def commits(tree: Path) -> list[Commit] | None:
    """The last COMMITS after EXEMPT; None where the history of this tree is not at hand."""
    asked = ["git", "-C", str(tree), "log", f"-{COMMITS}", "--no-merges", "--format=%s%x00%b%x01", f"{EXEMPT}..HEAD"]
    try:
        log = subprocess.run(asked, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    if log.returncode:
        return None
    return [Commit(*entry.strip().split("\0")) for entry in log.stdout.split("\1") if entry.strip()]


def faults(commit: Commit) -> list[str]:
    """What a reader of the log misses."""
    found = []
    if len(commit.subject) > SUBJECT_MAX:
        found.append(f"{len(commit.subject)} characters, at most {SUBJECT_MAX}")
    if len(commit.body.split()) < BODY_WORDS_MIN:
        found.append("no sentence that says why")
    return found


def test_each_commit_has_a_short_subject_and_says_why() -> None:
    written = commits(ROOT)
    if written is None:
        pytest.skip("there is no history to read")
    assert {commit.subject: found for commit in written if (found := faults(commit))} == {}


@pytest.mark.parametrize(
    ("subject", "body", "found"),
    [
        ("pop: a batch ends at its bytes", "A client asked for them and got more.", []),
        ("pop: a batch ends at its bytes", "", ["no sentence that says why"]),
        ("pop: a batch ends at its bytes", "A fix.", ["no sentence that says why"]),
        ("x" * 72, "A client asked for them and got more.", []),
        ("x" * 73, "A client asked for them and got more.", ["73 characters, at most 72"]),
    ],
)
def test_a_fault_of_a_commit_is_noticed(subject: str, body: str, found: list[str]) -> None:
    assert faults(Commit(subject, body)) == found


def test_a_tree_without_a_history_is_noticed(tmp_path: Path) -> None:
    assert commits(tmp_path) is None
