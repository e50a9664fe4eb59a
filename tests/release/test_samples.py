"""The programs of the documents as their readers use them: pasted into a shell, or saved as a file and run."""

import ast
import codeop
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from popmq_cli.commands import popmq as command_line
from popmq_server.embedded_broker import EmbeddedBroker
from tests.prose import DOCUMENTS, commands_of, examples
from tests.sources import ROOT

DEFAULT_ENDPOINT = "127.0.0.1:8081"
PAGES = [path for path in (*DOCUMENTS, ROOT / "docs" / "spark.md") if examples(path)]
PROGRAMS = [path for path in PAGES if path.name != "spark.md"]


def unpasteable(block: str) -> list[str]:
    """The lines at which the shell of Python 3.11 and 3.12 stops: it runs a statement at the first empty line."""
    compiled = codeop.CommandCompiler()
    waiting = list[str]()
    stopped = []
    for line in (*block.splitlines(), ""):
        waiting.append(line)
        try:
            whole = compiled("\n".join(waiting), "<stdin>", "single")
        except SyntaxError as error:
            stopped.append(f"{line!r}: {error.msg}")
            waiting.clear()
            continue
        if whole is not None:
            waiting.clear()
    return stopped


def of_a_file(block: str) -> bool:
    """Whether a sample belongs into a file: the empty line between two methods of a class ends the class in a shell."""
    methods = (ast.FunctionDef, ast.AsyncFunctionDef)
    classes = [node for node in ast.parse(block).body if isinstance(node, ast.ClassDef)]
    return any(sum(isinstance(inner, methods) for inner in each.body) > 1 for each in classes)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_each_sample_of_a_page_can_be_pasted_into_a_shell(path: Path) -> None:
    assert [stopped for block in examples(path) if not of_a_file(block) for stopped in unpasteable(block)] == []


@pytest.mark.parametrize(
    ("block", "stops"),
    [
        ("for x in (1, 2):\n    print(x)\nprint(3)\n", ["'print(3)': invalid syntax"]),
        ("for x in (1, 2):\n    print(x)\n\nprint(3)\n", []),
        ("class A:\n    x = 1\n\n    y = 2\n", ["'    y = 2': unexpected indent"]),
        ("def f() -> int:\n    return 1\n\n\nf()\n", []),
    ],
)
def test_a_shell_needs_an_empty_line_after_a_block_and_none_within(block: str, stops: list[str]) -> None:
    assert unpasteable(block) == stops


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with EmbeddedBroker(tmp_path_factory.mktemp("samples") / "data", sync="none") as broker:
        yield broker.endpoint


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=pytest.mark.smoke) if path.stem == "process-pool" else path for path in PROGRAMS],
    ids=lambda path: path.name,
)
def test_the_samples_of_a_page_run_as_a_file_once_its_topics_and_groups_exist(
    path: Path, endpoint: str, tmp_path: Path
) -> None:
    for words in commands_of(path.read_text()):
        if words[:2] in (["topic", "create"], ["group", "create"]):
            CliRunner().invoke(command_line, ["--endpoint", endpoint, *words])
    program = tmp_path / "sample.py"
    program.write_text("\n".join(examples(path)).replace(DEFAULT_ENDPOINT, endpoint))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POPMQ_")}
    done = subprocess.run(
        [sys.executable, str(program)], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
