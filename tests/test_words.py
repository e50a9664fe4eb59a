"""One word for one thing: the second meanings and second words that docs/contributing/glossary.md rules out.

Code in backticks and code blocks are left out. Pages, and the docstrings, comments and messages of code must be clean.
"""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.prose import COMMENT, modules, pages
from tests.sources import ROOT, nodes, tree_of


class Banned(NamedTuple):
    """A word in a sense that it does not have here, and the word to use."""

    word: str
    pattern: str
    instead: str


#: Leases, idle subscriptions, and messages with a ttl expire.
OF_A_LEASE = r"(?<!lease )(?<!leases )(?<!lease has )(?<!lease had )(?<!subscription )(?<!subscriptions )"
EXPIRED = rf"(?i){OF_A_LEASE}\bexpired\b(?! (?:leases?|subscriptions?|messages?)\b)"
BANNED = (
    Banned("expired", EXPIRED, "retention drops messages; leases, subscriptions, and messages with a ttl expire"),
    Banned("letter", r"(?i)(?<!dead )(?<!dead-)\bletters?\b(?!s?, (?:and )?digits)", "dead letter; a character"),
    Banned("check", r"(?i)\bchecks? (?:the |each |a |all )?(?:requests?|arguments?)\b", "validate a request"),
    Banned("commit group", r"(?i)\b(?:commit groups?|group of commands)\b", "commit batch"),
    Banned("waiting Pop", r"(?i)\bwaiting (?:pops?|pulls?)\b", "a parked Pop: waiting are messages"),
    Banned("held Pull", r"(?i)\bheld (?:pop|pull)s?\b|\bpulls? held\b", "a parked Pull, as a parked Pop"),
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
    strings = (node.value for node in nodes(tree_of(path)) if isinstance(node, ast.Constant))
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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("the lease expired; an expired lease; an expired message; retention dropped it", []),
        ("retention expired a message", ["expired"]),
        ("counted as `expired`", []),
        ("a dead letter, a dead-letter topic, letters, digits and `_`", []),
        ("the letter is marked", ["letter"]),
        ("the handler checks the request", ["check"]),
        ("a waiting Pop, a message that waits", ["waiting Pop"]),
        ("Pulls held on a queue, a held pull, a parked Pull", ["held Pull"]),
    ],
)
def test_a_second_meaning_is_noticed(text: str, words: list[str]) -> None:
    assert [banned.word for banned in BANNED if uses(banned, plain(text))] == words
