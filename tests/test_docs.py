"""The examples of the documents run as they are written, on a real broker; links, trees and walks lead somewhere."""

import ast
import pathlib
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest
from click.testing import CliRunner

import popmq
from popmq_cli.commands import popmq as command_line
from popmq_server.embedded_broker import EmbeddedBroker
from tests.prose import DOCUMENTS, commands_of, inline_commands_of, pages, understand, unknown_in, write_samples
from tests.sources import nodes, sources, tree_of

ROOT = pathlib.Path(__file__).parent.parent
DEFAULT_ENDPOINT = "127.0.0.1:8081"
PAGES = [
    *DOCUMENTS,
    ROOT / "docs" / "spark.md",
    *(path for path in sorted((ROOT / "docs").glob("*/*.md")) if path not in DOCUMENTS),
    *sorted(ROOT.glob("[ACS]*.md")),
]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("0*.md"))


#: Their commands are for different situations, and not typed one after the other.
RUNBOOKS = {"migrate.md", "operations.md", "security.md", "transactions.md"}
#: What needs a stopped broker, another client, or runs until it is stopped.
ELSEWHERE = (
    "serve",
    "work ",
    "context ",
    "console",
    "check",
    "compact",
    "access-key",
    "backup",
    "max-size 200GiB",
    "client",
    "owners release",
)
#: A page that shows tables, with libraries that come with Spark.
WITH_TABLES = {"jupyter.md"}
#: What needs a half message, which only a producer makes.
WITH_A_PRODUCER = ("transactions commit", "transactions rollback", "transactions redrive")


def in_order() -> list[pathlib.Path]:
    """The pages in the order of the README's links, the README first; then those that it does not link to."""
    linked = [ROOT / link for link in re.findall(r"\]\((docs/[\w-]+\.md)", (ROOT / "README.md").read_text())]
    return [path for path in dict.fromkeys((ROOT / "README.md", *linked, *DOCUMENTS)) if path in DOCUMENTS]


