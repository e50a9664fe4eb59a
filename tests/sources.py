"""Our Python files, as syntax trees, and what they import."""

import ast
import gc
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
# All folders with Python of ours.
EVERYTHING = (
    *("proto", "http2", "remoting", "server", "sdk", "spark_connector"),
    *("tests", "harness", "scripts", "bench", "demo", "examples"),
)
# The packages of the wheel with our own code.
PACKAGES = (
    *("server/popmq_server", "http2/popmq_http2", "remoting/popmq_remoting", "server/popmq_verify"),
    *("sdk/popmq", "sdk/popmq_cli", "sdk/popmq_console", "sdk/popmq_integrations", "spark_connector/popmq_spark"),
)
# The frameworks that PopMQ is integrated with: each has a package, and an extra of the same name.
FRAMEWORKS = {path.parent.name for path in (ROOT / "sdk/popmq_integrations").glob("*/__init__.py")}


@dataclass(frozen=True)
class Import:
    """One imported name: `from popmq.client import Client` is `popmq.client.Client`."""

    name: str
    line: int
    late: bool  # inside a function: not run by importing the module

    def under(self, *packages: str) -> bool:
        return any(self.name == package or self.name.startswith(f"{package}.") for package in packages)


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a tree, kept because several rules look at each of them."""
    return tuple(ast.walk(tree))


def statements(tree: ast.AST, *, late: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """(node, whether it is inside a function) of a tree but expressions: a tenth of its nodes."""
    yield tree, late
    late = late or isinstance(tree, ast.FunctionDef | ast.AsyncFunctionDef)
    for block in ("body", "orelse", "handlers", "finalbody", "cases"):
        inner = getattr(tree, block, None)
        for child in inner if isinstance(inner, list) else ():
            yield from statements(child, late=late)


@cache
def imports(path: str, tree: ast.AST) -> tuple[Import, ...]:
    return tuple(_imports(path, tree))


def _imports(path: str, tree: ast.AST) -> Iterator[Import]:
    for node, late in statements(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            # In popmq_server/protocols/native/native.py level 1 is popmq_server.protocols.native, level 2 its parent.
            package = Path(path).parts[1 : len(Path(path).parts) - node.level] if node.level else ()
            names = [".".join([*package, *filter(None, [node.module]), alias.name]) for alias in node.names]
        else:
            continue
        yield from (Import(name, node.lineno, late) for name in names)


@cache
def tree_of(path: Path) -> ast.Module:
    """The tree of a file, kept because several tests walk it.

    The garbage collector leaves kept trees out (`freeze`): otherwise it visits all their nodes again and again, and
    parsing all files takes four times as long.
    """
    gc.disable()
    try:
        return ast.parse(path.read_text(), str(path))
    finally:
        gc.freeze()
        gc.enable()


@cache
def marked() -> frozenset[str]:
    """The files that .gitattributes marks as generated or vendored. git is asked, since it reads the patterns."""
    files = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout
    attributes = subprocess.run(
        ["git", "check-attr", "-z", "--stdin", "linguist-generated", "linguist-vendored"],
        cwd=ROOT,
        input=files,
        capture_output=True,
        check=True,
    )
    words = attributes.stdout.decode().split("\0")
    return frozenset(path for path, value in zip(words[::3], words[2::3], strict=False) if value == "true")


def sources(*folders: str) -> Iterator[Path]:
    """Our own Python files below the folders; generated stubs are not ours."""
    for folder in folders:
        whole = ROOT / folder
        paths = [whole] if whole.is_file() else sorted(whole.rglob("*.py"))
        yield from (path for path in paths if not path.stem.endswith(("_pb2", "_pb2_grpc")))
