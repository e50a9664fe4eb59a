"""What errors and messages tell their readers to do can be done: commands parse, and no hint names an RPC.

A command line to type stands alone, or behind ": ", and ends with its text or at ";". The name of a command inside a
sentence stands in backticks. Values that are filled in at run time count as a word, such as the name of a topic.
"""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from popmq_cli.commands import ROWS
from popmq_proto.v1 import popmq_pb2 as pb
from tests.prose import resolve, understand

ROOT = Path(__file__).parent.parent
FOLDERS = ("server/popmq_server", "sdk/popmq", "sdk/popmq_cli", "spark_connector/popmq_spark")
#: Stands for a value that is filled in at run time: a name and a number, a type of topic, a mode. One has to fit.
VALUE = "\N{WHITE SQUARE}"
VALUES = ("1", "fifo", "pull")
MENTION = re.compile(r"`popmq ([^`]*)`")
COMMAND = re.compile(rf"(?:^|: )popmq (?=(?:{'|'.join(ROWS)})\b)([^;]*?)(?: >>.*)?(?:;|\)?$)")
#: Calls of the contract whose names are no English words.
CALLS = {method.name for service in pb.DESCRIPTOR.services_by_name.values() for method in service.methods}
COMPOUND = re.compile(rf"\b(?:{'|'.join(name for name in CALLS if re.search('[a-z][A-Z]', name))})\b")


def text_of(node: ast.expr) -> str:
    """A string with VALUE where something is filled in; "" for what is no string."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(text_of(each) if isinstance(each, ast.Constant) else VALUE for each in node.values)
    return ""


def strings(tree: ast.AST) -> Iterator[str]:
    """All strings of a module that a user may read: not its docstrings, nor pieces of other strings."""
    silent = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    silent |= {id(each) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for each in node.values}
    silent |= {id(word.value) for word in ast.walk(tree) if isinstance(word, ast.keyword) and word.arg == "prog"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant | ast.JoinedStr) and id(node) not in silent:
            yield text_of(node)


def actions(tree: ast.AST) -> Iterator[str]:
    """The texts given as `action`, also those that a condition chooses."""
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword) and node.arg == "action":
            yield from strings(ast.Module([ast.Assign([], node.value)], []))


def trees(word: str) -> Iterator[ast.Module]:
    """The modules that have `word` in their text."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))]
    texts = [path.read_text() for path in paths if path.parent.name != "_sync"]
    return (ast.parse(text) for text in texts if word in text)


TEXTS = sorted({text for tree in trees("popmq ") for text in strings(tree) if re.search(r"\bpopmq [a-z]", text)})


def understood(line: str) -> bool:
    try:
        understand(shlex.split(line))
    except click.UsageError:
        return False
    return True


@pytest.mark.parametrize("text", TEXTS)
def test_a_command_in_a_text_parses_on_the_command_line(text: str) -> None:
    for mentioned in MENTION.findall(text):
        resolve(shlex.split(mentioned))
    for line in COMMAND.findall(text):
        assert any(understood(line.replace(VALUE, value)) for value in VALUES), line
    rest = COMMAND.sub("", MENTION.sub("", text))
    names = "|".join(ROWS)
    assert not re.search(rf"\bpopmq (?:{names})\b", rest), "neither alone, nor behind a colon, nor in backticks"


def test_a_command_that_does_not_parse_is_noticed() -> None:
    for line in ("popmq group update g --topic t --filter x", "see: popmq topic creat t", "popmq dlq show; then wait"):
        (found,) = COMMAND.findall(line) or [line.removeprefix("see: popmq ")]
        assert not understood(found)


def test_no_hint_names_a_call_of_the_contract() -> None:
    hints = {text for tree in trees("action=") for text in actions(tree)}
    assert len(hints) > 80
    assert sorted(hint for hint in hints if COMPOUND.search(hint)) == []


def test_no_sentence_of_why_names_a_call_of_the_contract() -> None:
    tree = ast.parse((ROOT / "server/popmq_server/embedded/rules/inspect" / "message_status.py").read_text())
    said = {text for text in strings(tree) if " " in text}
    assert len(said) > 30
    assert sorted(text for text in said if COMPOUND.search(text)) == []