class Reader:
    """Plays a reader: runs the blocks of a page one after the other, and fills in what earlier commands printed."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._printed = ""

    def read(self, path: pathlib.Path) -> None:
        names: dict[str, object] = {"__name__": "__main__"}
        opened: dict[int, popmq.Client] = {}
        try:
            for _ in self._run(path, names):
                opened |= {id(each): each for each in names.values() if isinstance(each, popmq.Client)}
        finally:  # a page leaves its clients to the end of its program: their threads would outlive the broker here
            for left in opened.values():
                left.close()

    def _run(self, path: pathlib.Path, names: dict[str, object]) -> Iterator[None]:
        """Runs one block at a time."""
        blocks = re.findall(r"^```(python|console)\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)
        for kind, block in blocks:
            if kind == "python":
                exec(compile(block.replace(DEFAULT_ENDPOINT, self.endpoint), path.name, "exec"), names)
            elif path.name not in RUNBOOKS:
                for words in commands_of(block):
                    self._type(path, words)
            yield

    def _type(self, path: pathlib.Path, words: list[str]) -> None:
        line = " ".join(words)
        if line == "top" or line.startswith((*ELSEWHERE, *WITH_A_PRODUCER)):
            return
        done = CliRunner().invoke(command_line, ["--endpoint", self.endpoint, *map(self._filled, words)])
        assert done.exit_code == 0, f"{path.name}: popmq {line}\n{done.output}"
        self._printed = done.output if words[0] in ("pop", "delayed", "message") else self._printed

    def _filled(self, word: str) -> str:
        """The word, or what it stands for: the handle or the id that the last pop or listing printed."""
        handles = re.findall(r"^handle  (\S+)$", self._printed, re.MULTILINE)
        if number := re.fullmatch(r"HANDLE-(\d)", word):
            return str(handles[int(number[1]) - 1])
        if word == "RECALL-HANDLE":
            return self._printed.splitlines()[-1].split("\t")[5]
        if word == "MESSAGE-ID":
            return self._printed.split()[0]
        return word


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """One broker for all pages: a reader has one, too."""
    with EmbeddedBroker(tmp_path_factory.mktemp("docs") / "data", sync="none") as broker:
        yield Reader(broker.endpoint)


@pytest.mark.smoke
@pytest.mark.parametrize(
    "path",
    [pytest.param(path, marks=[pytest.mark.whole] * (path.name in WITH_TABLES), id=path.name) for path in in_order()],
)
def test_the_pages_read_one_after_the_other_work_on_one_broker(
    path: pathlib.Path, reader: Reader, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.txt").write_text("one\ntwo\n")
    (tmp_path / "jobs.jsonl").write_text('{"body": "three"}\n')
    reader.read(path)


@pytest.mark.slow
def test_the_samples_pass_mypy_strict(tmp_path: pathlib.Path) -> None:
    api = pytest.importorskip("mypy.api")
    write_samples(tmp_path)
    config = f"--config-file={ROOT / 'pyproject.toml'}"
    out, _, code = api.run(["--strict", "--no-error-summary", config, str(tmp_path)])
    assert (out, code) == ("", 0)


def command_lines(path: pathlib.Path) -> list[list[str]]:
    """The words of each `popmq …` line in the console blocks of a document."""
    blocks = re.findall(r"^```console\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)
    return [words for block in blocks for words in commands_of(block)]


@pytest.mark.parametrize("path", [path for path in PAGES if command_lines(path)], ids=lambda path: path.name)
def test_the_command_lines_of_a_document_are_understood(path: pathlib.Path) -> None:
    for words in command_lines(path):
        understand([word if pathlib.Path(word).suffix not in {".txt", ".jsonl"} else "-" for word in words])


def test_a_console_block_has_each_command_on_a_line_of_its_own() -> None:
    """Text that is wrapped anew runs commands and their comments into one another, and all still parse."""
    blocks = [
        (page.name, block)
        for page in pages()
        for block in re.findall(r"^```console\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    ]
    assert len(blocks) > 40
    assert [(page, line) for page, block in blocks for line in block.splitlines() if line.count(" # ") > 1] == []


def test_the_commands_within_sentences_exist_with_their_options() -> None:
    found = [(page.name, words) for page in pages() for words in inline_commands_of(page)]
    assert len(found) > 300
    assert [(page, words, unknown) for page, words in found if (unknown := unknown_in(words))] == []


def published() -> bool:
    """Whether the changelog has a release with a date."""
    releases = re.findall(r"^## (\d\S+) \((.+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    return any(date != "unreleased" for _, date in releases)


def test_the_readme_says_that_nothing_is_on_pypi_before_the_first_release() -> None:
    assert ("No release is on PyPI yet" in (ROOT / "README.md").read_text()) is not published()


@pytest.mark.parametrize("path", [*DOCUMENTS, ROOT / "docs" / "spark.md"], ids=lambda path: path.name)
def test_a_page_installs_from_a_clone_until_there_is_a_release(path: pathlib.Path) -> None:
    assert published() or re.findall(r"pip install \"?popmq\b", path.read_text()) == []


def test_the_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    table = (ROOT / "README.md").read_text().partition("## Three figures")[2].partition("\n## ")[0]
    figures = re.findall(r"\d{1,3},\d{3}|(?<![\d.])\d+\.\d(?![\d.])", table.partition("Messages of")[0])
    measured = (ROOT / "BENCHMARKS.md").read_text()
    assert len(figures) > 6
    assert [figure for figure in figures if not re.search(rf"\| {re.escape(figure)} \|", measured)] == []


def anchors(path: pathlib.Path) -> set[str]:
    """The names under which a page's headings can be linked to."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE) if path.suffix == ".md" else []
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_of_a_document_lead_somewhere(path: pathlib.Path) -> None:
    links = re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", path.read_text())
    files = [path.parent / link for link, _ in links if link]
    # The site has a page for a folder only if that has a README.md.
    assert [file for file in files if not (file / "README.md" if file.is_dir() else file).exists()] == []
    targets = [(path.parent / link if link else path, place) for link, place in links if place]
    assert [place for target, place in targets if place not in anchors(target)] == []


def test_the_site_has_every_page() -> None:
    listed = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
    pages = {path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"))}
    assert pages - listed == set()


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem[:4])
def test_a_decision_has_a_date_and_a_status_and_a_module_names_it(path: pathlib.Path) -> None:
    assert re.search(
        r"^Date: 20\d\d-\d\d-\d\d\. Status: (accepted|superseded by \[\d{4}\])", path.read_text(), re.MULTILINE
    )
    named = [
        source
        for source in sources("http2", "remoting", "server", "sdk")
        if f"docs/decisions/{path.name}" in source.read_text()
    ]
    assert named or "Status: superseded" in path.read_text()


def test_the_index_lists_every_decision_by_its_title() -> None:
    rows = re.findall(
        r"^\| \[(\d{4})\]\(([^)]+)\) \| (.+) \|$", (DECISIONS[0].parent / "README.md").read_text(), re.MULTILINE
    )
    titled = [(path.stem[:4], path.name, path.read_text().splitlines()[0].partition(". ")[2]) for path in DECISIONS]
    assert rows == titled


def test_each_arrow_of_the_life_of_a_message_has_a_function_and_a_test() -> None:
    section = (ROOT / "ARCHITECTURE.md").read_text().partition("\n## The life of a message\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| \S.* → .* \|[^|]*\| (`.*`) \| `(tests/.*)::(test_\w+)` \|$", section, re.MULTILINE)
    assert len(rows) == section.count("\n| ") - 1 > 10  # without the head of the table
    assert [test for _, file, test in rows if test not in defined(tree_of(ROOT / file))] == []
    names = [name.partition(":") for functions, *_ in rows for name in re.findall(r"`(\S+)`", functions)]
    server = ROOT / "server" / "popmq_server"
    assert [
        f"{file}:{name}"
        for file, _, name in names
        if not any(name in defined(tree_of(path)) for path in server.rglob(file))
    ] == []


