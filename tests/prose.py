"""The prose of the tree: Markdown, docstrings, comments of Python files; and the commands that a reader is to type."""

import ast
import re
import shlex
import subprocess
from collections.abc import Iterator
from functools import cache
from itertools import takewhile
from pathlib import Path

import click

from popmq_cli.commands import popmq as command_line
from tests.sources import EVERYTHING, ROOT, statements, tree_of

#: A comment, by a regular expression: the tokenizer takes ten times as long. A `# ` within a string does no harm.
COMMENT = re.compile(r"(?:^|\s)#:? (.*)$", re.MULTILINE)
#: Documents whose samples need Spark run with Spark's tests.
OF_SPARK = {"spark.md"}
DOCUMENTS = [
    path
    for path in (
        ROOT / "README.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "docs/recipes").glob("*.md")),
    )
    if path.name not in OF_SPARK
]


def examples(path: Path) -> list[str]:
    """The Python blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)


def write_samples(folder: Path) -> int:
    """Writes a program for each page with Python blocks, which are one program; returns how many."""
    pages = [path for path in DOCUMENTS if examples(path)]
    for path in pages:
        name = "_".join(path.relative_to(ROOT).with_suffix("").parts).lower().replace("-", "_")
        (folder / f"page_{name}.py").write_text("\n".join(examples(path)))
    return len(pages)


@cache
def tracked() -> tuple[str, ...]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True
    )
    return tuple(path for path in listed.stdout.splitlines() if (ROOT / path).exists())


def prose(path: Path) -> Iterator[tuple[str, str]]:
    """(where, text) of each docstring and comment of a Python file; a Markdown file is prose as a whole."""
    text = path.read_text()
    if path.suffix == ".md":
        yield str(path.relative_to(ROOT)), text
        return
    for node, _ in statements(tree_of(path)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield str(path.relative_to(ROOT)), ast.get_docstring(node) or ""
    yield str(path.relative_to(ROOT)), "\n".join(COMMENT.findall(text))


def pages() -> list[Path]:
    return [ROOT / path for path in tracked() if path.endswith(".md")]


def modules() -> list[Path]:
    return [ROOT / path for path in tracked() if path.endswith(".py") and path.split("/")[0] in EVERYTHING]


def understand(words: list[str]) -> None:
    """Parses the words after `popmq` without running anything. Raises click.UsageError for an invalid command."""
    command, words = resolve(words)
    command.make_context(command.name or "", list(words))


def resolve(words: list[str]) -> tuple[click.Command, list[str]]:
    """The command that the first words name, and the remaining words. Raises click.UsageError for an unknown name."""
    command: click.Command = command_line
    context = click.Context(command_line)
    while isinstance(command, click.Group) and words:
        name, *words = words
        found = command.get_command(context, name)
        if found is None:
            raise click.UsageError(f"there is no command {name!r}")
        command = found
    return command, words


def commands_of(block: str) -> list[list[str]]:
    """The words of each `popmq …` line of a console block, up to where its output goes."""
    calls = [
        call.partition("#")[0].strip().removeprefix("$ ") for line in block.splitlines() for call in line.split("&&")
    ]
    words = [shlex.split(call)[1:] for call in calls if call.startswith("popmq ")]
    return [list(takewhile(lambda word: word not in (">", ">>"), each)) for each in words]


def inline_commands_of(page: Path) -> Iterator[list[str]]:
    """The words of each `popmq …` between backquotes in the sentences and tables of a page."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for words in re.findall(r"(?<!`)`popmq ([^-`][^`]*)`(?!`)", text):
        yield shlex.split(words)


def unknown_in(words: list[str]) -> list[str]:
    """What of the words after `popmq` no command has: its name, or options. The broker reads those of `popmq serve`."""
    try:
        command, rest = resolve(words)
    except click.UsageError as unknown:
        return [unknown.message]
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    return [each for each in rest if each.startswith("--") and each not in known and command.name != "serve"]
