"""Every Python example of the documents runs, as it stands there, against a real broker."""

import pathlib
import re
from collections.abc import Iterator

import pytest

from popmq_server.embedded import EmbeddedBroker

ROOT = pathlib.Path(__file__).parent.parent
DEFAULT_ENDPOINT = "127.0.0.1:8081"
#: Documents whose examples need Spark run with Spark's tests.
OTHERS = {"spark.md"}
DOCUMENTS = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))) if path.name not in OTHERS]


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


def test_the_readme_has_an_example() -> None:
    assert examples(ROOT / "README.md")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_of_a_document_lead_somewhere(path: pathlib.Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", path.read_text())
    assert [link for link in links if not (path.parent / link).exists()] == []