# The walks of docs/contributing/reading-the-source.md:
#
#     A → B   the file of A calls B
#     A ⇢ B   the file of A runs a command or a query, and the tables of handlers name B
#     A ⇒ B   later: B exists

#: The tables that name the function of each command.
HANDLERS = [path for part in ("writer", "loop") for path in (ROOT / "server/popmq_server/embedded" / part).glob("*.py")]
#: How a command or a query is given to the engine, also by the engine itself.
RUNS = {"execute", "ask", "run", "run_piece", "_begin"}
#: A linked name, an arrow, or the end of a chain.
TOKEN = re.compile(r"\[`[^`:\]]+(?::([\w.]+))?`\]\(([^)#]+)\)|([→⇢⇒])|( · |[\n|])")
DEFINITION = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


class Stop(NamedTuple):
    """A name in a file: `Core.run` in core.py."""

    path: str
    name: str

    @property
    def last(self) -> str:
        return self.name.rpartition(".")[2]


class Step(NamedTuple):
    source: Stop
    arrow: str
    target: Stop


def steps_of(text: str) -> Iterator[Step]:
    """The arrows between two links."""
    source, arrow = None, ""
    for match in TOKEN.finditer(text):
        if match[4]:
            source, arrow = None, ""
        elif match[3]:
            arrow = match[3]
        else:
            target = Stop(match[2], match[1] or "")
            if source and arrow:
                yield Step(source, arrow, target)
            source, arrow = target, ""


@cache
def called(tree: ast.AST) -> set[str]:
    """The last names of all that a file calls: `self.timetable.run(…)` is `run`, `HANDLERS[kind](…)` is itself."""
    found = set()
    for node in nodes(tree):
        if isinstance(node, ast.Call):
            what = node.func.value if isinstance(node.func, ast.Subscript) else node.func
            found.add(ast.unparse(what).rpartition(".")[2])
    return found


@cache
def named(tree: ast.AST) -> set[str]:
    """All attributes that a file uses: `send.send` is `send`."""
    return {node.attr for node in nodes(tree) if isinstance(node, ast.Attribute)}


@cache
def defined(tree: ast.Module) -> set[str]:
    """Functions and classes by their name, methods also with their class, and variables of the module."""
    names = set()
    for node in nodes(tree):
        if isinstance(node, DEFINITION):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, DEFINITION)}
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            names |= {ast.unparse(target) for target in targets}
    return names


def holds(step: Step) -> bool:
    """Whether the step is as its arrow says."""
    if step.target.name not in defined(tree_of(ROOT / step.target.path)):
        return False
    calls = called(tree_of(ROOT / step.source.path))
    if step.arrow == "→":
        return step.target.last in calls
    if step.arrow == "⇢":
        return bool(RUNS & calls) and any(step.target.last in named(tree_of(path)) for path in HANDLERS)
    return True


def section() -> str:
    """The walks, with links from the root of the tree, as ROOT / path."""
    return (ROOT / "docs/contributing/reading-the-source.md").read_text().replace("](../../", "](")


def test_each_arrow_of_the_walks_is_a_call() -> None:
    found = list(steps_of(section()))
    assert len(found) > 40
    assert [step for step in found if not holds(step)] == []


def test_each_of_the_four_walks_enters_at_most_seven_files() -> None:
    _, _, listed = section().partition("\n## The four walks, file by file\n")
    walks = re.findall(r"^- \*\*(.+?)\*\*: (.*)$", listed.partition("\n## ")[0], re.MULTILINE)
    assert [name for name, _ in walks] == ["Send", "Pop", "Ack", "Lease end"]
    entered = {
        name: {end.path for step in steps_of(walk) for end in (step.source, step.target)} for name, walk in walks
    }
    assert {name: files for name, files in entered.items() if len(files) > 7} == {}


SEND, LEASE = (
    "server/popmq_server/embedded/rules/sending/send.py",
    "server/popmq_server/embedded/rules/delivery/lease.py",
)


@pytest.mark.parametrize(
    ("arrow", "target", "true"),
    [
        ("→", f"[`send.py:_stored`]({SEND})", True),
        ("→", f"[`lease.py:ack`]({LEASE})", False),  # send.py does not call it
        ("→", f"[`send.py:sent`]({SEND})", False),  # there is no such function
        ("⇢", f"[`lease.py:ack`]({LEASE})", False),  # send.py runs no command
        ("⇒", f"[`lease.py:ack`]({LEASE})", True),
    ],
)
def test_a_wrong_arrow_is_noticed(arrow: str, target: str, true: bool) -> None:
    (step,) = steps_of(f"[`send.py:send`]({SEND}) {arrow} then {target} · [`lease.py:find`]({LEASE})")
    assert holds(step) is true


def test_a_chain_ends_at_a_dot_and_at_a_cell() -> None:
    assert list(steps_of(f"→ [`send.py:send`]({SEND}) · [`lease.py:ack`]({LEASE}) | [`lease.py:find`]({LEASE})")) == []
