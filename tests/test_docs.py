"""Every Python example of the documents runs, as it stands there, against a real broker."""

import pathlib
import re
import shlex
from collections.abc import Iterator

import pytest

from popmq_server.embedded import EmbeddedBroker
from tests.command_lines import understand

ROOT = pathlib.Path(__file__).parent.parent
DEFAULT_ENDPOINT = "127.0.0.1:8081"
#: Documents whose examples need Spark run with Spark's tests.
OTHERS = {"spark.md"}
DOCUMENTS = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if path.name not in OTHERS]
PAGES = [
    *DOCUMENTS,
    ROOT / "docs" / "spark.md",
    *sorted((ROOT / "docs").glob("*/*.md")),
    *sorted(ROOT.glob("[AC]*.md")),
]
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("0*.md"))


def examples(path: pathlib.Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)


@pytest.fixture
def endpoint(tmp_path: pathlib.Path) -> Iterator[str]:
    with EmbeddedBroker(tmp_path / "data", sync="none") as broker:
        yield broker.endpoint


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if examples(path)], ids=lambda path: path.name)
def test_the_examples_of_a_document_run_as_they_stand(path: pathlib.Path, endpoint: str) -> None:
    names: dict[str, object] = {"__name__": "example"}
    for example in examples(path):
        exec(compile(example.replace(DEFAULT_ENDPOINT, endpoint), path.name, "exec"), names)


def command_lines(path: pathlib.Path) -> list[list[str]]:
    """The words of each `popmq …` line in the console blocks of a document."""
    blocks = re.findall(r"^```console\n(.*?)^```$", path.read_text(), re.DOTALL | re.MULTILINE)
    calls = [call.partition("#")[0] for block in blocks for line in block.splitlines() for call in line.split("&&")]
    return [shlex.split(call)[1:] for call in calls if call.strip().startswith("popmq ")]


@pytest.mark.parametrize("path", [path for path in DOCUMENTS if command_lines(path)], ids=lambda path: path.name)
def test_the_command_lines_of_a_document_are_understood(path: pathlib.Path) -> None:
    for words in command_lines(path):
        understand([word if pathlib.Path(word).suffix not in {".txt", ".jsonl"} else "-" for word in words])


def test_the_readme_has_an_example() -> None:
    assert examples(ROOT / "README.md")


def anchors(path: pathlib.Path) -> set[str]:
    """The names under which a page's headings can be linked to."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), re.MULTILINE) if path.suffix == ".md" else []
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_of_a_document_lead_somewhere(path: pathlib.Path) -> None:
    links = re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", path.read_text())
    assert [link for link, _ in links if not (path.parent / link).exists()] == []
    targets = [(path.parent / link if link else path, place) for link, place in links if place]
    assert [place for target, place in targets if place not in anchors(target)] == []


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem[:4])
def test_a_decision_has_its_four_parts(path: pathlib.Path) -> None:
    assert re.findall(r"^## (.+)$", path.read_text(), re.MULTILINE) == [
        "Context",
        "Decision",
        "Measured",
        "Consequences",
    ]


def test_the_index_lists_every_decision_by_its_title() -> None:
    rows = re.findall(
        r"^\| \[(\d{4})\]\(([^)]+)\) \| (.+) \|$", (DECISIONS[0].parent / "README.md").read_text(), re.MULTILINE
    )
    titled = [(path.stem[:4], path.name, path.read_text().splitlines()[0].partition(". ")[2]) for path in DECISIONS]
    assert rows == titled


def test_the_packages_of_the_architecture_are_those_of_the_server() -> None:
    section = (ROOT / "ARCHITECTURE.md").read_text().partition("## Packages of the server")[2].partition("\n## ")[0]
    listed = {
        row[0]: set(re.findall(r"`(\w+)`", row[1])) for row in re.findall(r"\| `([\w/]+)/` \|.*\| (.*) \|", section)
    }
    server = ROOT / "server" / "popmq_server"
    there: dict[str, set[str]] = {}
    for path in server.glob("*/**/*.py"):
        there.setdefault(path.parent.relative_to(server).as_posix(), set()).add(path.stem)
    assert listed == {package: modules - {"__init__"} for package, modules in there.items()}
