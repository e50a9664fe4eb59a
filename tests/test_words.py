"""One word for one thing: the second meanings and second words that the glossary of ARCHITECTURE.md rules out.

Code in backticks and code blocks are left out, since names of fields and metrics stay as they were released. Pages,
code (its docstrings, comments and messages), and the names of tests and of their helpers must be clean.
"""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.prose import COMMENT, ROOT, modules, pages
from tests.sources import tree_of


class Banned(NamedTuple):
    """A word in a sense that it does not have here, and the word to use."""

    word: str
    pattern: str
    instead: str


#: Leases and idle subscriptions expire.
OF_A_LEASE = r"(?<!lease )(?<!leases )(?<!lease has )(?<!lease had )(?<!subscription )(?<!subscriptions )"
EXPIRED = rf"(?i){OF_A_LEASE}\bexpired\b(?! (?:leases?|subscriptions?)\b)"
BANNED = (
    Banned("expired", EXPIRED, "retention drops messages; leases and subscriptions expire"),
    Banned("letter", r"(?i)(?<!dead )(?<!dead-)\bletters?\b(?!s?, (?:and )?digits)", "dead letter; a character"),
    Banned("check", r"(?i)\bchecks? (?:the |each |a |all )?(?:requests?|arguments?)\b", "validate a request"),
    Banned("bury", r"(?i)\b(?:buried|burials?|bur(?:y|ies))\b", "dead-letter a message"),
    Banned("commit group", r"(?i)\b(?:commit groups?|group of commands)\b", "commit batch"),
    Banned("nobody's", r"(?i)\bnobody's\b|\b(?:are|is) others'", "say who may have it"),
    Banned("what time", r"(?i)\bwhat time (?:asks|does|wants)\b", "periodic work"),
    Banned("given back", r"(?i)\bg[ai]ven? (?:it |them )?back\b(?! to the disk)", "release a message"),
    Banned("told", r"(?i)\b(?:is|are|was|were) told\b", "reported, returned, answered"),
    Banned("handed out", r"(?i)\bhand(?:s|ed)? out\b", "deliver"),
    Banned("deal out", r"(?i)\bdeals? (?:\w+ ){0,2}out\b|\bdealt\b", "assign queues"),
)
#: Folders whose Python files are read.
CODE = ("sdk", "server", "spark_connector", "bench", "demo", "examples", "harness", "scripts", "tests")
#: What this file has to say.
THIS = Path(__file__)


def plain(markdown: str) -> str:
    """Prose without its code blocks, code spans and link targets, in one line."""
    without = re.sub(r"```.*?```|`[^`\n]*`|\]\([^)]*\)", "`", markdown, flags=re.DOTALL)
    return " ".join(without.split())


@cache
def texts(path: Path) -> tuple[str, ...]:
    """Comments, docstrings and messages of a Python file: every string with a blank in it is taken for prose."""
    source = path.read_text()
    strings = (node.value for node in ast.walk(tree_of(path)) if isinstance(node, ast.Constant))
    said = (text for text in strings if isinstance(text, str) and " " in text)
    return tuple(plain(text) for text in (*COMMENT.findall(source), *said))


def uses(banned: Banned, text: str) -> list[str]:
    """The places in plain text."""
    return [match.group() for match in re.finditer(banned.pattern, text)]


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_uses_words_in_their_one_meaning(path: Path) -> None:
    text = plain(path.read_text())
    assert [f"{found!r}: {banned.instead}" for banned in BANNED for found in uses(banned, text)] == []


@pytest.mark.parametrize("banned", BANNED, ids=lambda banned: banned.word)
def test_code_uses_words_in_their_one_meaning(banned: Banned) -> None:
    files = [path for path in modules() if path.relative_to(ROOT).parts[0] in CODE and path != THIS]
    assert len(files) > 100
    found = [
        f"{path.relative_to(ROOT)}: {place!r}" for path in files for text in texts(path) for place in uses(banned, text)
    ]
    assert found == [], banned.instead


@cache
def names(path: Path) -> tuple[str, ...]:
    """The name of a file, and of its classes and functions, as words."""
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    found = [node.name for node in ast.walk(tree_of(path)) if isinstance(node, kinds)]
    return tuple(re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", name) for name in (path.stem, *found))


def test_names_of_tests_use_words_in_their_one_meaning() -> None:
    files = [path for path in modules() if path.relative_to(ROOT).parts[0] == "tests" and path != THIS]
    assert len(files) > 100
    used = [
        f"{path.relative_to(ROOT)}: {name!r}: {banned.instead}"
        for path in files
        for name in names(path)
        for banned in BANNED
        if uses(banned, name)
    ]
    assert used == []


def test_a_second_meaning_in_a_name_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "test_letters.py"
    path.write_text("class BuriedOnes: ...\n\n\ndef test_a_group_is_told() -> None: ...\n")
    assert [banned.word for name in names(path) for banned in BANNED if uses(banned, name)] == [
        "letter",
        "bury",
        "told",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the lease expired; an expired lease; retention dropped it", []),
        ("retention expired a message", ["expired"]),
        ("counted as `expired`", []),
        ("a dead letter, a dead-letter topic, letters, digits and `_`", []),
        ("the letter is marked", ["letter"]),
        ("the handler checks the request", ["check"]),
        ("the message is given back", ["given back"]),
    ],
)
def test_a_second_meaning_is_noticed(text: str, words: list[str]) -> None:
    assert [banned.word for banned in BANNED if uses(banned, plain(text))] == words
