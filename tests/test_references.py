"""References in prose lead somewhere: `pick.py`, `lease.py:ack`, `turns.Turns`, docs/fifo.md.

Prose is the Markdown of the tree and, of Python, docstrings and comments. A file is found by the end of its path, so a
bare `pick.py` still resolves after the module moved into a package; a name must be defined in one of the files found.
A process is started by the name of a module too: `python -m popmq_server`.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.prose import modules, pages, prose, tracked
from tests.sources import EVERYTHING, ROOT, nodes, sources, statements, tree_of

#: `file.ext` or `file.ext:name`. Of other endings (`cert.pem`, `orders.jsonl`) the tree holds no file to point to.
FILE = re.compile(
    r"(?<![\w/.*{<-])((?:[\w-]+/)*[\w-]+(?<!_pb2)\.(?:py|md|proto|lark))\b(?![./]\w)(?::([A-Za-z_]\w*(?:\.\w+)*))?"
)
#: `module.name` in Python prose, where `module` is a module of the server.
DOTTED = re.compile(r"(?<![\w./`\"'])([a-z_]+)\.([A-Za-z_]\w*)\b(?!\.\w)")
#: Stems of server modules that are also everyday names of variables or fields: `message.body`, `popmq.mdb`.
VARIABLES = {
    "status",
    "message",
    "topic",
    "broker",
    "client",
    "popmq",
    "state",
    "lease",
    "filter",
    "lite",
    "backup",
    "server",
    "tag",
}
ENDINGS = {"py", "md", "proto", "lark", "toml", "txt"}
#: Programs of `python -m` that are not ours.
LIBRARIES = {"build", "ensurepip", "mypy", "pip", "pytest", "ruff", "twine", "venv"}


class Reference(NamedTuple):
    """Where prose names a file, and the name within it, if any."""

    place: str
    file: str
    name: str

    def __str__(self) -> str:
        return f"{self.place}: {self.file}{':' if self.name else ''}{self.name}"


@cache
def by_name() -> dict[str, list[str]]:
    paths: dict[str, list[str]] = {}
    for path in tracked():
        paths.setdefault(path.rpartition("/")[2], []).append(path)
    return paths


def found(file: str) -> list[str]:
    """The files of the tree whose path ends so: one for a name that is unique."""
    return [path for path in by_name().get(file.rpartition("/")[2], []) if f"/{path}".endswith(f"/{file}")]


@cache
def defined(path: str) -> frozenset[str]:
    """Functions, classes, methods, constants and attributes of a Python file, whatever they are nested in."""
    names: set[str] = set()
    for node in nodes(tree_of(ROOT / path)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Name(ctx=ast.Store()):
                names.add(node.id)
            case ast.Attribute(ctx=ast.Store()):
                names.add(node.attr)
            case ast.Import() | ast.ImportFrom():
                names.update(alias.asname or alias.name for alias in node.names)
    return frozenset(names)


def holds(path: str, name: str) -> bool:
    """`name` is defined in the file; other kinds of files only have to contain it."""
    if path.endswith(".py"):
        return all(part in defined(path) for part in name.split("."))
    return name in (ROOT / path).read_text()


def dangling(references: Iterable[Reference]) -> list[str]:
    return [
        str(each)
        for each in references
        if not any(not each.name or holds(path, each.name) for path in found(each.file))
    ]


def files_named(path: Path) -> Iterator[Reference]:
    for place, text in prose(path):
        yield from (Reference(place, file, name or "") for file, name in FILE.findall(text))


def names_dotted(path: Path) -> Iterator[Reference]:
    for place, text in prose(path):
        for module, name in DOTTED.findall(text):
            named = any(path.startswith("server/") for path in found(f"{module}.py"))
            if named and module not in VARIABLES and name not in ENDINGS:
                yield Reference(place, f"{module}.py", name)


@cache
def in_python() -> tuple[Reference, ...]:
    server = (path for path in modules() if path.is_relative_to(ROOT / "server"))
    files = (each for path in modules() for each in files_named(path))
    return (*files, *(each for path in server for each in names_dotted(path)))


@pytest.mark.parametrize("path", pages(), ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(path: Path) -> None:
    assert dangling(files_named(path)) == []


def test_files_that_python_prose_names_are_there() -> None:
    assert len(in_python()) > 100
    assert dangling(in_python()) == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("see test_references.py", []),
        ("see tests/test_references.py:dangling and store/keys.py", []),
        ("the class `core.py:Core.run`", []),
        ("see no_such_module.py", ["here: no_such_module.py"]),
        ("see test_references.py:no_such_name", ["here: test_references.py:no_such_name"]),
        ("see elsewhere/test_references.py", ["here: elsewhere/test_references.py"]),
        ("an order file orders.jsonl, and <name>.py", []),
    ],
)
def test_a_reference_that_leads_nowhere_is_reported(text: str, told: list[str]) -> None:
    assert dangling(Reference("here", file, name or "") for file, name in FILE.findall(text)) == told


def programs(tree: ast.AST) -> Iterator[str | None]:
    """The modules that processes are started with, `python -m module`; None for a name that is put together.

    What has a blank is no module, but the tests that `pytest -m` chooses.
    """
    for node in nodes(tree):
        if isinstance(node, ast.List | ast.Tuple):
            for flag, name in pairwise(node.elts):
                if isinstance(flag, ast.Constant) and flag.value == "-m":
                    if isinstance(name, ast.Constant) and " " not in str(name.value):
                        yield str(name.value)
                    elif isinstance(name, ast.JoinedStr):
                        yield None


def is_no_program(name: str | None) -> bool:
    if name is None:
        return True
    path = name.replace(".", "/")
    return name not in LIBRARIES and not found(f"{path}.py") and not found(f"{path}/__main__.py")


def test_processes_are_started_with_modules_that_are_there() -> None:
    named = {(path, name) for path in sources(*EVERYTHING) for name in programs(tree_of(path))}
    assert len(named) > 10
    assert [(str(path.relative_to(ROOT)), name) for path, name in named if is_no_program(name)] == []


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ('[sys.executable, "-m", "popmq_server"]', False),
        ('(sys.executable, "-m", "popmq_verify.powercut", folder)', False),
        ('[sys.executable, "-m", client.__name__]', False),
        ('[sys.executable, "-m", "pip", "list"]', False),
        ('[sys.executable, "-m", "pytest", "-m", "not slow"]', False),
        ('[sys.executable, "-m", "popmq_verify.nowhere"]', True),
        ('[sys.executable, "-m", f"popmq_verify.{program}"]', True),
    ],
)
def test_a_program_that_is_missing_or_named_at_run_time_is_reported(words: str, wrong: bool) -> None:
    assert any(map(is_no_program, programs(ast.parse(words)))) == wrong


#: An import statement in a docstring: an example that readers copy.
IMPORT = re.compile(r"^\s*from (popmq[\w.]*) import (\w+)", re.MULTILINE)


def imports_in_docstrings(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(module, name) of each import of ours in the examples of docstrings."""
    for node, _ in statements(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from IMPORT.findall(ast.get_docstring(node) or "")


def is_missing(module: str, name: str) -> bool:
    """Whether `from module import name` would fail."""
    path = module.replace(".", "/")
    files = [*found(f"{path}.py"), *found(f"{path}/__init__.py")]
    inside = [*found(f"{path}/{name}.py"), *found(f"{path}/{name}/__init__.py")]
    return not inside and not any(name in defined(each) or name in exported(each) for each in files)


@cache
def exported(path: str) -> frozenset[str]:
    """Names in strings of an `__init__.py` that loads them on first use."""
    constants = (node for node in nodes(tree_of(ROOT / path)) if isinstance(node, ast.Constant))
    return frozenset(str(node.value) for node in constants)


def test_examples_in_docstrings_import_names_that_are_there() -> None:
    named = {(path, *each) for path in sources(*EVERYTHING) for each in imports_in_docstrings(tree_of(path))}
    assert named
    missing = [(str(path.relative_to(ROOT)), module, name) for path, module, name in named if is_missing(module, name)]
    assert missing == []


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("from popmq import Client", False),
        ("from popmq._calls import owner_calls", False),
        ("from popmq import _owner_calls", True),
        ("from popmq._nowhere import owner_calls", True),
    ],
)
def test_an_example_that_imports_a_name_that_is_not_there_is_noticed(line: str, missing: bool) -> None:
    assert [is_missing(*each) for each in IMPORT.findall(line)] == [missing]
