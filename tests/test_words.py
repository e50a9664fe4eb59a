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
from tests.sources import sources, tree_of


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
    Banned("given back", r"(?i)\bg(?:ives?|iven|ave) (?:it |them )?back\b(?! to the disk)", "release a message"),
    Banned("told", r"(?i)\b(?:is|are|was|were)(?: being)? told\b", "reported, returned, answered"),
    Banned("handed out", r"(?i)\bhand(?:s|ed)? out\b", "deliver"),
    Banned("deal out", r"(?i)\bdeals? (?:\w+ ){0,2}out\b|\bdealt\b", "assign queues"),
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


#: Identifiers with a second meaning, as (folder, what reads so), and the word to use.
IDENTIFIERS = (
    (
        "server/popmq_server/embedded/writer",
        r"_?group|_?(next|NEXT)_?(group|GROUP)|GROUP_(COMMANDS|BYTES|SHARE).*",
        "batch",
    ),
    ("server/popmq_server", r"_?(next_group|NEXT_GROUP)", "batch: a group is a consumer group"),
    ("server/popmq_server", r"token_ms|no_token", "quota: a token is an owner's"),
    ("server/popmq_server", r"(?i).*bur(y|ied|ial)(_.*)?", "dead letter"),
    ("server/popmq_server", r"(?i)(.*_)?hand(s|ed)?_?out", "deliver"),
    ("server/popmq_server", r"(?i)(.*_)?g(ive|iving|iven|ave)_?back", "release"),
    ("server/popmq_server/embedded/state", r"_?[Ll]ines?", "ready: message groups, or lite topics"),
    ("server/popmq_server/embedded/rules/delivery", r"_?[Ll]ines?", "ready: message groups"),
    ("server/popmq_server/embedded/rules/lite", r"_?[Ll]ines?", "ready: lite topics"),
    ("server/popmq_server/embedded/store/datafile", r"(?i)(.*_)?(un)?seal(s|ed)?", "checksum: a token's set is sealed"),
    ("server/popmq_server/embedded/store", r"(?i)(.*_)?(un)?seal(s|ed)?", "checksum: a token's set is sealed"),
    ("server/popmq_server/embedded/fsck", r"(?i)(.*_)?(un)?seal(s|ed)?", "checksum: a token's set is sealed"),
    ("sdk/popmq", r"(?i)(.*_)?hand(s|ed)?_?out", "deliver"),
    ("sdk/popmq", r"(?i)(.*_)?g(ive|iving|iven|ave)_?back", "release"),
    ("server/popmq_server/embedded/rules/operate", r"_?[Ll]ot", "page: a lot has the parked calls"),
    *(
        (f"server/popmq_server/{room}", r"(?i)(.*_)?waiting(_.*)?", "waiting is a message of a FIFO topic")
        for room in ("engine", "filters", "sending", "topics", "writer")
    ),
    ("server/popmq_server/embedded/loop", r"(?i)_?held_?pulls?", "parked"),
    ("sdk/popmq", r"(?i)_?(told|tell)(_.*)?", "sent, saved, reported, progress"),
    ("sdk/popmq_cli/readers", r"revive", "leases: the revive is what brings back expired ones"),
)


def identifiers(tree: ast.AST) -> set[str]:
    """The variables, parameters, functions, classes and own attributes that a module defines."""
    found = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                found.add(name)
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()):
                found.add(name)
    return found


def counts_places(tree: ast.AST) -> list[str]:
    """Loops that call an index a place: a Place is a queue and an offset."""
    loops = (node for node in ast.walk(tree) if isinstance(node, ast.For | ast.comprehension))
    return [
        ast.unparse(loop.iter)
        for loop in loops
        if ast.unparse(loop.iter).startswith("enumerate(") and ast.unparse(loop.target).strip("(").startswith("place,")
    ]


def test_identifiers_use_words_in_their_one_meaning() -> None:
    used = [
        f"{path.relative_to(ROOT)}: {name}: {instead}"
        for folder, pattern, instead in IDENTIFIERS
        for path in sources(folder)
        for name in sorted(identifiers(tree_of(path)))
        if re.fullmatch(pattern, name)
    ]
    assert used == []


def test_an_index_of_the_server_is_no_place() -> None:
    found = {str(path.relative_to(ROOT)): counts_places(tree_of(path)) for path in sources("server/popmq_server")}
    assert {path: loops for path, loops in found.items() if loops} == {}


@pytest.mark.parametrize("source", ["for place, a in enumerate(b): ...", "[place for place, (a, b) in enumerate(c)]"])
def test_an_index_that_is_called_a_place_is_noticed(source: str) -> None:
    assert len(counts_places(ast.parse(source))) == 1


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
        ("a waiting Pop, a message that waits", ["waiting Pop"]),
        ("Pulls held on a queue, a held pull, a parked Pull", ["held Pull"]),
        ("the broker is being told how it ended", ["told"]),
    ],
)
def test_a_second_meaning_is_noticed(text: str, words: list[str]) -> None:
    assert [banned.word for banned in BANNED if uses(banned, plain(text))] == words
